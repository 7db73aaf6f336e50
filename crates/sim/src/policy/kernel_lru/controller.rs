//! The controller: from refaults it learns which tiers to protect and which kind of memory to evict.
//!
//! Its proportional part is the share of the generation now being evicted that came back; its integral part is the
//! moving average over the generations evicted before, each weighing half of the next. There is no differential part.

use super::tier::TIERS;
use super::{PageKind, Variant};

/// Where a tier, or a kind of memory, stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Pages that came back.
    pub refaulted: u64,
    /// Pages that were evicted or protected.
    pub total: u64,
    /// What it is multiplied with.
    pub gain: u64,
}

/// Whether `pv` may be evicted rather than `sp` (the set point): it comes back no more often than that one, or too
/// seldom to tell.
pub fn positive(sp: Position, pv: Position, floor: u64) -> bool {
    let left = u128::from(pv.refaulted) * u128::from(sp.total + floor) * u128::from(sp.gain);
    let right = u128::from(sp.refaulted + 1) * u128::from(pv.total) * u128::from(pv.gain);
    pv.refaulted < floor || left <= right
}

type Counters = [[u64; TIERS]; 2];

/// The counters of a memory's controller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Controller {
    /// Moving averages of refaults, per kind and tier.
    pub avg_refaulted: Counters,
    /// Moving averages of what was evicted or protected.
    pub avg_total: Counters,
    /// Refaults of the generation now being evicted.
    pub refaulted: Counters,
    /// Pages evicted from it.
    pub evicted: Counters,
    /// Pages protected in it.
    pub protected: Counters,
}

impl Controller {
    /// Where one tier stands.
    pub fn tier(&self, kind: usize, tier: usize, gain: u64) -> Position {
        Position {
            refaulted: self.avg_refaulted[kind][tier] + self.refaulted[kind][tier],
            total: self.avg_total[kind][tier] + self.evicted[kind][tier] + self.protected[kind][tier],
            gain,
        }
    }

    /// Where all tiers together stand.
    pub(crate) fn all_tiers(&self, kind: usize, gain: u64) -> Position {
        let mut sum = Position { refaulted: 0, total: 0, gain };
        for tier in 0..TIERS {
            let one = self.tier(kind, tier, gain);
            sum.refaulted += one.refaulted;
            sum.total += one.total;
        }
        sum
    }

    /// A generation of this kind is used up: averages it in and begins the next.
    pub fn carry_over(&mut self, kind: usize) {
        for tier in 0..TIERS {
            let position = self.tier(kind, tier, 1);
            self.avg_refaulted[kind][tier] = position.refaulted / 2;
            self.avg_total[kind][tier] = position.total / 2;
        }
        self.refaulted[kind] = [0; TIERS];
        self.evicted[kind] = [0; TIERS];
        self.protected[kind] = [0; TIERS];
    }

    fn threshold(&self, sp: Position, kind: usize, gain: u64, floor: u64) -> usize {
        (1..TIERS).find(|&tier| !positive(sp, self.tier(kind, tier, gain), floor)).unwrap_or(TIERS) - 1
    }

    /// The highest tier of `kind` that may be evicted: compared with the same kind's lowest tier.
    pub(crate) fn evictable_tier(&self, variant: Variant, kind: usize, floor: u64) -> usize {
        let (sp, pv) = match variant {
            Variant::V6_12 => (1, 2),
            Variant::V6_14 => (2, 3),
        };
        self.threshold(self.tier(kind, 0, sp), kind, pv, floor)
    }

