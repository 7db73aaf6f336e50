//! What the benchmark's client is made of.
#![forbid(unsafe_code)]

pub mod keys;
pub mod latency;
