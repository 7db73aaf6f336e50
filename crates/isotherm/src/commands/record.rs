//! `isotherm record`.

/// Record which memory a target uses.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn run(_args: Args) -> anyhow::Result<()> {
    Err(crate::exit::Unsupported("isotherm record is not built yet".into()).into())
}
