//! Paging out on the target's own processor: how much at a time, since the target waits for it.

use isotherm_core::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN};
use std::collections::VecDeque;

/// What is paged out at a time should take so long, ns of CPU time.
const WISH_NS: f64 = 50_000.0;
/// No more pages than this, however fast it is.
const MOST: f64 = 64.0;
/// What a page takes until that is known, ns.
const PAGE_NS: f64 = 10_000.0;
/// Weight of the newest measurement.
const NEWEST: f64 = 0.1;

/// How many pages are paged out at a time, learnt from those before.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batches {
    page_ns: f64,
}

impl Default for Batches {
    fn default() -> Self {
        Self { page_ns: PAGE_NS }
    }
}

impl Batches {
    /// Pages that may go at a time.
    pub fn pages(&self) -> u64 {
        (WISH_NS / self.page_ns).clamp(1.0, MOST) as u64
    }

    /// So many bytes took `cpu_ns`.
    pub fn learn(&mut self, bytes: u64, cpu_ns: u64) {
        let pages = bytes / PAGE_SIZE;
        if pages > 0 {
            self.page_ns += (cpu_ns as f64 / pages as f64 - self.page_ns) * NEWEST;
        }
    }
}

/// Takes up to `pages` pages off the front of `ranges` (sorted, disjoint). A block of 2 MiB that is to go as a whole may be a
/// huge page, and is not divided.
pub(super) fn take(ranges: &mut VecDeque<AddrRange>, pages: u64) -> Vec<AddrRange> {
    let (mut out, mut left) = (Vec::new(), pages * PAGE_SIZE);
    while left > 0
        && let Some(range) = ranges.pop_front()
    {
        let block_end = (range.start / TABLE_SPAN + 1) * TABLE_SPAN;
        let is_whole = range.start.is_multiple_of(TABLE_SPAN) && range.end >= block_end;
        let end = if is_whole { block_end } else { range.end.min(block_end).min(range.start + left) };
        out.push(AddrRange::new(range.start, end));
        left = left.saturating_sub(end - range.start);
        if end < range.end {
            ranges.push_front(AddrRange::new(end, range.end));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pages(from: u64, to: u64) -> AddrRange {
        AddrRange::new(from * PAGE_SIZE, to * PAGE_SIZE)
    }

    #[test]
    fn so_much_goes_at_a_time_as_takes_the_time_wished_for() {
        let mut batches = Batches::default();
        assert_eq!(batches.pages(), 5);
        (0..100).for_each(|_| batches.learn(4 * PAGE_SIZE, 4 * 25_000));
        assert_eq!(batches.pages(), 2);
        (0..100).for_each(|_| batches.learn(PAGE_SIZE, 1_000_000));
        assert_eq!(batches.pages(), 1);
        (0..1000).for_each(|_| batches.learn(64 * PAGE_SIZE, 64));
        assert_eq!(batches.pages(), 64);
        batches.learn(0, 5);
        assert_eq!(batches.pages(), 64, "nothing was paged out");
    }

    #[test]
    fn a_block_that_may_be_a_huge_page_goes_as_a_whole() {
        let mut ranges = VecDeque::from([pages(1, 3), pages(510, 1026), pages(2000, 2001)]);
        let mut taken = Vec::new();
        while !ranges.is_empty() {
            taken.push(take(&mut ranges, 4));
        }
        assert_eq!(taken[0], [pages(1, 3), pages(510, 512)]);
        assert_eq!(taken[1], [pages(512, 1024)]);
        assert_eq!(taken[2], [pages(1024, 1026), pages(2000, 2001)]);
        assert_eq!(taken.len(), 3);
    }

    proptest! {
        #[test]
        fn all_pages_go_once(lengths in prop::collection::vec((1..700u64, 1..700u64), 0..20), at_a_time in 1..80u64) {
            let (mut ranges, mut at) = (VecDeque::new(), 0);
            for (gap, length) in lengths {
                ranges.push_back(pages(at + gap, at + gap + length));
                at += gap + length;
            }
            let all: Vec<AddrRange> = ranges.iter().copied().collect();
            let mut taken = Vec::new();
            while !ranges.is_empty() {
                let part = take(&mut ranges, at_a_time);
                let single = |r: &AddrRange| r.end - r.start == TABLE_SPAN;
                let bytes: u64 = part.iter().filter(|r| !single(r)).map(|r| r.end - r.start).sum();
                prop_assert!(!part.is_empty() && bytes <= at_a_time * PAGE_SIZE);
                taken.extend(part);
            }
            isotherm_core::addr::normalize(&mut taken);
            prop_assert_eq!(taken, all);
        }
    }
}
