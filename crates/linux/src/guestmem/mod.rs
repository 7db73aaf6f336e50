//! The memory of the (virtual) machine that we run in: which of it is free, and how to make sure that nobody takes it while a
//! host drops it.
//!
//! [`MemoryMap`], [`FlagSampler`] and [`FreeLevel`] see, the [isolators](isolate) take. What is taken stays taken although we
//! die (`kill -9`): a report may be on its way to a host, and memory that went back to the kernel with our death would be dropped
//! while somebody else uses it. The [`Ledger`] tells the next start what to give back, and when that may be done is for its
//! user to say.

pub mod balloon;
pub mod clearing;
mod deadline;
pub mod flags;
pub mod isolate;
pub mod ledger;
pub mod level;
pub mod map;
pub mod ports;
pub mod stall;

pub use balloon::{Balloon, balloons};
pub use clearing::clears_on_free;
pub use flags::FlagSampler;
pub use ledger::{Ledger, LedgerError, Leftover};
pub use level::FreeLevel;
pub use map::{Area, AreaKind, MemoryMap};
pub use stall::StallAlarm;
