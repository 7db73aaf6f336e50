//! Control groups: how they are mounted, who is in them, what memory they have.

mod escapes;
pub mod list;
pub mod members;
pub mod memory;
pub mod names;
pub mod reclaim;
pub mod setup;
mod view;

pub use members::Cgroup;
pub use setup::CgroupSetup;
