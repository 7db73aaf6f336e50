//! DAMON's aging and merging.

use super::region::Region;
use crate::monitor::config::DamonRules;

/// Updates the age of a region from how its access count changed.
fn age(r: &mut Region, threshold: u32, rules: DamonRules) {
    let moved = r.start.abs_diff(r.last_bounds.0) + r.end.abs_diff(r.last_bounds.1);
    if r.nr_accesses.abs_diff(r.last_nr_accesses) > threshold
        || (r.nr_accesses == 0) != (r.last_nr_accesses == 0)
        || (rules == DamonRules::V12 && moved > r.len() / 4)
    {
        r.age = 0;
    } else {
        r.age = r.age.saturating_add(1);
    }
}

/// Joins `b` onto `a`, its neighbour: counts and ages become size-weighted integer means.
fn join(a: &mut Region, b: &Region) {
    let (la, lb) = (u128::from(a.len()), u128::from(b.len()));
    let mean = |x: u32, y: u32| ((u128::from(x) * la + u128::from(y) * lb) / (la + lb)) as u32;
    a.nr_accesses = mean(a.nr_accesses, b.nr_accesses);
    a.age = mean(a.age, b.age);
    a.end = b.end;
}

/// One pass: ages every region if `aging`, then joins touching neighbours that differ by at most `threshold` while the
/// result stays within `size_limit` bytes.
pub(super) fn merge_pass(regions: &mut Vec<Region>, threshold: u32, size_limit: u64, aging: Option<DamonRules>) {
    let mut out: Vec<Region> = Vec::with_capacity(regions.len());
    for mut r in regions.drain(..) {
        if let Some(rules) = aging {
            age(&mut r, threshold, rules);
        }
        match out.last_mut() {
            Some(prev)
                if prev.end == r.start
                    && prev.nr_accesses.abs_diff(r.nr_accesses) <= threshold
                    && prev.len() + r.len() <= size_limit =>
            {
                join(prev, &r);
            }
            _ => out.push(r),
        }
    }
    *regions = out;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::PAGE_SIZE as P;
    use proptest::prelude::*;

    fn region(start: u64, end: u64, nr: u32, last: u32, age: u32) -> Region {
        Region { nr_accesses: nr, last_nr_accesses: last, age, ..Region::new(start * P, end * P) }
    }

    #[test]
    fn vectors_of_aging_and_merging() {
        let mut r =
            vec![region(0, 10, 10, 9, 4), region(10, 40, 9, 9, 8), region(40, 50, 0, 1, 3), region(60, 70, 0, 0, 3)];
        merge_pass(&mut r, 1, u64::MAX, Some(DamonRules::Mainline));
        let got: Vec<_> = r.iter().map(|r| (r.start / P, r.end / P, r.nr_accesses, r.age)).collect();
        // (10*10 + 9*30) / 40 = 9; ages 5 and 9: (5*10 + 9*30) / 40 = 8. The third went to zero: age 0.
        assert_eq!(got, [(0, 40, 9, 8), (40, 50, 0, 0), (60, 70, 0, 4)]);
    }

    #[test]
    fn size_limit_keeps_regions_apart() {
        let mut r = vec![region(0, 10, 0, 0, 0), region(10, 20, 0, 0, 0), region(20, 30, 0, 0, 0)];
        merge_pass(&mut r, 0, 20 * P, None);
        assert_eq!(r.len(), 2);
    }

    #[test]
    fn v12_ends_an_age_when_borders_moved_far() {
        let mut r = vec![region(0, 100, 5, 5, 3)];
        r[0].last_bounds = (0, 70 * P);
        merge_pass(&mut r, 1, u64::MAX, Some(DamonRules::V12));
        assert_eq!(r[0].age, 0);
    }

    proptest! {
        #[test]
        fn size_weighted_sums_are_kept_up_to_rounding(counts in prop::collection::vec((1u64..50, 0u32..20), 1..40), threshold in 0u32..20) {
            let mut at = 0;
            let mut r: Vec<Region> = counts.iter().map(|&(len, nr)| { let s = at; at += len; region(s, at, nr, 0, 0) }).collect();
            let sum = |r: &[Region]| r.iter().map(|r| r.len() / P * u64::from(r.nr_accesses)).sum::<u64>();
            let before = sum(&r);
            let n = r.len() as u64;
            merge_pass(&mut r, threshold, u64::MAX, None);
            let after = sum(&r);
            // Each join rounds down by less than one access per page of the result.
            prop_assert!(after <= before && before - after <= at * n);
            prop_assert_eq!(r.first().map(|r| r.start), Some(0));
            prop_assert_eq!(r.last().map(|r| r.end), Some(at * P));
            prop_assert!(r.windows(2).all(|w| w[0].end == w[1].start));
        }
    }
}
