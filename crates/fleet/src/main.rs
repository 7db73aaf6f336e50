//! The `isotherm-fleet` command: for the memory windows of many hosts, as `isotherm node --parquet` writes them. So far it
//! only makes up fleets for whoever analyses such files.
#![forbid(unsafe_code)]

mod progress;
mod simulate;

use clap::{Parser, Subcommand};
use isotherm_core::printable::printable;
use std::process::ExitCode;

/// Memory windows of many hosts, in the Parquet files that `isotherm node` writes
#[derive(Parser, Debug)]
#[command(name = "isotherm-fleet", version, max_term_width = 120, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Simulate(simulate::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Simulate(args) => simulate::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("isotherm-fleet: {}", printable(&format!("{e:#}")));
            ExitCode::FAILURE
        }
    }
}
