//! The border to whatever can tell which pages were accessed.

use crate::addr::AddrRange;
use crate::event::{Footprint, TargetInfo};
use crate::mapping::Mapping;
use crate::scheme::watch::Confirmed;

/// Index of a target within a source; stable while the source lives.
pub type TargetId = u32;

/// A small run of pages to observe as one: at most 512 pages, inside one 2 MiB-aligned table span.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Window {
    /// First address, page aligned.
    pub start: u64,
    /// Number of 4 KiB pages.
    pub pages: u16,
    /// What was found; written by [`AccessSource::arm`] and [`AccessSource::look`].
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
    pub present: [u64; 8],
    /// Accessed pages; a subset of `present`.
    pub accessed: [u64; 8],
    /// Present pages that cannot be observed (see [`Seen::blind`]); disjoint from `accessed`.
    pub blind: [u64; 8],
}

/// What observing has cost since the source was made. All figures only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// CPU time of the monitor itself, in ns (measured on a real system, modelled in a simulation).
    pub monitor_ns: u64,
    /// Estimated CPU time the target loses because the hardware must set cleared bits again, in ns.
    pub target_ns: u64,
    /// Page observations (bits read).
    pub pages_read: u64,
    /// Accessed bits cleared.
    pub pages_cleared: u64,
}

/// Why a source cannot answer.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The target has exited.
    #[error("target {target} (pid {pid}) has exited")]
    Gone {
        /// Which target.
        target: TargetId,
        /// Its process.
        pid: u32,
    },
    /// The target's address space was replaced (exec): everything known about it is void.
    #[error("target {target} (pid {pid}) executed another program")]
    Replaced {
        /// Which target.
        target: TargetId,
        /// Its process.
        pid: u32,
    },
    /// Anything else, with pid, range and remedy in the text.
    #[error("{0}")]
    Failed(String),
}

/// Something that can tell which pages of its targets were accessed.
///
/// The loop is: [`arm`](Self::arm) some windows, let time pass, [`look`](Self::look) at them. A page that was not accessed
/// stays armed, so it can be looked at again for the price of a read.
pub trait AccessSource {
    /// Short name: `pagetable`, `idle`, `sim`.
    fn name(&self) -> &'static str;

    /// Targets that have come since the last call: at the first call those the source was made with, later what they
    /// forked or what joined their control group. Ends are told by [`SourceError::Gone`].
    fn poll_targets(&mut self) -> Result<Vec<TargetInfo>, SourceError>;

    /// Whether more targets may come although none is left (a control group that is empty just now).
    fn may_gain_targets(&self) -> bool {
        false
    }

    /// Resident memory of a target at `now_ns`; `None` where nobody counts it.
    fn footprint(&mut self, target: TargetId, now_ns: u64) -> Option<Footprint> {
        let _ = (target, now_ns);
        None
    }

    /// Replaces `out` by the target's mappings now: sorted, disjoint.
    fn mappings(&mut self, target: TargetId, out: &mut Vec<Mapping>) -> Result<(), SourceError>;

    /// Replaces `out` by the parts of `ranges` (sorted, disjoint) below which page tables exist at all: coarse (2 MiB or more),
    /// sorted, disjoint, and cheap, since whole subtrees that were never populated are passed over. A source that cannot
    /// tell returns `ranges`.
    fn populated(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        out: &mut Vec<AddrRange>,
    ) -> Result<(), SourceError> {
        let _ = target;
        out.clear();
        out.extend_from_slice(ranges);
        Ok(())
    }

    /// Reads each window (`seen` tells the state found *before* clearing), then clears the accessed bits that are set, so
    /// that from now on a set bit means an access. Bits of neighbours in the same leaf or folio may be cleared too.
    fn arm(&mut self, target: TargetId, windows: &mut [Window]) -> Result<(), SourceError>;

    /// Reads each window and changes nothing.
    fn look(&mut self, target: TargetId, windows: &mut [Window]) -> Result<(), SourceError>;

    /// Reads every populated table below `ranges` (sorted, disjoint, page aligned) and hands it to `sink` in address
    /// order, bits outside the ranges masked off. With `clear`, the accessed bits found are cleared afterwards.
    fn scan(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        clear: bool,
        sink: &mut dyn FnMut(&TableBits),
    ) -> Result<(), SourceError>;

    /// What this has cost so far.
    fn cost(&self) -> Cost;

    /// Appends to `out` (sorted, disjoint) the pages of `ranges` that were present and, each by its own accessed bit, not
    /// used for at least `wait_ns`; begins to watch those it was not watching. Asked again later it knows more. Fails where a
    /// source does not keep such a history (see [`Watched`](crate::scheme::watch::Watched)).
    fn confirm_cold(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        wait_ns: u64,
        now_ns: u64,
        out: &mut Vec<AddrRange>,
    ) -> Result<Confirmed, SourceError> {
        let _ = (target, ranges, wait_ns, now_ns, out);
        Err(SourceError::Failed(format!("source {} keeps no history of single pages", self.name())))
    }
}
