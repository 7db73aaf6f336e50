//! A simulated machine: processes whose page tables can be watched, in virtual time.
//!
//! [`SimSource`] implements the same [`AccessSource`](isotherm_core::source::AccessSource) as real
//! page tables do. Whether a page's accessed bit is set is computed on demand from the workload
//! ([`activity`]) and from when the bit was last cleared ([`cleared`]), so only memory that was
//! looked at takes memory: terabytes fit. Looking costs virtual time by a measured model ([`cost`]).
//!
//! Where schemes are to act on it, a process has a [`memory`]: pages leave and come back, and the program waits for
//! them. [`SimActuator`] and [`SimMeter`] are what a scheme engine needs beside the source.

pub mod activity;
pub mod cleared;
pub mod clock;
pub mod cost;
pub mod device;
pub mod hands;
pub mod hardware;
pub mod memory;
pub mod process;
mod progress;
pub mod source;
mod target;

pub use clock::SimClock;
pub use cost::CostModel;
pub(crate) use hands::SimActuator;
pub(crate) use hands::SimMeter;
pub use hardware::{Hardware, Thp};
pub use memory::SharedMemory;
pub(crate) use memory::SimMemory;
pub use process::{Process, Region};
pub use source::SimSource;
