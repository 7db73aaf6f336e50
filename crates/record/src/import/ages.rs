//! Ages for formats that do not store them.

use isotherm_core::snapshot::RegionInfo;
use std::collections::HashMap;

/// Counts for how many aggregation intervals regions have been as they are: accessed, or not.
///
/// A region's age is the least that any part of it has: one that was not there before, or was otherwise, has 0. So it
/// is a lower bound of what DAMON would have counted, but for changes of rate between two rates above zero, at which
/// DAMON begins anew.
#[derive(Debug, Default)]
pub(crate) struct AgeCounter {
    /// Regions of the snapshot before, by target; sorted and disjoint.
    before: HashMap<u64, Vec<RegionInfo>>,
}

impl AgeCounter {
    /// Fills in the ages of a target's next snapshot; regions are sorted and disjoint.
    pub(crate) fn count(&mut self, target: u64, regions: &mut [RegionInfo]) {
        let before = self.before.entry(target).or_default();
        let mut first = 0;
        for region in regions.iter_mut() {
            while before.get(first).is_some_and(|b| b.end <= region.start) {
                first += 1;
            }
            region.age = age(region, &before[first..]);
        }
        before.clear();
        before.extend_from_slice(regions);
    }
}

fn age(region: &RegionInfo, before: &[RegionInfo]) -> u32 {
    let mut age = u32::MAX;
    let mut covered = region.start;
    for b in before.iter().take_while(|b| b.start < region.end) {
        if b.start > covered || (b.nr_accesses == 0) != (region.nr_accesses == 0) {
            return 0;
        }
        age = age.min(b.age.saturating_add(1));
        covered = b.end;
    }
    if covered < region.end { 0 } else { age }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(start: u64, end: u64, nr_accesses: u32) -> RegionInfo {
        RegionInfo { start, end, nr_accesses, age: 0, evidence: None, accessed: None }
    }

    fn ages(counter: &mut AgeCounter, target: u64, mut regions: Vec<RegionInfo>) -> Vec<u32> {
        counter.count(target, &mut regions);
        regions.iter().map(|r| r.age).collect()
    }

    #[test]
    fn a_region_is_as_old_as_its_youngest_part() {
        let mut counter = AgeCounter::default();
        let c = &mut counter;
        assert_eq!(ages(c, 1, vec![region(0, 4, 0), region(4, 8, 3), region(10, 12, 0)]), [0, 0, 0]);
        assert_eq!(ages(c, 1, vec![region(0, 4, 0), region(4, 8, 9), region(10, 12, 2)]), [1, 1, 0]);
        // Split, merged with a hole between, merged with one that has changed.
        assert_eq!(ages(c, 1, vec![region(0, 2, 0), region(2, 4, 0), region(4, 12, 1)]), [2, 2, 0]);
        assert_eq!(ages(c, 1, vec![region(0, 4, 0), region(4, 13, 1)]), [3, 0]);
        assert_eq!(ages(c, 1, vec![region(0, 13, 0)]), [0]);
        assert_eq!(ages(c, 2, vec![region(0, 13, 0)]), [0], "another target");
        assert!(ages(c, 1, vec![]).is_empty());
        assert_eq!(ages(c, 1, vec![region(0, 13, 0)]), [0]);
    }
}
