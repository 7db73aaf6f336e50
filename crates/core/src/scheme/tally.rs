//! What came of the regions in one turn of a scheme, in bytes, and what that says about a turn in which nothing was done.

use super::idle::{IdleReason, Near};

/// What came of the regions in a turn.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// What came closest to the pattern.
    pub near: Near,
    /// Bytes that match.
    pub matched: u64,
    /// Of these, too low in priority.
    pub below_cut_off: u64,
    /// Of these, treated lately.
    pub treated: u64,
    /// Of these, kept by filters.
    pub filtered: u64,
    /// Watched, not for long enough yet.
    pub waiting: u64,
    /// Used while they were watched.
    pub young: u64,
    /// Handed to the actuator.
    pub submitted: u64,
    /// Looked at page by page.
    pub looked: u64,
    /// Whether the actuator could take no more.
    pub busy: bool,
}

impl Tally {
    /// Why nothing was handed to the actuator: the first condition on the way that held everything back.
    pub fn why_nothing(&self) -> IdleReason {
        if self.busy {
            IdleReason::Busy
        } else if self.matched == 0 {
            IdleReason::NoMatch(self.near)
        } else if self.matched == self.below_cut_off {
            IdleReason::BelowCutOff
        } else if self.waiting > 0 || self.young > 0 {
            IdleReason::Confirming { waiting: self.waiting, young: self.young }
        } else if self.filtered > 0 {
            IdleReason::Filtered(self.filtered)
        } else if self.treated > 0 {
            IdleReason::DoneAlready
        } else {
            IdleReason::NothingPresent
        }
    }
}
