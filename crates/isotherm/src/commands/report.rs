//! `isotherm report`.

/// Show what a record holds.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn run(_args: Args) -> anyhow::Result<()> {
    Err(crate::exit::Unsupported("isotherm report is not built yet".into()).into())
}
