//! Runs schemes on live targets: the loop that `schemes`, `reclaim`, `thp` and `tier` share.

use super::control::question::{Readers, SENT_FILE};
use super::control::{Control, Reload};
use super::stats;
use crate::args::control::ControlArgs;
use crate::args::monitor::MonitorArgs;
use crate::args::target::TargetArgs;
use crate::exit::{Unsupported, Usage};
use crate::hangup::Hangups;
use crate::output::{is_stdout, open_live_stats, to_stdout};
use crate::progress::Progress as StatusLine;
use crate::sandbox::SandboxArgs;
use crate::sandbox::schemes::{Work, needs};
use crate::schemes::{Tuning, goal_text, to_toml};
use crate::session::{LiveContext, Session};
use anyhow::Context;
use isotherm_core::actuator::DryRun;
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::context::Operator;
use isotherm_core::engine::Engine;
use isotherm_core::event::{Event, Subscriber, SubscriberError};
use isotherm_core::meter::LiveTarget;
use isotherm_core::scheme::Scheme;
use isotherm_core::scheme::ahead::AheadTotals;
use isotherm_core::scheme::engine::SchemeEngine;
use isotherm_core::target::{TargetEnd, TargetInfo};
use isotherm_core::units::format_time;
use isotherm_linux::action::{Ahead, Arrivals, LinuxActuator, impossible_now, unsupported};
use isotherm_linux::clock::monotonic_ns;
use isotherm_linux::meter::LinuxMeter;
use isotherm_linux::notify::Notify;
use isotherm_linux::roots::Roots;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How often statistics are written, ns.
const STATS_EVERY_NS: u64 = 1_000_000_000;

/// What these commands have in common.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Output")]
pub struct RunArgs {
    /// Stop after this time
    #[arg(long, value_name = "T", value_parser = crate::args::units::duration)]
    pub duration: Option<Duration>,
    /// Write a JSON line per scheme every second and at the end ("-": standard output)
    #[arg(long, value_name = "FILE")]
    pub stats: Option<PathBuf>,
    /// Print the last statistics as JSON lines on standard output, where --stats does not go there already
    #[arg(long)]
    pub json: bool,
    /// Change nothing: tell what would be done to how much memory
    #[arg(long)]
    pub dry_run: bool,
    /// Print the schemes as a TOML file and stop
    #[arg(long)]
    pub print: bool,
    #[command(flatten)]
    pub control: ControlArgs,
    #[command(flatten)]
    pub sandbox: SandboxArgs,
}

/// When huge pages are asked for ahead of the faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum WhenAhead {
    /// While they cost less than base pages
    Auto,
    /// Always: also where the host takes free memory back, so that they cost more
    Always,
    /// Never
    Never,
}

/// What is to be applied.
pub struct Wanted {
    pub schemes: Vec<Scheme>,
    /// When huge pages are asked for ahead of the faults.
    pub ahead: WhenAhead,
    /// What SIGHUP reads anew, and who sees it; without it, SIGHUP stops.
    pub reload: Option<(Reload, Hangups)>,
}

impl From<Vec<Scheme>> for Wanted {
    fn from(schemes: Vec<Scheme>) -> Self {
        Self { schemes, ahead: WhenAhead::Never, reload: None }
    }
}

/// Watches the target and applies what is wanted until the end of the duration, a signal, somebody's `isotherm ctl
/// stop`, or the last target's end.
pub fn run(target: &TargetArgs, monitor: &MonitorArgs, wanted: Wanted, args: &RunArgs) -> anyhow::Result<()> {
    let Wanted { schemes, ahead, reload } = wanted;
    if args.print {
        return to_stdout(|out| Ok(out.write_all(to_toml(&schemes).as_bytes())?));
    }
    let notify = Notify::from_env().unwrap_or_else(|e| {
        tracing::warn!("cannot tell the service manager at NOTIFY_SOCKET how it stands: {e}");
        Notify::default()
    });
    let stats_file = args.stats.as_deref().map(open_live_stats).transpose()?;
    let bound = args.control.bind()?;
    let is_stats_on_stdout = args.stats.as_deref().is_some_and(is_stdout);
    let target = target.keeping_stdout(args.json || is_stats_on_stdout);
    let session = Session::open(&target, monitor)?;
    let work = Work { source: monitor.source, command: !target.command.is_empty(), dry_run: args.dry_run };
    let looks_ahead = ahead != WhenAhead::Never && !args.dry_run;
    // Before the sandbox, which lets nobody listen.
    let arrivals = looks_ahead.then(Arrivals::open).transpose().context("cannot wait for files")?;
    if let Some(why) = arrivals.as_ref().and_then(Arrivals::refusal) {
        tracing::debug!("huge pages ahead of faults: large mappings are found only at the next look, as {why}");
    }
    let sandbox = args.sandbox.enter(&needs(work))?;
    // Threads from here on.
    let mut session = session.with_schemes(engine(schemes, args.dry_run)?);
    let mut control = Control::start(bound, readers(monitor.attrs()?), monitor.attrs()?)?;
    control.sandbox(sandbox);
    if let Some((reload, hangups)) = reload {
        control.on_hangup(reload, hangups);
    }
    control.dry_run(args.dry_run);
    let line = StatusLine::new();
    let start = |arrivals| Ahead::start(ahead == WhenAhead::Always, arrivals).context("cannot start a thread");
    let ahead = arrivals.map(start).transpose()?;
    if let Some(ahead) = &ahead {
        control.ahead(ahead.totals());
    }
    let mut run = Run { control, line, ahead, stats: stats_file, next_stats_ns: monotonic_ns() + STATS_EVERY_NS };
    notify.ready();
    let result = session.run(args.duration, &mut run, Run::after_turn);
    notify.stopping();
    run.line.clear();
    session.settle();
    let now = monotonic_ns();
    let mut written = Ok(());
    if let Some(schemes) = session.schemes() {
        // The targets' last state is wanted even where the run failed.
        written = run.write_stats(schemes, now);
        // Once, where these were the last of the statistics already.
        if args.json && !is_stats_on_stdout {
            to_stdout(|out| Ok(stats::write_lines(out, schemes, run.ahead_totals(), now)?))?;
        }
        for (index, status) in schemes.status().iter().enumerate() {
            say!("{}", stats::words(index, status, args.dry_run));
        }
        if let Some(ahead) = &run.ahead {
            say!("ahead of faults: {}", ahead.totals());
        }
        match run.line.elapsed_ns() {
            // What kept every scheme from acting has been said.
            0 => say!("nothing was watched"),
            elapsed_ns => say!("{} watched; cost: {}", format_time(elapsed_ns), run.line.cost_words()),
        }
    }
    drop(run);
    let finished = session.finish();
    result?;
    written?;
    finished
}

