//! Whose memory: processes, control groups, or a command.

use crate::args::target::{StartedCommand, Target, TargetArgs};
use crate::exit::Usage;
use isotherm_linux::targets::TargetSpec;
use std::ffi::OsString;
use std::path::PathBuf;

/// Which processes: `--pid N`…, `--cgroup PATH`…, or `-- COMMAND ARG...`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Target")]
pub struct LruTarget {
    /// This process (repeatable)
    #[arg(long = "pid", value_name = "N")]
    pub pids: Vec<u32>,
    /// The processes that the targets fork, too
    #[arg(long)]
    pub children: bool,
    /// All processes of this control group and of those in it (repeatable)
    #[arg(long = "cgroup", value_name = "PATH", conflicts_with = "pids")]
    pub cgroups: Vec<PathBuf>,
    /// Run this command
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["pids", "cgroups"])]
    pub command: Vec<OsString>,
}

impl LruTarget {
    /// Turns the arguments into a target. A command is made ready but not started.
    pub fn resolve(&self) -> anyhow::Result<(TargetSpec, Option<StartedCommand>)> {
        if !self.cgroups.is_empty() {
            if self.children {
                return Err(Usage("--children goes with --pid; a control group has its children in it".into()).into());
            }
            return Ok((TargetSpec::Cgroups(self.cgroups.clone()), None));
        }
        let args = TargetArgs {
            pids: self.pids.clone(),
            children: self.children,
            cgroup: None,
            command: self.command.clone(),
            silent: false,
        };
        let Target { spec, command } = args.resolve()?;
        Ok((spec, command))
    }
}
