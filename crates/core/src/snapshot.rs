//! What one aggregation interval showed about one target.

use serde::{Deserialize, Serialize};

/// How well a region's figures are founded in one aggregation interval. Counts are of pages looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// Page observations made (one page looked at after one armed interval counts once).
    pub checks: u32,
    /// Of the distinct pages looked at: how many there were.
    pub pages: u32,
    /// Of `pages`: present in the page table.
    pub present: u32,
    /// Of `pages`: could not be observed (shared, locked, special).
    pub blind: u32,
}

impl Evidence {
    /// Whether nothing in this region could be observed: its access figures mean "not seen", not "not accessed".
    pub const fn is_blind(&self) -> bool {
        self.pages > 0 && self.blind == self.pages
    }
}

/// A region of a target with its access figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionInfo {
    /// First address.
    pub start: u64,
    /// First address after the region.
    pub end: u64,
    /// Accesses seen, 0 to the snapshot's `max_nr_accesses`; as a share of it: the probability that a page of the
    /// region is found accessed in a sampling interval.
    pub nr_accesses: u32,
    /// Aggregation intervals for which the access rate stayed about the same.
    pub age: u32,
    /// How well this is founded. `None` where the source (an imported record, the kernel's DAMON) does not tell.
    pub evidence: Option<Evidence>,
    /// Bytes of the region that were accessed at all within the aggregation interval, as estimated from the share of
    /// the pages looked at. `None` where the source or the algorithm tells only rates.
    pub accessed: Option<u64>,
}

impl RegionInfo {
    /// Size in bytes.
    pub const fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Whether the region has no address.
    pub const fn is_empty(&self) -> bool {
        self.end == self.start
    }

    /// Bytes that belong to the working set of the interval: what was accessed of the region, or all of an accessed
    /// region where nobody tells how much. A region seldom is a little accessed everywhere; often it is a cold one with
    /// some hot pages scattered in, and counting all of it would exaggerate many times over.
    pub fn working_set(&self) -> u64 {
        match (self.nr_accesses, self.accessed) {
            (0, _) => 0,
            (_, Some(bytes)) => bytes.min(self.len()),
            (_, None) => self.len(),
        }
    }

    /// The probability that a page of the region is found accessed in a sampling interval, 0 to 1; `max_nr_accesses` is
    /// the snapshot's. `nr_accesses` is at least 1 where anything was accessed, so on sparsely accessed memory it
    /// exaggerates; no more pages than were accessed in the whole interval can be found accessed in a part of it.
    pub fn access_rate(&self, max_nr_accesses: u32) -> f64 {
        let counted = f64::from(self.nr_accesses) / f64::from(max_nr_accesses.max(1));
        let touched = self.accessed.map_or(1.0, |bytes| bytes as f64 / self.len().max(1) as f64);
        counted.min(touched).min(1.0)
    }

    /// Whether the region could not be observed at all; see [`Evidence::is_blind`].
    pub fn is_blind(&self) -> bool {
        self.evidence.is_some_and(|e| e.is_blind())
    }

    /// Whether nobody has looked at the region yet (a monitor that has just begun to watch it): no access was seen
    /// because none could be. Records whose source tells no evidence never say so.
    pub fn is_unvisited(&self) -> bool {
        self.nr_accesses == 0 && self.accessed.is_none() && self.evidence.is_some_and(|e| e.pages == 0)
    }

    /// Whether its access figures mean "not seen" rather than "not accessed".
    pub fn is_unseen(&self) -> bool {
        self.is_blind() || self.is_unvisited()
    }
}

/// All regions of one target at the end of an aggregation interval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Index of the target, stable over a record.
    pub target: u32,
    /// Process, where the target is one.
    pub pid: Option<u32>,
    /// Begin of the aggregation interval, ns of CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// End of the aggregation interval, ns.
    pub end_ns: u64,
    /// Sampling interval in force, microseconds.
    pub sample_us: u64,
    /// Aggregation interval in force, microseconds.
    pub aggr_us: u64,
    /// Largest possible `nr_accesses`.
    pub max_nr_accesses: u32,
    /// Regions, sorted by address, disjoint.
    pub regions: Vec<RegionInfo>,
}

impl Snapshot {
    /// The working set of this interval: what was accessed in regions with `nr_accesses >= min_nr` (and at least one).
    pub fn working_set(&self, min_nr: u32) -> u64 {
        self.regions.iter().filter(|r| r.nr_accesses >= min_nr).map(RegionInfo::working_set).sum()
    }

    /// Bytes of all regions.
    pub fn total_len(&self) -> u64 {
        self.regions.iter().map(RegionInfo::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_looked_at_is_not_idle() {
        let with = |nr, accessed, pages, blind| {
            let evidence = Some(Evidence { checks: 0, pages, present: pages, blind });
            let r = RegionInfo { evidence, ..region(4, nr, accessed) };
            (r.is_unvisited(), r.is_unseen())
        };
        assert_eq!(with(0, None, 0, 0), (true, true));
        assert_eq!(with(0, None, 4, 4), (false, true), "looked at, in vain");
        assert_eq!(with(0, Some(0), 0, 0), (false, false), "somebody tells that nothing was accessed");
        assert_eq!(with(1, None, 0, 0), (false, false));
        assert_eq!(with(0, None, 4, 3), (false, false));
        assert!(!region(4, 0, None).is_unseen(), "a source that tells no evidence");
    }

    fn region(pages: u64, nr_accesses: u32, accessed: Option<u64>) -> RegionInfo {
        RegionInfo { start: 0, end: pages * 4096, nr_accesses, age: 0, evidence: None, accessed }
    }

    #[test]
    fn sparse_accesses_give_a_rate_below_what_nr_accesses_can_tell() {
        assert_eq!(region(100, 1, Some(4096)).access_rate(20), 0.01);
        assert_eq!(region(100, 1, None).access_rate(20), 0.05);
        assert_eq!(region(100, 5, Some(100 * 4096)).access_rate(20), 0.25);
        assert_eq!(region(100, 30, None).access_rate(20), 1.0);
    }

    #[test]
    fn the_working_set_is_what_was_accessed_not_all_around_it() {
        assert_eq!(region(100, 1, Some(3 * 4096)).working_set(), 3 * 4096);
        assert_eq!(region(100, 1, None).working_set(), 100 * 4096, "nobody tells how much: all of it");
        assert_eq!(region(100, 0, Some(4096)).working_set(), 0, "a stray touch of an idle region");
        assert_eq!(region(1, 20, Some(1 << 40)).working_set(), 4096, "never more than the region has");
    }
}
