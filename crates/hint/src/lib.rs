//! Free page hinting: a guest tells its host which of its memory is free, and the host takes it back.
//!
//! * [`protocol`]: what the two say to each other, byte by byte.
//! * [`guest`]: the agent in the guest;
//! * [`host`]: the host's side.
#![forbid(unsafe_code)]

pub mod fuzz;
pub mod guest;
pub mod host;
pub mod protocol;
