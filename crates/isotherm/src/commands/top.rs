//! `isotherm top`.

/// Live view of a target's memory.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn run(_args: Args) -> anyhow::Result<()> {
    Err(crate::exit::Unsupported("isotherm top is not built yet".into()).into())
}
