//! The memory of the (virtual) machine that we run in: which of it is free, and how to make sure that nobody takes it
//! while a host drops it.
//!
//! [`MemoryMap`], [`FlagSampler`] and [`free_memory`] see, the [`KernelIsolator`] isolates. What is isolated stays so
//! although we die (`kill -9`): a report may be on its way to a host, and memory that went back to the kernel with our
//! death would be dropped while somebody else uses it. The [`Ledger`] tells the next start what to give back, and when
//! that may be done is for its user to say.

mod balloon;
mod clearing;
mod compact;
mod deadline;
mod flags;
mod isolate;
mod ledger;
mod level;
mod map;
mod overcommit;
pub mod ports;
mod put_back;
mod stall;

pub use balloon::reporting_balloons;
pub use clearing::clears_on_free;
pub use compact::{COMPACT_FILE, compact, idle_ns};
pub use flags::FlagSampler;
pub use isolate::KernelIsolator;
pub use ledger::{Ledger, LedgerError};
pub use level::{default_reserve, free_memory};
pub use map::{MemoryMap, MemoryMapFile};
pub use overcommit::OVERCOMMIT_FILE;
pub use put_back::StillTaken;
pub use stall::StallAlarm;
