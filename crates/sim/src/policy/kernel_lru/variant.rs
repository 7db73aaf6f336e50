//! Which kernels' behaviour is followed.

use serde::{Deserialize, Serialize};

/// The multi-generational LRU was reworked once; both forms are here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Variant {
    /// Up to Linux 6.12.
    #[serde(rename = "6.12")]
    V6_12,
    /// From Linux 6.14 on.
    #[default]
    #[serde(rename = "6.14")]
    V6_14,
}
