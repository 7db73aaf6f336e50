//! The control files of the kernel's DAMON, as a tree that behaves as the kernel's does.
//!
//! * [`schema`] declares every file once: its name, mode, form and default;
//! * [`tree`] holds folders and values, which appear and go as counts are written.
#![forbid(unsafe_code)]

pub mod errno;
mod schema;
pub mod tree;
mod value;
