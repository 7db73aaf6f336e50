//! How a mapping is filled, in blocks of 2 MiB.

use crate::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN};

/// A block is filled from so many of its 512 pages on: allocators leave a guard page or a header's page out.
const FULL_PAGES: u64 = 460;
/// One partly filled block is allowed for so many full ones, and one in any case: where the program is at present. ...
const FULL_FOR_PARTIAL: u64 = 8;
/// ... More are where of four pages in blocks that have any three are there: heaps are filled at several places at a time.
const DENSE_OF_FOUR: u64 = 3;
/// Of a mapping that is filled wholly not more than one in so many blocks is not.
const WHOLLY: u64 = 16;
/// Of a mapping that is filled all over, blocks that have pages, of ten; ...
const EVENLY: u64 = 9;
/// ... and pages of each of those that have base pages, on average.
const EVEN_PAGES: u64 = TABLE_SPAN / PAGE_SIZE / 4;

/// Adjacent pages of a mapping that have memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Populated {
    /// Where.
    pub range: AddrRange,
    /// Whether huge pages map them.
    pub huge: bool,
}

/// How a mapping is filled, in blocks of 2 MiB that lie wholly in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fill {
    /// Filled with base pages, wholly or nearly so.
    pub full: u64,
    /// Filled with base pages in part.
    pub partial: u64,
    /// Base pages of those.
    pub partial_pages: u64,
    /// Without a page.
    pub empty: u64,
    /// Mapped by a huge page: their addresses, ascending.
    pub huge: Vec<u64>,
    /// Of those filled with base pages the last one's address.
    pub last_full: Option<u64>,
}

impl Fill {
    /// Of `mapping`, of which `populated` has memory: sorted and disjoint.
    pub fn of(mapping: AddrRange, populated: &[Populated]) -> Self {
        let first = mapping.start.next_multiple_of(TABLE_SPAN);
        let end = mapping.end / TABLE_SPAN * TABLE_SPAN;
        let blocks = end.saturating_sub(first) / TABLE_SPAN;
        let mut fill = Self { empty: blocks, ..Self::default() };
        let (mut block, mut pages) = (first, 0);
        let close = |fill: &mut Self, block: u64, pages: u64| {
            match pages {
                0 => return,
                FULL_PAGES.. => {
                    fill.full += 1;
                    fill.last_full = Some(block);
                }
                _ => {
                    fill.partial += 1;
                    fill.partial_pages += pages;
                }
            }
            fill.empty -= 1;
        };
        for part in populated {
            let mut at = part.range.start.max(first);
            let until = part.range.end.min(end);
            while at < until {
                let its = at / TABLE_SPAN * TABLE_SPAN;
                if its != block {
                    close(&mut fill, block, pages);
                    (block, pages) = (its, 0);
                }
                let stop = until.min(its + TABLE_SPAN);
                if part.huge {
                    fill.huge.push(its);
                    fill.empty -= 1;
                } else {
                    pages += (stop - at) / PAGE_SIZE;
                }
                at = stop;
            }
        }
        close(&mut fill, block, pages);
        fill
    }

    /// Adds that of another stretch, at higher addresses.
    pub fn add(&mut self, other: Self) {
        self.full += other.full;
        self.partial += other.partial;
        self.partial_pages += other.partial_pages;
        self.empty += other.empty;
        self.huge.extend(other.huge);
        self.last_full = other.last_full.or(self.last_full);
    }

    /// All blocks.
    pub(super) const fn blocks(&self) -> u64 {
        self.populated() + self.empty
    }

    /// Blocks with base pages.
    pub(super) const fn based(&self) -> u64 {
        self.full + self.partial
    }

    /// Blocks with a page.
    pub(super) const fn populated(&self) -> u64 {
        self.based() + self.huge.len() as u64
    }

    /// Base pages.
    const fn pages(&self) -> u64 {
        self.full * (TABLE_SPAN / PAGE_SIZE) + self.partial_pages
    }

    /// Whether nearly all blocks are full, or huge pages.
    pub(super) const fn is_whole(&self) -> bool {
        let whole = self.full + self.huge.len() as u64;
        whole > 0 && (self.partial + self.empty) * WHOLLY <= self.blocks()
    }

