//! How soon a small hot set in terabytes is found, at the default budget.

use isotherm_core::addr::AddrRange;
use isotherm_core::clock::Clock;
use isotherm_core::engine::Engine;
use isotherm_core::event::Collector;
use isotherm_core::monitor::Monitor;
use isotherm_core::monitor::config::MonitorConfig;
use isotherm_sim::accuracy::{Accuracy, HOT_TOUCHES, Score};
use isotherm_sim::machine::activity::Activity;
use isotherm_sim::machine::{CostModel, Process, SimClock, SimSource};
use isotherm_sim::workload::patterns::{Parameters, Pattern};
use isotherm_sim::workload::truth::predicted;

const ARENA: u64 = 1 << 40;
const RATE: f64 = 20e6;

fn accuracy(pattern: Pattern, size: u64, hot: f64, seed: u64) -> Accuracy {
    let parameters = Parameters { hot: Some(hot), seed, period_ns: Some(2_000_000_000), ..Parameters::new(size) };
    let workload = pattern.build(&parameters).unwrap();
    let clock = SimClock::new(0);
    let process = Process::running(1, ARENA, Activity::new(workload.clone(), RATE)).unwrap();
    let source = SimSource::new(clock.clone(), CostModel::default(), vec![process]);
    // Regions alone, with all of the budget.
    let mut monitor = Monitor::new(source, MonitorConfig { seed, walks: false, ..MonitorConfig::default() });
    let (mut driver, mut seen) = (clock.clone(), Collector::default());
    while clock.now_ns() < 4_000_000_000 {
        monitor.run_interval(&mut driver, &mut seen).expect("the simulation never fails");
    }
    let arena = AddrRange::new(ARENA, ARENA + size);
    let truth = |from, to| predicted(&workload, RATE, ARENA, (from, to), u64::MAX);
    let scores: Vec<Score> =
        seen.snapshots().map(|s| Score::new(s, arena, &truth(s.start_ns, s.end_ns), HOT_TOUCHES)).collect();
    Accuracy::new(0, &scores)
}

#[test]
fn a_thousandth_of_terabytes_is_found_within_a_second() {
    const CASES: [(Pattern, u64, f64); 5] = [
        (Pattern::Hotspot, 5 << 40, 0.001),
        (Pattern::Hotspot, 5 << 40, 0.002),
        (Pattern::Hotspot, 100 << 30, 0.001),
        (Pattern::Stairs, 5 << 40, 0.001),
        (Pattern::Stairs, 100 << 30, 0.001),
    ];
    for (pattern, size, hot) in CASES {
        let runs: Vec<Accuracy> = (1..=9).map(|seed| accuracy(pattern, size, hot, seed)).collect();
        let mut intervals: Vec<usize> = runs.iter().map(|a| a.converged_intervals.unwrap_or(usize::MAX)).collect();
        intervals.sort_unstable();
        println!("{} of {} GiB, {hot}: {intervals:?}", pattern.name(), size >> 30);
        assert!(intervals[4] <= 10 && intervals[8] <= 40, "{}: {intervals:?}", pattern.name());
        let found = |a: &Accuracy| a.recall.is_some_and(|r| r > 0.94) && a.precision.is_some_and(|p| p > 0.95);
        assert!(runs.iter().all(found), "{}: {runs:?}", pattern.name());
    }
}
