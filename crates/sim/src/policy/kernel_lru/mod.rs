//! Linux's own policies: the multi-generational LRU, and the classic LRU of two lists beside it.
//!
//! Pure: no clock, no operating system, nothing random but the bins of the LRU of memories (whose seed is given).
//!
//! ```
//! use isotherm_sim::policy::kernel_lru::{Access, Hit, PageKind, mglru::{MgConfig, MgLru}};
//!
//! let mut lru = MgLru::new(MgConfig::new(100_000));
//! assert_eq!(lru.access(7, Access::mapped(PageKind::Anon, true)), Hit::Miss);
//! assert_eq!(lru.access(7, Access::mapped(PageKind::Anon, true)), Hit::Hit);
//! ```
//!
//! docs/mglru.md tells what is implemented, where it differs from the kernel, and why.

mod access;
mod aging;
pub mod bloom;
pub mod classic;
pub mod controller;
pub mod dense;
mod evict;
mod fault;
pub mod flags;
pub mod global;
pub mod lruvec;
pub mod machine;
pub mod mglru;
pub mod pages;
mod placement;
pub mod reclaim;
mod refault;
pub mod shadow;
mod sort;
mod switches;
pub mod tables;
pub mod tier;
mod variant;
mod walk;

#[cfg(test)]
mod invariants;
#[cfg(test)]
mod vectors;

pub use access::{Access, Channel, Hit, LruStats};
pub use evict::Round;
pub use isotherm_core::keeper::PageKind;
pub(crate) use lruvec::Lruvec;
pub use switches::Switches;
pub use variant::Variant;
