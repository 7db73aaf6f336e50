//! `isotherm convert`.

/// Convert between record formats.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn run(_args: Args) -> anyhow::Result<()> {
    Err(crate::exit::Unsupported("isotherm convert is not built yet".into()).into())
}
