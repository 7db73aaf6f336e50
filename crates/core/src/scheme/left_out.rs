//! Pages of a target that a scheme does not ask for now.

use super::treated::Treated;
use crate::addr::AddrRange;
use crate::history::pages::Codes;
use crate::mask::{self, PageMask};
use crate::pages::PageSet;

/// One part in so many of a quota is spent on pages that stayed the last time.
const STUCK_PARTS: f64 = 10.0;
/// The longest that they are let be, ns: by then whoever else had them may have ended.
const MOST_STUCK_NS: u64 = 3_600_000_000_000;

/// Why pages are left out for a while.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    /// The action was applied to them lately.
    pub treated: Treated,
    /// They stayed although they were to go: other processes have them, or the kernel uses them.
    pub stuck: Treated,
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
        let masks = [self.treated.mask(base), self.stuck.mask(base), self.asked.pages.mask(base)];
        masks.iter().fold(self.in_flight.mask(base), |sum, mask| mask::or(&sum, mask))
    }

    /// Forgets what was treated long enough ago. `share`: the bytes that may be asked for within an ns, unless there is no limit:
    /// so long are pages let be that stayed that at most a tenth of it is spent on them.
    pub fn expire(&mut self, now_ns: u64, keep_ns: u64, share: Option<f64>) {
        self.treated.expire(now_ns, keep_ns);
        let in_vain_ns = share.map_or(0.0, |share| STUCK_PARTS * self.stuck.len() as f64 / share);
        self.stuck.expire(now_ns, keep_ns.max((in_vain_ns as u64).min(MOST_STUCK_NS)));
    }

    /// Appends the parts of `range` that were not treated and are not stuck.
    pub fn untreated(&self, range: AddrRange, out: &mut Vec<AddrRange>) {
        let mut parts = Vec::new();
        self.treated.untreated(range, &mut parts);
        parts.into_iter().for_each(|part| self.stuck.untreated(part, out));
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
    fn what_stays_in_vain_takes_a_tenth_of_the_quota() {
        const MIB: u64 = 1 << 20;
        const S: u64 = 1_000_000_000;
        let mut left_out = LeftOut::default();
        left_out.stuck.insert(AddrRange::new(0, 64 * MIB), 0);
        let parts = |left_out: &LeftOut| {
            let mut out = Vec::new();
            left_out.untreated(AddrRange::new(0, 64 * MIB), &mut out);
            out.len()
        };
        // 2 MiB a second.
        let share = Some((2 * MIB) as f64 / S as f64);
        left_out.expire(319 * S, 5 * S, share);
        assert_eq!(parts(&left_out), 0);
        left_out.expire(321 * S, 5 * S, share);
        assert_eq!(parts(&left_out), 1, "32 s of 320 are spent on it");
        left_out.stuck.insert(AddrRange::new(0, 64 * MIB), 400 * S);
        left_out.expire(404 * S, 5 * S, None);
        assert_eq!(parts(&left_out), 0);
        left_out.expire(405 * S, 5 * S, None);
        assert_eq!(parts(&left_out), 1, "without a limit it takes nothing from others");
    }

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