    /// Which kind to evict (and up to 6.12: which of its tiers at most, compared with the other kind's lowest tier).
    pub fn choose(&self, variant: Variant, swappiness: u8, min_seq: [u64; 2], floor: u64) -> (PageKind, Option<usize>) {
        let gain = [u64::from(swappiness), 200_u64.saturating_sub(u64::from(swappiness))];
        let pick = |positive| if positive { PageKind::File } else { PageKind::Anon };
        match (variant, swappiness) {
            (Variant::V6_12, 0) | (Variant::V6_14, 0 | 1) => (PageKind::File, None),
            (Variant::V6_14, 200..) => (PageKind::Anon, None),
            (Variant::V6_12, _) if min_seq[0] < min_seq[1] => (PageKind::Anon, None),
            (Variant::V6_12, 1) => (PageKind::File, None),
            (Variant::V6_12, 200..) => (PageKind::Anon, None),
            (Variant::V6_12, _) => {
                let kind = pick(positive(self.tier(0, 0, gain[0]), self.tier(1, 0, gain[1]), floor));
                let (this, other) = (kind as usize, kind.other() as usize);
                let tier = self.threshold(self.tier(other, 0, gain[other]), this, gain[this], floor);
                (kind, Some(tier))
            }
            (Variant::V6_14, _) => {
                (pick(positive(self.all_tiers(0, gain[0]), self.all_tiers(1, gain[1]), floor)), None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest number of refaults that is still not protected.
    fn limit(sp: (u64, u64), pv_total: u64, gains: (u64, u64)) -> u64 {
        let sp = Position { refaulted: sp.0, total: sp.1, gain: gains.0 };
        (0..)
            .take_while(|&refaulted| positive(sp, Position { refaulted, total: pv_total, gain: gains.1 }, 64))
            .last()
            .unwrap()
    }

    #[test]
    fn protection_begins_where_it_must() {
        let vectors = [
            ((0, 0), 0, 63, 63),
            ((0, 1000), 1000, 63, 63),
            ((100, 1000), 1000, 189, 142),
            ((500, 10_000), 2000, 199, 149),
            ((10, 100_000), 500, 63, 63),
        ];
        for (sp, total, old, new) in vectors {
            assert_eq!(limit(sp, total, (1, 2)), old, "{sp:?} {total}");
            assert_eq!(limit(sp, total, (2, 3)), new, "{sp:?} {total}");
        }
    }

    fn with(anon: (u64, u64), file: (u64, u64)) -> Controller {
        let mut c = Controller::default();
        (c.refaulted[0][0], c.evicted[0][0]) = anon;
        (c.refaulted[1][0], c.evicted[1][0]) = file;
        c
    }

    #[test]
    fn the_kind_follows_refaults_and_swappiness() {
        for variant in [Variant::V6_12, Variant::V6_14] {
            let kind = |c: &Controller, swappiness| c.choose(variant, swappiness, [0, 0], 64).0;
            let equal = with((200, 1000), (200, 1000));
            assert_eq!(kind(&equal, 60), PageKind::File);
            for swappiness in [100, 140, 199] {
                assert_eq!(kind(&equal, swappiness), PageKind::Anon);
            }
            let quiet = with((200, 1000), (20, 1000));
            for swappiness in [0, 1, 60, 100, 199] {
                assert_eq!(kind(&quiet, swappiness), PageKind::File);
            }
            let busy = with((0, 0), (500, 1000));
            for swappiness in [60, 100, 200] {
                assert_eq!(kind(&busy, swappiness), PageKind::Anon);
            }
            for swappiness in [0, 1] {
                assert_eq!(kind(&busy, swappiness), PageKind::File);
            }
        }
    }

    #[test]
    fn up_to_6_12_the_older_kind_comes_first() {
        let c = with((200, 1000), (200, 1000));
        assert_eq!(c.choose(Variant::V6_12, 1, [3, 4], 64).0, PageKind::Anon);
        assert_eq!(c.choose(Variant::V6_14, 1, [3, 4], 64).0, PageKind::File);
        assert_eq!(c.choose(Variant::V6_12, 0, [3, 4], 64).0, PageKind::File);
    }

    #[test]
    fn averages_halve() {
        let mut c = Controller::default();
        (c.refaulted[1][2], c.evicted[1][2], c.protected[1][2]) = (101, 50, 7);
        c.carry_over(1);
        assert_eq!((c.avg_refaulted[1][2], c.avg_total[1][2]), (50, 28));
        assert_eq!((c.refaulted[1][2], c.evicted[1][2], c.protected[1][2]), (0, 0, 0));
        c.carry_over(1);
        assert_eq!((c.avg_refaulted[1][2], c.avg_total[1][2]), (25, 14));
    }

    #[test]
    fn a_tier_that_comes_back_is_protected_with_those_above() {
        let mut c = with((0, 0), (100, 1000));
        (c.refaulted[1][2], c.evicted[1][2]) = (143, 1000);
        assert_eq!(c.evictable_tier(Variant::V6_14, 1, 64), 1);
        assert_eq!(c.evictable_tier(Variant::V6_12, 1, 64), 3);
        c.refaulted[1][2] = 190;
        assert_eq!(c.evictable_tier(Variant::V6_12, 1, 64), 1);
    }
}
