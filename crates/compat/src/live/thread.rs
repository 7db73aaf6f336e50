//! What a kdamond's thread does.

use super::Request;
use super::clock::Stop;
use crate::kdamond::{Figures, Refused};
use crate::settings::Settings;
use isotherm_core::actuator::Destination;
use isotherm_core::addr::AddrRange;
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::context::{Context, Operator};
use isotherm_core::engine::{Engine, Progress};
use isotherm_core::event::{Event, Step, Subscriber, SubscriberError};
use isotherm_core::mapping::Mapping;
use isotherm_core::meter::LiveTarget;
use isotherm_core::monitor::Monitor;
use isotherm_core::monitor::config::{Algorithm, DamonRules, MonitorConfig};
use isotherm_core::monitor::intervals::IntervalsGoal;
use isotherm_core::scheme::action::Action;
use isotherm_core::scheme::engine::SchemeEngine;
use isotherm_core::scheme::filter::{Subject, Verdict, split};
use isotherm_core::scheme::pattern::AccessPattern;
use isotherm_core::scheme::{Scheme, stats::SchemeStats};
use isotherm_core::snapshot::{RegionInfo, Snapshot};
use isotherm_core::space::SpaceRule;
use isotherm_core::target::TargetId;
use isotherm_linux::action::{LinuxActuator, unsupported};
use isotherm_linux::clock::{kernel_release, realtime_offset_ns};
use isotherm_linux::meter::LinuxMeter;
use isotherm_linux::roots::Roots;
use isotherm_linux::source::pagetable::PageTableSource;
use isotherm_linux::targets::{TargetSpec, TargetTracker};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender};

/// How often requests are looked for, ns.
const LOOK_EVERY_NS: u64 = 20_000_000;
/// How much longer than for two aggregation intervals regions are waited for, ns: while watermarks keep every scheme
/// off, none ends.
const PATIENCE_NS: u64 = 1_000_000_000;

type Live = Context<Monitor<PageTableSource>>;

/// Monitors until it is told to stop or no target is left. `ready` is told the thread's id, or why it cannot begin.
pub(super) fn run(
    settings: Settings,
    requests: &Receiver<Request>,
    stop: &Stop,
    ready: &SyncSender<Result<i32, Refused>>,
) {
    let (mut context, mut server) = match begin(settings, requests) {
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
        if let Some(attrs) = server.retune.take() {
            context.engine().retune(attrs);
        }
    }
}

fn begin<'r>(settings: Settings, requests: &'r Receiver<Request>) -> Result<(Live, Server<'r>), Refused> {
    let roots = Roots::system();
    possible(&roots, &settings.schemes)?;
    let config = MonitorConfig {
        attrs: settings.attrs,
        algorithm: Algorithm::Damon(DamonRules::Mainline),
        mode: None,
        // The kernel has none: intervals are as they were asked for.
        cpu_budget: None,
        intervals_goal: settings.intervals_goal,
        walks: false,
        space: SpaceRule::ThreeRegions,
        seed: 0,
        kernel: kernel_release().unwrap_or_default(),
        realtime_offset_ns: realtime_offset_ns(),
    };
    let spec = TargetSpec::Pids { pids: settings.pids.clone(), children: false };
    let tracker = TargetTracker::new(spec).map_err(Refused::new)?;
    let source = PageTableSource::new(tracker)
        .map_err(|e| Refused::new(format_args!("page tables cannot be read here: {}; {}", e.reason, e.remedy)))?;
    let actuator = LinuxActuator::new(&roots).map_err(Refused::new)?;
    let meter = LinuxMeter::new(roots.clone());
    let (attrs, nr_schemes) = (settings.attrs, settings.schemes.len());
    let mut schemes = SchemeEngine::new(at_least_one(settings.schemes), Box::new(actuator), Box::new(meter));
    for (index, goals) in settings.goals.iter().enumerate() {
        goals.pushed.map(|value| schemes.push_feedback(index, value));
    }
    let context = Context::new(Monitor::new(source, config)).with_schemes(schemes);
    let server = Server {
        requests,
        roots,
        intervals_goal: settings.intervals_goal,
        nr_schemes,
        attrs,
        settling: false,
        targets: BTreeMap::new(),
        waiting: Vec::new(),
        aggregated: false,
        retune: None,
        look_ns: 0,
    };
    Ok((context, server))
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

/// Without any scheme the engine would rest, but a kdamond without schemes monitors: one that only counts stands in.
fn at_least_one(schemes: Vec<Scheme>) -> Vec<Scheme> {
    if schemes.is_empty() { vec![Scheme::new(Action::Stat, AccessPattern::default())] } else { schemes }
}

/// What was seen of a target last.
struct Seen {
    live: LiveTarget,
    mappings: Vec<Mapping>,
    snapshot: Option<Snapshot>,
}

/// Answers requests between the monitor's steps.
struct Server<'r> {
    requests: &'r Receiver<Request>,
    roots: Roots,
    intervals_goal: Option<IntervalsGoal>,
    /// Without the one that stands in.
    nr_schemes: usize,
    /// Intervals in force, or about to be.
    attrs: MonitorAttrs,
    /// Whether they were committed and no snapshot has shown them yet.
    settling: bool,
    targets: BTreeMap<TargetId, Seen>,
    /// Who waits for the regions of the interval that ends next, and until when.
    waiting: Vec<(u64, SyncSender<Vec<Vec<RegionInfo>>>)>,
    aggregated: bool,
    retune: Option<MonitorAttrs>,
    look_ns: u64,
}

