//! What the commands with ready-made schemes have in common.

use super::schemes::run::{self, RunArgs, Wanted};
use crate::args::monitor::MonitorArgs;
use crate::args::target::TargetArgs;

/// Whom to watch, and how.
#[derive(Debug, clap::Args)]
pub struct PresetArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    monitor: MonitorArgs,
    #[command(flatten)]
    run: RunArgs,
}

impl PresetArgs {
    pub fn go(self, wanted: impl Into<Wanted>) -> anyhow::Result<()> {
        run::run(&self.target, &self.monitor, wanted.into(), &self.run)
    }
}
