//! From arguments to a running engine: shared by every command that watches live targets.

use crate::args::monitor::{MonitorArgs, SourceName};
use crate::args::target::{StartedCommand, TargetArgs};
use crate::exit::{Unsupported, Usage};
use anyhow::Context;
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::clock::{Clock, Wake};
use isotherm_core::engine::{Engine, Progress};
use isotherm_core::event::{Event, Step, Subscriber, SubscriberError};
use isotherm_core::monitor::Monitor;
use isotherm_core::monitor::config::MonitorConfig;
use isotherm_core::source::AccessSource;
use isotherm_core::units::nanos;
use isotherm_linux::clock::{MonotonicClock, kernel_release, monotonic_ns, realtime_offset_ns};
use isotherm_linux::roots::Roots;
use isotherm_linux::signals::StopSignals;
use isotherm_linux::source::damon::{DamonConfig, DamonEngine, DamonError, DamonTargets};
use isotherm_linux::source::idle::IdleSource;
use isotherm_linux::source::pagetable::PageTableSource;
use isotherm_linux::source::refs::{self, RefsEngine};
use isotherm_linux::target::{Command, TargetSpec, TargetTracker};
use std::time::Duration;

/// An engine over the targets that the user named.
pub struct Session {
    engine: Box<dyn Engine>,
    /// The command that is the target, where it is one.
    command: Option<StartedCommand>,
    signals: StopSignals,
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
        // Checked first, so that a command is not even forked for a run that cannot be.
        let config = monitor.config(kernel_release().unwrap_or_default(), realtime_offset_ns())?;
        let signals = StopSignals::catch().context("cannot catch signals")?;
        if monitor.physical {
            if target.is_given() {
                return Err(Usage("--physical watches all memory: leave the target out".into()).into());
            }
            let engine = Box::new(damon(DamonTargets::Physical, &config)?);
            return Ok(Self { engine, command: None, signals });
        }
        let target = target.resolve()?;
        let engine = open_engine(monitor.source, target.spec, config)?;
        Ok(Self { engine, command: target.command, signals })
    }

    /// Opens a command that the caller has prepared, and will finish.
    pub fn of_command(command: Command, monitor: &MonitorArgs) -> anyhow::Result<Self> {
        let config = monitor.config(kernel_release().unwrap_or_default(), realtime_offset_ns())?;
        let signals = StopSignals::catch().context("cannot catch signals")?;
        let spec = TargetSpec::Command { command, children: true };
        let engine = open_engine(monitor.source, spec, config)?;
        Ok(Self { engine, command: None, signals })
    }

    /// Runs until `duration` has passed, a signal comes, no target is left, or `go_on` says no (it is asked after each
    /// aggregation interval).
    pub fn run(
        &mut self,
        duration: Option<Duration>,
        subscriber: &mut dyn Subscriber,
        mut go_on: impl FnMut() -> bool,
    ) -> anyhow::Result<Ended> {
        let mut clock = MonotonicClock::stopped_by(&self.signals);
        let end_ns = duration.map(|d| monotonic_ns().saturating_add(nanos(d)));
        loop {
            match self.engine.run_interval(&mut clock, subscriber)? {
                Progress::Interrupted => return Ok(Ended::Interrupted),
                Progress::TargetsGone => return Ok(Ended::TargetsGone),
                Progress::Aggregated => {}
            }
            if end_ns.is_some_and(|end| monotonic_ns() >= end) {
                return Ok(Ended::Duration);
            }
            if !go_on() {
                return Ok(Ended::Stopped);
            }
        }
    }

    /// Runs one aggregation interval.
    pub fn interval(&mut self, subscriber: &mut dyn Subscriber) -> anyhow::Result<Progress> {
        let mut clock = MonotonicClock::stopped_by(&self.signals);
        Ok(self.engine.run_interval(&mut clock, subscriber)?)
    }

    /// Follows the targets without looking at a page.
    pub fn follow(&mut self, subscriber: &mut dyn Subscriber) -> anyhow::Result<Progress> {
        let mut clock = MonotonicClock::stopped_by(&self.signals);
        Ok(self.engine.follow_targets(&mut clock, subscriber)?)
    }

    /// Waits until `until_ns` or a signal.
    pub fn wait(&self, until_ns: u64) -> Wake {
        MonotonicClock::stopped_by(&self.signals).sleep_until_ns(until_ns)
    }

    /// Lets SIGHUP ask for a reload instead of a stop.
    pub fn reload_on_hangup(&mut self) -> anyhow::Result<()> {
        self.signals.reload_on_hangup().context("cannot catch SIGHUP")
    }

    /// Takes other intervals and region limits; false where the source cannot change them while it runs.
    pub fn retune(&mut self, attrs: MonitorAttrs) -> bool {
        self.engine.retune(attrs)
    }

    /// The source, if it can be asked about single pages.
    pub fn page_source(&mut self) -> Option<&mut dyn AccessSource> {
        self.engine.page_source()
    }

    /// Ends the command that we started, if there is one, and tells how it ended.
    pub fn finish(self) -> anyhow::Result<()> {
        drop(self.engine);
        self.command.map_or(Ok(()), |c| c.finish())
    }
}

/// The engine that `source` stands for. Auto takes the first source that passes its self-test, and says so where that is not
/// the best one.
fn open_engine(source: SourceName, spec: TargetSpec, config: MonitorConfig) -> anyhow::Result<Box<dyn Engine>> {
    match source {
        SourceName::Pagetable => page_table(spec, config),
        SourceName::Idle => idle(spec, config),
        SourceName::Refs => refs_engine(spec, &config),
        SourceName::Damon => {
            let tracker = tracker(spec)?;
            Ok(Box::new(damon(DamonTargets::Processes(Box::new(tracker)), &config)?))
        }
        SourceName::Auto => match PageTableSource::probe() {
            Ok(()) => page_table(spec, config),
            Err(why) => {
                eprintln!(
                    "isotherm: page tables cannot be read ({}); falling back to refs, which sees whole mappings only",
                    why.reason
                );
                refs_engine(spec, &config)
            }
        },
    }
}

/// Opens the targets; those that come later and cannot be watched are told on stderr.
fn tracker(spec: TargetSpec) -> anyhow::Result<TargetTracker> {
    let mut tracker = TargetTracker::new(spec)?;
    tracker.on_skip(|skipped| eprintln!("isotherm: not watching pid {}: {}", skipped.pid, skipped.why));
    Ok(tracker)
}

fn page_table(spec: TargetSpec, config: MonitorConfig) -> anyhow::Result<Box<dyn Engine>> {
    let source = PageTableSource::new(tracker(spec)?)
        .map_err(|e| Unsupported(format!("page tables cannot be read here: {}; {}", e.reason, e.remedy)))?
        .with_cpu_budget(config.cpu_budget);
    Ok(Box::new(Monitor::new(source, config)))
}

fn idle(spec: TargetSpec, config: MonitorConfig) -> anyhow::Result<Box<dyn Engine>> {
    let source = IdleSource::new(&Roots::system(), tracker(spec)?)
        .map_err(|e| Unsupported(format!("idle pages cannot be tracked here: {}; {}", e.reason, e.remedy)))?;
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
    DamonEngine::new(Roots::system(), targets, config).map_err(|e| match e {
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
