//! Access rates of programs that touch their memory at intervals: neither beats nor bias, whatever the period and its
//! phase.

use isotherm_core::addr::{AddrRange, PAGE_SIZE};
use isotherm_core::engine::Engine;
use isotherm_core::event::{Collector, Mode};
use isotherm_core::mapping::Mapping;
use isotherm_core::monitor::Monitor;
use isotherm_core::monitor::config::MonitorConfig;
use isotherm_core::snapshot::RegionInfo;
use isotherm_sim::machine::activity::Activity;
use isotherm_sim::machine::{CostModel, Process, Region, SimClock, SimSource};
use isotherm_sim::workload::{Area, Order, Stage, Workload};

const MS: u64 = 1_000_000;
const MIB: u64 = 1 << 20;
const ARENA: u64 = 1 << 40;
const SIZE: u64 = 32 * MIB;
/// What was measured after a sleep, with cold caches (30 us for waking up, 50 to 130 for a call), and while the target
/// runs on another processor, which must be interrupted for each range.
const BESIDE_OTHERS: CostModel = CostModel {
    wake_up: 110_000.0,
    read_call: 15_000.0,
    clear_call: 15_000.0,
    clear_young: [(1, 4_500.0), (16, 5_500.0), (64, 8_200.0), (512, 32_000.0)],
    ..CostModel::MEASURED
};

/// Intervals before the first one that counts. By default rounds come every few intervals: rates take some seconds to
/// be known.
const WARM_UP: usize = 10;
const WARM_UP_BY_DEFAULT: usize = 50;
const INTERVALS: usize = 600;

fn stage(name: &str, duration_ns: u64, areas: Vec<Area>) -> Stage {
    Stage { name: name.into(), duration_ns, areas }
}

/// Touches all of 32 MiB within half a millisecond, every `period_ns`, beside memory that it leaves alone.
fn program(period_ns: u64, phase_ns: u64) -> Process {
    let burst_ns = MS / 2;
    let all = Area::new(AddrRange::new(0, SIZE), 1.0, Order::Sequential);
    let stages = vec![stage("burst", burst_ns, vec![all]), stage("rest", period_ns - burst_ns, Vec::new())];
    process(phase_ns, burst_ns, stages)
}

/// Touches half of 32 MiB every 5 ms, and the other half every 20 ms.
fn two_rates(phase_ns: u64) -> Process {
    let area = |start, end| vec![Area::new(AddrRange::new(start, end), 1.0, Order::Sequential)];
    let mut stages = vec![stage("both", MS / 2, area(0, SIZE)), stage("rest", 9 * MS / 2, Vec::new())];
    for _ in 0..3 {
        stages.extend([stage("first", MS / 4, area(0, SIZE / 2)), stage("rest", 19 * MS / 4, Vec::new())]);
    }
    process(phase_ns, MS / 2, stages)
}

/// Goes through `stages` again and again, at a rate that touches all of 32 MiB in `burst_ns`.
fn process(phase_ns: u64, burst_ns: u64, stages: Vec<Stage>) -> Process {
    let rate = (SIZE / PAGE_SIZE) as f64 / burst_ns as f64 * 1e9 * 1.001;
    let activity = Activity::new(Workload::new("bursts", SIZE, 1, stages).unwrap(), rate);
    let mappings = vec![
        Region::new(Mapping::anon(ARENA, ARENA + SIZE)),
        Region::new(Mapping::anon(2 * ARENA, 2 * ARENA + 224 * MIB)),
    ];
    Process::new(1, "bursts", mappings).unwrap().working(ARENA, phase_ns, activity)
}

/// Mean and standard deviation over snapshots of the access rate of each of `parts` (of the touched memory), in points.
fn rates(process: Process, parts: &[AddrRange], seed: u64, mode: Option<Mode>) -> Vec<(f64, f64)> {
    let clock = SimClock::new(20 * MS);
    let costs = if mode.is_none() { BESIDE_OTHERS } else { CostModel::default() };
    let source = SimSource::new(clock.clone(), costs, vec![process]);
    // What a forced scan costs is not the question here.
    let cpu_budget = if mode == Some(Mode::Scan) { None } else { Some(0.01) };
    let walks = mode.is_none();
    let mut monitor = Monitor::new(source, MonitorConfig { seed, mode, cpu_budget, walks, ..MonitorConfig::default() });
    let (mut driver, mut seen) = (clock, Collector::default());
    let warm_up = if mode.is_none() { WARM_UP_BY_DEFAULT } else { WARM_UP };
    for _ in 0..warm_up + INTERVALS {
        monitor.run_interval(&mut driver, &mut seen).expect("the simulation never fails");
    }
    let of_part = |part: &AddrRange| {
        let arena = AddrRange::new(ARENA + part.start, ARENA + part.end);
        let rates: Vec<f64> = seen
            .snapshots()
            .skip(warm_up)
            .map(|s| {
                let of = |start, end| AddrRange::new(start, end).intersect(&arena).map_or(0, |r| r.len());
                let rate = |r: &RegionInfo| of(r.start, r.end) as f64 * r.access_rate(s.max_nr_accesses);
                100.0 * s.regions.iter().map(rate).sum::<f64>() / arena.len() as f64
            })
            .collect();
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        let variance = rates.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / rates.len() as f64;
        (mean, variance.sqrt())
    };
    parts.iter().map(of_part).collect()
}

const PERIODS_MS: [u64; 12] = [7, 10, 15, 20, 25, 33, 50, 70, 100, 130, 200, 300];

fn check(mode: Option<Mode>, phases: u64) {
    let mut wrong = Vec::new();
    for period in PERIODS_MS {
        let truth = 100.0 * 5.0 / period.max(5) as f64;
        // The phases matter where the period divides the aggregation interval; the mean is that over all phases.
        let run = |i| {
            let program = program(period * MS, period * MS * i / phases + i * 1_234_567);
            rates(program, &[AddrRange::new(0, SIZE)], 10 + i, mode)[0]
        };
        let runs: Vec<(f64, f64)> = (0..phases).map(run).collect();
        let mean = runs.iter().map(|r| r.0).sum::<f64>() / runs.len() as f64;
        let deviation = runs.iter().map(|r| r.1).fold(0.0, f64::max);
        println!("{period:4} ms: truth {truth:5.1} %, mean {mean:5.1}, deviation at most {deviation:4.1}; {runs:.1?}");
        // A count of 20 resolves 5 points: half of that is rounding.
        if (mean - truth).abs() > f64::max(0.2 * truth, 2.5) || deviation >= 8.0 {
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
fn periodic_programs_are_seen_at_their_rate_by_default() {
    check(None, 3);
}

#[test]
fn periodic_programs_are_seen_at_their_rate_by_scans() {
    check(Some(Mode::Scan), 2);
}

#[test]
fn two_rates_side_by_side_stay_apart() {
    let halves = [AddrRange::new(0, SIZE / 2), AddrRange::new(SIZE / 2, SIZE)];
    for mode in [None, Some(Mode::Sample), Some(Mode::Scan)] {
        for phase in 0..3 {
            let seen = rates(two_rates(phase * 7 * MS), &halves, 20 + phase, mode);
            println!("{mode:?}: {seen:.1?}");
            for ((mean, deviation), truth) in seen.into_iter().zip([100.0, 25.0]) {
                assert!((mean - truth).abs() <= 0.2 * truth && deviation < 8.0, "{mode:?}: {mean} {deviation}");
            }
        }
    }
}
