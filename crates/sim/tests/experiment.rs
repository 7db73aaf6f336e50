//! Schemes on the simulated machine: the whole way from the monitor to the program's runtime.

use isotherm_core::addr::PAGE_SIZE;
use isotherm_core::meter::Metric;
use isotherm_core::monitor::config::MonitorConfig;
use isotherm_core::scheme::Scheme;
use isotherm_core::scheme::action::Action;
use isotherm_core::scheme::goal::{Goal, GoalMetric};
use isotherm_core::scheme::pattern::{AccessPattern, Bounds};
use isotherm_core::scheme::watermark::{WatermarkMetric, Watermarks};
use isotherm_sim::experiment::{Experiment, Figures};
use isotherm_sim::machine::device::SlowTier;
use isotherm_sim::machine::{CostModel, Hardware};
use isotherm_sim::workload::patterns::{Parameters, Pattern};
use proptest::prelude::*;

const S: u64 = 1_000_000_000;
const MIB: u64 = 1 << 20;

fn experiment(pattern: Pattern, size: u64, seconds: u64, schemes: Vec<Scheme>) -> Experiment {
    schemes.iter().for_each(|s| s.validate().expect("a sound scheme"));
    let workload = pattern.build(&Parameters { seed: 5, ..Parameters::new(size) }).unwrap();
    Experiment {
        hardware: Hardware::roomy(workload.size()),
        workload,
        rate: 2e6,
        work_ns: seconds * S,
        limit_ns: seconds * 20 * S,
        costs: CostModel::default(),
        monitor: MonitorConfig::default(),
        schemes,
    }
}

fn cold_for(seconds: u64, action: Action) -> Scheme {
    let pattern = AccessPattern {
        rate_bp: Bounds::new(0, 0),
        age_us: Bounds::new(seconds * 1_000_000, u64::MAX),
        ..Default::default()
    };
    Scheme::new(action, pattern)
}

fn run(e: &Experiment) -> Figures {
    e.run(&mut |_, _| Ok(true)).expect("runs")
}

#[test]
fn cold_memory_goes_at_no_price() {
    let e = experiment(Pattern::Hotspot, 128 * MIB, 30, vec![cold_for(2, Action::PageOut)]);
    let (f, alone) = (run(&e), e.alone().unwrap());
    assert_eq!((alone.runtime_s, alone.slowdown, alone.rss, alone.major_faults), (30.0, 1.0, 128 * MIB, 0));
    assert!(f.finished && f.rss_at_end < 20 * MIB, "{f:?}");
    assert!(f.rss < 64 * MIB && f.memory > f.rss, "{f:?}");
    assert_eq!(f.major_faults, 0, "{f:?}");
    assert!(f.slowdown >= 1.0 && f.slowdown < 1.02, "{f:?}");
}

#[test]
fn the_same_seed_gives_the_same_figures() {
    let e = experiment(Pattern::Zipf, 32 * MIB, 15, vec![cold_for(1, Action::PageOut)]);
    let first = run(&e);
    assert_eq!(first, run(&e));
    let other = Experiment { monitor: MonitorConfig { seed: 9, ..e.monitor.clone() }, ..e.clone() };
    assert_ne!(first, run(&other));
}

#[test]
fn a_quota_is_never_exceeded() {
    let mut scheme = cold_for(1, Action::PageOut);
    (scheme.quota.bytes, scheme.quota.reset_ns, scheme.apply_ns) = (Some(MIB), S / 10, S / 100);
    let e = experiment(Pattern::Hotspot, 256 * MIB, 15, vec![scheme]);
    let mut seen = Vec::new();
    e.run(&mut |now, engine| {
        seen.push((now, engine.status()[0].stats.sz_tried, engine.status()[0].stats.effect.out));
        Ok(true)
    })
    .unwrap();
    for pair in seen.windows(2) {
        let windows = (pair[1].0 - pair[0].0).div_ceil(S / 10) + 1;
        assert!(pair[1].1 - pair[0].1 <= windows * MIB, "{pair:?}");
    }
    let last = seen.last().unwrap();
    assert!(last.2 > 80 * MIB, "{last:?}");
    assert!(last.2 <= last.1, "no more went than was tried: {last:?}");
}

#[test]
fn resident_memory_comes_to_its_goal() {
    let mut scheme = cold_for(1, Action::PageOut);
    scheme.quota.bytes = Some(32 * MIB);
    let metric = GoalMetric::Read(Metric::TargetRss);
    scheme.quota.goals = vec![Goal { metric, target: 96 * MIB, window_ns: 0, falls: true }];
    let f = run(&experiment(Pattern::Hotspot, 128 * MIB, 60, vec![scheme]));
    assert!(f.rss_at_end.abs_diff(96 * MIB) < 4 * MIB, "{f:?}");
}

