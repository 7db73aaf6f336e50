//! `isotherm node`: the machine's agent.

mod agent;
mod ask;
mod jumps;
mod paths;
pub mod status;

pub use ask::known;

use crate::args::control::ControlArgs;
use crate::args::monitor::MonitorArgs;
use crate::args::target::TargetArgs;
use crate::args::units;
use crate::exit::Usage;
use crate::sandbox::SandboxArgs;
use crate::sandbox::schemes::{Work, needs};
use crate::session::{Ended, Session};
use agent::{About, Agent, NodeService};
use anyhow::Context;
use isotherm_linux::notify::Notify;
use std::time::Duration;

/// What a node is about that watches all.
const ALL: &str = "all processes";

/// Watch the whole machine for as long as it runs.
///
/// Keeps the page history of all processes, so that `isotherm ps` knows at once what has not been accessed for hours. Tells
/// every control group's cold memory and working sets at /metrics (--metrics). It observes only and changes nothing.
/// One runs on a machine; `isotherm ctl` talks to it.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    monitor: MonitorArgs,
    /// Stop after this time
    #[arg(long, value_name = "T", value_parser = units::time)]
    duration: Option<Duration>,
    #[command(flatten)]
    control: ControlArgs,
    #[command(flatten)]
    sandbox: SandboxArgs,
}

pub fn run(mut args: Args) -> anyhow::Result<()> {
    if args.monitor.physical {
        return Err(Usage("--physical knows no processes; leave it out".into()).into());
    }
    if !args.target.command.is_empty() {
        return Err(Usage("a node watches what runs already; leave the command out".into()).into());
    }
    let words = if args.target.is_given() && !args.target.all { "some processes" } else { ALL };
    args.target.all |= !args.target.is_given();
    let notify = Notify::from_env().context("cannot reach the service manager at NOTIFY_SOCKET")?;
    let bound = args.control.bind(false)?;
    let mut session = Session::open(&args.target, &args.monitor)?;
    let sandbox = args.sandbox.enter(&needs(Work { source: args.monitor.source, command: false, dry_run: true }))?;
    // Threads from here on.
    let server = bound.serve(NodeService).context("cannot listen")?;
    tracing::info!("watching {words}");
    let mut agent = Agent::new(server, notify, About { words: words.to_owned(), sandbox });
    let result = session.run(args.duration, &mut agent, |agent, _| Ok(agent.after_turn()));
    agent.stopping();
    drop(agent);
    let finished = session.finish();
    if result? == Ended::TargetsGone {
        tracing::info!("every target has ended");
    }
    finished
}
