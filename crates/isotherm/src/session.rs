//! From arguments to a running engine: shared by every command that watches live targets.

use crate::args::monitor::{MonitorArgs, SourceName};
use crate::args::target::{StartedCommand, TargetArgs};
use crate::exit::{Unsupported, Usage};
use crate::kept_generations;
use crate::kept_history;
use anyhow::Context as _;
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::clock::{Clock as _, Wake};
use isotherm_core::context::{Context, Operator};
use isotherm_core::engine::{Engine, Progress};
use isotherm_core::event::{Event, Step, Subscriber, SubscriberError};
use isotherm_core::monitor::Monitor;
use isotherm_core::monitor::config::{Algorithm, MonitorConfig};
use isotherm_core::scheme::engine::SchemeEngine;
use isotherm_core::source::AccessSource;
use isotherm_core::trace::Tracer;
use isotherm_core::units::{format_time, nanos};
use isotherm_linux::cgroup::Cgroup;
use isotherm_linux::clock::{MonotonicClock, kernel_release, monotonic_ns, realtime_offset_ns};
use isotherm_linux::guard::{Guard, Purpose};
use isotherm_linux::priority::be_nice;
use isotherm_linux::roots::Roots;
use isotherm_linux::signals::StopSignals;
use isotherm_linux::source::damon::{DamonConfig, DamonEngine, DamonError, DamonTargets};
use isotherm_linux::source::idle::IdleSource;
use isotherm_linux::source::pagetable::PageTableReader;
use isotherm_linux::source::refs::{self, RefsEngine};
use isotherm_linux::targets::{Command, TargetSpec, TargetTracker};
use isotherm_linux::usdt::Probes;
use isotherm_view::summary::cost::budget_words;
use std::path::PathBuf;
use std::time::Duration;

/// How long, at the end, work that was handed over is waited for, ns.
const LAST_WORK_NS: u64 = 5_000_000_000;

/// Time between two turns of walks that have a budget of 1 % of a core or less, microseconds.
const MOST_TURN_US: f64 = 500_000.0;

/// What is said where only sources are there, or asked for, that know no single pages.
const SINGLE_PAGES: &str = "nothing is known of single pages: this needs page tables or idle page tracking";

/// A context over the targets that the user named.
pub type LiveContext = Context<Box<dyn Engine>>;

/// A context on this machine, with what is to be ended after it.
pub struct Session {
    context: LiveContext,
    /// The command that is the target, where it is one.
    command: Option<StartedCommand>,
    /// Control groups that are the target.
    groups: Vec<PathBuf>,
    signals: StopSignals,
    /// Whether regions are looked at, which an aggregation interval must end for.
    draws_regions: bool,
}

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The time asked for has passed.
    Duration,
    /// Ctrl-C or SIGTERM.
    Interrupted,
    /// Every target has exited.
    TargetsGone,
    /// Whoever watched wanted no more.
    Stopped,
}

impl Session {
    /// Opens the targets and a source for them. Bad arguments are usage errors; a source that cannot work here is
    /// [`Unsupported`].
    pub fn open(target: &TargetArgs, monitor: &MonitorArgs) -> anyhow::Result<Self> {
        Self::open_with(target, monitor, None).inspect(|_| kept_history::void())
    }

