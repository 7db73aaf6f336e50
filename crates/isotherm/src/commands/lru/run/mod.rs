//! `isotherm lru run`.

mod gauge;
mod kernel;
mod limits;
mod react;
pub mod status;
mod user;

use super::engine::EngineName;
use crate::args::control::{Bound, ControlArgs};
use crate::args::monitor::{CpuBudget, cpu_budget};
use crate::args::target::TargetArgs;
use crate::args::units;
use crate::exit::Usage;
use crate::output::open_live_stats;
use crate::sandbox::{SandboxArgs, lru_run};
use anyhow::Context;
use clap::ValueEnum;
use isotherm_core::clock::Wake;
use isotherm_core::keeper::figures::LimitFigures;
use isotherm_core::keeper::limit::SHORTEST_INTERVAL_NS;
use isotherm_core::units::nanos;
use isotherm_daemon::instance::Instance;
use isotherm_daemon::sandbox::Sandbox;
use isotherm_daemon::server::Server;
use isotherm_daemon::service::StatusOnly;
use isotherm_daemon::socket::BoundSocket;
use isotherm_linux::clock::monotonic_ns;
use isotherm_linux::roots::Roots;
use status::LruStatus;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// How often statistics are written, ns.
const STATS_NS: u64 = 1_000_000_000;
/// How long somebody who asks over the control socket waits at most for the loop to look, ns.
const LOOK_NS: u64 = 200_000_000;
const NO_LIMIT: &str = "processes have no limit of their own: give --limit SIZE, or --cgroup PATH";

/// What is done when a working set does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnThrash {
    /// Say so
    Notify,
    /// Stop the largest process for a while, so that the others have room
    Freeze,
    /// Kill the largest process
    Kill,
}

/// Keep processes or control groups below a limit by evicting what is used least, before the kernel has to.
///
/// Page tables are walked to see what is used; the pages least likely to come back go, a little ahead of the need, so
/// that programs do not wait for reclaim. Pages that come back teach which ones to spare. Needs swap, for example zram.
/// Runs until --duration has passed, Ctrl-C is pressed, or no target is left.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Stay below this: of all targets together [default: each control group's own limit]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    limit: Option<u64>,
    /// Share of the limit that is kept free
    #[arg(long, value_name = "P", default_value = "2%", value_parser = units::percent)]
    headroom: f64,
    /// A working set of so long must stay in memory; 0: do not look whether it can
    #[arg(long, value_name = "T", default_value = "0s", value_parser = units::time)]
    min_ttl: Duration,
    /// What to do when it cannot
    #[arg(long, value_enum, default_value = "notify")]
    on_thrash: OnThrash,
    /// How long a process stays stopped with --on-thrash freeze
    #[arg(long, value_name = "T", default_value = "10s", value_parser = units::time)]
    freeze_time: Duration,
    /// What anonymous memory is worth against files: 0 (only files go) to 200 (only anonymous memory goes)
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u8).range(..=200))]
    swappiness: u8,
    /// Share of one core that walks may cost, the targets' losses counted ("none": unlimited); eviction itself, which
    /// the targets would have to do otherwise, is not counted
    #[arg(long, value_name = "P", default_value = "3%", value_parser = cpu_budget)]
    cpu_budget: CpuBudget,
    /// Longest time between two walks
    #[arg(long, value_name = "T", default_value = "10s", value_parser = units::time)]
    max_interval: Duration,
    /// Stop after this time
    #[arg(long, value_name = "T", value_parser = units::time)]
    duration: Option<Duration>,
    /// Write a JSON line per limit every second and at the end ("-": standard output)
    #[arg(long, value_name = "FILE")]
    stats: Option<PathBuf>,
    /// Who keeps the generations
    #[arg(long, value_enum, default_value = "auto")]
    engine: EngineName,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    control: ControlArgs,
    #[command(flatten)]
    sandbox: SandboxArgs,
}

impl Args {
    fn check(&self) -> Result<(), Usage> {
        let wrong = if self.engine != EngineName::Kernel && self.limit.is_none() && self.target.cgroups.is_empty() {
            NO_LIMIT
        } else if self.limit == Some(0) {
            "--limit 0 leaves no memory; give a size"
        } else if !(0.001..=0.5).contains(&self.headroom) {
            "--headroom must be between 0.1% and 50%"
        } else if self.duration.is_some_and(|d| d.is_zero()) {
            "--duration 0 does nothing; leave it out to run until Ctrl-C"
        } else if nanos(self.max_interval) < SHORTEST_INTERVAL_NS {
            "--max-interval must be at least 50ms"
        } else if self.freeze_time.is_zero() {
            "--freeze-time 0 stops nobody; give a time, or --on-thrash notify"
        } else if self.on_thrash != OnThrash::Notify && self.min_ttl.is_zero() {
            "--on-thrash needs --min-ttl, which says what thrashing is"
        } else {
            return Ok(());
        };
        Err(Usage(wrong.into()))
    }

    /// Who keeps the generations. The kernel's own answer to thrashing is to kill, so another is ours.
    fn engine(&self) -> EngineName {
        match self.engine {
            EngineName::Auto if !self.min_ttl.is_zero() && self.on_thrash != OnThrash::Kill => EngineName::User,
            engine => engine,
        }
    }
}

