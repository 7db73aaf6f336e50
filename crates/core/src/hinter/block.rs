//! Blocks: what is isolated and reported, huge pages of 2 MiB.

use crate::addr::AddrRange;
use crate::pages::push_range;

/// Bytes of a block.
pub const BLOCK_BYTES: u64 = 2 << 20;

/// A block by its number: its address divided by [`BLOCK_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block(pub u64);

impl Block {
    /// Where it is.
    pub const fn range(self) -> AddrRange {
        let start = self.0.saturating_mul(BLOCK_BYTES);
        AddrRange::new(start, start.saturating_add(BLOCK_BYTES))
    }

    /// The blocks that lie in `range` as a whole.
    pub fn inside(range: AddrRange) -> impl Iterator<Item = Self> {
        let (first, end) = blocks_inside(range);
        (first..end).map(Self)
    }
}

/// First block, and first block after the last, of those that lie in `range` as a whole.
pub(super) const fn blocks_inside(range: AddrRange) -> (u64, u64) {
    let first = range.start.div_ceil(BLOCK_BYTES);
    let end = range.end / BLOCK_BYTES;
    (first, if end < first { first } else { end })
}

/// First block, and first block after the last, of those that `range` touches.
pub(super) const fn blocks_touched(range: AddrRange) -> (u64, u64) {
    if range.is_empty() {
        return (0, 0);
    }
    (range.start / BLOCK_BYTES, range.end.div_ceil(BLOCK_BYTES))
}

/// Blocks as ranges in their order, neighbours joined where they follow each other.
pub fn joined(blocks: &[Block]) -> Vec<AddrRange> {
    let mut ranges: Vec<AddrRange> = Vec::new();
    blocks.iter().for_each(|block| push_range(&mut ranges, block.range()));
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_blocks_are_inside() {
        let mib = |n: u64| n << 20;
        assert_eq!(blocks_inside(AddrRange::new(mib(1), mib(7))), (1, 3));
        assert_eq!(blocks_inside(AddrRange::new(mib(3), mib(4) - 1)), (2, 2));
        assert_eq!(blocks_touched(AddrRange::new(mib(3), mib(4) - 1)), (1, 2));
        assert_eq!(blocks_touched(AddrRange::new(7, 7)), (0, 0));
        assert_eq!(Block::inside(AddrRange::new(mib(3), mib(8))).collect::<Vec<_>>(), [Block(2), Block(3)]);
    }

    #[test]
    fn neighbours_are_joined() {
        let ranges = joined(&[Block(1), Block(2), Block(5), Block(4)]);
        assert_eq!(ranges, [(1, 3), (5, 6), (4, 5)].map(|(a, b)| AddrRange::new(a << 21, b << 21)));
        assert_eq!(joined(&[]), []);
    }
}
