//! Runs schemes on live targets: the loop that `schemes`, `reclaim`, `thp` and `tier` share.

use super::stats;
use crate::args::monitor::MonitorArgs;
use crate::args::target::TargetArgs;
use crate::control::args::ControlArgs;
use crate::control::request::{Readers, SENT_FILE};
use crate::control::{Control, Controlled, Reload};
use crate::progress::Progress as StatusLine;
use crate::schemes::{Tuning, goal_text, to_toml};
use crate::session::{Ended, Fan, Session};
use anyhow::Context;
use isotherm_core::actuator::DryRun;
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::clock::Wake;
use isotherm_core::engine::Progress;
use isotherm_core::scheme::Scheme;
use isotherm_core::scheme::engine::SchemeEngine;
use isotherm_core::units::format_time;
use isotherm_core::units::nanos;
use isotherm_linux::action::LinuxActuator;
use isotherm_linux::clock::monotonic_ns;
use isotherm_linux::meter::LinuxMeter;
use isotherm_linux::roots::Roots;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How often statistics are written, ns.
const STATS_EVERY_NS: u64 = 1_000_000_000;
/// How long, at the end, work that was handed over is waited for.
const LAST_WORK: Duration = Duration::from_secs(5);
/// The longest rest while every scheme is switched off, so that targets that end are noticed.
const LONGEST_REST_NS: u64 = 1_000_000_000;

/// What these commands have in common.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Output")]
pub struct RunArgs {
    /// Stop after this time
    #[arg(long, value_name = "T", value_parser = crate::args::units::time)]
    pub duration: Option<Duration>,
    /// Write a JSON line per scheme every second and at the end ("-": standard output)
    #[arg(long, value_name = "FILE")]
    pub stats: Option<PathBuf>,
    /// Print the last statistics as JSON lines on standard output
    #[arg(long)]
    pub json: bool,
    /// Change nothing: tell what would be done to how much memory
    #[arg(long)]
    pub dry_run: bool,
    /// Print the schemes as a TOML file and stop
    #[arg(long)]
    pub print: bool,
    /// Say nothing but errors
    #[arg(short, long)]
    pub quiet: bool,
    #[command(flatten)]
    pub control: ControlArgs,
}

/// Watches the target and applies `schemes` until the end of the duration, a signal, somebody's `isotherm ctl stop`, or the
/// last target's end. `reload`: what SIGHUP reads anew; without it, SIGHUP stops.
pub fn run(
    target: &TargetArgs,
    monitor: &MonitorArgs,
    schemes: Vec<Scheme>,
    args: &RunArgs,
    reload: Option<Reload>,
) -> anyhow::Result<()> {
    if args.print {
        std::io::stdout().write_all(to_toml(&schemes).as_bytes())?;
        return Ok(());
    }
    let stats_file = args.stats.as_ref().map(open_stats).transpose()?;
    // What can fail comes before a command is started.
    let engine = engine(schemes, args.dry_run)?;
    let bound = args.control.bind(args.quiet)?;
    let mut session = Session::open(target, monitor)?;
    let mut control = Control::start(bound, readers(monitor.attrs()?), monitor.attrs()?)?;
    if let Some(reload) = reload {
        session.reload_on_hangup()?;
        control.on_reload(reload);
    }
    control.dry_run(args.dry_run);
    control.quiet(args.quiet);
    let mut run = Run {
        engine,
        control,
        line: if args.quiet { StatusLine::default() } else { StatusLine::new() },
        stats: stats_file,
        next_stats_ns: monotonic_ns() + STATS_EVERY_NS,
        end_ns: args.duration.map(|d| monotonic_ns().saturating_add(nanos(d))),
    };
    let result = run.watch(&mut session);
    run.line.clear();
    run.settle(&mut session);
    let now = monotonic_ns();
    // The targets' last state is wanted even where the run failed.
    let written = run.write_stats(now);
    if args.json {
        stats::write_lines(&mut std::io::stdout().lock(), &mut run.engine, now)?;
    }
    if !args.quiet {
        for (index, status) in run.engine.status().iter().enumerate() {
            eprintln!("{}", stats::words(index, status, args.dry_run));
        }
        eprintln!("{} watched; cost: {}", format_time(run.line.elapsed_ns()), run.line.cost_words());
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
        return Ok(SchemeEngine::new(schemes, Box::new(DryRun::default()), meter).dry_run());
    }
    let actuator = LinuxActuator::new(&roots).context("cannot start the thread that acts on memory")?;
    Ok(SchemeEngine::new(schemes, Box::new(actuator), meter))
}

