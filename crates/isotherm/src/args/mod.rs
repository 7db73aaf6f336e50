//! Arguments that several commands share.

pub mod control;
pub mod monitor;
pub mod ranges;
pub mod refused;
pub mod target;
pub mod units;
pub mod workload;
