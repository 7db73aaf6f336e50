//! What a kdamond's thread does.

use super::Request;
use super::clock::Stop;
use super::tried::Tried;
use super::until_reaped::UntilReaped;
use crate::kdamond::Observer;
use crate::refused::Refused;
use crate::settings::{KdamondTargets, Settings, TargetRanges, WatchedProcess};
use isotherm_core::actuator::Destination;
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::context::{Context, Operator};
use isotherm_core::engine::{Engine, Progress};
use isotherm_core::event::{Event, Subscriber, SubscriberError};
use isotherm_core::monitor::Monitor;
use isotherm_core::monitor::config::{Algorithm, MonitorConfig};
use isotherm_core::monitor::intervals::IntervalsGoal;
use isotherm_core::scheme::Scheme;
use isotherm_core::scheme::engine::{SchemeEngine, SchemeStatus};
use isotherm_core::scheme::filter::FilterType;
use isotherm_core::scheme::idle::IdleReason;
use isotherm_core::snapshot::{RegionInfo, Snapshot};
use isotherm_core::source::AccessSource;
use isotherm_core::space::{Lasting, SpaceRule};
use isotherm_core::target::TargetId;
use isotherm_linux::action::{LinuxActuator, unsupported};
use isotherm_linux::clock::{kernel_release, realtime_offset_ns};
use isotherm_linux::meter::LinuxMeter;
use isotherm_linux::roots::Roots;
use isotherm_linux::source::pagetable::PageTableSource;
use isotherm_linux::targets::{TargetSpec, TargetTracker};
use isotherm_linux::usdt::Probes;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender};

/// How often requests are looked for, ns.
const LOOK_EVERY_NS: u64 = 20_000_000;
/// How much longer than for two turns of the slowest scheme tried regions are waited for, ns.
const PATIENCE_NS: u64 = 1_000_000_000;

type CommitAnswer = SyncSender<Result<(), Refused>>;
type Live = Context<Monitor<UntilReaped<PageTableSource>>>;

/// Monitors until it is asked to stop or no target is left. `ready` gets the thread's id, or why it cannot begin.
pub(super) fn run(
    settings: Settings,
    observer: Option<Observer>,
    requests: &Receiver<Request>,
    stop: &Stop,
    ready: &SyncSender<Result<i32, Refused>>,
) {
    let (mut context, mut server) = match begin(settings, observer, requests) {
        Ok(begun) => begun,
        Err(refused) => {
            let _ = ready.send(Err(refused));
            return;
        }
    };
    let _ = ready.send(Ok(rustix::thread::gettid().as_raw_pid()));
    let mut clock: &Stop = stop;
    loop {
        match context.turn(&mut clock, u64::MAX, &mut server) {
            Ok(Progress::Aggregated) => {}
            Ok(Progress::Interrupted | Progress::TargetsGone) => return,
            Err(error) => {
                tracing::error!("a kdamond ends: {error}");
                return;
            }
        }
        server.finish_commits(&mut context);
    }
}

fn begin<'r>(
    settings: Settings,
    observer: Option<Observer>,
    requests: &'r Receiver<Request>,
) -> Result<(Live, Server<'r>), Refused> {
    let roots = Roots::system();
    possible(&roots, &settings.schemes)?;
    let common = MonitorConfig {
        attrs: settings.attrs,
        algorithm: settings.algorithm,
        intervals_goal: settings.intervals_goal,
        kernel: kernel_release().unwrap_or_default(),
        realtime_offset_ns: realtime_offset_ns(),
        ..MonitorConfig::default()
    };
    let config = match settings.algorithm {
        Algorithm::Isotherm | Algorithm::PagesOnly => common,
        // As in the kernel: no budget stretches the intervals, no page history.
        Algorithm::Damon(_) => {
            MonitorConfig { cpu_budget: None, walks: false, space: SpaceRule::ThreeRegions, ..common }
        }
    };
    let spec = match &settings.watched {
        KdamondTargets::Processes(processes) => TargetSpec::Each(pids(processes)),
        KdamondTargets::All => TargetSpec::All,
    };
    let tracker = TargetTracker::new(spec).map_err(Refused::new)?;
    let source = PageTableSource::new(tracker).map_err(Refused::new)?.with_cpu_budget(config.cpu_budget);
    let actuator = LinuxActuator::new(&roots).map_err(Refused::new)?;
    let meter = LinuxMeter::new(roots.clone());
    let attrs = settings.attrs;
    let ids: Vec<TargetId> = match &settings.watched {
        KdamondTargets::Processes(processes) => (0..processes.len() as TargetId).collect(),
        KdamondTargets::All => Vec::new(),
    };
    let mut schemes = SchemeEngine::new(settings.schemes, Box::new(actuator), Box::new(meter));
    for (index, goals) in settings.goals.iter().enumerate() {
        goals.pushed.map(|value| schemes.push_feedback(index, value));
    }
    let source = match &settings.watched {
        KdamondTargets::Processes(_) => UntilReaped::new(source),
        KdamondTargets::All => UntilReaped::never(source),
    };
    let mut monitor = Monitor::new(source, config);
    give_spaces(&mut monitor, &settings.watched, &ids, &[]);
    let mut context = Context::new(monitor).with_schemes(schemes);
    context.trace(Box::new(Probes));
    let tried = Tried::default();
    context.trace(Box::new(tried.clone()));
    let server = Server {
        requests,
        observer: observer.map(|observer| observer()),
        roots,
        watched: settings.watched,
        intervals_goal: settings.intervals_goal,
        ids,
        retargets: Vec::new(),
        retune_goal: false,
        attrs,
        settling: false,
        snapshots: BTreeMap::new(),
        tried,
        waiting: Vec::new(),
        retune: None,
        look_ns: 0,
    };
    Ok((context, server))
}

