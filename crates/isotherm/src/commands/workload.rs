//! `isotherm workload`.

/// Access memory in a known pattern and tell the truth about it.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn run(_args: Args) -> anyhow::Result<()> {
    Err(crate::exit::Unsupported("isotherm workload is not built yet".into()).into())
}
