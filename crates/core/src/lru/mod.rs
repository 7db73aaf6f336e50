//! Which pages to evict: the multi-generational LRU, and the classic two-list LRU beside it.
//!
//! Pure: no clock, no operating system, nothing random but the bins of the memcg LRU (whose seed is given).
//! docs/mglru.md tells what is implemented, where it differs from the kernel, and why.

mod access;
pub mod classic;
pub mod mglru;
mod variant;

pub use access::{Access, Channel, Hit, Kind, LruStats};
pub use variant::Variant;
