//! The `isotherm` command: parses arguments, calls one file of `commands/` each, turns errors into exit statuses.
//!
//! It is a library so that fuzzers and tests of damage reach its readers; the program is [`main`].
#![forbid(unsafe_code)]

#[macro_use]
mod stderr;

mod args;
mod commands;
mod exit;
#[cfg(test)]
mod figures_doc;
pub mod fuzz;
mod groups;
mod hangup;
mod instances;
mod kept_generations;
mod kept_history;
mod output;
mod progress;
mod record_file;
mod sandbox;
mod schemes;
mod session;
mod stats_file;

use clap::{CommandFactory, Parser, Subcommand};
use isotherm_linux::confine::confine;
use isotherm_linux::guard;
use isotherm_linux::roots::Roots;
use std::process::ExitCode;

/// The version and, where it was built from a checkout, the commit.
const VERSION: &str = env!("ISOTHERM_VERSION");

/// See which memory a process, container or virtual machine really uses.
#[derive(Parser)]
#[command(name = "isotherm", version = VERSION, max_term_width = 120, arg_required_else_help = true)]
struct Cli {
    /// Say more about what is done and why
    #[arg(short, long, global = true, help_heading = "Messages")]
    verbose: bool,
    /// Say nothing but warnings and errors
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = "Messages")]
    quiet: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Doctor(commands::doctor::Args),
    Record(commands::record::Args),
    Report(commands::report::Args),
    Ps(commands::ps::Args),
    Top(commands::top::Args),
    Node(commands::node::Args),
    Trace(commands::trace::Args),
    Workload(commands::workload::Args),
    Convert(commands::convert::Args),
    Schemes(commands::schemes::Args),
    Reclaim(commands::reclaim::Args),
    Thp(commands::thp::Args),
    Tier(commands::tier::Args),
    Lru(commands::lru::Args),
    Tune(commands::tune::Args),
    Ctl(commands::ctl::Args),
    Hint(commands::hint::Args),
    Mount(commands::mount::Args),
    Sim(commands::sim::Args),
    /// Stops processes, or puts settings back that a killed isotherm had changed; started by it
    #[command(hide = true, name = guard::COMMAND)]
    Guard {
        purpose: guard::Purpose,
    },
    #[command(hide = true)]
    Generate(commands::generate::Args),
}

/// Does what the arguments of this process say; what it ends with.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    stderr::start_log(cli.verbose, cli.quiet);
    tracing::debug!("version {VERSION}");
    let result = match cli.command {
        Command::Doctor(a) => commands::doctor::run(a),
        Command::Record(a) => commands::record::run(a),
        Command::Report(a) => commands::report::run(a),
        Command::Ps(a) => commands::ps::run(a),
        Command::Top(a) => commands::top::run(a),
        Command::Node(a) => commands::node::run(a),
        Command::Trace(a) => commands::trace::run(a),
        Command::Workload(a) => commands::workload::run(a),
        Command::Convert(a) => commands::convert::run(a),
        Command::Schemes(a) => commands::schemes::run(a),
        Command::Reclaim(a) => commands::reclaim::run(a),
        Command::Thp(a) => commands::thp::run(a),
        Command::Tier(a) => commands::tier::run(a),
        Command::Lru(a) => commands::lru::run(a),
        Command::Tune(a) => commands::tune::run(a),
        Command::Ctl(a) => commands::ctl::run(a),
        Command::Hint(a) => commands::hint::run(a),
        Command::Mount(a) => commands::mount::run(a),
        Command::Sim(a) => commands::sim::run(a),
        Command::Guard { purpose } => guard(purpose),
        Command::Generate(a) => commands::generate::run(a, Cli::command()),
    };
    exit::status(result)
}

fn guard(purpose: guard::Purpose) -> anyhow::Result<()> {
    if let Err(e) = guard::detach(purpose, &Roots::system()) {
        tracing::warn!(
            "the process that puts settings back stays in this control group ({e}): if the whole group is killed, they stay as they are"
        );
    }
    // It was said at its start that this machine cannot, or was asked to do without: a guard is better than none.
    let _ = confine(&sandbox::guard::needs(purpose));
    Ok(guard::serve(std::io::stdin(), std::io::stdout())?)
}
