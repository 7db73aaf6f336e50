//! The control files of the kernel's DAMON and of its multi-generational LRU, served from user space with Isotherm's engine behind them.
//!
//! * `schema` declares every file once: its name, mode, form and default;
//! * [`tree`] holds folders and values, which appear and go as counts are written;
//! * [`settings`] reads from them what a kdamond is to do;
//! * [`kdamond`] is the border to what does it, [`live`] does it to this machine's processes, [`registry`] knows what runs and
//!   what was refused;
//! * [`admin`] joins them: what a read shows and a write does;
//! * [`debugfs`] has the files of the patch set that DAMON began as;
//! * [`modules`] has the parameters of the ready-made modules;
//! * [`lru_gen`]: the control files of the multi-generational LRU, the kernel's own where it has one;
//! * [`files`] is the border to the file system, and puts files of several kinds at their places;
//! * [`mount`] serves them through FUSE.
#![forbid(unsafe_code)]

pub mod admin;
pub mod debugfs;
pub mod errno;
#[cfg(test)]
mod fake;
pub mod files;
mod folder;
mod fs;
pub mod fuzz;
mod held;
pub mod kdamond;
pub mod live;
pub mod lru_gen;
pub mod modules;
pub mod mount;
pub mod refused;
pub mod registry;
mod schema;
pub mod scheme;
pub mod settings;
pub mod tree;
mod value;
