//! `isotherm hint`.

mod guest;
mod host;
mod metrics;
pub mod status;

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
    Status(status::Args),
}

pub fn run(args: Args) -> anyhow::Result<()> {
    match args.what {
        What::Guest(args) => guest::run(args),
        What::Host(args) => host::run(args),
        What::Status(args) => status::run(args),
    }
}
