//! What a walk over the memory of a process came to.

/// What a scan found.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Tally {
    /// Pages.
    pub(super) present: u64,
    pub(super) accessed: u64,
    /// Pages whose bit should have been cleared, and only `clear_refs` can.
    pub(super) stuck: u64,
    /// Bits cleared page by page.
    pub(super) cleared: u64,
    /// Bits of tables in which none had been cleared before.
    pub(super) first: u64,
}
