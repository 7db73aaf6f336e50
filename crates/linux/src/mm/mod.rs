//! Memory system calls behind safe functions.

pub mod advise;
pub mod scratch;
