//! Why a self-test did not pass.

/// Before anything is called cold, a source must see accesses to pages of our own, and their absence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum SelfTestError {
    /// It could not be done.
    #[error("{0}")]
    Failed(String),
    /// It was done, and what was seen is wrong.
    #[error("{0}")]
    Wrong(String),
}

impl SelfTestError {
    /// It could not be done for this reason.
    pub(super) fn failed(why: impl ToString) -> Self {
        Self::Failed(why.to_string())
    }
}
