//! Generations of live memory: what they need of Linux beside page tables.
//!
//! * [`page_out`]: evicting ranges of live processes.
//! * [`memcg`]: control groups' memory: how much is used, and the limit.
//! * [`freeze`]: stopping processes for a while, so that they always go on again.
//! * [`kernel`]: the kernel's own generations (`/sys/kernel/debug/lru_gen`), where it has them.

pub mod freeze;
pub mod kernel;
pub mod memcg;

pub use crate::action::page_out;
