//! Generations of live memory: what they need of Linux beside page tables.
//!
//! * [`page_out`]: evicting ranges of live processes.
//! * [`freeze`]: stopping processes for a while, so that they always go on again.
//! * [`kernel`]: the kernel's own generations (`/sys/kernel/debug/lru_gen`), where it has them.

pub mod error;
pub mod files;
pub mod freeze;
pub mod kernel;

pub use crate::action::page_out;
