//! `isotherm lru`.

mod age;
mod engine;
mod evict;
mod kernel;
mod live;
mod report;
pub mod run;
mod store;

use clap::Subcommand;

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
}

pub fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        Lru::Report(args) => report::run(args),
        Lru::Age(args) => age::run(args),
        Lru::Evict(args) => evict::run(args),
        Lru::Run(args) => run::run(args),
    }
}
