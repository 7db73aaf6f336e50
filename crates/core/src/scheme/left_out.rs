//! Pages of a target that a scheme does not ask for now.

use super::treated::Treated;
use crate::addr::AddrRange;
use crate::history::pages::Codes;
use crate::mask::{self, PageMask};
use crate::pages::PageSet;

/// Why pages are left out for a while.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    /// The action was applied to them lately, or in vain.
    pub treated: Treated,
    /// Handed to the actuator and not finished: still present, but not to be asked for again.
    pub in_flight: PageSet,
    /// Looked at since the target's last walk: nothing new is known of them.
    pub asked: Asked,
    /// The same of whole blocks.
    pub blocks: BlockLook,
}

/// What was looked at since a walk.
#[derive(Debug)]
pub(super) struct Asked {
    /// Number of walks of the target by then.
    walks: u64,
    pub pages: PageSet,
    /// Pages with these codes of the page history have all been looked at.
    pub done: Codes,
}

/// How far a look at blocks of 2 MiB has come.
#[derive(Debug, Default)]
pub(super) struct BlockLook {
    /// When the page history had changed then, ns.
    changed_ns: u64,
    /// Blocks below this address have all been looked at.
    pub below: u64,
}

impl Default for Asked {
    fn default() -> Self {
        Self { walks: 0, pages: PageSet::default(), done: [false; 256] }
    }
}

impl LeftOut {
    /// Forgets what was looked at before the last of so many walks.
    pub(crate) fn after_walk(&mut self, walks: u64) -> &mut Asked {
        if self.asked.walks != walks {
            self.asked = Asked { walks, ..Asked::default() };
        }
        &mut self.asked
    }

    /// The look at blocks of a page history that has changed at `changed_ns`, as by the begin of a walk, and by its end.
    pub(crate) fn blocks_of(&mut self, changed_ns: u64) -> &mut BlockLook {
        if self.blocks.changed_ns != changed_ns {
            self.blocks = BlockLook { changed_ns, below: 0 };
        }
        &mut self.blocks
    }

    /// Forgets what was looked at.
    pub(crate) fn look_anew(&mut self) {
        (self.asked, self.blocks) = Default::default();
    }

    /// The pages below the table at `base`.
    pub fn mask(&self, base: u64) -> PageMask {
        mask::or(&mask::or(&self.in_flight.mask(base), &self.treated.mask(base)), &self.asked.pages.mask(base))
    }

    /// Takes in that the action was applied to `ranges`, or that it is no use to try again.
    pub fn treat(&mut self, ranges: &[AddrRange], now_ns: u64) {
        ranges.iter().for_each(|&r| self.treated.insert(r, now_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_looked_at_anew_at_the_begin_of_a_walk_and_at_its_end() {
        let mut left_out = LeftOut::default();
        for walk_ns in [1, 2, 9] {
            assert_eq!(left_out.blocks_of(walk_ns).below, 0);
            left_out.blocks.below = u64::MAX;
            assert_eq!(left_out.blocks_of(walk_ns).below, u64::MAX);
        }
        left_out.look_anew();
        assert_eq!(left_out.blocks_of(9).below, 0, "for another pattern");
    }
}
