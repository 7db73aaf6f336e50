//! Access rates of programs that touch their memory at intervals: neither beats nor bias, whatever the period and its phase.

use isotherm_core::addr::{AddrRange, PAGE_SIZE};
use isotherm_core::engine::Engine;
use isotherm_core::event::{Collector, Mode};
use isotherm_core::mapping::Mapping;
use isotherm_core::monitor::Monitor;
use isotherm_core::monitor::config::MonitorConfig;
use isotherm_sim::machine::activity::Activity;
use isotherm_sim::machine::{CostModel, Process, Region, SimClock, SimSource};
use isotherm_sim::workload::{Area, Order, Stage, Workload};

const MS: u64 = 1_000_000;
const MIB: u64 = 1 << 20;
const ARENA: u64 = 1 << 40;
const SIZE: u64 = 32 * MIB;
/// Intervals before the first one that counts.
const WARM_UP: usize = 10;
const INTERVALS: usize = 200;

/// Touches all of 32 MiB within half a millisecond, every `period_ns`, beside memory that it leaves alone.
fn program(period_ns: u64, phase_ns: u64) -> Process {
    let burst_ns = MS / 2;
    let all = Area::new(AddrRange::new(0, SIZE), 1.0, Order::Sequential);
    let stage = |name: &str, duration_ns, areas| Stage { name: name.into(), duration_ns, areas };
    let stages = vec![stage("burst", burst_ns, vec![all]), stage("rest", period_ns - burst_ns, Vec::new())];
    let rate = (SIZE / PAGE_SIZE) as f64 / burst_ns as f64 * 1e9 * 1.001;
    let activity = Activity::new(Workload::new("bursts", SIZE, 1, stages).unwrap(), rate);
    let mappings = vec![
        Region::new(Mapping::anon(ARENA, ARENA + SIZE)),
        Region::new(Mapping::anon(2 * ARENA, 2 * ARENA + 224 * MIB)),
    ];
    Process::new(1, "bursts", mappings).unwrap().working(ARENA, phase_ns, activity)
}

/// Mean and standard deviation over snapshots of the access rate of the touched memory, in points.
fn rate(period_ns: u64, phase_ns: u64, seed: u64, mode: Option<Mode>) -> (f64, f64) {
    let clock = SimClock::new(period_ns);
    let source = SimSource::new(clock.clone(), CostModel::default(), vec![program(period_ns, phase_ns)]);
    // What a forced scan costs is not the question here.
    let cpu_budget = if mode == Some(Mode::Scan) { None } else { Some(0.01) };
    let mut monitor =
        Monitor::new(source, MonitorConfig { seed, mode, cpu_budget, walks: false, ..MonitorConfig::default() });
    let (mut driver, mut seen) = (clock, Collector::default());
    for _ in 0..WARM_UP + INTERVALS {
        monitor.run_interval(&mut driver, &mut seen).expect("the simulation never fails");
    }
    let arena = AddrRange::new(ARENA, ARENA + SIZE);
    let rates: Vec<f64> = seen
        .snapshots()
        .skip(WARM_UP)
        .map(|s| {
            let of = |start, end| AddrRange::new(start, end).intersect(&arena).map_or(0, |r| r.len());
            let sum: f64 = s.regions.iter().map(|r| of(r.start, r.end) as f64 * r.access_rate(s.max_nr_accesses)).sum();
            100.0 * sum / SIZE as f64
        })
        .collect();
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    let variance = rates.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / rates.len() as f64;
    (mean, variance.sqrt())
}

const PERIODS_MS: [u64; 12] = [7, 10, 15, 20, 25, 33, 50, 70, 100, 130, 200, 300];

fn check(mode: Option<Mode>, phases: u64) {
    let mut wrong = Vec::new();
    for period in PERIODS_MS {
        let truth = 100.0 * 5.0 / period.max(5) as f64;
        // The phases matter where the period divides the aggregation interval; the mean is that over all phases.
        let runs: Vec<(f64, f64)> =
            (0..phases).map(|i| rate(period * MS, period * MS * i / phases + i * 1_234_567, 10 + i, mode)).collect();
        let mean = runs.iter().map(|r| r.0).sum::<f64>() / runs.len() as f64;
        let deviation = runs.iter().map(|r| r.1).fold(0.0, f64::max);
        println!("{period:4} ms: truth {truth:5.1} %, mean {mean:5.1}, deviation at most {deviation:4.1}; {runs:.1?}");
        if (mean / truth - 1.0).abs() > 0.2 || deviation >= 8.0 {
            wrong.push(period);
        }
    }
    assert!(wrong.is_empty(), "{mode:?}: wrong at periods of {wrong:?} ms");
}

#[test]
fn periodic_programs_are_seen_at_their_rate_by_samples() {
    check(Some(Mode::Sample), 3);
}

#[test]
fn periodic_programs_are_seen_at_their_rate_by_scans() {
    check(Some(Mode::Scan), 2);
}
