//! What a source tells of accessed bits: of a few pages, or of a page table.

use crate::addr::AddrRange;
use crate::mask::{NO_PAGES, PageMask};

/// A small run of pages to observe as one: at most 512 pages, inside one 2 MiB-aligned table span.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Window {
    /// First address, page aligned.
    pub start: u64,
    /// Number of 4 KiB pages.
    pub pages: u16,
    /// What was found; written by [`AccessSource::arm`](crate::source::AccessSource::arm) and
    /// [`AccessSource::look`](crate::source::AccessSource::look).
    pub seen: Seen,
}

impl Window {
    /// A window that has not been looked at.
    pub const fn new(start: u64, pages: u16) -> Self {
        Self { start, pages, seen: Seen { present: 0, accessed: 0, blind: 0, leaf_shift: 12 } }
    }

    /// Its addresses.
    pub const fn range(&self) -> AddrRange {
        AddrRange { start: self.start, end: self.start + self.pages as u64 * crate::addr::PAGE_SIZE }
    }
}

/// What a look at a window found. Counts are 4 KiB pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// Pages with a present entry.
    pub present: u16,
    /// Present pages whose accessed bit was set.
    pub accessed: u16,
    /// Present pages that cannot be observed: the bit cannot be cleared (shared, locked, special), or clearing would
    /// split a large folio. They are counted neither in `accessed` nor as idle.
    pub blind: u16,
    /// log2 of the leaf size that maps the window's first present page: 12, 21 or 30. Pages below one leaf share one
    /// bit.
    pub leaf_shift: u8,
}

/// The bits of one last-level page table, or of one huge leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableBits {
    /// First address the bits speak of; aligned to 2 MiB.
    pub base: u64,
    /// 12: bit `i` of the arrays is the page at `base + i * 4096`. 21 or 30: one leaf of that size; either all bits are
    /// set or none.
    pub leaf_shift: u8,
    /// Present pages.
    pub present: PageMask,
    /// Accessed pages; a subset of `present`.
    pub accessed: PageMask,
    /// Of `accessed`: pages whose bit is clear from now on. A bit that stays set says nothing new at the next look.
    pub cleared: PageMask,
    /// Present pages that cannot be observed (see [`Seen::blind`]); disjoint from `accessed`.
    pub blind: PageMask,
}

impl TableBits {
    /// A table of base pages in which nothing is present.
    pub const fn empty(base: u64) -> Self {
        Self { base, leaf_shift: 12, present: NO_PAGES, accessed: NO_PAGES, cleared: NO_PAGES, blind: NO_PAGES }
    }
}
