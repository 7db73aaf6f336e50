//! Memory system calls behind safe functions.

pub mod advise;
pub mod entry_bits;
pub mod scratch;
pub mod swap_trip;
