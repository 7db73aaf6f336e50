//! What is asked of a page cache, and what it answers: the words every policy shares.

use isotherm_core::keeper::PageKind;

/// How memory is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Channel {
    /// Through a page table: the hardware sets an accessed bit, nobody is reported.
    Mapped,
    /// Through a file descriptor (`read`, `write`): the kernel knows at once.
    Fd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// How.
    pub channel: Channel,
    pub kind: PageKind,
    /// Whether it writes.
    pub write: bool,
}

impl Access {
    /// A load or store through a page table.
    pub const fn mapped(kind: PageKind, write: bool) -> Self {
        Self { channel: Channel::Mapped, kind, write }
    }

    /// A `read` or `write` of a file.
    pub const fn fd(write: bool) -> Self {
        Self { channel: Channel::Fd, kind: PageKind::File, write }
    }
}

/// What an access found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hit {
    /// The page was in memory.
    Hit,
    /// It was not, and never had been.
    Miss,
    /// It was not: it had been evicted before. Counts as a miss, too.
    Refault,
}

/// What a policy did since it was made. All only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LruStats {
    pub requests: u64,
    /// Accesses to pages that were not in memory, refaults among them.
    pub misses: u64,
    /// Misses of pages that had been evicted.
    pub refaults: u64,
    /// Pages evicted.
    pub evictions: u64,
    /// Pages that reclaim looked at.
    pub pages_scanned: u64,
    /// Page-table entries read, by walks, by look-around and by looking one page up.
    pub ptes_read: u64,
    /// Page tables that a walk skipped, by their own accessed bit or by the filter.
    pub tables_skipped: u64,
    /// Pages moved from one list to another, or within one. Not counted: the first insertion, the removal at eviction.
    pub list_moves: u64,
    /// Generations created; for the classic LRU: times the active list was shrunk.
    pub agings: u64,
}

impl LruStats {
    /// Adds what another memory's policy did.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.misses += other.misses;
        self.refaults += other.refaults;
        self.evictions += other.evictions;
        self.pages_scanned += other.pages_scanned;
        self.ptes_read += other.ptes_read;
        self.tables_skipped += other.tables_skipped;
        self.list_moves += other.list_moves;
        self.agings += other.agings;
    }
}
