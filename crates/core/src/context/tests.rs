//! Of the loop, with a virtual clock.

use super::*;
use crate::actuator::DryRun;
use crate::clock::VirtualClock;
use crate::meter::{LiveTarget, Meter, MeterError, Metric};
use crate::scheme::Scheme;
use crate::scheme::action::Action;
use crate::scheme::pattern::AccessPattern;
use crate::scheme::watermark::{WatermarkMetric, Watermarks};
use crate::snapshot::{RegionInfo, Snapshot};
use crate::target::TargetInfo;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Counts what is asked of it; an interval takes 100 ms.
#[derive(Debug, Default)]
struct Counting {
    intervals: u32,
    follows: u32,
}

impl Engine for Counting {
    fn run_interval(
        &mut self,
        clock: &mut dyn Clock,
        subscriber: &mut dyn Subscriber,
    ) -> Result<Progress, EngineError> {
        self.intervals += 1;
        clock.sleep_until_ns(clock.now_ns() + 100_000_000);
        subscriber.step(Step::AfterAggregate, clock.now_ns());
        Ok(Progress::Aggregated)
    }

    fn follow_targets(&mut self, _: &mut dyn Clock, _: &mut dyn Subscriber) -> Result<Progress, EngineError> {
        self.follows += 1;
        Ok(Progress::Aggregated)
    }
}

#[derive(Clone)]
struct Free(Rc<Cell<u64>>);

impl Meter for Free {
    fn read(&mut self, metric: &Metric, _: &[LiveTarget]) -> Result<u64, MeterError> {
        match metric {
            Metric::FreeMemRate => Ok(self.0.get()),
            _ => Err(MeterError { metric: metric.to_string(), reason: "none".into(), remedy: "none".into() }),
        }
    }
}

/// Wants to be asked every 200 ms, and removes the watermarks at a moment.
#[derive(Default)]
struct Removing {
    at_ns: u64,
    next_ns: u64,
    times: Vec<u64>,
}

impl Subscriber for Removing {
    fn wanted_ns(&self) -> Option<u64> {
        Some(self.next_ns)
    }
}

impl Operator for Removing {
    fn between_steps(&mut self, schemes: &mut SchemeEngine, now_ns: u64) {
        self.times.push(now_ns);
        self.next_ns = now_ns + 200_000_000;
        if now_ns >= self.at_ns {
            schemes.commit(vec![Scheme::new(Action::Stat, AccessPattern::default())]);
        }
    }
}

fn context(free: &Free) -> Context<Counting> {
    let mut scheme = Scheme::new(Action::Stat, AccessPattern::default());
    scheme.watermarks = Some(Watermarks {
        metric: WatermarkMetric::FreeMemRate,
        interval_us: 5_000_000,
        high_bp: 5000,
        mid_bp: 4000,
        low_bp: 1000,
    });
    let schemes = SchemeEngine::new(vec![scheme], Box::new(DryRun::default()), Box::new(free.clone()));
    Context::new(Counting::default()).with_schemes(schemes)
}

#[test]
fn nothing_is_watched_while_the_watermarks_keep_every_scheme_off() {
    let free = Free(Rc::new(Cell::new(9000)));
    let (mut context, mut clock) = (context(&free), VirtualClock::new(0));
    for second in 1..=4 {
        context.turn(&mut clock, u64::MAX, &mut ()).unwrap();
        assert_eq!(clock.now_ns(), second * 1_000_000_000, "targets are followed once a second");
    }
    context.turn(&mut clock, 4_200_000_000, &mut ()).unwrap();
    assert_eq!(clock.now_ns(), 4_200_000_000, "not beyond the end that was asked for");
    assert_eq!((context.engine().intervals, context.engine().follows), (0, 5));
    free.0.set(3000);
    context.turn(&mut clock, u64::MAX, &mut ()).unwrap();
    assert_eq!((clock.now_ns(), context.engine().intervals), (5_000_000_000, 0), "the metric is read when it is due");
    context.turn(&mut clock, u64::MAX, &mut ()).unwrap();
    assert_eq!((clock.now_ns(), context.engine().intervals), (5_100_000_000, 1));
}

