//! The whole monitor over a memory that the test can see through.

mod toy;

use isotherm_core::addr::{AddrRange, PAGE_SIZE, is_sorted_disjoint, overlap_len, total_len};
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::clock::VirtualClock;
use isotherm_core::engine::{Engine, Progress};
use isotherm_core::event::{Collector, Event, Mode, Step, Subscriber};
use isotherm_core::monitor::Monitor;
use isotherm_core::monitor::config::{Algorithm, DamonRules, MonitorConfig};
use isotherm_core::snapshot::Snapshot;
use isotherm_core::target::TargetEnd;
use proptest::prelude::*;
use std::cell::RefCell;
use std::rc::Rc;
use toy::{Toy, World};

const P: u64 = PAGE_SIZE;
const ALGORITHMS: [(Algorithm, Option<Mode>); 4] = [
    (Algorithm::Isotherm, Some(Mode::Sample)),
    (Algorithm::Isotherm, Some(Mode::Scan)),
    (Algorithm::Damon(DamonRules::Mainline), None),
    (Algorithm::Damon(DamonRules::V12), None),
];

fn pages(start: u64, end: u64) -> AddrRange {
    AddrRange::new(start * P, end * P)
}

fn world(mappings: &[AddrRange], hot: &[AddrRange]) -> Rc<RefCell<World>> {
    Rc::new(RefCell::new(World { mappings: mappings.to_vec(), hot: hot.to_vec(), ..World::default() }))
}

fn config(algorithm: Algorithm, mode: Option<Mode>, seed: u64) -> MonitorConfig {
    MonitorConfig { algorithm, mode, seed, cpu_budget: None, walks: false, ..MonitorConfig::default() }
}

struct Run {
    monitor: Monitor<Toy>,
    clock: VirtualClock,
    seen: Collector,
}

impl Run {
    fn new(world: &Rc<RefCell<World>>, config: MonitorConfig) -> Self {
        Self { monitor: Monitor::new(Toy::new(world), config), clock: VirtualClock::new(1), seen: Collector::default() }
    }

    fn intervals(&mut self, n: usize) -> Progress {
        let mut last = Progress::Aggregated;
        for _ in 0..n {
            last = self.monitor.run_interval(&mut self.clock, &mut self.seen).expect("the toy never fails");
        }
        last
    }

    fn last(&self) -> &Snapshot {
        self.seen.snapshots().last().expect("a snapshot")
    }
}

fn hot_ranges(s: &Snapshot) -> Vec<AddrRange> {
    s.regions.iter().filter(|r| r.nr_accesses > 0).map(|r| AddrRange::new(r.start, r.end)).collect()
}

/// Precision and recall of the hot set.
fn accuracy(s: &Snapshot, hot: &[AddrRange]) -> (f64, f64) {
    let reported = hot_ranges(s);
    let common = overlap_len(&reported, hot) as f64;
    (common / total_len(&reported).max(1) as f64, common / total_len(hot).max(1) as f64)
}

fn check_invariants(s: &Snapshot, world: &World, attrs: &MonitorAttrs) -> Result<(), TestCaseError> {
    let ranges: Vec<AddrRange> = s.regions.iter().map(|r| AddrRange::new(r.start, r.end)).collect();
    prop_assert!(is_sorted_disjoint(&ranges), "{:?}", ranges);
    prop_assert!(ranges.iter().all(|r| r.start.is_multiple_of(P) && r.end.is_multiple_of(P)));
    prop_assert_eq!(total_len(&ranges), total_len(&world.mappings));
    prop_assert_eq!(overlap_len(&ranges, &world.mappings), total_len(&world.mappings));
    prop_assert!(s.regions.iter().all(|r| r.nr_accesses <= s.max_nr_accesses));
    prop_assert!(ranges.len() <= attrs.max_regions as usize, "{} regions", ranges.len());
    prop_assert!(world.strays.is_empty(), "{:?}", world.strays);
    Ok(())
}

#[test]
fn a_hot_stretch_is_found_by_every_mode_of_isotherm() {
    for (algorithm, mode) in &ALGORITHMS[..2] {
        let hot = [pages(30_000, 30_500)];
        let w = world(&[pages(10_000, 40_000), pages(50_000, 52_000)], &hot);
        let mut run = Run::new(&w, config(*algorithm, *mode, 1));
        run.intervals(20);
        let (precision, recall) = accuracy(run.last(), &hot);
        assert!(precision > 0.97 && recall > 0.97, "{mode:?}: {precision} {recall} {:?}", run.last());
        let r = run.last().regions.iter().find(|r| r.nr_accesses > 0).expect("a hot region");
        assert_eq!(r.nr_accesses, 20);
        assert!(r.age >= 8, "{r:?}");
    }
}