fn pids(processes: &[WatchedProcess]) -> Vec<u32> {
    processes.iter().map(|process| process.pid).collect()
}

/// Has the targets with these ids watched where their files say so. Where ranges are fixed and none are given now,
/// those of a target among `known` stay, as in the kernel.
fn give_spaces<S: AccessSource>(
    monitor: &mut Monitor<S>,
    watched: &KdamondTargets,
    ids: &[TargetId],
    known: &[TargetId],
) {
    let KdamondTargets::Processes(processes) = watched else { return };
    for (process, &id) in processes.iter().zip(ids) {
        match &process.space {
            TargetRanges::Mapped => monitor.give_space(id, None),
            TargetRanges::First(ranges) => monitor.give_space(id, Some((ranges.clone(), Lasting::UntilUpdate))),
            TargetRanges::Fixed(ranges) if ranges.is_empty() && known.contains(&id) => {}
            TargetRanges::Fixed(ranges) => monitor.give_space(id, Some((ranges.clone(), Lasting::Always))),
        }
    }
}

/// Whether this machine can do what the schemes ask for.
fn possible(roots: &Roots, schemes: &[Scheme]) -> Result<(), Refused> {
    for (index, scheme) in schemes.iter().enumerate() {
        let destinations: &[Destination] = &scheme.destinations;
        if let Some(why) = unsupported(roots, scheme.action, destinations) {
            return Err(Refused::new(format_args!("scheme {index} ({}) is not possible here: {why}", scheme.action)));
        }
    }
    Ok(())
}

/// The scheme with filters by the ids of targets, which the files count in their order.
fn of_targets(mut scheme: Scheme, ids: &[TargetId]) -> Scheme {
    for filter in &mut scheme.filters {
        if let FilterType::Target(target) = &mut filter.what {
            *target = ids.get(*target as usize).copied().unwrap_or(TargetId::MAX);
        }
    }
    scheme
}

/// Answers requests between the monitor's steps.
struct Server<'r> {
    requests: &'r Receiver<Request>,
    observer: Option<Box<dyn Subscriber>>,
    roots: Roots,
    watched: KdamondTargets,
    intervals_goal: Option<IntervalsGoal>,
    /// Targets in the order of their folders; before the first change of them the one of each number.
    ids: Vec<TargetId>,
    /// Commits that change the targets: between two turns.
    retargets: Vec<(Box<Settings>, CommitAnswer)>,
    /// Intervals in force, or about to be.
    attrs: MonitorAttrs,
    /// Whether they were committed and no snapshot has shown them yet.
    settling: bool,
    /// The last of each target.
    snapshots: BTreeMap<TargetId, Snapshot>,
    tried: Tried,
    /// Who waits for what schemes are tried on next, and until when.
    waiting: Vec<(u64, SyncSender<Vec<Vec<RegionInfo>>>)>,
    retune: Option<MonitorAttrs>,
    /// Whether `intervals_goal` is about to be put in force.
    retune_goal: bool,
    look_ns: u64,
}

impl Subscriber for Server<'_> {
    fn event(&mut self, event: &Event) -> Result<(), SubscriberError> {
        if let Some(observer) = &mut self.observer {
            observer.event(event)?;
        }
        match event {
            Event::Snapshot(snapshot) => {
                let (sample_us, aggr_us) = (snapshot.sample_us, snapshot.aggr_us);
                // Those of an interval that began before the last commit are not what it asked for.
                if !self.settling || (sample_us, aggr_us) == (self.attrs.sample_us, self.attrs.aggr_us) {
                    self.settling = false;
                    (self.attrs.sample_us, self.attrs.aggr_us) = (sample_us, aggr_us);
                }
                self.snapshots.insert(snapshot.target, snapshot.clone());
            }
            Event::End { target, .. } => {
                self.snapshots.remove(target);
            }
            _ => {}
        }
        Ok(())
    }

    fn wanted_ns(&self) -> Option<u64> {
        Some(self.look_ns)
    }
}

impl Operator for Server<'_> {
    fn between_steps(&mut self, schemes: &mut SchemeEngine, now_ns: u64) {
        self.answer_tried(schemes, now_ns);
        self.look_ns = now_ns.saturating_add(LOOK_EVERY_NS);
        while let Ok(request) = self.requests.try_recv() {
            self.serve(request, schemes, now_ns);
        }
        // Before the first snapshot schemes know of no regions, but may have turns.
        if !self.waiting.is_empty() && !self.snapshots.is_empty() {
            self.tried.listen();
        }
    }
}

