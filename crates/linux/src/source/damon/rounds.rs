//! Puts the regions that the tracepoint tells one by one together to the snapshots they belong to.

use super::tracepoint::Traced;
use isotherm_core::snapshot::RegionInfo;

/// All regions of a target at the end of an aggregation interval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Whole {
    /// Index of the target in its context.
    pub(super) target: u64,
    /// When the last of them was reported, ns of CLOCK_MONOTONIC.
    pub(super) time_ns: u64,
    pub(super) regions: Vec<RegionInfo>,
}

/// Collects regions until a target has all of its own.
#[derive(Debug, Default)]
pub(super) struct Collect {
    /// Target and number of the regions that are coming.
    coming: Option<(u64, u64)>,
    regions: Vec<RegionInfo>,
}

impl Collect {
    /// Takes the next region; gives a target's regions when they are complete. What does not fit together, because
    /// records were lost in between, is dropped.
    pub(super) fn add(&mut self, time_ns: u64, region: Traced) -> Option<Whole> {
        let coming = (region.target, region.nr_regions);
        let follows = self.regions.last().is_none_or(|last| last.end <= region.start);
        if self.coming != Some(coming) || !follows {
            self.lost();
            self.coming = Some(coming);
        }
        let clamp = |v: u64| u32::try_from(v).unwrap_or(u32::MAX);
        self.regions.push(RegionInfo {
            start: region.start,
            end: region.end.max(region.start),
            nr_accesses: clamp(region.nr_accesses),
            age: clamp(region.age),
            evidence: None,
            accessed: None,
        });
        if (self.regions.len() as u64) < region.nr_regions {
            return None;
        }
        self.coming = None;
        Some(Whole { target: region.target, time_ns, regions: std::mem::take(&mut self.regions) })
    }

    /// Records were lost: what has been collected cannot be completed.
    pub(super) fn lost(&mut self) {
        self.coming = None;
        self.regions.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traced(target: u64, nr_regions: u64, start: u64) -> Traced {
        Traced { target, nr_regions, start, end: start + 10, nr_accesses: 1, age: 2 }
    }

    fn starts(whole: Option<Whole>) -> Option<(u64, Vec<u64>)> {
        whole.map(|w| (w.target, w.regions.iter().map(|r| r.start).collect()))
    }

    #[test]
    fn targets_come_one_after_the_other() {
        let mut c = Collect::default();
        assert_eq!(c.add(1, traced(0, 2, 0)), None);
        assert_eq!(starts(c.add(2, traced(0, 2, 10))), Some((0, vec![0, 10])));
        assert_eq!(starts(c.add(3, traced(1, 1, 0))), Some((1, vec![0])));
        // The next interval begins with the first target again.
        assert_eq!(c.add(4, traced(0, 2, 0)), None);
    }

    #[test]
    fn broken_sequences_are_dropped() {
        let mut c = Collect::default();
        c.add(1, traced(0, 3, 0));
        // The rest was lost; the next interval has the same number of regions.
        assert_eq!(c.add(2, traced(0, 3, 0)), None);
        assert_eq!(c.add(2, traced(0, 3, 20)), None);
        assert_eq!(starts(c.add(2, traced(0, 3, 40))), Some((0, vec![0, 20, 40])));
        c.add(3, traced(0, 2, 0));
        c.lost();
        assert_eq!(c.add(4, traced(0, 2, 10)), None);
        assert_eq!(starts(c.add(5, traced(1, 1, 5))), Some((1, vec![5])));
    }
}
