//! Page tables as the algorithms see them: accessed bits, table by table.
//!
//! A simulator keeps them itself ([`Dense`](super::dense::Dense)); a live engine reads them from a process.

/// Entries of one table.
pub(crate) const ENTRIES: u32 = 512;

/// One bit for each entry of a table.
pub type Bits = [u64; ENTRIES as usize / 64];

/// Where an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryAt {
    pub table: u32,
    /// The entry, below [`ENTRIES`].
    pub entry: u32,
}

/// What lies behind an entry of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Nothing, or the huge zero page.
    Absent,
    /// One huge page: one accessed bit. Its first page stands for it.
    Huge(u32),
    /// A table of so many entries.
    Table(u32),
}

/// The page tables of all address spaces that belong to one memory.
///
/// Of the mappings it leaves out what a walk must not touch: without access rights, hugetlb, locked, devices, and such
/// as their owner declared to be read once.
pub(crate) trait PageTables {
    /// The number of address spaces.
    fn spaces(&self) -> u32;

    /// Whether the space ran since the last call, which forgets it.
    fn take_ran(&mut self, space: u32) -> bool;

    /// Takes the space's lock if that can be had at once; else it is skipped this time.
    fn enter(&mut self, _space: u32) -> bool {
        true
    }

    /// The first table of the space at or after `from`.
    fn next_table(&self, space: u32, from: u32) -> Option<u32>;

    fn shape(&self, table: u32) -> Shape;

    /// Whether all of the table's pages are of one kind, and which.
    fn kind(&self, _table: u32) -> Option<super::PageKind> {
        None
    }

    /// What the table is called in the filter.
    fn key(&self, table: u32) -> u64 {
        u64::from(table) * 8
    }

    /// Whether the table's own accessed bit is set.
    fn table_young(&self, table: u32) -> bool;

    fn clear_table_young(&mut self, table: u32);

    /// Takes the table's lock if that can be had at once.
    fn lock(&mut self, _table: u32) -> bool {
        true
    }

    /// The accessed bits of the entries from `from` to before `to` that are present, clearing them.
    fn take_young(&mut self, table: u32, from: u32, to: u32) -> Bits;

    /// Sets an accessed bit again that was taken too early.
    fn put_back(&mut self, place: EntryAt);

    /// The page behind an entry.
    fn page(&self, place: EntryAt) -> Option<u32>;

    /// The n-th place where the page is mapped, from 0.
    fn place(&self, page: u32, nth: u32) -> Option<EntryAt>;

    /// Removes all entries of a page: it is being evicted.
    fn unmap(&mut self, page: u32);
}

/// The numbers of the bits that are set.
pub fn ones(bits: &Bits) -> impl Iterator<Item = u32> + '_ {
    bits.iter().zip(0_u32..).flat_map(|(&word, at)| {
        let mut rest = word;
        std::iter::from_fn(move || {
            let bit = (rest != 0).then(|| rest.trailing_zeros())?;
            rest &= rest - 1;
            Some(at * 64 + bit)
        })
    })
}

/// Whether a table was worth reading: at least one entry of a cache line's was accessed on average.
pub(crate) const fn suitable(total: u32, young: u32) -> bool {
    young as u64 * 8 >= total as u64
}