#[test]
fn a_rest_ends_when_the_operator_replaces_the_schemes() {
    let free = Free(Rc::new(Cell::new(9000)));
    let (mut context, mut clock) = (context(&free), VirtualClock::new(0));
    let mut operator = Removing { at_ns: 600_000_000, next_ns: 200_000_000, times: Vec::new() };
    context.turn(&mut clock, u64::MAX, &mut operator).unwrap();
    assert_eq!(operator.times, [200_000_000, 400_000_000, 600_000_000]);
    context.turn(&mut clock, u64::MAX, &mut operator).unwrap();
    assert_eq!((clock.now_ns(), context.engine().intervals), (700_000_000, 1), "the new scheme has no watermarks");
}

#[test]
fn without_schemes_every_interval_is_watched() {
    let (mut context, mut clock) = (Context::new(Counting::default()), VirtualClock::new(0));
    context.turn(&mut clock, u64::MAX, &mut ()).unwrap();
    assert_eq!(context.engine().intervals, 1);
    context.settle(&mut clock, u64::MAX);
    assert!(context.schemes().is_none());
    let none = SchemeEngine::new(Vec::new(), Box::new(DryRun::default()), Box::new(Free(Rc::default())));
    let mut context = context.with_schemes(none);
    context.turn(&mut clock, u64::MAX, &mut ()).unwrap();
    assert_eq!(context.engine().intervals, 2, "also while there is none but may come some");
}

/// Samples every second of an interval, and is late by so much each time.
struct Sampling {
    seconds: u64,
    late_ns: u64,
}

impl Engine for Sampling {
    fn run_interval(&mut self, clock: &mut dyn Clock, _: &mut dyn Subscriber) -> Result<Progress, EngineError> {
        for _ in 0..self.seconds {
            if clock.sleep_until_ns(clock.now_ns() + 1_000_000_000 + self.late_ns) == Wake::Interrupted {
                return Ok(Progress::Interrupted);
            }
        }
        Ok(Progress::Aggregated)
    }

    fn interval_ns(&self) -> u64 {
        self.seconds * 1_000_000_000
    }
}

#[test]
fn an_interval_that_would_last_far_beyond_the_end_is_interrupted_there() {
    let turn = |seconds, late_ms: u64, until_ns| {
        let mut context = Context::new(Sampling { seconds, late_ns: late_ms * 1_000_000 });
        let mut clock = VirtualClock::new(0);
        (context.turn(&mut clock, until_ns, &mut ()).unwrap(), clock.now_ns() / 1_000_000)
    };
    assert_eq!(turn(30, 0, 3_000_000_000), (Progress::Interrupted, 3_000));
    assert_eq!(turn(30, 0, 3_500_000_000), (Progress::Interrupted, 3_500), "also between two samples");
    assert_eq!(turn(30, 0, u64::MAX), (Progress::Aggregated, 30_000));
    assert_eq!(turn(30, 0, 27_500_000_000), (Progress::Aggregated, 30_000), "it is nearly over");
    assert_eq!(turn(2, 0, 1_000_000_000), (Progress::Aggregated, 2_000), "it is over soon");
    assert_eq!(turn(60, 10, 60_000_000_000), (Progress::Aggregated, 60_600), "it comes a little late");
    assert_eq!(turn(60, 500, 60_000_000_000), (Progress::Interrupted, 66_000), "it comes far too late");
}

/// Shows two regions in every interval, the first ones at 5 ms, all others at 10 ms.
#[derive(Default)]
struct TwoRegions {
    intervals: u32,
}

impl Engine for TwoRegions {
    fn run_interval(
        &mut self,
        clock: &mut dyn Clock,
        subscriber: &mut dyn Subscriber,
    ) -> Result<Progress, EngineError> {
        self.intervals += 1;
        let start_ns = clock.now_ns();
        clock.sleep_until_ns(start_ns + 100_000_000);
        let region = |start, end, nr_accesses| RegionInfo {
            start,
            end,
            nr_accesses,
            age: self.intervals,
            evidence: None,
            accessed: None,
        };
        let events = [
            Event::Target(TargetInfo { target: 0, pid: None, name: String::new() }),
            Event::Snapshot(Snapshot {
                target: 0,
                pid: None,
                start_ns,
                end_ns: clock.now_ns(),
                sample_us: if self.intervals == 1 { 5_000 } else { 10_000 },
                aggr_us: 100_000,
                max_nr_accesses: 20,
                regions: vec![region(0x1000, 0x5000, 7), region(0x8000, 0xa000, 0)],
            }),
        ];
        for event in events {
            subscriber.event(&event).map_err(EngineError::Subscriber)?;
        }
        subscriber.step(Step::AfterAggregate, clock.now_ns());
        Ok(Progress::Aggregated)
    }
}

