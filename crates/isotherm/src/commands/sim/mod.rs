//! `isotherm sim`: the algorithms on a simulated machine.

mod guests;
mod lru;
mod metered;
mod monitor;
mod schemes;

use clap::Subcommand;

/// Touches a second, at least, of a simulated program: fewer are no workload.
const LEAST_RATE: f64 = 0.001;

/// Run the same algorithms on a simulated machine.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Guests(guests::Args),
    Lru(lru::Args),
    Monitor(monitor::Args),
    Schemes(schemes::Args),
}

pub fn run(args: Args) -> anyhow::Result<()> {
    match args.what {
        What::Guests(a) => guests::run(a),
        What::Lru(a) => lru::run(a),
        What::Monitor(a) => monitor::run(a),
        What::Schemes(a) => schemes::run(a),
    }
}