/// Who keeps the generations, and memory below its limits.
trait Engine {
    /// Does what is due; when the next turn is, ns. `None`: nothing is left to care for.
    fn turn(&mut self) -> anyhow::Result<Option<u64>>;
    /// Waits until `until_ns` or a signal.
    fn wait(&self, until_ns: u64) -> Wake;
    /// The figures of each limit.
    fn figures(&self) -> Vec<LimitFigures>;
    /// What is said of a limit at the end.
    fn summary(&self, figures: &LimitFigures) -> String;
}

pub fn run(args: Args) -> anyhow::Result<()> {
    args.check()?;
    let open_stats = || args.stats.as_deref().map(open_live_stats).transpose();
    let bound = args.control.bind()?;
    match args.engine().kernel(&args.target)? {
        Some(target) => {
            let mut engine = kernel::KernelEngine::open(&target, &args)?;
            let mut stats = open_stats()?;
            let socket = bound.socket.as_ref().map(BoundSocket::path);
            let sandbox = args.sandbox.enter(&lru_run::by_kernel(socket, &Roots::system()))?;
            keep(&mut engine, &args, &mut stats, &Control::start(bound, sandbox)?)
        }
        None => {
            // What can fail comes before a command is started.
            let mut stats = open_stats()?;
            let mut engine = user::UserEngine::open(&args)?;
            let signals = args.on_thrash == OnThrash::Kill || !args.target.command.is_empty();
            let sandbox = args.sandbox.enter(&lru_run::by_walks(signals))?;
            let kept = keep(&mut engine, &args, &mut stats, &Control::start(bound, sandbox)?);
            // Stopped processes go on before anything else can fail.
            let finished = engine.finish();
            kept.and(finished)
        }
    }
}

/// Keeps memory below the limits until the time is over, a signal comes, or nothing is left.
fn keep(
    engine: &mut impl Engine,
    args: &Args,
    stats: &mut Option<Box<dyn Write>>,
    control: &Control,
) -> anyhow::Result<()> {
    let mut result = watch(engine, args, stats, control);
    for figures in engine.figures() {
        result = result.and(write_stats(stats, &figures));
        say!("{}: {}", figures.domain, engine.summary(&figures));
    }
    result
}

fn watch(
    engine: &mut impl Engine,
    args: &Args,
    stats: &mut Option<Box<dyn Write>>,
    control: &Control,
) -> anyhow::Result<()> {
    let begin = monotonic_ns();
    let end = args.duration.map_or(u64::MAX, |d| begin.saturating_add(nanos(d)));
    let mut next_stats = begin + STATS_NS;
    while let Some(wake) = engine.turn()? {
        let now = monotonic_ns();
        if now >= next_stats {
            next_stats = now + STATS_NS;
            if stats.is_some() {
                engine.figures().iter().try_for_each(|figures| write_stats(stats, figures))?;
            }
        }
        let until = wake.min(end).min(next_stats).min(control.wanted_ns(now));
        if control.serve(engine, now) || now >= end || engine.wait(until) == Wake::Interrupted {
            break;
        }
    }
    Ok(())
}

/// Answers those who ask over the control socket.
struct Control {
    server: Option<Server<StatusOnly<LruStatus>>>,
    started_ns: u64,
    sandbox: Sandbox,
}

impl Control {
    fn start(bound: Bound, sandbox: Sandbox) -> anyhow::Result<Self> {
        let server = bound.serve(StatusOnly::default()).context("cannot listen")?;
        Ok(Self { server, started_ns: monotonic_ns(), sandbox })
    }

    /// When the loop is to come by next.
    const fn wanted_ns(&self, now_ns: u64) -> u64 {
        if self.server.is_some() { now_ns + LOOK_NS } else { u64::MAX }
    }

    /// Answers what was asked; whether somebody asked for the end.
    fn serve(&self, engine: &impl Engine, now_ns: u64) -> bool {
        self.server.as_ref().is_some_and(|server| server.answer(|server| self.status(engine, server, now_ns)))
    }

    fn status(&self, engine: &impl Engine, server: &Server<StatusOnly<LruStatus>>, now_ns: u64) -> LruStatus {
        let limits = engine.figures();
        let about = limits.iter().map(|limit| limit.domain.as_str()).collect::<Vec<_>>().join("; ");
        let socket = server.path().map(PathBuf::from);
        let instance = Instance::of_this_process(status::COMMAND, about, socket, self.started_ns, now_ns)
            .in_sandbox(&self.sandbox);
        LruStatus { instance, limits }
    }
}

fn write_stats(stats: &mut Option<Box<dyn Write>>, figures: &LimitFigures) -> anyhow::Result<()> {
    let Some(out) = stats else { return Ok(()) };
    let text = serde_json::to_string(figures)?;
    writeln!(out, "{text}").and_then(|()| out.flush()).context("cannot write statistics")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn engine(words: &str) -> EngineName {
        Line::parse_from(["run", "--cgroup", "x"].into_iter().chain(words.split_whitespace())).args.engine()
    }

    #[test]
    fn answers_to_thrashing_that_the_kernel_has_not_are_ours() {
        assert_eq!(engine(""), EngineName::Auto);
        assert_eq!(engine("--min-ttl 1s"), EngineName::User);
        assert_eq!(engine("--min-ttl 1s --on-thrash freeze"), EngineName::User);
        assert_eq!(engine("--min-ttl 1s --on-thrash kill"), EngineName::Auto);
        assert_eq!(engine("--min-ttl 1s --engine kernel"), EngineName::Kernel, "which is refused with the reason");
    }
}
