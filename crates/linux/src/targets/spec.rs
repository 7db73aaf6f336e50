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
    /// These processes, each a target of its own in this order, also where one is given several times.
    Each(Vec<u32>),
    /// All processes of these control groups and of those nested in them, now and later: paths as `/proc/PID/cgroup`
    /// shows them, paths below `/sys/fs/cgroup`, or full paths of folders.
    Cgroups(Vec<PathBuf>),
    /// All processes with one of these names, now and later: the command name, of which the kernel keeps 15 bytes, or
    /// the file name in the first argument.
    Names(Vec<String>),
    /// All processes of this pid namespace, now and later; those of the kernel have no memory of their own.
    All,
    /// Those that are passed to [`TargetTracker::watch`](super::TargetTracker::watch), one by one.
    OneByOne,
    /// A command that is ready to start; it starts at the first poll.
    Command {
        command: Command,
        /// Whether processes that it forks are targets, too.
        children: bool,
    },
}