    /// `longest_turn_us` is for those who look at single pages only, for whom an aggregation interval is nothing but the time
    /// between two turns.
    fn open_with(target: &TargetArgs, monitor: &MonitorArgs, longest_turn_us: Option<u64>) -> anyhow::Result<Self> {
        // Checked first, so that a command is not even forked for a run that cannot be.
        let mut config = monitor.config(kernel_release().unwrap_or_default(), realtime_offset_ns())?;
        if let Some(longest_us) = longest_turn_us {
            if matches!(monitor.source, SourceName::Refs | SourceName::Damon) {
                let why = format!("{SINGLE_PAGES} (isotherm doctor); leave --source out, or use `record` or `report`");
                return Err(Unsupported(why).into());
            }
            monitor.refuse_regions()?;
            config.algorithm = Algorithm::PagesOnly;
            config.attrs.aggr_us = config.attrs.aggr_us.clamp(turn_us(config.cpu_budget), longest_us);
        }
        let signals = StopSignals::catch().context("cannot catch signals")?;
        if monitor.physical {
            if target.is_given() {
                return Err(Usage("--physical watches all memory: leave the target out".into()).into());
            }
            let engine: Box<dyn Engine> = Box::new(damon(DamonTargets::Physical, &config)?);
            return Ok(Self {
                context: context(engine),
                command: None,
                groups: Vec::new(),
                signals,
                draws_regions: true,
            });
        }
        let groups = target.cgroups.clone();
        let target = target.resolve()?;
        // After the command was forked: it is not to inherit that.
        be_nice(monitor.nice).context("cannot lower the priority")?;
        let engine = open_engine(monitor.source, target.spec, config)?;
        Ok(Self {
            context: context(engine),
            command: target.command,
            groups,
            signals,
            draws_regions: longest_turn_us.is_none(),
        })
    }

    /// The same for those who need no regions: all of the budget goes to the page history. They are asked whether to go on
    /// twice a second at least, however long an aggregation interval is wanted.
    pub fn open_for_pages(target: &TargetArgs, monitor: &MonitorArgs) -> anyhow::Result<Self> {
        Self::open_with(target, monitor, Some(MOST_TURN_US as u64)).inspect(|_| kept_history::void())
    }

    /// The same for a node, which goes on with what an earlier one has kept.
    pub fn open_for_node(target: &TargetArgs, monitor: &MonitorArgs) -> anyhow::Result<Self> {
        Self::open_with(target, monitor, Some(u64::MAX)).inspect(|_| kept_generations::void())
    }

    /// Opens a command that the caller has prepared, and will finish. The priority stays as it is: commands that the
    /// caller starts later would inherit a lower one.
    pub fn of_command(command: Command, monitor: &MonitorArgs) -> anyhow::Result<Self> {
        kept_history::void();
        let config = monitor.config(kernel_release().unwrap_or_default(), realtime_offset_ns())?;
        let signals = StopSignals::catch().context("cannot catch signals")?;
        let spec = TargetSpec::Command { command, children: true };
        let engine = open_engine(monitor.source, spec, config)?;
        Ok(Self { context: context(engine), command: None, groups: Vec::new(), signals, draws_regions: true })
    }

    /// Acts on what is seen.
    pub fn with_schemes(self, schemes: SchemeEngine) -> Self {
        Self { context: self.context.with_schemes(schemes), ..self }
    }

    /// Tells `tracer` what happens.
    pub fn trace(&mut self, tracer: Box<dyn Tracer>) {
        self.context.trace(tracer);
    }

    /// The source, if it is one that can be asked about single pages.
    pub fn page_source(&mut self) -> Option<&mut dyn AccessSource> {
        self.context.engine().page_source()
    }

    /// The schemes; `None`: it only watches.
    pub const fn schemes(&mut self) -> Option<&mut SchemeEngine> {
        self.context.schemes()
    }

    /// Runs until `duration` has passed, a signal comes, no target is left, or `go_on` says no (it is asked after each
    /// [turn](Context::turn)). An aggregation interval that would last considerably longer than that is not seen to its end.
    pub fn run<O: Operator>(
        &mut self,
        duration: Option<Duration>,
        operator: &mut O,
        mut go_on: impl FnMut(&mut O, &mut LiveContext) -> anyhow::Result<bool>,
    ) -> anyhow::Result<Ended> {
        let mut clock = MonotonicClock::stopped_by(&self.signals);
        let end_ns = duration.map_or(u64::MAX, |d| monotonic_ns().saturating_add(nanos(d)));
        let mut aggregated = false;
        loop {
            match self.context.turn(&mut clock, end_ns, operator)? {
                Progress::Interrupted if self.signals.received().is_some() => return Ok(Ended::Interrupted),
                Progress::TargetsGone => {
                    self.tell_removed_groups();
                    return Ok(Ended::TargetsGone);
                }
                Progress::Interrupted => {
                    if !aggregated && self.draws_regions {
                        self.tell_too_short();
                    }
                }
                Progress::Aggregated => aggregated = true,
            }
            if !go_on(operator, &mut self.context)? {
                return Ok(Ended::Stopped);
            }
            if monotonic_ns() >= end_ns {
                return Ok(Ended::Duration);
            }
        }
    }

