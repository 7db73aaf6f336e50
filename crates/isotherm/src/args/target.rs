//! `TARGET`: which processes to watch.

use std::path::PathBuf;

/// Which processes to watch: `--pid N`…, `--cgroup PATH`, or `-- COMMAND ARG...`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Target")]
pub struct TargetArgs {
    /// Watch this process (repeatable)
    #[arg(long = "pid", value_name = "N")]
    pub pids: Vec<u32>,
    /// Watch the processes that the targets fork and execute, too
    #[arg(long)]
    pub children: bool,
    /// Watch all processes of this control group (a path below the cgroup mount, or a full path)
    #[arg(long, value_name = "PATH", conflicts_with = "pids")]
    pub cgroup: Option<PathBuf>,
    /// Run this command and watch it
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["pids", "cgroup"])]
    pub command: Vec<std::ffi::OsString>,
}
