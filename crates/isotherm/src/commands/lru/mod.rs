//! `isotherm lru`.

mod age;
mod engine;
mod evict;
mod kernel;
mod live;
mod report;
pub mod run;
mod store;
mod target;

use clap::Subcommand;
use isotherm_linux::lru::freeze;
use isotherm_linux::roots::Roots;

/// Generations on live memory: working sets, eviction of the oldest, thrashing prevention.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Lru,
}

#[derive(Debug, Subcommand)]
enum Lru {
    Report(report::Args),
    Age(age::Args),
    Evict(evict::Args),
    Run(run::Args),
    /// Lets processes go on that a killed `lru run` had stopped; started by it
    #[command(hide = true)]
    Guard,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        Lru::Report(args) => report::run(args),
        Lru::Age(args) => age::run(args),
        Lru::Evict(args) => evict::run(args),
        Lru::Run(args) => run::run(args),
        Lru::Guard => Ok(freeze::guard(std::io::stdin().lock(), std::io::stdout(), &Roots::system())?),
    }
}
