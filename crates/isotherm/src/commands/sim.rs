//! `isotherm sim`.

/// Run the same algorithms on a simulated machine.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn run(_args: Args) -> anyhow::Result<()> {
    Err(crate::exit::Unsupported("isotherm sim is not built yet".into()).into())
}
