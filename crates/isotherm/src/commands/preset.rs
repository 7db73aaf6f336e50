//! What the commands with ready-made schemes have in common.

use super::schemes::run::{self, RunArgs};
use crate::args::monitor::MonitorArgs;
use crate::args::target::TargetArgs;
use isotherm_core::scheme::Scheme;

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
    pub fn go(self, schemes: Vec<Scheme>) -> anyhow::Result<()> {
        run::run(&self.target, &self.monitor, schemes, &self.run, None)
    }
}
