//! `isotherm node`: the machine's agent.

mod agent;
mod answers;
mod ask;
mod jumps;
mod kept;
mod paths;
mod promotions;
mod refusal;
pub mod rules;
pub mod status;
mod windows;

pub use ask::known;

use crate::args::control::ControlArgs;
use crate::args::monitor::{MonitorArgs, pages_only};
use crate::args::target::TargetArgs;
use crate::args::units;
use crate::exit::Usage;
use crate::hangup::has_terminal;
use crate::sandbox::SandboxArgs;
use crate::sandbox::schemes::{Work, needs};
use crate::session::{Ended, Session};
use agent::{About, Agent, NodeService};
use anyhow::Context;
use isotherm_linux::clock::kernel_release;
use isotherm_linux::confine::{CapabilitySet, lacks};
use isotherm_linux::notify::Notify;
use isotherm_linux::roots::Roots;
use isotherm_record::parquet::window::Origin;
use kept::Kept;
use rules::Rules;
use std::path::PathBuf;
use std::time::Duration;
use windows::{Moment, Windows};

/// What a node is about that watches all.
const ALL: &str = "all processes";

/// Watch the whole machine for as long as it runs.
///
/// Keeps the page history of all processes, so that `isotherm ps` knows at once what has not been accessed for hours.
/// Serves every control group's cold memory and working sets at /metrics (--metrics). It observes only and changes
/// nothing, unless a file of rules (--config) says which control groups' cold memory and page cache it is to reclaim,
/// and which of them are to get huge pages. Run one on a machine: two clear each other's bits.
/// `isotherm ctl` talks to it. Needs page tables or idle page tracking (`isotherm doctor`): with less, --source refs or
/// damon, nothing is known of single pages.
#[derive(Debug, clap::Args)]
#[command(mut_args(pages_only), mut_arg("command", |arg| arg.hide(true)))]
pub struct Args {
    /// Act by the rules in this file (for example /etc/isotherm/node.toml); SIGHUP reads it again
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Do nothing by the rules: tell what each would save, and what would have come back
    #[arg(long, requires = "config")]
    dry_run: bool,
    /// Write a row for each control group and window into Parquet files in this folder, one for each hour
    #[arg(long, value_name = "DIR")]
    parquet: Option<PathBuf>,
    /// The length of a window, whole seconds, from one to an hour
    #[arg(long, value_name = "T", default_value = "5m", value_parser = units::time, requires = "parquet")]
    window: Duration,
    /// What the cluster is called that this machine is in, for the rows
    #[arg(long, value_name = "NAME", requires = "parquet")]
    cluster: Option<String>,
    /// What this machine is called in the rows, where its own host name is not that (in a pod) [default: its host name]
    #[arg(long, value_name = "NAME", requires = "parquet", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    host: Option<String>,
    /// Stop after this time
    #[arg(long, value_name = "T", value_parser = units::duration)]
    duration: Option<Duration>,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    monitor: MonitorArgs,
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
    if !(Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&args.window) {
        return Err(Usage("--window must be between 1s and 1h: files hold an hour each".into()).into());
    }
    if args.window.subsec_nanos() > 0 {
        return Err(Usage("--window must be whole seconds: rows tell it in seconds".into()).into());
    }
    let words = if args.target.is_given() && !args.target.all { "some processes" } else { ALL };
    args.target.all |= !args.target.is_given();
    let notify = Notify::from_env().context("cannot reach the service manager at NOTIFY_SOCKET")?;
    let bound = args.control.bind()?;
    let rules = args.config.take().map(|file| Rules::open(file, args.dry_run)).transpose()?;
    let windows = args.parquet.as_deref().map(|folder| Windows::new(folder, args.window, origin(&args), Moment::now()));
    let windows = windows.transpose()?;
    let mut session = Session::open_for_node(&args.target, &args.monitor)?;
    // Once nothing is in the way any more: what it takes is gone then.
    let kept = Kept::open();
    // The sandbox forbids to ask.
    let lacks_right = lacks(CapabilitySet::SYS_PTRACE);
    let sandbox = args.sandbox.enter(&needs(Work {
        source: args.monitor.source,
        command: false,
        dry_run: rules.is_none() || args.dry_run,
    }))?;
    // Threads from here on.
    let server = bound.serve(NodeService).context("cannot listen")?;
    tracing::info!("watching {words}");
    let about = About { words: words.to_owned(), target: args.target, lacks_right, sandbox };
    let mut agent = Agent::new(server, notify, about);
    if let Some(windows) = windows {
        agent.write(windows);
    }
    if let Some(kept) = kept {
        agent.keep(kept);
    }
    if let Some(rules) = rules {
        session = session.with_schemes(rules.engine()?);
        tracing::info!("{}", rules.words());
        agent.act(rules);
    } else if !has_terminal() {
        // A service manager asks all that it runs to reload; from a terminal it is that one's end.
        session.reload_on_hangup()?;
    }
    let result = session.run(args.duration, &mut agent, |agent, _| agent.after_turn());
    agent.finish(session.page_source());
    let finished = session.finish();
    if result? == Ended::TargetsGone {
        tracing::info!("every target has ended");
    }
    finished
}

/// Whose rows they are.
fn origin(args: &Args) -> Origin {
    let line = |path| Roots::system().line(path).unwrap_or_else(|| "unknown".to_owned());
    Origin {
        host: args.host.clone().unwrap_or_else(|| line("/proc/sys/kernel/hostname")),
        cluster: args.cluster.clone(),
        boot_id: line("/proc/sys/kernel/random/boot_id"),
        source: String::new(),
        kernel: kernel_release().unwrap_or_default(),
        isotherm_version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}
