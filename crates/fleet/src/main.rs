//! The `isotherm-fleet` command: for the memory windows of many hosts, as `isotherm node --parquet` writes them.
//!
//! * [`input`]: which files; [`engine`]: DataFusion over them, and the SQL; [`report`]: what there is; [`policy`]: what
//!   policies would have done; [`simulate`]: made-up fleets with a truth.
#![forbid(unsafe_code)]

mod engine;
mod input;
mod options;
mod output;
mod panics;
mod policy;
mod progress;
mod report;
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
    Report(report::Args),
    WhatIf(policy::what_if::Args),
    Tune(policy::tune::Args),
    Simulate(simulate::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Report(args) => report::run(&args),
        Command::WhatIf(args) => policy::what_if::run(&args),
        Command::Tune(args) => policy::tune::run(&args),
        Command::Simulate(args) => simulate::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            output::tell(&printable(&format!("{e:#}")));
            if e.is::<options::Usage>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}
