//! One file per command.

pub mod convert;
pub mod doctor;
pub mod record;
pub mod report;
pub mod schemes;
pub mod sim;
pub mod top;
pub mod workload;