/// How requests are read. Lines of numbers are in samples and intervals of `attrs`.
fn readers(attrs: MonitorAttrs) -> Readers {
    Readers {
        schemes: Arc::new(move |text| Tuning::from_text(SENT_FILE, text, &attrs)),
        goal: |text, action| goal_text::parse(text).map(|goal| goal.of(action)),
    }
}

fn open_stats(path: &PathBuf) -> anyhow::Result<Box<dyn Write>> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(std::io::stdout()));
    }
    let file = File::create(path).with_context(|| format!("cannot write statistics to {}", path.display()))?;
    Ok(Box::new(BufWriter::new(file)))
}

/// A run in progress.
struct Run {
    engine: SchemeEngine,
    control: Control,
    line: StatusLine,
    stats: Option<Box<dyn Write>>,
    next_stats_ns: u64,
    end_ns: Option<u64>,
}

impl Run {
    fn watch(&mut self, session: &mut Session) -> anyhow::Result<Ended> {
        loop {
            let now = monotonic_ns();
            let progress = if self.engine.turn_gates(now) {
                let mut controlled = Controlled { engine: &mut self.engine, control: &mut self.control };
                session.interval(&mut Fan(vec![&mut controlled, &mut self.line]))?
            } else {
                self.rest(session, now)?
            };
            if self.control.stop_asked() {
                return Ok(Ended::Stopped);
            }
            match progress {
                Progress::Interrupted => return Ok(Ended::Interrupted),
                Progress::TargetsGone => return Ok(Ended::TargetsGone),
                Progress::Aggregated => {}
            }
            if let Some(attrs) = self.control.take_attrs()
                && !session.retune(attrs)
            {
                eprintln!("isotherm: this source keeps its intervals while it runs; start anew to change them");
            }
            let now = monotonic_ns();
            // For engines that have no time for it within an interval.
            self.control.serve(&mut self.engine, now);
            if now >= self.next_stats_ns {
                self.next_stats_ns = now + STATS_EVERY_NS;
                self.write_stats(now)?;
                self.line.note(stats::short(&mut self.engine));
            }
            if self.end_ns.is_some_and(|end| now >= end) {
                return Ok(Ended::Duration);
            }
        }
    }

    /// Follows the targets without looking at a page, until a watermark is due or there are other schemes.
    fn rest(&mut self, session: &mut Session, now_ns: u64) -> anyhow::Result<Progress> {
        let gate = self.engine.next_gate_ns().unwrap_or(u64::MAX);
        let until = gate.min(now_ns + LONGEST_REST_NS).min(self.end_ns.unwrap_or(u64::MAX));
        let mut controlled = Controlled { engine: &mut self.engine, control: &mut self.control };
        let progress = session.follow(&mut Fan(vec![&mut controlled, &mut self.line]))?;
        if progress != Progress::Aggregated {
            return Ok(progress);
        }
        loop {
            if session.wait(until.min(self.control.wanted_ns())) == Wake::Interrupted {
                return Ok(Progress::Interrupted);
            }
            let now = monotonic_ns();
            self.control.serve(&mut self.engine, now);
            if now >= until || self.engine.next_gate_ns().is_none_or(|gate| gate <= now) {
                return Ok(Progress::Aggregated);
            }
        }
    }

    /// Waits for work that was handed over, so that the last figures are whole.
    fn settle(&mut self, session: &mut Session) {
        let deadline = std::time::Instant::now() + LAST_WORK;
        loop {
            self.engine.collect(monotonic_ns(), session.page_source());
            if !self.engine.has_pending() || std::time::Instant::now() >= deadline {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn write_stats(&mut self, now_ns: u64) -> anyhow::Result<()> {
        match &mut self.stats {
            Some(out) => stats::write_lines(out, &mut self.engine, now_ns).context("cannot write statistics"),
            None => Ok(()),
        }
    }
}