impl Server<'_> {
    fn serve(&mut self, request: Request, schemes: &mut SchemeEngine, now_ns: u64) {
        match request {
            Request::Commit(settings, answer) => {
                if settings.watched != self.watched || !self.retargets.is_empty() {
                    self.retargets.push((settings, answer));
                    return;
                }
                let possible = possible(&self.roots, &settings.schemes);
                let _ = answer.send(possible.map(|()| self.commit(*settings, schemes)));
            }
            Request::CommitGoals(goals, answer) => {
                for (index, goals) in goals.into_iter().enumerate() {
                    schemes.commit_goals(index, goals.goals);
                    goals.pushed.map(|value| schemes.push_feedback(index, value));
                }
                let _ = answer.send(());
            }
            Request::Stats(answer) => {
                let status = schemes.status();
                let _ = answer.send(status.iter().map(|s| s.stats.clone()).collect());
            }
            Request::Tried(answer) => {
                let turns = schemes.status().iter().map(|s| s.scheme.apply_ns).max().unwrap_or(0);
                let two = turns.max(self.attrs.aggr_us.saturating_mul(1000)).saturating_mul(2);
                self.waiting.push((now_ns.saturating_add(two).saturating_add(PATIENCE_NS), answer));
            }
            Request::Attrs(answer) => {
                let _ = answer.send(self.attrs);
            }
        }
    }

    /// Puts everything but targets in force.
    fn commit(&mut self, settings: Settings, schemes: &mut SchemeEngine) {
        let by_id = |scheme| of_targets(scheme, &self.ids);
        schemes.commit(settings.schemes.into_iter().map(by_id).collect());
        for (index, goals) in settings.goals.iter().enumerate() {
            goals.pushed.map(|value| schemes.push_feedback(index, value));
        }
        if settings.attrs != self.attrs {
            (self.attrs, self.settling) = (settings.attrs, true);
            self.retune = Some(settings.attrs);
        }
        if settings.intervals_goal != self.intervals_goal {
            self.intervals_goal = settings.intervals_goal;
            self.retune_goal = true;
        }
    }

    /// What commits have asked for that only the engine can do: between two turns.
    fn finish_commits(&mut self, context: &mut Live) {
        for (settings, answer) in std::mem::take(&mut self.retargets) {
            let done = self.retarget(*settings, context);
            // Who asked may have gone.
            let _ = answer.send(done);
        }
        let monitor = context.engine();
        if std::mem::take(&mut self.retune_goal) {
            monitor.tune_intervals(self.intervals_goal);
        }
        if let Some(attrs) = self.retune.take() {
            monitor.retune(attrs);
        }
    }

    /// As in the kernel, processes that are watched already keep their regions with their ages.
    fn retarget(&mut self, settings: Settings, context: &mut Live) -> Result<(), Refused> {
        possible(&self.roots, &settings.schemes)?;
        match (&self.watched, &settings.watched) {
            (before, after) if before == after => {}
            (KdamondTargets::Processes(_), KdamondTargets::Processes(processes)) => {
                let monitor = context.engine();
                let source = monitor.source_mut();
                let ids = source.inner().tracker().replace(&pids(processes)).map_err(Refused::new)?;
                source.keep(&ids);
                give_spaces(monitor, &settings.watched, &ids, &self.ids);
                self.snapshots.retain(|id, _| ids.contains(id));
                self.ids = ids;
            }
            _ => return Err(Refused::new("all processes and some cannot take each other's place; write off, then on")),
        }
        self.watched = settings.watched.clone();
        if let Some(schemes) = context.schemes() {
            self.commit(settings, schemes);
        }
        Ok(())
    }

    /// Answers who asks for tried regions once every scheme that may act has had a turn, or it takes too long.
    fn answer_tried(&mut self, schemes: &mut SchemeEngine, now_ns: u64) {
        let Some(&(until_ns, _)) = self.waiting.first() else { return };
        let status = schemes.status();
        let (nr_schemes, tried) = (status.len(), &self.tried);
        let is_off =
            |idle: &IdleReason| matches!(idle, IdleReason::WatermarkHigh { .. } | IdleReason::WatermarkLow { .. });
        let is_over = |(index, s): (usize, &SchemeStatus<'_>)| tried.is_done(index) || s.idle.is_some_and(is_off);
        if now_ns < until_ns && !status.iter().enumerate().all(is_over) {
            return;
        }
        let region_of = |target, at| {
            let regions = &self.snapshots.get(&target)?.regions;
            let region = regions.get(regions.partition_point(|r| r.end <= at))?;
            (region.start <= at).then_some((region.start, region.end))
        };
        let found = tried.take(nr_schemes, region_of);
        for (_, answer) in self.waiting.drain(..) {
            // Who asked may have gone.
            let _ = answer.send(found.clone());
        }
    }
}

#[cfg(test)]
mod tests;
