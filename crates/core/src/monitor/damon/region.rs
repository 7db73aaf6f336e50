//! DAMON's region and the list of them that follows the monitored ranges.

use crate::addr::{AddrRange, PAGE_SIZE};

/// A region whose pages are taken to be accessed alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Region {
    pub start: u64,
    pub end: u64,
    /// Sampling intervals of this aggregation in which the sampled page was accessed.
    pub nr_accesses: u32,
    /// The same of the aggregation before.
    pub last_nr_accesses: u32,
    /// Aggregations without a notable change.
    pub age: u32,
    /// Page that is sampled now.
    pub sampling_addr: u64,
    /// Borders at the last aggregation, for v12's age rule.
    pub last_bounds: (u64, u64),
}

impl Region {
    pub fn new(start: u64, end: u64) -> Self {
        Self {
            start,
            end,
            nr_accesses: 0,
            last_nr_accesses: 0,
            age: 0,
            sampling_addr: start,
            last_bounds: (start, end),
        }
    }

    pub fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Cuts the part from `at` off; both parts keep the counts and the age.
    pub fn split_off(&mut self, at: u64) -> Self {
        debug_assert!(self.start < at && at < self.end);
        let mut right = *self;
        right.start = at;
        right.sampling_addr = right.sampling_addr.max(at);
        self.end = at;
        self.sampling_addr = self.sampling_addr.min(at - PAGE_SIZE);
        right
    }
}

/// Lets `regions` follow `space`: regions outside vanish, those at the border of a range are clipped or stretched to
/// it, and what no region covers gets a new one.
pub(super) fn follow_space(regions: &mut Vec<Region>, space: &[AddrRange]) {
    let old = std::mem::take(regions);
    let mut next = 0;
    for range in space {
        while next < old.len() && old[next].end <= range.start {
            next += 1;
        }
        let first = next;
        while next < old.len() && old[next].start < range.end {
            next += 1;
        }
        let mut at = range.start;
        for (i, region) in old[first..next].iter().enumerate() {
            let mut r = *region;
            if i == 0 || r.start < range.start {
                r.start = range.start;
            } else if r.start > at {
                regions.push(Region::new(at, r.start));
            }
            r.end = if first + i + 1 == next { range.end } else { r.end };
            r.sampling_addr = r.sampling_addr.clamp(r.start, r.end - PAGE_SIZE);
            at = r.end;
            regions.push(r);
        }
        if at < range.end {
            regions.push(Region::new(at, range.end));
        }
        // A region that reaches into the next range is used there, too.
        if next > first && old[next - 1].end > range.end {
            next -= 1;
        }
    }
}

/// Cuts every region evenly so that about `wanted` regions come out of all of them.
pub(super) fn split_evenly(regions: &mut Vec<Region>, wanted: u32) {
    let total: u64 = regions.iter().map(Region::len).sum();
    let piece = (total / u64::from(wanted.max(1))).max(PAGE_SIZE);
    let old = std::mem::take(regions);
    for r in old {
        let pieces = (r.len() / piece).max(1);
        let size = (r.len() / pieces) & !(PAGE_SIZE - 1);
        let mut rest = r;
        for _ in 1..pieces {
            let right = rest.split_off(rest.start + size);
            regions.push(rest);
            rest = right;
        }
        regions.push(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const P: u64 = PAGE_SIZE;

    fn bounds(r: &[Region]) -> Vec<(u64, u64)> {
        r.iter().map(|r| (r.start / P, r.end / P)).collect()
    }

    fn pages(list: &[(u64, u64)]) -> Vec<AddrRange> {
        list.iter().map(|&(s, e)| AddrRange::new(s * P, e * P)).collect()
    }

    #[test]
    fn unchanged_ranges_keep_their_regions() {
        let mut r = vec![Region::new(10 * P, 20 * P), Region::new(20 * P, 30 * P), Region::new(50 * P, 60 * P)];
        r[1].age = 7;
        follow_space(&mut r, &pages(&[(10, 35), (52, 55), (100, 110)]));
        assert_eq!(bounds(&r), [(10, 20), (20, 35), (52, 55), (100, 110)]);
        assert_eq!(r[1].age, 7);
    }

    #[test]
    fn a_hole_cuts_a_region() {
        let mut r = vec![Region::new(0, 100 * P)];
        r[0].nr_accesses = 3;
        follow_space(&mut r, &pages(&[(0, 40), (60, 100)]));
        assert_eq!(bounds(&r), [(0, 40), (60, 100)]);
        assert_eq!(r[1].nr_accesses, 3);
    }

    proptest! {
        #[test]
        fn regions_tile_the_space(
            old in prop::collection::vec((0u64..9, 1u64..9), 0..20),
            new in prop::collection::vec((1u64..9, 1u64..9), 1..20),
            wanted in 1u32..40,
        ) {
            let tile = |v: &[(u64, u64)]| {
                let mut at = 0;
                v.iter().map(|&(gap, len)| { let s = at + gap; at = s + len; (s, at) }).collect::<Vec<_>>()
            };
            let mut regions: Vec<Region> = tile(&old).iter().map(|&(s, e)| Region::new(s * P, e * P)).collect();
            let space = pages(&tile(&new));
            follow_space(&mut regions, &space);
            split_evenly(&mut regions, wanted);
            let mut joined: Vec<AddrRange> = regions.iter().map(|r| AddrRange::new(r.start, r.end)).collect();
            prop_assert!(crate::addr::is_sorted_disjoint(&joined));
            crate::addr::normalize(&mut joined);
            let mut space = space;
            crate::addr::normalize(&mut space);
            prop_assert_eq!(joined, space);
            prop_assert!(regions.iter().all(|r| r.start <= r.sampling_addr && r.sampling_addr < r.end));
        }
    }
}