#[test]
fn cold_again_is_seen_at_once() {
    for (algorithm, mode) in &ALGORITHMS[..2] {
        let (a, b) = ([pages(1000, 3000)], [pages(7000, 9000)]);
        let w = world(&[pages(0, 10_000)], &a);
        let mut run = Run::new(&w, config(*algorithm, *mode, 1));
        run.intervals(20);
        w.borrow_mut().hot = b.to_vec();
        run.intervals(6);
        let (precision, recall) = accuracy(run.last(), &b);
        assert!(precision > 0.95 && recall > 0.95, "{mode:?}: {precision} {recall}");
        let was_hot = run.last().regions.iter().find(|r| r.start <= 2000 * P && 2000 * P < r.end).expect("a region");
        assert!(was_hot.nr_accesses == 0 && was_hot.age <= 6, "{was_hot:?}");
    }
}

#[test]
fn what_cannot_be_observed_is_neither_hot_nor_cold() {
    for (algorithm, mode) in &ALGORITHMS[..2] {
        let w = world(&[pages(0, 10_000)], &[pages(0, 1000)]);
        w.borrow_mut().blind = vec![pages(4000, 6000)];
        let mut run = Run::new(&w, config(*algorithm, *mode, 1));
        run.intervals(20);
        let blind: u64 = run.last().regions.iter().filter(|r| r.is_blind()).map(|r| r.len()).sum();
        assert!(blind.abs_diff(2000 * P) < 100 * P, "{mode:?}: {} pages", blind / P);
        let (precision, recall) = accuracy(run.last(), &[pages(0, 1000)]);
        assert!(precision > 0.95 && recall > 0.95, "{mode:?}: {precision} {recall}");
    }
}

#[test]
fn damon_finds_a_large_hot_area() {
    let hot = [pages(3000, 7000)];
    let w = world(&[pages(0, 10_000)], &hot);
    let mut run = Run::new(&w, config(Algorithm::Damon(DamonRules::Mainline), None, 3));
    run.intervals(60);
    let (precision, recall) = accuracy(run.last(), &hot);
    assert!(precision > 0.8 && recall > 0.8, "{precision} {recall}");
}

#[test]
fn the_end_of_a_target_ends_the_run() {
    for (algorithm, mode) in ALGORITHMS {
        let w = world(&[pages(0, 1000)], &[]);
        let mut run = Run::new(&w, config(algorithm, mode, 1));
        run.intervals(3);
        w.borrow_mut().gone = true;
        assert_eq!(run.intervals(2), Progress::TargetsGone);
        assert!(matches!(run.seen.events.last(), Some(Event::End { target: 0, why: TargetEnd::Exited, .. })));
    }
}

#[test]
fn an_expensive_source_stays_below_the_budget() {
    for (algorithm, mode) in ALGORITHMS {
        let w = world(&[pages(0, 20_000)], &[pages(0, 2000)]);
        // A hundred times the real price.
        w.borrow_mut().price_ns = if mode == Some(Mode::Scan) { 500 } else { 20_000 };
        let mut run = Run::new(&w, MonitorConfig { cpu_budget: Some(0.01), ..config(algorithm, mode, 1) });
        run.intervals(60);
        let (t0, c0) = (run.last().end_ns, w.borrow().cost.monitor_ns);
        run.intervals(40);
        let share = (w.borrow().cost.monitor_ns - c0) as f64 / (run.last().end_ns - t0) as f64;
        assert!(share < 0.0125, "{algorithm:?} {mode:?}: {share}");
    }
}

