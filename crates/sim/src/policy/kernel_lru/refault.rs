//! Refaults: an evicted page comes back, and what that says.

use super::Variant;
use super::flags::Flags;
use super::lruvec::{Lruvec, MAX_GENS};
use super::shadow::{SEQ_BITS, Shadow, mask};
use super::tier;

impl Lruvec {
    /// Whether the page went recently enough for its refault to say anything.
    pub(super) fn is_recent(&self, shadow: Shadow, kind: usize) -> bool {
        match self.variant {
            Variant::V6_12 => shadow.seq == mask(self.min_seq[kind]),
            Variant::V6_14 => {
                let distance = mask(self.max_seq.wrapping_sub(shadow.seq));
                // The distance of the other sign counts as well: the number has few bits.
                distance.min((1 << SEQ_BITS) - distance) < MAX_GENS
            }
        }
    }

    /// Counts a refault and gives the page what it had proven. The page is not on a list yet.
    pub(super) fn refault(&mut self, flags: &mut Flags, shadow: Shadow, fault: bool) {
        let kind = flags.kind();
        self.stats.refaults += 1;
        if shadow.memcg != self.id || shadow.node != 0 || !self.is_recent(shadow, kind) {
            return;
        }
        self.detail.recent_refaults += 1;
        let refs = match self.variant {
            Variant::V6_12 => shadow.refs + u32::from(shadow.workingset),
            Variant::V6_14 => shadow.refs + 1,
        };
        self.controller.refaulted[kind][tier::tier_of(self.variant, refs, shadow.workingset)] += 1;
        match self.variant {
            Variant::V6_12 if fault || refs >= 3 => {
                flags.set_counter(3);
                flags.set(Flags::WORKINGSET);
                self.detail.restored += 1;
            }
            Variant::V6_12 => {}
            Variant::V6_14 if shadow.workingset => {
                flags.set(Flags::WORKINGSET);
                self.detail.restored += 1;
            }
            Variant::V6_14 => flags.set_counter(refs - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(variant: Variant) -> Lruvec {
        let mut lruvec = Lruvec::new(3, 0, variant, 64);
        lruvec.max_seq = 10;
        lruvec.min_seq = [7, 8];
        lruvec
    }

    fn shadow(seq: u64, refs: u32, workingset: bool) -> Shadow {
        Shadow { seq, refs, memcg: 3, node: 0, workingset }
    }

    #[test]
    fn the_window_of_recent_refaults() {
        let recent =
            |variant| (0..12).filter(|&seq| at(variant).is_recent(shadow(seq, 0, false), 1)).collect::<Vec<_>>();
        assert_eq!(recent(Variant::V6_12), [8]);
        assert_eq!(recent(Variant::V6_14), [7, 8, 9, 10, 11]);
    }

    fn back(variant: Variant, shadow: Shadow, fault: bool) -> (Flags, Lruvec) {
        let (mut flags, mut lruvec) = (Flags::default(), at(variant));
        flags.set(Flags::FILE);
        lruvec.refault(&mut flags, shadow, fault);
        (flags, lruvec)
    }

    #[test]
    fn up_to_6_12_the_hot_ones_become_hottest() {
        let hottest = |s, fault| {
            let (flags, _) = back(Variant::V6_12, s, fault);
            flags.counter() == 3 && flags.has(Flags::WORKINGSET)
        };
        assert!(hottest(shadow(8, 0, false), true));
        assert!(!hottest(shadow(8, 1, true), false));
        assert!(hottest(shadow(8, 2, true), false));
        assert!(!hottest(shadow(7, 3, true), true), "too long ago");
    }

    #[test]
    fn from_6_14_on_it_continues_where_it_was() {
        let (flags, lruvec) = back(Variant::V6_14, shadow(7, 2, false), false);
        assert_eq!((flags.counter(), flags.has(Flags::WORKINGSET)), (2, false));
        assert_eq!(lruvec.controller.refaulted[1], [0, 0, 1, 0]);
        let (flags, lruvec) = back(Variant::V6_14, shadow(7, 2, true), false);
        assert_eq!((flags.counter(), flags.has(Flags::WORKINGSET)), (0, true));
        assert_eq!(lruvec.controller.refaulted[1], [0, 0, 0, 1]);
    }

    #[test]
    fn another_memcgs_shadow_says_nothing() {
        let (flags, lruvec) = back(Variant::V6_14, Shadow { memcg: 4, ..shadow(9, 2, true) }, false);
        assert!(!flags.has(Flags::WORKINGSET));
        assert_eq!(lruvec.controller.refaulted[1], [0; 4]);
        assert_eq!(lruvec.stats.refaults, 1);
    }
}
