//! Why a value is refused.

use isotherm_core::units::UnitError;
use std::fmt;

/// Why a value of a flag or of a file is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{written}' {why}")]
pub struct Refused {
    written: String,
    /// What is wrong with it, and what would be right.
    why: String,
}

impl Refused {
    pub fn new(written: impl fmt::Display, why: impl Into<String>) -> Self {
        Self { written: written.to_string(), why: why.into() }
    }
}

impl From<UnitError> for Refused {
    fn from(e: UnitError) -> Self {
        Self { why: format!("is not a {}: {}", e.what, e.why), written: e.text }
    }
}
