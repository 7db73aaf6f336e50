//! `isotherm doctor`.

/// Show what works on this machine, and why the rest does not.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn run(_args: Args) -> anyhow::Result<()> {
    Err(crate::exit::Unsupported("isotherm doctor is not built yet".into()).into())
}
