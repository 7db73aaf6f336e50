use super::*;
use crate::scheme::Goals;
use isotherm_core::actuator::DryRun;
use isotherm_core::meter::NoMeter;
use isotherm_core::monitor::config::DamonRules;
use isotherm_core::scheme::action::Action;
use isotherm_core::scheme::pattern::AccessPattern;
use isotherm_core::trace::{TraceEvent, Tracer};
use std::sync::mpsc::{self, Sender};

fn settings(nr_schemes: usize) -> Settings {
    let scheme = Scheme::new(Action::Stat, AccessPattern::default());
    Settings {
        attrs: MonitorAttrs::default(),
        algorithm: Algorithm::Damon(DamonRules::Mainline),
        intervals_goal: None,
        watched: KdamondTargets::Processes(vec![WatchedProcess { pid: 1, space: TargetRanges::Mapped }]),
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
    let engine = SchemeEngine::new(settings(nr_schemes).schemes, Box::new(DryRun::default()), Box::new(NoMeter));
    let mut server = Server {
        requests: &asked,
        observer: None,
        roots: Roots::system(),
        watched: settings(nr_schemes).watched,
        intervals_goal: None,
        ids: vec![0],
        retargets: Vec::new(),
        attrs: MonitorAttrs::default(),
        settling: false,
        snapshots: BTreeMap::new(),
        tried: Tried::default(),
        waiting: Vec::new(),
        retune: None,
        retune_goal: false,
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
        assert_eq!(bed.ask(server, Request::Stats), [], "none was asked for");
        bed.ask(server, |answer| Request::Commit(Box::new(settings(1)), answer)).unwrap();
        assert_eq!(bed.ask(server, Request::Stats)[0].nr_snapshots, 0);
        bed.see(server, MonitorAttrs::default());
        bed.ask(server, |answer| Request::Commit(Box::new(settings(2)), answer)).unwrap();
        assert_eq!(bed.ask(server, Request::Stats)[0].nr_snapshots, 1, "later commits keep what was counted");
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
fn tried_regions_are_those_of_every_schemes_next_turn() {
    with_server(2, |server, bed| {
        let ask = |server: &mut Server, bed: &mut Bed, now_ns| {
            let (answer, answered) = mpsc::sync_channel(1);
            bed.requests.send(Request::Tried(answer)).unwrap();
            server.between_steps(&mut bed.engine, now_ns);
            answered
        };
        let before = |scheme, start| TraceEvent::BeforeApply {
            context: 0,
            scheme,
            target: 0,
            start,
            end: start + 4096,
            nr_accesses: 7,
            age: 3,
            nr_regions: 2,
        };
        let over = |scheme| TraceEvent::StatAfterApplyInterval {
            context: 0,
            scheme,
            nr_tried: 0,
            sz_tried: 0,
            nr_applied: 0,
            sz_applied: 0,
            sz_ops_filter_passed: 0,
            qt_exceeds: 0,
            nr_snapshots: 0,
        };
        let mut tracer = server.tried.clone();
        let (first, second) = (ask(server, bed, 0), ask(server, bed, 0));
        tracer.trace(&over(0));
        assert!(!server.tried.is_done(0), "no region was known in that turn");
        bed.see(server, MonitorAttrs::default());
        server.between_steps(&mut bed.engine, 0);
        for event in [before(0, 0), over(0), before(1, 4096)] {
            tracer.trace(&event);
        }
        server.between_steps(&mut bed.engine, 1);
        assert!(first.try_recv().is_err(), "the second has had no turn");
        tracer.trace(&over(1));
        server.between_steps(&mut bed.engine, 2);
        let tried = first.try_recv().unwrap();
        assert_eq!(tried, second.try_recv().unwrap());
        assert_eq!(
            tried.iter().map(|t| (t[0].start, t[0].nr_accesses, t[0].age)).collect::<Vec<_>>(),
            [(0, 7, 3), (4096, 7, 3)]
        );
        // Nobody has a turn, as with long apply intervals that are shortened: the answer comes all the same.
        let third = ask(server, bed, 3);
        server.between_steps(&mut bed.engine, 60_000_000_000);
        assert_eq!(third.try_recv().unwrap(), [vec![], vec![]]);
    });
}
