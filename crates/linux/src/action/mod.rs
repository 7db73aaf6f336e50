//! Acting on the memory of live processes.
//!
//! [`LinuxActuator`] takes requests; a thread of its own carries them out, so that sampling stays on time. Each target
//! is held by a pidfd from the first time that it is named: a pid that is given to another process later is never acted
//! on.

mod actuator;
mod advice;
mod ahead;
mod batches;
mod hinted;
mod holds;
pub(crate) mod inject;
mod migrate;
mod obstacle;
mod pace;
pub mod page_out;
mod place;
mod swap_room;
mod tally;
mod worker;

pub use actuator::LinuxActuator;
pub use ahead::{Ahead, Arrivals};
pub(crate) use obstacle::LRU_PRIO;
pub use obstacle::{huge_pages_off, impossible_now, unsupported};