impl Subscriber for Server<'_> {
    fn event(&mut self, event: &Event) -> Result<(), SubscriberError> {
        match event {
            Event::Target(info) => {
                let live = LiveTarget { target: info.target, pid: info.pid };
                self.targets.insert(info.target, Seen { live, mappings: Vec::new(), snapshot: None });
            }
            Event::Mappings { target, mappings, .. } => {
                if let Some(seen) = self.targets.get_mut(target) {
                    seen.mappings.clone_from(mappings);
                }
            }
            Event::Snapshot(snapshot) => {
                let (sample_us, aggr_us) = (snapshot.sample_us, snapshot.aggr_us);
                // Those of an interval that began before the last commit are not what it asked for.
                if !self.settling || (sample_us, aggr_us) == (self.attrs.sample_us, self.attrs.aggr_us) {
                    self.settling = false;
                    (self.attrs.sample_us, self.attrs.aggr_us) = (sample_us, aggr_us);
                }
                if let Some(seen) = self.targets.get_mut(&snapshot.target) {
                    seen.snapshot = Some(snapshot.clone());
                }
            }
            Event::End { target, .. } => {
                self.targets.remove(target);
            }
            _ => {}
        }
        Ok(())
    }

    fn step(&mut self, step: Step, _now_ns: u64) {
        self.aggregated |= step == Step::AfterAggregate;
    }

    fn wanted_ns(&self) -> Option<u64> {
        Some(self.look_ns)
    }
}

impl Operator for Server<'_> {
    fn between_steps(&mut self, schemes: &mut SchemeEngine, now_ns: u64) {
        let aggregated = std::mem::take(&mut self.aggregated);
        if self.waiting.iter().any(|(until, _)| aggregated || now_ns >= *until) {
            let tried = self.tried(schemes);
            for (_, answer) in self.waiting.drain(..) {
                // Who asked may have gone.
                let _ = answer.send(tried.clone());
            }
        }
        self.look_ns = now_ns.saturating_add(LOOK_EVERY_NS);
        while let Ok(request) = self.requests.try_recv() {
            self.serve(request, schemes, now_ns);
        }
    }
}

