//! The kernel's own DAMON, through its sysfs files: the kernel draws the regions, everything else stays the same.
//!
//! It is used only while nobody else does, and put back as it was when the engine is dropped: also on an error, a
//! panic, or after SIGINT and SIGTERM (which the caller turns into [`Wake::Interrupted`](isotherm_core::clock::Wake)).
//! After SIGKILL the [guard](crate::guard) puts it back.
//!
//! What it needs: Linux 6.2 with `CONFIG_DAMON_SYSFS`, `CONFIG_DAMON_VADDR` for processes and `CONFIG_DAMON_PADDR` for
//! physical memory; 6.6 for several processes at once. The files are described in the kernel's
//! Documentation/admin-guide/mm/damon/usage.rst.

mod engine;
mod error;
mod files;
mod kdamond;
mod ram;
mod reader;
mod rounds;
mod session;
#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests;
mod tracepoint;
mod tried;

pub use engine::{DamonConfig, DamonEngine, DamonTargets};
pub use error::DamonError;
