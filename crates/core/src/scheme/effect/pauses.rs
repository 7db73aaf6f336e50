//! How often it is looked for what came back: as seldom as looking is dear, within bounds.

use super::{LONG_BATCH_NS, LOOK_EVERY_NS};
use std::iter::Sum;

/// How often everything that is out is looked for, not only what went lately, ns, ...
const LOOK_AT_ALL_EVERY_NS: u64 = 10_000_000_000;
/// ... and at the latest, whatever that costs.
const LOOK_AT_ALL_AT_LATEST_NS: u64 = 600_000_000_000;
/// A pause is so many times as long as a look takes: each of the two kinds takes a thousandth of a core at most.
const PAUSE_PER_COST: u64 = 1000;

/// What the last looks took of a processor, ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LookCost {
    /// The last one at what went lately alone.
    pub lately_ns: u64,
    /// The last one at everything.
    pub all_ns: u64,
}

impl Sum for LookCost {
    fn sum<I: Iterator<Item = Self>>(costs: I) -> Self {
        costs.fold(Self::default(), |sum, cost| Self {
            lately_ns: sum.lately_ns.saturating_add(cost.lately_ns),
            all_ns: sum.all_ns.saturating_add(cost.all_ns),
        })
    }
}

/// How much time is between two looks at least, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pauses {
    /// At what went lately.
    pub lately_ns: u64,
    /// At everything.
    pub all_ns: u64,
}

impl LookCost {
    /// The pauses that bound this cost. What went lately is looked at often enough all the same to tell what came back soon: brakes go
    /// by that.
    pub fn pauses(self) -> Pauses {
        let pause = |cost_ns: u64, least_ns, most_ns| cost_ns.saturating_mul(PAUSE_PER_COST).clamp(least_ns, most_ns);
        Pauses {
            lately_ns: pause(self.lately_ns, LOOK_EVERY_NS, LONG_BATCH_NS),
            all_ns: pause(self.all_ns, LOOK_AT_ALL_EVERY_NS, LOOK_AT_ALL_AT_LATEST_NS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dear_looks_are_seldom_within_bounds_and_those_of_all_schemes_count_together() {
        let pauses =
            |lately_us: u64, all_us: u64| LookCost { lately_ns: lately_us * 1000, all_ns: all_us * 1000 }.pauses();
        assert_eq!(pauses(0, 0), Pauses { lately_ns: 1_000_000_000, all_ns: 10_000_000_000 });
        assert_eq!(pauses(3000, 30_000), Pauses { lately_ns: 3_000_000_000, all_ns: 30_000_000_000 });
        assert_eq!(
            pauses(u64::MAX / 1000, u64::MAX / 1000),
            Pauses { lately_ns: 5_000_000_000, all_ns: 600_000_000_000 }
        );
        // 300 schemes, each of which costs little.
        let each = LookCost { lately_ns: 10_000, all_ns: 100_000 };
        let together = std::iter::repeat_n(each, 300).sum::<LookCost>().pauses();
        assert_eq!(together, Pauses { lately_ns: 3_000_000_000, all_ns: 30_000_000_000 });
    }
}