impl Server<'_> {
    fn serve(&mut self, request: Request, schemes: &mut SchemeEngine, now_ns: u64) {
        match request {
            Request::Commit(settings, answer) => {
                if let Err(refused) = self.can_change_to(&settings) {
                    let _ = answer.send(Err(refused));
                    return;
                }
                if self.nr_schemes == 0 {
                    // What the stand-in has counted is not the first scheme's.
                    schemes.commit(Vec::new());
                }
                self.nr_schemes = settings.schemes.len();
                schemes.commit(at_least_one(settings.schemes));
                for (index, goals) in settings.goals.iter().enumerate() {
                    goals.pushed.map(|value| schemes.push_feedback(index, value));
                }
                if settings.attrs != self.attrs {
                    (self.attrs, self.settling) = (settings.attrs, true);
                    self.retune = Some(settings.attrs);
                }
                let _ = answer.send(Ok(()));
            }
            Request::CommitGoals(goals, answer) => {
                for (index, goals) in goals.into_iter().enumerate().take(self.nr_schemes) {
                    schemes.commit_goals(index, goals.goals);
                    goals.pushed.map(|value| schemes.push_feedback(index, value));
                }
                let _ = answer.send(());
            }
            Request::Figures(answer) => {
                let status = schemes.status();
                let _ = answer.send(status.iter().take(self.nr_schemes).map(|s| figures(&s.stats)).collect());
            }
            Request::Tried(answer) => {
                let two = self.attrs.aggr_us.saturating_mul(2_000);
                self.waiting.push((now_ns.saturating_add(two).saturating_add(PATIENCE_NS), answer));
            }
            Request::Attrs(answer) => {
                let _ = answer.send(self.attrs);
            }
        }
    }

    fn can_change_to(&self, settings: &Settings) -> Result<(), Refused> {
        if settings.intervals_goal != self.intervals_goal {
            return Err(Refused::new("intervals_goal cannot be changed while it is on; write off, then on"));
        }
        possible(&self.roots, &settings.schemes)
    }

    /// What each scheme is about: regions of the last snapshots that match its pattern, cut where its filters of
    /// addresses, targets and mappings say so.
    fn tried(&self, schemes: &mut SchemeEngine) -> Vec<Vec<RegionInfo>> {
        let status = schemes.status();
        status.iter().take(self.nr_schemes).map(|s| self.matching(s.scheme)).collect()
    }

    fn matching(&self, scheme: &Scheme) -> Vec<RegionInfo> {
        let mut found = Vec::new();
        for seen in self.targets.values() {
            let Some(snapshot) = &seen.snapshot else { continue };
            let subject = Subject { target: seen.live.target, cgroup: None, mappings: &seen.mappings };
            for region in snapshot.regions.iter().filter(|r| scheme.pattern.check(r, snapshot).is_ok()) {
                let mut pieces = Vec::new();
                split(&scheme.filters, &subject, AddrRange::new(region.start, region.end), &mut pieces);
                pieces.retain(|piece| piece.verdict != Verdict::Reject);
                let part = |r: AddrRange| RegionInfo { start: r.start, end: r.end, ..*region };
                found.extend(pieces.into_iter().map(|piece| part(piece.range)));
            }
        }
        found
    }
}