/// Writes down what it hears, and listens only to some of it.
struct Ear {
    listens: fn(&TraceEvent) -> bool,
    heard: Rc<RefCell<Vec<String>>>,
}

impl Tracer for Ear {
    fn trace(&mut self, event: &TraceEvent) -> bool {
        let listens = (self.listens)(event);
        if listens {
            self.heard.borrow_mut().push(format!("{} {event}", event.tracepoint().name()));
        }
        listens
    }
}

/// What is heard of two intervals, in which a scheme may do 20 KiB.
fn heard(listens: &[fn(&TraceEvent) -> bool]) -> Vec<Vec<String>> {
    let mut scheme = Scheme::new(Action::Stat, AccessPattern::default());
    (scheme.quota.bytes, scheme.quota.reset_ns) = (Some(0x5000), 100_000_000);
    let free = Free(Rc::new(Cell::new(0)));
    let schemes = SchemeEngine::new(vec![scheme], Box::new(DryRun::default()), Box::new(free));
    let mut context = Context::new(TwoRegions::default()).with_schemes(schemes);
    let heard: Vec<_> = listens.iter().map(|&listens| (listens, Rc::default())).collect();
    for (listens, heard) in &heard {
        context.trace(Box::new(Ear { listens: *listens, heard: Rc::clone(heard) }));
    }
    let mut clock = VirtualClock::new(0);
    for _ in 0..2 {
        context.turn(&mut clock, u64::MAX, &mut ()).unwrap();
    }
    drop(context);
    heard.into_iter().map(|(_, heard)| heard.take()).collect()
}

#[test]
fn tracers_hear_what_is_seen_and_done_in_the_kernels_order() {
    let all = heard(&[|_| true]).remove(0);
    let stat = "damos_stat_after_apply_interval ctx_idx=0 scheme_idx=0";
    let expected = [
        "damon_aggregated target_id=0 nr_regions=2 4096-20480: 7 1".to_owned(),
        "damon_aggregated target_id=0 nr_regions=2 32768-40960: 0 1".to_owned(),
        "damos_esz ctx_idx=0 scheme_idx=0 esz=20480".to_owned(),
        "damos_before_apply ctx_idx=0 scheme_idx=0 target_idx=0 nr_regions=2 4096-20480: 7 1".to_owned(),
        "damos_before_apply ctx_idx=0 scheme_idx=0 target_idx=0 nr_regions=2 32768-36864: 0 1".to_owned(),
        format!(
            "{stat} nr_tried=2 sz_tried=20480 nr_applied=0 sz_applied=0 sz_ops_filter_passed=20480 qt_exceeds=0 \
             nr_snapshots=1"
        ),
        "damon_monitor_intervals_tune sample_us=10000".to_owned(),
        "damon_aggregated target_id=0 nr_regions=2 4096-20480: 7 2".to_owned(),
    ];
    assert_eq!(all[..expected.len()], expected);
    assert!(all.last().is_some_and(|last| last.starts_with(stat) && last.contains("qt_exceeds=1")), "{all:#?}");
}

#[test]
fn who_does_not_listen_is_not_told_and_takes_nothing_from_others() {
    let only_schemes: fn(&TraceEvent) -> bool = |e| matches!(e, TraceEvent::EffectiveQuota { .. });
    let [none, all, some] = heard(&[|_| false, |_| true, only_schemes]).try_into().unwrap();
    assert_eq!(none, [""; 0]);
    assert_eq!(all, heard(&[|_| true]).remove(0));
    assert_eq!(some, ["damos_esz ctx_idx=0 scheme_idx=0 esz=20480"; 2]);
}
