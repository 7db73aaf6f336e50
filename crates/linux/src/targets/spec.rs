//! What the user asked to watch.

use super::command::Command;
use std::path::PathBuf;

/// What the user asked to watch.
#[derive(Debug, Clone)]
pub enum TargetSpec {
    Pids {
        pids: Vec<u32>,
        /// Whether processes that they fork are targets, too.
        children: bool,
    },
    /// All processes of this control group and of those nested in it, now and later: a path as `/proc/PID/cgroup` shows
    /// it, a path below `/sys/fs/cgroup`, or the full path of a folder.
    Cgroup(PathBuf),
    /// The same of several control groups.
    Cgroups(Vec<PathBuf>),
    /// A command that is ready to start; it starts at the first poll.
    Command {
        command: Command,
        /// Whether processes that it forks are targets, too.
        children: bool,
    },
}