    /// Waits until a signal asks to stop, or `limit` has passed; whether one has asked, now or before.
    pub fn wait_for_stop(&self, limit: Duration) -> bool {
        let mut clock = MonotonicClock::stopped_by(&self.signals);
        clock.sleep_until_ns(monotonic_ns().saturating_add(nanos(limit))) == Wake::Interrupted
    }

    /// The time was over before the first aggregation interval was.
    fn tell_too_short(&self) {
        let interval = format_time(self.context.interval_ns());
        tracing::warn!(
            "nothing is known of regions: the time was over before the first aggregation interval ({interval}) was; give a longer \
             --duration or a shorter --aggr, or where the CPU budget has stretched the interval a larger --cpu-budget"
        );
    }

    /// An empty control group is waited on; one that is gone ends the watch.
    fn tell_removed_groups(&self) {
        for path in self.groups.iter().filter(|path| Cgroup::find(path).is_err()) {
            tracing::info!("control group {} has been removed", path.display());
        }
    }

    /// Waits for work that was handed over, so that the last figures are whole.
    pub fn settle(&mut self) {
        self.context.settle(&mut MonotonicClock::new(), monotonic_ns().saturating_add(LAST_WORK_NS));
    }

    /// Lets SIGHUP ask for a reload instead of a stop.
    pub fn reload_on_hangup(&mut self) -> anyhow::Result<()> {
        self.signals.reload_on_hangup().context("cannot catch SIGHUP")
    }

    /// Ends the command that we started, if there is one, and tells how it ended.
    pub fn finish(self) -> anyhow::Result<()> {
        drop(self.context);
        self.command.map_or(Ok(()), |c| c.finish())
    }
}

/// How often walks of a budget come to their turn, microseconds: each turn costs something for every target, and is
/// short, so that a large budget takes many.
fn turn_us(budget: Option<f64>) -> u64 {
    (MOST_TURN_US * (0.01 / budget.unwrap_or(f64::INFINITY)).min(1.0)) as u64
}

/// A context whose events the probes tell.
fn context(engine: Box<dyn Engine>) -> LiveContext {
    let mut context = Context::new(engine);
    context.trace(Box::new(Probes));
    context
}

/// The engine that `source` stands for. Auto takes page tables, and where these cannot be read refs, and says so; for
/// those who tell of single pages only that would be nothing.
fn open_engine(source: SourceName, spec: TargetSpec, config: MonitorConfig) -> anyhow::Result<Box<dyn Engine>> {
    match source {
        SourceName::Pagetable => {
            let reader = PageTableReader::ready().map_err(|e| Unsupported(e.to_string()))?;
            page_table(reader, spec, config)
        }
        SourceName::Idle => idle(spec, config),
        SourceName::Refs => refs_engine(spec, &config),
        SourceName::Damon => {
            let tracker = tracker(spec)?;
            Ok(Box::new(damon(DamonTargets::Processes(Box::new(tracker)), &config)?))
        }
        SourceName::Auto => match PageTableReader::ready() {
            Ok(reader) => page_table(reader, spec, config),
            Err(why) if config.algorithm == Algorithm::PagesOnly => {
                Err(Unsupported(format!("{SINGLE_PAGES}, and {why}")).into())
            }
            Err(why) => {
                tracing::warn!(
                    "page tables cannot be read ({}); falling back to refs, which sees whole mappings only",
                    why.reason
                );
                refs_engine(spec, &config)
            }
        },
    }
}

