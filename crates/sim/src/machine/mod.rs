//! A simulated machine: processes whose page tables can be watched, in virtual time.
//!
//! [`SimSource`] implements the same [`AccessSource`](isotherm_core::source::AccessSource) as real
//! page tables do. Whether a page's accessed bit is set is computed on demand from the workload
//! ([`activity`]) and from when the bit was last cleared ([`cleared`]), so only memory that was
//! looked at takes memory: terabytes fit. Looking costs virtual time by a measured model ([`cost`]).

pub mod activity;
pub mod cleared;
pub mod clock;
pub mod cost;
pub mod device;
pub mod process;
pub mod source;

pub use clock::SimClock;
pub use cost::CostModel;
pub use process::{Process, Region};
pub use source::SimSource;
