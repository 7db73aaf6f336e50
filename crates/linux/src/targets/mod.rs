//! Which processes are watched: some pids and their children, control groups, names, all, or a command that we start.

pub mod command;
pub mod elsewhere;
mod ending;
pub mod error;
mod exits;
mod listed;
pub mod spec;
pub mod tracker;

pub use command::{Command, CommandEnd, Streams};
pub use elsewhere::WatchedElsewhere;
pub(crate) use ending::end_family;
pub use error::TargetError;
pub use spec::TargetSpec;
pub use tracker::TargetTracker;