#[test]
fn other_intervals_are_taken_over_and_what_was_seen_is_kept() {
    for (algorithm, mode) in ALGORITHMS {
        let w = world(&[pages(10, 1010)], &[]);
        let mut run = Run::new(&w, config(algorithm, mode, 1));
        run.intervals(30);
        let age_us = |s: &Snapshot| s.regions.iter().map(|r| u64::from(r.age) * s.aggr_us).max().unwrap_or(0);
        let before = age_us(run.last());
        // With v12's rules an age ends whenever a region's borders move.
        let ages_last = algorithm != Algorithm::Damon(DamonRules::V12);
        assert!(before > 0 || !ages_last, "{algorithm:?} {mode:?}");
        let old = *run.monitor.attrs();
        let attrs = MonitorAttrs { sample_us: 10_000, aggr_us: 400_000, max_regions: 20, ..old };
        assert!(run.monitor.retune(attrs));
        run.intervals(1);
        assert_eq!(run.last().aggr_us, old.aggr_us, "the interval under way ends as it began");
        run.intervals(2);
        let last = run.last();
        assert_eq!((last.aggr_us, last.sample_us, last.end_ns - last.start_ns), (400_000, 10_000, 400_000_000));
        assert!(!ages_last || age_us(last) >= before, "{algorithm:?} {mode:?}: {} {before}", age_us(last));
        run.intervals(20);
        assert!(run.last().regions.len() <= 20, "{algorithm:?} {mode:?}: {}", run.last().regions.len());
    }
}

#[test]
fn subscribers_see_every_step_in_order() {
    #[derive(Default)]
    struct Steps(Vec<(Step, u64)>);
    impl Subscriber for Steps {
        fn step(&mut self, step: Step, now_ns: u64) {
            self.0.push((step, now_ns));
        }
    }
    let w = world(&[pages(0, 1000)], &[]);
    let mut monitor = Monitor::new(Toy::new(&w), config(Algorithm::Damon(DamonRules::Mainline), None, 1));
    let (mut clock, mut steps) = (VirtualClock::new(0), Steps::default());
    monitor.run_interval(&mut clock, &mut steps).expect("the toy never fails");
    let count = |wanted: Step| steps.0.iter().filter(|(s, _)| *s == wanted).count();
    assert_eq!([count(Step::BeforeSample), count(Step::AfterSample)], [20, 20]);
    assert_eq!([count(Step::BeforeAggregate), count(Step::AfterAggregate)], [1, 1]);
    assert_eq!(
        steps.0[..3].iter().map(|s| s.0).collect::<Vec<_>>(),
        [Step::BeforeUpdate, Step::AfterUpdate, Step::BeforeSample]
    );
    assert!(steps.0.windows(2).all(|w| w[0].1 <= w[1].1));
    assert_eq!(steps.0.last().map(|s| s.1), Some(100_000_000));
}

fn arb_mappings() -> impl Strategy<Value = Vec<AddrRange>> {
    prop::collection::vec((1u64..2000, 1u64..3000), 1..8).prop_map(|list| {
        let mut at = 10;
        list.into_iter()
            .map(|(gap, len)| {
                let start = at + gap;
                at = start + len;
                pages(start, at)
            })
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn regions_follow_the_mappings_and_keep_their_limits(
        before in arb_mappings(),
        after in arb_mappings(),
        hot in arb_mappings(),
        which in 0usize..4,
        min in 3u32..20,
        extra in 0u32..100,
        seed: u64,
    ) {
        let (algorithm, mode) = ALGORITHMS[which];
        let w = world(&before, &hot);
        // A range each for every mapping, which no number of regions can go below.
        let attrs = MonitorAttrs { min_regions: min, max_regions: 40.max(min) + extra, ..MonitorAttrs::default() };
        let mut run = Run::new(&w, MonitorConfig { attrs, ..config(algorithm, mode, seed) });
        for _ in 0..12 {
            run.intervals(1);
            check_invariants(run.last(), &w.borrow(), &attrs)?;
        }
        let least = (min as usize).min((total_len(&before) / P) as usize);
        if mode.is_some() {
            prop_assert!(run.last().regions.len() >= least, "{} < {}", run.last().regions.len(), least);
        }
        w.borrow_mut().mappings = after;
        w.borrow_mut().strays.clear();
        // The monitor hears of it at the next update; until then it may look where nothing is.
        run.intervals(10);
        w.borrow_mut().strays.clear();
        for _ in 0..4 {
            run.intervals(1);
            check_invariants(run.last(), &w.borrow(), &attrs)?;
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_run(mappings in arb_mappings(), hot in arb_mappings(), which in 0usize..4, seed: u64) {
        let (algorithm, mode) = ALGORITHMS[which];
        let events = || {
            let mut run = Run::new(&world(&mappings, &hot), config(algorithm, mode, seed));
            run.intervals(8);
            run.seen.events
        };
        prop_assert_eq!(events(), events());
    }
}
