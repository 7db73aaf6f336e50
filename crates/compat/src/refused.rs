//! Why something that files ask for cannot be done.

/// Why something that the kernel would do cannot be done here; a file tells only EINVAL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Refused {
    /// Why, and what can be done.
    pub reason: String,
}

impl Refused {
    /// With this reason.
    pub fn new(reason: impl std::fmt::Display) -> Self {
        Self { reason: reason.to_string() }
    }
}
