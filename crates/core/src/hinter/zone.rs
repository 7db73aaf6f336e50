//! A stretch of memory without gaps, and what is known of its blocks.

use super::bitmap::Bitmap;

/// A zone: a bit a block, for three things.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Zone {
    first: u64,
    /// Free, and not reported since they became so.
    pub(super) free: Bitmap,
    /// Dropped by the other side, and not used since.
    pub(super) reported: Bitmap,
    /// Could not be had, or were refused; not tried for a while.
    pub(super) refused: Bitmap,
}

impl Zone {
    /// The blocks `[first, end)`, of which nothing is known.
    pub fn new(first: u64, end: u64) -> Self {
        let len = end.saturating_sub(first);
        Self { first, free: Bitmap::new(len), reported: Bitmap::new(len), refused: Bitmap::new(len) }
    }

    /// Its first block.
    pub const fn first(&self) -> u64 {
        self.first
    }

    /// The first block after it.
    pub const fn end(&self) -> u64 {
        self.first + self.free.len()
    }

    /// Blocks that are free and to be reported.
    pub const fn nr_free(&self) -> u64 {
        self.free.count()
    }

    /// Blocks that the other side has dropped and that were not used since.
    pub const fn nr_reported(&self) -> u64 {
        self.reported.count()
    }

    /// Place of a block, which must be inside.
    pub(super) const fn place(&self, block: u64) -> u64 {
        block - self.first
    }

    pub(super) const fn contains(&self, block: u64) -> bool {
        self.first <= block && block < self.end()
    }

    /// The first block at `from` or later that is to be reported and may be tried.
    pub(super) fn next_candidate(&self, from: u64) -> Option<u64> {
        self.free.set_from(from.saturating_sub(self.first)).find(|at| !self.refused.get(*at)).map(|at| self.first + at)
    }

    /// The part `[from, to)`, which must be inside.
    pub(super) fn part(&self, from: u64, to: u64) -> Self {
        let cut = |map: &Bitmap| map.part(from - self.first, to - self.first);
        Self { first: from, free: cut(&self.free), reported: cut(&self.reported), refused: cut(&self.refused) }
    }

    /// Makes it longer by a zone that begins where it ends.
    pub(super) fn append(&mut self, next: &Self) {
        self.free.append(&next.free);
        self.reported.append(&next.reported);
        self.refused.append(&next.refused);
    }
}
