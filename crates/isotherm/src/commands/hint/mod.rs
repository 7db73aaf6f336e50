//! `isotherm hint`.

mod guest;
mod host;
mod metrics;
pub mod status;

use super::ctl;
use crate::instances::Which;
use clap::Subcommand;

/// Give free memory of virtual machines back to their host.
///
/// `guest` runs inside the virtual machine and tells which memory is free; `host` runs on the host and takes it back.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Guest(guest::Args),
    Host(host::Args),
    Status(StatusArgs),
}

/// Show what the host side has of each guest, and what it has given back
#[derive(Debug, clap::Args)]
struct StatusArgs {
    #[command(flatten)]
    which: Which,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    match args.what {
        What::Guest(args) => guest::run(args),
        What::Host(args) => host::run(args),
        What::Status(args) => ctl::status(&args.which.find(Some(status::COMMAND))?, args.json),
    }
}
