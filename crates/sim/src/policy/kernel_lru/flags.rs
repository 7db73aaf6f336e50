//! What is remembered of a page: one word of flags.

/// Bits 0 to 2: the generation plus one, 0 when the page is on no list.
const GEN: u32 = 0b111;
const REFS_AT: u32 = 3;
/// Bits 3 and 4: a counter of accesses through file descriptors.
const REFS: u32 = 0b11 << REFS_AT;
const MEMCG_AT: u32 = 16;

/// The flags of one page, with the number of its memcg in the upper half.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flags(u32);

impl Flags {
    /// Accessed once.
    pub(crate) const REFERENCED: u32 = 1 << 5;
    /// Has proven to belong to the working set.
    pub(crate) const WORKINGSET: u32 = 1 << 6;
    /// Off the lists: to be put among the young. On the classic lists: on the active one.
    pub(crate) const ACTIVE: u32 = 1 << 7;
    /// Differs from what is on storage.
    pub(crate) const DIRTY: u32 = 1 << 8;
    /// A file's page; without it, anonymous memory.
    pub const FILE: u32 = 1 << 9;
    /// To be reclaimed as soon as it is clean.
    pub(crate) const RECLAIM: u32 = 1 << 10;
    pub(crate) const WRITEBACK: u32 = 1 << 11;
    /// May not be evicted.
    pub(crate) const UNEVICTABLE: u32 = 1 << 12;
    /// Anonymous, and a copy of it is in swap.
    pub(crate) const SWAPCACHE: u32 = 1 << 13;
    pub(crate) const RESIDENT: u32 = 1 << 14;
    /// Not in memory, but it was: a shadow is kept.
    pub(crate) const SHADOW: u32 = 1 << 15;

    /// Whether all of `bits` are set.
    pub const fn has(self, bits: u32) -> bool {
        self.0 & bits == bits
    }

    /// Sets `bits`.
    pub const fn set(&mut self, bits: u32) {
        self.0 |= bits;
    }

    /// Clears `bits`.
    pub const fn clear(&mut self, bits: u32) {
        self.0 &= !bits;
    }

    /// Forgets everything but the memcg.
    pub const fn reset(&mut self) {
        self.0 &= !0 << MEMCG_AT;
    }

    /// The generation's index, if the page is on a list.
    pub const fn generation(self) -> Option<usize> {
        match self.0 & GEN {
            0 => None,
            n => Some(n as usize - 1),
        }
    }

    /// Labels the page with a generation's index, or with none.
    pub(crate) const fn set_generation(&mut self, index: Option<usize>) {
        let value = match index {
            Some(index) => (index as u32 + 1) & GEN,
            None => 0,
        };
        self.0 = self.0 & !GEN | value;
    }

    /// The counter of accesses, 0 to 3.
    pub const fn counter(self) -> u32 {
        (self.0 & REFS) >> REFS_AT
    }

    /// Sets that counter; what is above 3 counts as 3.
    pub(crate) const fn set_counter(&mut self, count: u32) {
        let count = if count > 3 { 3 } else { count };
        self.0 = self.0 & !REFS | count << REFS_AT;
    }

    /// 1 for a file's page, 0 for anonymous memory.
    pub const fn kind(self) -> usize {
        self.has(Self::FILE) as usize
    }

    pub const fn memcg(self) -> u16 {
        (self.0 >> MEMCG_AT) as u16
    }

    /// Says whose the page is.
    pub(crate) const fn set_memcg(&mut self, id: u16) {
        self.0 = self.0 & !(!0 << MEMCG_AT) | (id as u32) << MEMCG_AT;
    }
}
