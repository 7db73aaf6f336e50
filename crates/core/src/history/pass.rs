//! A walk that is under way: which memory it still has to read, in which slices.

use crate::addr::{AddrRange, TABLE_SPAN};
use std::collections::VecDeque;

/// See the module.
#[derive(Debug)]
pub(super) struct Pass {
    /// What is left of it: sorted and disjoint, but for the part that [`begin_at`](Self::begin_at) put last.
    ranges: VecDeque<AddrRange>,
    /// Bytes of address space that the next slice reads.
    pub slice: u64,
    /// The first table of which the allowance did not pay for all that should have been cleared.
    pub refused: Option<u64>,
}

impl Pass {
    /// Over `ranges` (sorted, disjoint), of which the first slice reads `slice` bytes.
    pub fn new(ranges: Vec<AddrRange>, slice: u64) -> Self {
        Self { ranges: ranges.into(), slice, refused: None }
    }

    /// Whether nothing is left of it.
    pub fn is_done(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Puts the part below the table at `start` behind the rest, before the first slice.
    pub fn begin_at(&mut self, start: u64) {
        let below = self.ranges.partition_point(|r| r.end <= start);
        self.ranges.rotate_left(below);
        if let Some(first) = self.ranges.front_mut().filter(|r| r.start < start && start < r.end) {
            let rest = AddrRange::new(first.start, start);
            first.start = start;
            self.ranges.push_back(rest);
        }
    }

    /// Takes the next slice off: sorted, disjoint. All ranges in one table go together: of a table that it reads, what it
    /// does not show counts as absent.
    pub fn take_slice(&mut self) -> Vec<AddrRange> {
        let (mut out, mut left) = (Vec::<AddrRange>::new(), self.slice);
        while let Some(range) = self.ranges.front().copied()
            && match out.last() {
                None => true,
                Some(last) => {
                    let is_begun = range.start < last.end.next_multiple_of(TABLE_SPAN);
                    last.end <= range.start && (left > 0 || is_begun)
                }
            }
        {
            self.ranges.pop_front();
            let end = range.end.min(range.start.saturating_add(left).next_multiple_of(TABLE_SPAN));
            left = left.saturating_sub(end - range.start);
            out.push(AddrRange::new(range.start, end));
            if end < range.end {
                self.ranges.push_front(AddrRange::new(end, range.end));
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::PAGE_SIZE;

    fn slices(mut pass: Pass) -> Vec<Vec<AddrRange>> {
        let mut out = Vec::new();
        while !pass.is_done() {
            out.push(pass.take_slice());
        }
        out
    }

    #[test]
    fn a_pass_begins_with_a_table_and_leaves_nothing_out() {
        let table = |from: u64, to: u64| AddrRange::new(from * TABLE_SPAN, to * TABLE_SPAN);
        let all = vec![table(1, 4), table(8, 10)];
        let pass = |start: u64| {
            let mut pass = Pass::new(all.clone(), 1 << 57);
            pass.begin_at(start * TABLE_SPAN);
            slices(pass)
        };
        for before in [0, 1, 10, 20] {
            assert_eq!(pass(before), std::slice::from_ref(&all), "{before}");
        }
        assert_eq!(pass(2), [vec![table(2, 4), table(8, 10)], vec![table(1, 2)]]);
        assert_eq!(pass(5), [vec![table(8, 10)], vec![table(1, 4)]]);
        assert_eq!(pass(9), [vec![table(9, 10)], vec![table(1, 4), table(8, 9)]]);
    }

    #[test]
    fn a_slice_does_not_end_within_a_table() {
        let page = |first: u64, end: u64| AddrRange::new(first * PAGE_SIZE, end * PAGE_SIZE);
        // Two ranges in table 0, and a third that begins in it and ends in table 2.
        let all = vec![page(0, 100), page(200, 300), page(400, 1100)];
        for slice in [PAGE_SIZE, 100 * PAGE_SIZE, 150 * PAGE_SIZE, TABLE_SPAN] {
            let slices = slices(Pass::new(all.clone(), slice));
            assert!(slices.len() > 1, "{slices:?}");
            let tables = |s: &[AddrRange]| (s[0].start / TABLE_SPAN, s[s.len() - 1].end.div_ceil(TABLE_SPAN));
            assert!(slices.windows(2).all(|w| tables(&w[0]).1 <= tables(&w[1]).0), "{slices:?}");
        }
        let first = Pass::new(all, 100 * PAGE_SIZE).take_slice();
        assert_eq!(first, [page(0, 100), page(200, 300), page(400, 512)]);
    }
}
