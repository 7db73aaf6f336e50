//! What a figure over time was drawn from.

use serde::Serialize;

/// What a figure was drawn from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// The page history: pages one by one.
    Pages,
    /// Regions, of which a few pages each were looked at.
    Regions,
}

impl Basis {
    /// Of so many snapshots, how many to leave out at the begin, while regions still adapt: a tenth, at most 20 (damo's
    /// figure). Pages need no time for that.
    pub fn skipped(self, snapshots: usize) -> usize {
        match self {
            Self::Pages => 0,
            Self::Regions => (snapshots / 10).min(20),
        }
    }
}
