//! One file per command.

pub mod convert;
pub mod ctl;
pub mod doctor;
pub mod generate;
pub mod hint;
pub mod lru;
pub mod mount;
pub mod node;
mod preset;
pub mod ps;
pub mod reclaim;
pub mod record;
pub mod report;
pub mod schemes;
pub mod sim;
pub mod thp;
pub mod tier;
pub mod top;
pub mod trace;
pub mod tune;
pub mod workload;
