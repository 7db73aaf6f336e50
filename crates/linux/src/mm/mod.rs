//! Memory system calls behind safe functions.

pub mod advise;
pub mod entry_bits;
pub mod huge;
pub mod scratch;
pub mod swap_trip;
