//! Arguments that several commands share.

pub mod monitor;
pub mod target;
pub mod units;
pub mod workload;
