//! Idle pages that a quota could be spent on, so that the oldest are served first where it does not suffice for all.

use crate::target::TargetId;
use std::collections::BTreeMap;

/// Each target's number of walks.
pub(super) type Walks = Vec<(TargetId, u64)>;

/// Memory that could be acted on, by when it was accessed last.
#[derive(Debug, Default)]
pub(super) struct Supply {
    /// When it was counted.
    walks: Walks,
    /// Time of the last access (the latest that it can be), ns -> bytes.
    bytes: BTreeMap<u64, u64>,
    /// Of these, taken since.
    taken: u64,
    /// Only pages accessed by then are served in this quota window, those accessed before it first.
    pub cut_ns: Option<u64>,
}

impl Supply {
    /// Whether nothing has been learnt since it was counted.
    pub(crate) fn is_of(&self, walks: &Walks) -> bool {
        self.walks == *walks
    }

    /// Takes in what there is after so many walks.
    pub fn count(&mut self, walks: Walks, bytes: BTreeMap<u64, u64>) {
        (self.walks, self.bytes, self.taken) = (walks, bytes, 0);
    }

    /// Takes in that some of it was looked at.
    pub const fn take(&mut self, bytes: u64) {
        self.taken += bytes;
    }

    /// Lets in only the oldest pages that `quota` bytes suffice for, where they do not for all, of those accessed last at
    /// `earliest_ns` or later.
    pub fn cut(&mut self, quota: u64, earliest_ns: u64) {
        let (mut sum, enough) = (0u64, quota.saturating_add(self.taken));
        let cut = self.bytes.range(earliest_ns..).find(|(_, bytes)| {
            sum += **bytes;
            sum >= enough
        });
        self.cut_ns = cut.map(|(&by_ns, _)| by_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_old_for_the_scheme_does_not_come_first() {
        let mut supply = Supply::default();
        supply.count(Vec::new(), BTreeMap::from([(10, 1000), (50, 100), (60, 100)]));
        let cut = |supply: &mut Supply, earliest_ns| {
            supply.cut(150, earliest_ns);
            supply.cut_ns
        };
        assert_eq!((cut(&mut supply, 0), cut(&mut supply, 11), cut(&mut supply, 51)), (Some(10), Some(60), None));
        supply.take(50);
        assert_eq!(cut(&mut supply, 11), Some(60));
    }
}