fn figures(stats: &SchemeStats) -> Figures {
    Figures {
        nr_tried: stats.nr_tried,
        sz_tried: stats.sz_tried,
        nr_applied: stats.nr_applied,
        sz_applied: stats.sz_applied,
        sz_ops_filter_passed: stats.sz_tried,
        qt_exceeds: stats.qt_exceeds,
        nr_snapshots: stats.nr_snapshots,
        effective_bytes: stats.effective_quota.unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Goals;
    use isotherm_core::actuator::DryRun;
    use isotherm_core::meter::{Meter, MeterError, Metric};
    use std::sync::mpsc::{self, Sender};

    struct NoMeter;

    impl Meter for NoMeter {
        fn read(&mut self, metric: &Metric, _: &[LiveTarget]) -> Result<u64, MeterError> {
            Err(MeterError { metric: metric.to_string(), reason: "none".into(), remedy: "none".into() })
        }
    }

    fn settings(nr_schemes: usize) -> Settings {
        let scheme = Scheme::new(Action::Stat, AccessPattern::default());
        Settings {
            attrs: MonitorAttrs::default(),
            intervals_goal: None,
            pids: vec![1],
            schemes: vec![scheme; nr_schemes],
            goals: vec![Goals::default(); nr_schemes],
        }
    }

    struct Bed {
        requests: Sender<Request>,
        engine: SchemeEngine,
    }

    fn with_server(nr_schemes: usize, test: impl FnOnce(&mut Server, &mut Bed)) {
        let (requests, asked) = mpsc::channel();
        let engine = SchemeEngine::new(
            at_least_one(settings(nr_schemes).schemes),
            Box::new(DryRun::default()),
            Box::new(NoMeter),
        );
        let mut server = Server {
            requests: &asked,
            roots: Roots::system(),
            intervals_goal: None,
            nr_schemes,
            attrs: MonitorAttrs::default(),
            settling: false,
            targets: BTreeMap::new(),
            waiting: Vec::new(),
            aggregated: false,
            retune: None,
            look_ns: 0,
        };
        test(&mut server, &mut Bed { requests, engine });
    }

    impl Bed {
        /// The server's answer, which is there at once.
        fn ask<T>(&mut self, server: &mut Server, request: impl FnOnce(SyncSender<T>) -> Request) -> T {
            let (answer, answered) = mpsc::sync_channel(1);
            self.requests.send(request(answer)).unwrap();
            server.between_steps(&mut self.engine, 0);
            answered.try_recv().unwrap()
        }

        fn see(&mut self, server: &mut Server, attrs: MonitorAttrs) {
            let region = |start, nr| RegionInfo {
                start,
                end: start + 4096,
                nr_accesses: nr,
                age: 0,
                evidence: None,
                accessed: None,
            };
            let snapshot = Snapshot {
                target: 0,
                pid: Some(1),
                start_ns: 0,
                end_ns: 1,
                sample_us: attrs.sample_us,
                aggr_us: attrs.aggr_us,
                max_nr_accesses: attrs.max_nr_accesses(),
                regions: vec![region(0, 20), region(4096, 0)],
            };
            let target = isotherm_core::target::TargetInfo { target: 0, pid: Some(1), name: String::new() };
            for event in [Event::Target(target), Event::Snapshot(snapshot)] {
                server.event(&event).unwrap();
                self.engine.event(&event).unwrap();
            }
        }
    }

    #[test]
    fn a_first_scheme_begins_with_nothing_counted() {
        with_server(0, |server, bed| {
            bed.see(server, MonitorAttrs::default());
            assert_eq!(bed.ask(server, Request::Figures), [], "none was asked for");
            bed.ask(server, |answer| Request::Commit(Box::new(settings(1)), answer)).unwrap();
            assert_eq!(bed.ask(server, Request::Figures)[0].nr_snapshots, 0);
            bed.see(server, MonitorAttrs::default());
            bed.ask(server, |answer| Request::Commit(Box::new(settings(2)), answer)).unwrap();
            assert_eq!(bed.ask(server, Request::Figures)[0].nr_snapshots, 1, "later commits keep what was counted");
        });
    }

    #[test]
    fn committed_intervals_are_told_before_the_monitor_has_them() {
        with_server(1, |server, bed| {
            let old = MonitorAttrs::default();
            let new = MonitorAttrs { sample_us: 10_000, aggr_us: 200_000, ..old };
            bed.see(server, old);
            let settings = Settings { attrs: new, ..settings(1) };
            bed.ask(server, |answer| Request::Commit(Box::new(settings), answer)).unwrap();
            bed.see(server, old);
            assert_eq!(bed.ask(server, Request::Attrs), new, "the interval had begun before");
            bed.see(server, new);
            let tuned = MonitorAttrs { sample_us: 20_000, aggr_us: 400_000, ..old };
            bed.see(server, tuned);
            assert_eq!(bed.ask(server, Request::Attrs), tuned);
        });
    }

    #[test]
    fn regions_are_those_of_the_interval_that_ends_next() {
        with_server(1, |server, bed| {
            let (answer, answered) = mpsc::sync_channel(1);
            bed.requests.send(Request::Tried(answer)).unwrap();
            server.between_steps(&mut bed.engine, 0);
            assert!(answered.try_recv().is_err());
            bed.see(server, MonitorAttrs::default());
            server.step(Step::AfterAggregate, 1);
            server.between_steps(&mut bed.engine, 1);
            let tried = answered.try_recv().unwrap();
            assert_eq!(tried[0].iter().map(|r| (r.start, r.nr_accesses)).collect::<Vec<_>>(), [(0, 20), (4096, 0)]);
        });
    }
}
