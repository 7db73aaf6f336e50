//! Who gives way when several groups fill a machine: Linux's LRU of memories against taking them in turn.

use isotherm_core::lru::machine::Fairness;
use isotherm_sim::policy::PolicyName;
use isotherm_sim::replay::{GroupFigures, Groups, Job, Replay};
use isotherm_sim::trace::{Format, Selection, read};
use std::fmt::Write;

const REQUESTS: u64 = 300_000;

/// Figures by group; `request` draws a group and one of its pages.
fn run(fairness: Fairness, size: u32, request: &dyn Fn(&mut fastrand::Rng) -> (u64, u64)) -> Vec<GroupFigures> {
    let mut rng = fastrand::Rng::with_seed(3);
    let mut text = "group,page\n".to_owned();
    for _ in 0..REQUESTS {
        let (group, page) = request(&mut rng);
        writeln!(text, "g{group},{}", group * 100_000 + page).expect("writes");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.csv");
    std::fs::write(&path, text).expect("writes");
    let trace = read(&path, Format::Csv, Selection::default(), &mut |_| {}).expect("reads");
    let replay = Replay::new(trace).with_groups(Groups { bounds: Vec::new(), fairness });
    let figures = replay.run(Job { policy: PolicyName::MgLru, size });
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