/// Opens the targets; those that come later and cannot be watched are reported on stderr, and whoever watches some, too.
fn tracker(spec: TargetSpec) -> anyhow::Result<TargetTracker> {
    let mut tracker = TargetTracker::new(spec)?;
    tracker.on_skip(|skipped| tracing::warn!("{skipped}"));
    tracker.on_watched_elsewhere(|other| tracing::warn!("{other}"));
    Ok(tracker)
}

/// More regions than usual are wanted at least, and that costs more than the budget pays for.
fn tell_too_many_regions(config: &MonitorConfig) {
    let (share, least) = (config.least_share(), config.attrs.min_regions);
    if least > MonitorAttrs::default().min_regions && config.cpu_budget.is_some_and(|budget| share > budget) {
        tracing::warn!(
            "--min-regions {least} takes about {:.0} % of one core ({}) where the targets have so many pages: intervals will be \
             stretched, and until they are the budget is exceeded; ask for fewer regions, a longer --aggr, or a larger --cpu-budget",
            (share * 100.0).ceil(),
            budget_words(config.cpu_budget)
        );
    }
}

fn page_table(reader: PageTableReader, spec: TargetSpec, config: MonitorConfig) -> anyhow::Result<Box<dyn Engine>> {
    tell_too_many_regions(&config);
    let source = reader.watch(tracker(spec)?).with_cpu_budget(config.cpu_budget);
    Ok(Box::new(Monitor::new(source, config)))
}

fn idle(spec: TargetSpec, config: MonitorConfig) -> anyhow::Result<Box<dyn Engine>> {
    tell_too_many_regions(&config);
    let source = IdleSource::new(&Roots::system(), tracker(spec)?).map_err(|e| Unsupported(e.to_string()))?;
    Ok(Box::new(Monitor::new(source, config)))
}

fn refs_engine(spec: TargetSpec, config: &MonitorConfig) -> anyhow::Result<Box<dyn Engine>> {
    refs::probe().map_err(|e| Unsupported(format!("source refs cannot be used here: {e}")))?;
    Ok(Box::new(RefsEngine::new(tracker(spec)?, config.attrs, config.cpu_budget)))
}

fn damon(targets: DamonTargets, config: &MonitorConfig) -> anyhow::Result<DamonEngine> {
    let config = DamonConfig {
        attrs: config.attrs,
        cpu_budget: config.cpu_budget,
        kernel: config.kernel.clone(),
        realtime_offset_ns: config.realtime_offset_ns,
    };
    // Before the program confines itself.
    let guard = Guard::start(Purpose::Settings).context("cannot start the guard of the kernel's settings")?;
    DamonEngine::new(Roots::system(), targets, config, guard).map_err(|e| match e {
        DamonError::Target(e) => e.into(),
        other => Unsupported(other.to_string()).into(),
    })
}

/// Hands everything to several subscribers in turn; the first error ends it.
pub struct Fan<'a>(pub Vec<&'a mut dyn Subscriber>);

impl Subscriber for Fan<'_> {
    fn event(&mut self, event: &Event) -> Result<(), SubscriberError> {
        self.0.iter_mut().try_for_each(|s| s.event(event))
    }

    fn step(&mut self, step: Step, now_ns: u64) {
        self.0.iter_mut().for_each(|s| s.step(step, now_ns));
    }

    fn step_with(&mut self, step: Step, now_ns: u64, source: &mut dyn AccessSource) {
        self.0.iter_mut().for_each(|s| s.step_with(step, now_ns, source));
    }

    fn wanted_ns(&self) -> Option<u64> {
        self.0.iter().filter_map(|s| s.wanted_ns()).min()
    }
}

impl Operator for Fan<'_> {}