#[test]
fn nobody_watches_while_watermarks_keep_schemes_off() {
    let mut scheme = cold_for(1, Action::PageOut);
    scheme.watermarks = Some(Watermarks {
        metric: WatermarkMetric::FreeMemRate,
        interval_us: 1_000_000,
        high_bp: 5000,
        mid_bp: 4000,
        low_bp: 1000,
    });
    // Half of the machine is free: too much to begin.
    let mut e = experiment(Pattern::Hotspot, 64 * MIB, 10, vec![scheme]);
    let f = run(&e);
    assert_eq!((f.monitor_share, f.swap_out, f.slowdown), (0.0, 0, 1.0));
    e.hardware.memory = 80 * MIB;
    let f = run(&e);
    assert!(f.monitor_share > 0.0 && f.swap_out > 0, "{f:?}");
    let free = 1.0 - f.rss_at_end as f64 / (80 * MIB) as f64;
    assert!(free > 0.4, "it goes on until enough is free: {f:?}");
}

#[test]
fn the_brake_stops_what_thrashes() {
    let harmful = |brake: bool| {
        let mut scheme = Scheme::new(Action::PageOut, AccessPattern::default());
        scheme.confirm_ns = 0;
        if !brake {
            scheme.brake = None;
        }
        experiment(Pattern::Scan, 32 * MIB, 20, vec![scheme])
    };
    let mut pulled = 0;
    let braked = harmful(true)
        .run(&mut |_, engine| {
            pulled = engine.status()[0].stats.brake_pulled;
            Ok(true)
        })
        .unwrap();
    let unbraked = run(&harmful(false));
    assert!(pulled >= 1);
    assert!(braked.major_faults * 2 < unbraked.major_faults, "{braked:?} {unbraked:?}");
    assert!(unbraked.slowdown > 1.05 && braked.slowdown < unbraked.slowdown, "{braked:?} {unbraked:?}");
    assert!(unbraked.some_psi > 0.05, "{unbraked:?}");
}

#[test]
fn a_large_target_shrinks_bit_by_bit_within_the_budget() {
    let e = experiment(Pattern::Hotspot, 96 << 30, 100, vec![cold_for(5, Action::PageOut)]);
    let f = run(&e);
    assert!(f.swap_out > 8 << 30, "{f:?}");
    assert!(f.monitor_share < 0.02 && f.slowdown < 1.02, "{f:?}");
}

#[test]
fn cold_memory_moves_to_the_slow_node() {
    let mut scheme = cold_for(2, Action::MigrateCold);
    scheme.destinations = vec![isotherm_core::actuator::Destination { node: 1, weight: 1 }];
    let mut e = experiment(Pattern::Hotspot, 64 * MIB, 20, vec![scheme]);
    e.hardware.slow = Some((SlowTier::CXL, 64 * MIB));
    let f = run(&e);
    assert_eq!((f.rss, f.major_faults), (64 * MIB, 0));
    assert!(f.rss_fast < 40 * MIB && f.slowdown < 1.02, "{f:?}");
}

#[test]
fn without_swap_nothing_happens_and_the_reason_is_told() {
    let mut e = experiment(Pattern::Hotspot, 16 * MIB, 5, vec![cold_for(1, Action::PageOut)]);
    e.hardware.swap = None;
    let mut reason = None;
    let f = e
        .run(&mut |_, engine| {
            reason = engine.status()[0].idle.map(ToString::to_string);
            Ok(true)
        })
        .unwrap();
    assert_eq!((f.swap_out, f.rss), (0, 16 * MIB));
    assert!(reason.unwrap().contains("no swap"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn figures_make_sense_for_any_scheme(
        pattern in prop::sample::select(vec![Pattern::Hotspot, Pattern::Stairs, Pattern::Alternate, Pattern::Zipf, Pattern::Scan]),
        action in prop::sample::select(vec![Action::PageOut, Action::Collapse, Action::WillNeed, Action::Cold, Action::Stat]),
        age in 0u64..4,
        proof in any::<bool>(),
        prefault in any::<bool>(),
    ) {
        let mut scheme = Scheme::new(action, AccessPattern { age_us: Bounds::new(age * 500_000, u64::MAX), ..Default::default() });
        if !proof {
            scheme.confirm_ns = 0;
        }
        let mut e = experiment(pattern, 8 * MIB, 5, vec![scheme]);
        e.hardware.prefault = prefault;
        let (f, alone) = (run(&e), e.alone().unwrap());
        prop_assert!(f.slowdown > 0.7 && f.slowdown.is_finite());
        prop_assert!(f.rss <= 8 * MIB && f.rss_at_end + f.swapped_at_end <= 8 * MIB);
        prop_assert!(f.swap_in <= f.swap_out && f.swapped_at_end == f.swap_out - f.swap_in, "{:?}", f);
        prop_assert!(f.major_faults * PAGE_SIZE <= f.swap_in);
        prop_assert!((0.0..1.0).contains(&f.some_psi));
        prop_assert_eq!((alone.swap_out, alone.major_faults, alone.some_psi), (0, 0, 0.0));
        prop_assert!(!prefault || alone.slowdown == 1.0);
    }
}