/// An engine that acts on this machine, or only pretends to.
pub fn engine(schemes: Vec<Scheme>, dry_run: bool) -> anyhow::Result<SchemeEngine> {
    let roots = Roots::system();
    let meter = Box::new(LinuxMeter::new(roots.clone()));
    if dry_run {
        for (index, scheme) in schemes.iter().enumerate() {
            if let Some(why) = impossible_now(&roots, scheme.action, &scheme.destinations) {
                tracing::warn!(
                    "scheme {index} ({}) would do nothing here now: {why}; what follows is what it chooses",
                    scheme.action
                );
            }
        }
        return Ok(SchemeEngine::new(schemes, Box::new(DryRun::default()), meter).dry_run());
    }
    if let Some(why) = schemes.iter().enumerate().find_map(|(index, s)| {
        let why = unsupported(&roots, s.action, &s.destinations)?;
        Some(format!("scheme {index} ({}) is not possible here: {why}", s.action))
    }) {
        return Err(Unsupported(why).into());
    }
    let actuator = LinuxActuator::new(&roots).context("cannot start the thread that acts on memory")?;
    Ok(SchemeEngine::new(schemes, Box::new(actuator), meter))
}

/// How requests are read. Lines of numbers are in samples and intervals of `attrs`.
pub fn readers(attrs: MonitorAttrs) -> Readers {
    Readers {
        schemes: Arc::new(move |text| Tuning::from_text(SENT_FILE, text, &attrs).map_err(|e| Usage(e.to_string()))),
        goal: |text, action| goal_text::parse(text).map(|goal| goal.of(action)).map_err(|e| Usage(e.to_string())),
    }
}

/// What accompanies a run: requests from outside, the status line, statistics.
struct Run {
    control: Control,
    line: StatusLine,
    ahead: Option<Ahead>,
    stats: Option<Box<dyn Write>>,
    next_stats_ns: u64,
}

impl Subscriber for Run {
    fn event(&mut self, event: &Event) -> Result<(), SubscriberError> {
        self.control.event(event);
        if let Some(ahead) = &self.ahead {
            match event {
                Event::Target(TargetInfo { target, pid, .. }) => {
                    ahead.follow(LiveTarget { target: *target, pid: *pid })
                }
                Event::End { target, why: TargetEnd::Exited, .. } => ahead.leave(*target),
                _ => {}
            }
        }
        self.line.event(event)
    }

    fn wanted_ns(&self) -> Option<u64> {
        Some(self.control.wanted_ns())
    }
}

impl Operator for Run {
    fn between_steps(&mut self, schemes: &mut SchemeEngine, now_ns: u64) {
        self.control.serve(schemes, now_ns);
    }
}

impl Run {
    /// Does what was asked for since the last turn; false where that is to stop.
    fn after_turn(&mut self, context: &mut LiveContext) -> anyhow::Result<bool> {
        if self.control.stop_asked() {
            return Ok(false);
        }
        if let Some(attrs) = self.control.take_attrs()
            && !context.engine().retune(attrs)
        {
            tracing::warn!("this source keeps its intervals while it runs; start anew to change them");
        }
        let now = monotonic_ns();
        let Some(schemes) = context.schemes() else { return Ok(true) };
        // For engines that have no time for it within an interval.
        self.control.serve(schemes, now);
        if now >= self.next_stats_ns {
            self.next_stats_ns = now + STATS_EVERY_NS;
            self.write_stats(schemes, now)?;
            let ahead = self.ahead_totals();
            self.line.note(stats::short(schemes, ahead.as_ref()));
            ahead.into_iter().for_each(|totals| self.control.ahead(totals));
        }
        Ok(true)
    }

    /// What was done ahead of faults; `None`: nothing is.
    fn ahead_totals(&self) -> Option<AheadTotals> {
        self.ahead.as_ref().map(Ahead::totals)
    }

    fn write_stats(&mut self, schemes: &mut SchemeEngine, now_ns: u64) -> anyhow::Result<()> {
        let ahead = self.ahead_totals();
        match &mut self.stats {
            Some(out) => stats::write_lines(out, schemes, ahead, now_ns).context("cannot write statistics"),
            None => Ok(()),
        }
    }
}
