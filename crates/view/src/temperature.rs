//! One figure that orders regions from hot to cold.

use crate::units::age_ns;
use isotherm_core::snapshot::{RegionInfo, Snapshot};

/// A region's temperature, 0 (long cold) to 99 (long hot); `None` where it was not seen.
///
/// It is the score by which DAMOS schemes order regions when rate and age weigh the same (mm/damon/ops-common.c,
/// `damon_hot_score`): the mean of the rate in percent and of the age on a log2 scale of seconds, where the age counts
/// downwards for regions without access. So the order shown is the order in which such a scheme would act.
pub(crate) fn temperature(region: &RegionInfo, snapshot: &Snapshot) -> Option<u32> {
    if region.is_unseen() {
        return None;
    }
    let max = u64::from(snapshot.max_nr_accesses.max(1));
    let frequency = (u64::from(region.nr_accesses) * 100 / max).min(100) as i64;
    let age_s = age_ns(region, snapshot) / 1_000_000_000;
    let age_log = age_s.checked_ilog2().map_or(0, |l| (l + 1).min(32)) as i64;
    let signed = if region.nr_accesses == 0 { -age_log } else { age_log };
    let age_score = (signed + 32) * 100 / 64;
    Some(((frequency + age_score) / 2 * 99 / 100) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata::{region, seen, snapshot, unvisited};
    use proptest::prelude::*;

    fn of(nr: u32, age: u32) -> Option<u32> {
        temperature(&region(0, 1, nr, age), &snapshot(0, 0, vec![]))
    }

    #[test]
    fn known_values() {
        assert_eq!(of(20, 0), Some(74));
        assert_eq!(of(0, 0), Some(24));
        assert_eq!(of(0, 100_000), Some(13), "cold for 10000 s: age score (32-14)*100/64 = 28");
        assert_eq!(of(20, 100_000), Some(84));
    }

    #[test]
    fn what_was_not_seen_has_none() {
        for r in [seen(region(0, 1, 0, 0), 10, 10), unvisited(region(0, 1, 0, 0))] {
            assert_eq!(temperature(&r, &snapshot(0, 0, vec![])), None);
        }
    }

    proptest! {
        #[test]
        fn age_pulls_apart(nr in 0u32..=20, age in 0u32..1_000_000) {
            let (young, old) = (of(nr, 0), of(nr, age));
            if nr == 0 { prop_assert!(old <= young) } else { prop_assert!(old >= young) }
            prop_assert!(old.is_some_and(|t| t <= 99));
        }
    }
}
