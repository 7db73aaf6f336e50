//! Blocks: what is reported, of one size.

use crate::addr::{AddrRange, PAGE_SIZE};

/// A block by its number: its address divided by the size of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block(pub u64);

/// How large blocks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSize {
    order: u32,
}

impl BlockSize {
    /// Blocks of 2^`order` pages; `None` beyond 1 GiB, the largest huge page.
    pub const fn of_order(order: u32) -> Option<Self> {
        if order <= 18 { Some(Self { order }) } else { None }
    }

    /// The largest that keeps huge pages of x86-64 whole: order 9, 2 MiB.
    pub const fn huge() -> Self {
        Self { order: 9 }
    }

    /// The order.
    pub const fn order(self) -> u32 {
        self.order
    }

    /// Bytes of a block.
    pub const fn bytes(self) -> u64 {
        PAGE_SIZE << self.order
    }

    /// The block at an address.
    pub const fn at(self, addr: u64) -> Block {
        Block(addr / self.bytes())
    }

    /// Where a block is.
    pub const fn range(self, block: Block) -> AddrRange {
        let start = block.0.saturating_mul(self.bytes());
        AddrRange::new(start, start.saturating_add(self.bytes()))
    }

    /// First block, and first block after the last, of those that lie in `range` as a whole.
    pub const fn inside(self, range: AddrRange) -> (u64, u64) {
        let first = range.start.div_ceil(self.bytes());
        let end = range.end / self.bytes();
        (first, if end < first { first } else { end })
    }

    /// First block, and first block after the last, of those that `range` touches.
    pub const fn touched(self, range: AddrRange) -> (u64, u64) {
        if range.is_empty() {
            return (0, 0);
        }
        (range.start / self.bytes(), range.end.div_ceil(self.bytes()))
    }
}

/// Blocks as ranges in their order, neighbours joined where they follow each other.
pub fn joined(blocks: &[Block], size: BlockSize) -> Vec<AddrRange> {
    let mut ranges: Vec<AddrRange> = Vec::new();
    for range in blocks.iter().map(|block| size.range(*block)) {
        match ranges.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => ranges.push(range),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_blocks_are_inside() {
        let size = BlockSize::huge();
        let mib = |n: u64| n << 20;
        assert_eq!(size.inside(AddrRange::new(mib(1), mib(7))), (1, 3));
        assert_eq!(size.inside(AddrRange::new(mib(3), mib(4) - 1)), (2, 2));
        assert_eq!(size.touched(AddrRange::new(mib(3), mib(4) - 1)), (1, 2));
        assert_eq!(size.touched(AddrRange::new(7, 7)), (0, 0));
        assert_eq!(size.at(mib(5)), Block(2));
        assert_eq!(BlockSize::of_order(19), None);
    }

    #[test]
    fn neighbours_are_joined() {
        let size = BlockSize::of_order(0).unwrap();
        let ranges = joined(&[Block(1), Block(2), Block(5), Block(4)], size);
        assert_eq!(ranges, [(1, 3), (5, 6), (4, 5)].map(|(a, b)| AddrRange::new(a * 4096, b * 4096)));
        assert_eq!(joined(&[], size), []);
    }
}
