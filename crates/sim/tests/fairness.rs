//! Who gives way when several groups fill a machine: Linux's LRU of memories against taking them in turn.

use isotherm_sim::policy::PolicyName;
use isotherm_sim::policy::kernel_lru::Variant;
use isotherm_sim::policy::kernel_lru::machine::{Bounds, Fairness};
use isotherm_sim::replay::{GroupFigures, Groups, Job, Replay};
use isotherm_sim::trace::{Format, Selection, Trace, read};
use std::fmt::Write;

const REQUESTS: u64 = 300_000;

/// Draws a group and one of its pages.
type Draw<'a> = &'a dyn Fn(&mut fastrand::Rng) -> (u64, u64);

fn trace(request: Draw<'_>, selection: Selection) -> Trace {
    let mut rng = fastrand::Rng::with_seed(3);
    let mut text = "group,page\n".to_owned();
    for _ in 0..REQUESTS {
        let (group, page) = request(&mut rng);
        writeln!(text, "g{group},{}", group * 100_000 + page).expect("writes");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.csv");
    std::fs::write(&path, text).expect("writes");
    read(&path, Format::Csv, selection, &mut |_| {}).expect("reads")
}

fn run(fairness: Fairness, size: u32, request: Draw<'_>) -> Vec<GroupFigures> {
    let replay = Replay::new(trace(request, Selection::default())).with_groups(Groups { bounds: Vec::new(), fairness });
    let figures = replay.run(Job { policy: PolicyName::MgLru(Variant::V6_14), size });
    assert!(figures.groups.iter().map(|g| g.resident.expect("is known")).sum::<u64>() <= u64::from(size));
    figures.groups
}

fn evictions(groups: &[GroupFigures]) -> Vec<u64> {
    groups.iter().map(|g| g.evictions.expect("is known")).collect()
}

/// How many times as much as the least the most gave.
fn spread(groups: &[GroupFigures]) -> f64 {
    let all = evictions(groups);
    *all.iter().max().expect("groups") as f64 / *all.iter().min().expect("groups").max(&1) as f64
}

#[test]
fn many_equal_groups_give_equally() {
    let equal = |rng: &mut fastrand::Rng| (rng.u64(0..64), rng.u64(0..250));
    let [lru, round_robin, in_order] =
        [Fairness::MemcgLru, Fairness::RoundRobin, Fairness::InOrder].map(|fairness| run(fairness, 8000, &equal));
    println!("{:.2} {:.2} {:.2}", spread(&lru), spread(&round_robin), spread(&in_order));
    assert!(spread(&lru) < 1.3, "{lru:?}");
    assert!(spread(&round_robin) < 1.3, "{round_robin:?}");
    // Who is last in line is hardly ever reached.
    assert!(spread(&in_order) > 3.0, "{in_order:?}");
}

#[test]
fn who_presses_more_gives_more() {
    // Two groups with as many pages; one asks nine times as often.
    let unequal = |rng: &mut fastrand::Rng| (u64::from(rng.u8(0..10) == 0), rng.u64(0..8000));
    for fairness in [Fairness::MemcgLru, Fairness::RoundRobin] {
        let groups = run(fairness, 8000, &unequal);
        println!("{fairness:?} {groups:?}");
        let given = |g: &GroupFigures| g.evictions.expect("is known") as f64 / g.misses as f64;
        let taken = groups.iter().map(given).collect::<Vec<f64>>();
        let share = groups.iter().map(|g| g.resident.expect("is known") as f64 / 8000.0).collect::<Vec<f64>>();
        // Each gives about what it takes, and keeps about half.
        assert!(evictions(&groups).iter().max() > evictions(&groups).iter().min().map(|n| n * 5).as_ref());
        assert!(taken.iter().all(|t| (0.7..=1.0).contains(t)), "{fairness:?}: {taken:?}");
        assert!(share.iter().all(|s| (0.4..=0.6).contains(s)), "{fairness:?}: {share:?}");
    }
}

#[test]
fn bounds_hold_in_a_sample_at_its_scale() {
    let two = |rng: &mut fastrand::Rng| (rng.u64(0..2), rng.u64(0..20_000));
    let bounds = vec![Bounds { max: 4000, ..Bounds::default() }];
    let figures = |sample_rate: Option<f64>| {
        let trace = trace(&two, Selection { sample_rate, ..Selection::default() });
        let groups = Groups { bounds: bounds.clone(), fairness: Fairness::default() };
        Replay::new(trace).with_groups(groups).run(Job { policy: PolicyName::MgLru(Variant::V6_14), size: 20_000 })
    };
    let (whole, sample) = (figures(None), figures(Some(0.2)));
    let miss_ratio = |f: &isotherm_sim::replay::Figures, name: &str| {
        f.groups.iter().find(|g| g.group == name).expect("is there").miss_ratio.expect("it was asked for")
    };
    // The bounded group is the first that the trace names.
    let (bounded, other) = (whole.groups[0].group.clone(), whole.groups[1].group.clone());
    assert!(whole.groups[0].resident <= Some(4000) && sample.groups[0].resident <= Some(4000), "{sample:?}");
    assert!(miss_ratio(&whole, &bounded) > 0.75 && miss_ratio(&whole, &other) < 0.4, "{whole:?}");
    for (name, place) in [(&bounded, 0), (&other, 1)] {
        assert_eq!(sample.groups[place].group, *name, "the sample names them in the same order");
        assert!((miss_ratio(&whole, name) - miss_ratio(&sample, name)).abs() < 0.03, "{whole:?} {sample:?}");
    }
    for (whole, sample) in whole.groups.iter().zip(&sample.groups) {
        assert_eq!(whole.requests, sample.requests, "they are counted, not estimated");
        assert_eq!((whole.low_events, sample.low_events), (Some(0), None), "a sample does not tell");
        let figures = |g: &GroupFigures| [Some(g.misses), Some(g.refaults), g.evictions, g.resident];
        for (exact, estimate) in figures(whole).into_iter().zip(figures(sample)) {
            let (exact, estimate) = (exact.expect("is known") as f64, estimate.expect("is known") as f64);
            assert!((estimate / exact - 1.0).abs() < 0.1, "{whole:?} {sample:?}");
        }
    }
}

#[test]
fn a_small_bound_does_not_shut_a_group_out_of_a_sample() {
    let two = |rng: &mut fastrand::Rng| (rng.u64(0..2), rng.u64(0..20_000));
    let figures = |max: u64| {
        let trace = trace(&two, Selection { sample_rate: Some(0.1), ..Selection::default() });
        let bounds = vec![Bounds { max, ..Bounds::default() }];
        let groups = Groups { bounds, fairness: Fairness::default() };
        let job = Job { policy: PolicyName::MgLru(Variant::V6_14), size: 20_000 };
        Replay::new(trace).with_groups(groups).run(job).groups.swap_remove(0)
    };
    // 0.4 pages of the sample.
    let small = figures(4);
    assert!(small.resident == Some(4) && small.evictions > Some(100_000), "{small:?}");
    let none = figures(0);
    assert_eq!((none.resident, none.evictions), (Some(0), Some(0)), "what is 0 stays 0: {none:?}");
    assert!(none.miss_ratio > Some(0.95), "{none:?}");
}

#[test]
fn groups_are_estimated_as_well_as_the_whole_although_few_pages_are_asked_for_most() {
    let skewed = |rng: &mut fastrand::Rng| (rng.u64(0..2), (rng.f64().powi(6) * 20_000.0) as u64);
    let figures = |sample_rate: Option<f64>| {
        let replay = Replay::new(trace(&skewed, Selection { sample_rate, ..Selection::default() }));
        replay.run(Job { policy: PolicyName::MgLru(Variant::V6_14), size: 8000 })
    };
    let whole = figures(None);
    for rate in [0.3, 0.2, 0.1] {
        let sample = figures(Some(rate));
        let sum = |of: fn(&GroupFigures) -> u64| sample.groups.iter().map(of).sum::<u64>();
        assert_eq!(sum(|g| g.requests), sample.requests);
        assert!(sum(|g| g.misses).abs_diff(sample.misses) <= 2, "but for rounding: {sample:?}");
        for (exact, estimate) in whole.groups.iter().zip(&sample.groups) {
            let [exact_ratio, estimated] = [exact, estimate].map(|g| g.miss_ratio.expect("it was asked for"));
            assert!((exact_ratio - estimated).abs() < 0.04, "{rate}: {exact:?} {estimate:?}");
        }
    }
}
