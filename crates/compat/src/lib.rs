//! The control files of the kernel's DAMON, served from user space with Isotherm's engine behind them.
//!
//! * `schema` declares every file once: its name, mode, form and default;
//! * [`tree`] holds folders and values, which appear and go as counts are written;
//! * [`settings`] reads from them what a kdamond is to do;
//! * [`kdamond`] is the border to what does it, [`live`] does it to this machine's processes;
//! * [`admin`] joins them: what a read shows and a write does;
//! * [`mount`] serves them through FUSE.
#![forbid(unsafe_code)]

pub mod admin;
pub mod errno;
mod fs;
pub mod kdamond;
pub mod live;
pub mod mount;
mod schema;
mod scheme;
pub mod settings;
pub mod tree;
mod value;
