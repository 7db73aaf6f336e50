//! Why a source cannot be used on this machine.

/// What cannot be done, why, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} here: {reason}; {remedy}")]
pub struct SourceUnavailable {
    /// What cannot be done, such as `page tables cannot be read`.
    pub what: &'static str,
    /// Why.
    pub reason: String,
    /// What the user can do.
    pub remedy: String,
}