    /// Whether hardly any of the blocks that have base pages are filled in part, or nearly to the full.
    pub(super) fn is_dense(&self) -> bool {
        let all = self.based() * (TABLE_SPAN / PAGE_SIZE);
        self.partial <= (self.full / FULL_FOR_PARTIAL).max(1) || self.pages() * 4 >= all * DENSE_OF_FOUR
    }

    /// Whether half of the blocks have pages, and most of them few.
    pub(super) fn is_thin(&self) -> bool {
        self.partial * 2 >= self.blocks() && !self.is_dense()
    }

    /// The part of all that has no base page, of what has no huge page.
    pub(super) fn empty_part(&self) -> f64 {
        let all = (self.based() + self.empty) * (TABLE_SPAN / PAGE_SIZE);
        1.0 - self.pages() as f64 / all.max(1) as f64
    }

    /// Whether nearly all blocks have pages, those with base pages a quarter of what they can have on average, and most of these are
    /// not full.
    pub(super) const fn is_even(&self) -> bool {
        let based = self.based();
        let all_over = self.populated() * 10 >= self.blocks() * EVENLY;
        self.partial > 0 && self.partial * 2 >= based && all_over && self.pages() >= based * EVEN_PAGES
    }

    /// Whether half of what blocks with base pages can have is there, on average.
    pub(super) const fn is_half(&self) -> bool {
        self.pages() * 2 >= self.based() * (TABLE_SPAN / PAGE_SIZE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BLOCK: u64 = TABLE_SPAN;
    const BASE: u64 = 64 * BLOCK;

    fn mapping(blocks: u64) -> AddrRange {
        AddrRange::new(BASE, BASE + blocks * BLOCK)
    }

    fn part(from: u64, to: u64, huge: bool) -> Populated {
        Populated { range: AddrRange::new(BASE + from, BASE + to), huge }
    }

    #[test]
    fn blocks_are_told_apart_by_what_is_in_them() {
        let populated =
            [part(0, 2 * BLOCK, false), part(3 * BLOCK, 3 * BLOCK + 4096, false), part(4 * BLOCK, 6 * BLOCK, true)];
        let fill = Fill::of(mapping(10), &populated);
        assert_eq!(
            fill,
            Fill {
                full: 2,
                partial: 1,
                partial_pages: 1,
                empty: 5,
                huge: vec![BASE + 4 * BLOCK, BASE + 5 * BLOCK],
                last_full: Some(BASE + BLOCK)
            }
        );
        // What lies in no whole block does not count.
        let odd = AddrRange::new(BASE + 4096, BASE + 3 * BLOCK - 4096);
        let fill = Fill::of(odd, &[part(4096, 3 * BLOCK - 4096, false)]);
        assert_eq!(fill, Fill { full: 1, last_full: Some(BASE + BLOCK), ..Fill::default() });
        assert_eq!(Fill::of(AddrRange::new(BASE + 4096, BASE + 8192), &[part(4096, 8192, false)]), Fill::default());
    }

    proptest! {
        #[test]
        fn every_block_is_counted_once(
            parts in prop::collection::vec((0u64..40, 1u64..3000, any::<bool>()), 0..60), blocks in 0u64..60, odd in 0u64..512,
        ) {
            let mut at = 0;
            let mut populated = Vec::new();
            for (gap, pages, huge) in parts {
                let (mut from, mut to) = (at + gap * 4096, at + (gap + pages) * 4096);
                if huge {
                    (from, to) = (from.next_multiple_of(BLOCK), to.next_multiple_of(BLOCK) + BLOCK);
                }
                populated.push(part(from, to, huge));
                at = to;
            }
            let range = AddrRange::new(BASE + odd * 4096, BASE + blocks * BLOCK + odd * 4096 + 4096);
            let fill = Fill::of(range, &populated);
            let whole = (range.end / BLOCK).saturating_sub(range.start.div_ceil(BLOCK));
            prop_assert_eq!(fill.full + fill.partial + fill.empty + fill.huge.len() as u64, whole);
            prop_assert!(fill.huge.is_sorted());
        }
    }
}
