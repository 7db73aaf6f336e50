//! Address ranges and sorted lists of them.

use serde::{Deserialize, Serialize};

/// Size of a base page in bytes. Isotherm supports x86-64 only, where it is fixed.
pub const PAGE_SIZE: u64 = 4096;
/// Bytes that one last-level page table (512 entries) covers: 2 MiB.
pub const TABLE_SPAN: u64 = 512 * PAGE_SIZE;

/// Base pages that a page table maps.
pub const TABLE_PAGES: u64 = TABLE_SPAN / PAGE_SIZE;

/// A half-open range of virtual (or physical) addresses in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AddrRange {
    /// First address.
    pub start: u64,
    /// First address after the range.
    pub end: u64,
}

impl AddrRange {
    /// The range `[start, end)`. An `end` below `start` gives an empty range.
    pub const fn new(start: u64, end: u64) -> Self {
        Self { start, end: if end < start { start } else { end } }
    }

    /// Length in bytes.
    pub const fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Whether no address is inside.
    pub const fn is_empty(&self) -> bool {
        self.end == self.start
    }

    /// Whether `addr` is inside.
    pub const fn contains(&self, addr: u64) -> bool {
        self.start <= addr && addr < self.end
    }

    /// The common part with `other`, if there is one.
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        let start = self.start.max(other.start);
        let end = self.end.min(other.end);
        (start < end).then_some(Self { start, end })
    }
}

/// Whether `ranges` are sorted by address, not empty, and do not overlap.
pub fn is_sorted_disjoint(ranges: &[AddrRange]) -> bool {
    ranges.iter().all(|r| !r.is_empty()) && ranges.windows(2).all(|w| w[0].end <= w[1].start)
}

/// Sorts `ranges`, drops empty ones, and joins those that overlap or touch.
pub fn normalize(ranges: &mut Vec<AddrRange>) {
    ranges.retain(|r| !r.is_empty());
    ranges.sort_unstable();
    let mut out: Vec<AddrRange> = Vec::with_capacity(ranges.len());
    for r in ranges.drain(..) {
        match out.last_mut() {
            Some(last) if r.start <= last.end => last.end = last.end.max(r.end),
            _ => out.push(r),
        }
    }
    *ranges = out;
}

/// Sum of the lengths in bytes.
pub fn total_len(ranges: &[AddrRange]) -> u64 {
    ranges.iter().map(AddrRange::len).sum()
}

/// The parts of `range` that lie in `ranges` (sorted, disjoint), one for each.
pub fn parts_in(ranges: &[AddrRange], range: AddrRange) -> impl Iterator<Item = AddrRange> + '_ {
    let first = ranges.partition_point(|r| r.end <= range.start);
    ranges[first..].iter().map_while(move |r| r.intersect(&range))
}

/// The parts of `of` that are not in `without`; all are sorted and disjoint.
pub fn subtract(of: &[AddrRange], without: &[AddrRange]) -> Vec<AddrRange> {
    let mut left = Vec::new();
    for range in of {
        let mut start = range.start;
        for gone in parts_in(without, *range) {
            left.extend(Some(AddrRange::new(start, gone.start)).filter(|r| !r.is_empty()));
            start = gone.end;
        }
        left.extend(Some(AddrRange::new(start, range.end)).filter(|r| !r.is_empty()));
    }
    left
}

/// Bytes that two sorted, disjoint lists have in common.
pub fn overlap_len(a: &[AddrRange], b: &[AddrRange]) -> u64 {
    let (mut i, mut j, mut sum) = (0, 0, 0);
    while i < a.len() && j < b.len() {
        if let Some(x) = a[i].intersect(&b[j]) {
            sum += x.len();
        }
        if a[i].end <= b[j].end { i += 1 } else { j += 1 }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn arb_ranges() -> impl Strategy<Value = Vec<AddrRange>> {
        prop::collection::vec((0u64..200, 0u64..20), 0..20)
            .prop_map(|v| v.into_iter().map(|(s, l)| AddrRange::new(s, s + l)).collect())
    }

    proptest! {
        #[test]
        fn normalize_keeps_exactly_the_covered_addresses(ranges in arb_ranges()) {
            let mut n = ranges.clone();
            normalize(&mut n);
            prop_assert!(is_sorted_disjoint(&n));
            for a in 0..230 {
                prop_assert_eq!(ranges.iter().any(|r| r.contains(a)), n.iter().any(|r| r.contains(a)));
            }
        }

        #[test]
        fn overlap_counts_common_addresses(a in arb_ranges(), b in arb_ranges()) {
            let (mut a, mut b) = (a, b);
            normalize(&mut a);
            normalize(&mut b);
            let both = (0..230).filter(|&x| a.iter().any(|r| r.contains(x)) && b.iter().any(|r| r.contains(x))).count();
            prop_assert_eq!(overlap_len(&a, &b), both as u64);
        }
    }

    #[test]
    fn what_is_left() {
        let r = AddrRange::new;
        assert_eq!(subtract(&[r(0, 10), r(20, 30)], &[r(5, 25)]), [r(0, 5), r(25, 30)]);
        assert_eq!(subtract(&[r(0, 10)], &[r(2, 3), r(4, 5)]), [r(0, 2), r(3, 4), r(5, 10)]);
        assert_eq!(subtract(&[r(0, 10)], &[r(0, 10)]), []);
    }
}
