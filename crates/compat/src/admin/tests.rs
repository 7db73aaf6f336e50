use super::*;
use crate::fake::Fake;
use crate::settings::{KdamondTargets, TargetRanges, WatchedProcess};
use crate::tree::ROOT;
use isotherm_core::addr::AddrRange;
use isotherm_core::scheme::action::Action;
use isotherm_core::scheme::filter::FilterType;
use isotherm_core::scheme::goal::GoalMetric;
use isotherm_core::scheme::pattern::Bounds;
use isotherm_core::scheme::stats::SchemeStats;
use std::sync::atomic::Ordering;

const CONTEXT: &str = "0/contexts/0";
const SCHEME: &str = "0/contexts/0/schemes/0";

struct Bed {
    admin: Admin,
    fake: Fake,
}

impl Bed {
    fn new() -> Self {
        let fake = Fake::default();
        Self { admin: Admin::new(Tree::damon(), Box::new(fake.clone())), fake }
    }

    /// With a target and a scheme that matches everything.
    fn ready() -> Self {
        let bed = Self::new();
        for (file, text) in [
            ("nr_kdamonds", "1"),
            ("0/contexts/nr_contexts", "1"),
            ("0/contexts/0/targets/nr_targets", "1"),
            ("0/contexts/0/targets/0/pid_target", "42"),
            ("0/contexts/0/schemes/nr_schemes", "1"),
        ] {
            bed.write(file, text).unwrap();
        }
        for range in ["sz", "nr_accesses", "age"] {
            bed.write(&format!("{SCHEME}/access_pattern/{range}/max"), "18446744073709551615").unwrap();
        }
        bed
    }

    fn write(&self, path: &str, text: &str) -> Result<usize, Errno> {
        self.admin.write(self.admin.find(ROOT, &format!("admin/kdamonds/{path}"))?, text.as_bytes())
    }

    fn read(&self, path: &str) -> String {
        let file = self.admin.find(ROOT, &format!("admin/kdamonds/{path}")).unwrap();
        String::from_utf8(self.admin.read(file).unwrap()).unwrap()
    }

    fn state(&self, command: &str) -> Result<usize, Errno> {
        self.write("0/state", command)
    }

    /// What it would be started with.
    fn scheme(&self) -> isotherm_core::scheme::Scheme {
        self.state("on").unwrap();
        self.state("off").unwrap();
        self.fake.last().schemes[0].clone()
    }
}

#[test]
fn a_kdamond_goes_on_and_off() {
    let bed = Bed::ready();
    assert_eq!(bed.state("off"), Err(Errno::Invalid), "it never was on");
    assert_eq!(bed.state("update_schemes_stats"), Err(Errno::Invalid));
    assert_eq!(bed.state("ON"), Err(Errno::Invalid));
    assert_eq!(bed.state("on\n"), Ok(3));
    assert_eq!((bed.read("0/state"), bed.read("0/pid")), ("on\n".into(), "77\n".into()));
    assert_eq!(bed.state("on"), Err(Errno::Busy));
    assert_eq!(bed.write("nr_kdamonds", "0"), Err(Errno::Busy), "it would be pulled away");
    bed.fake.0.running.store(false, Ordering::Relaxed);
    assert_eq!((bed.read("0/state"), bed.read("0/pid")), ("off\n".into(), "-1\n".into()), "it ended by itself");
    assert_eq!(bed.state("off"), Err(Errno::NotPermitted));
    assert_eq!(bed.state("commit"), Err(Errno::Invalid));
    assert_eq!(bed.state("on"), Ok(2));
    assert_eq!(bed.state("off"), Ok(3));
    assert_eq!(bed.read("0/state"), "off\n");
    assert_eq!(bed.write("nr_kdamonds", "0"), Ok(1));
}

#[test]
fn what_cannot_be_begun_is_refused() {
    for (file, text) in [
        ("0/contexts/nr_contexts", "0"),
        ("0/contexts/0/operations", "paddr"),
        ("0/contexts/0/targets/nr_targets", "0"),
        ("0/contexts/0/targets/0/pid_target", "0"),
        ("0/contexts/0/targets/0/pid_target", "-5"),
        ("0/contexts/0/monitoring_attrs/intervals/sample_us", "200000"),
        ("0/contexts/0/monitoring_attrs/nr_regions/min", "2"),
        ("0/contexts/0/monitoring_attrs/nr_regions/max", "5"),
        ("0/contexts/0/monitoring_attrs/probes/nr_probes", "1"),
        ("0/contexts/0/pause", "Y"),
        ("0/contexts/0/schemes/0/quotas/bytes", "1"),
        ("0/contexts/0/schemes/0/quotas/fail_charge_denom", "2"),
        ("0/contexts/0/schemes/0/stats/max_nr_snapshots", "5"),
        ("0/contexts/0/schemes/0/action", "migrate_hot"),
    ] {
        let bed = Bed::ready();
        bed.write(file, text).unwrap();
        assert_eq!(bed.state("on"), Err(Errno::Invalid), "{file} {text}");
        assert!(bed.fake.0.started.lock().unwrap().is_empty());
        assert_eq!(bed.read("0/state"), "off\n");
    }
}

#[test]
fn settings_are_what_the_files_say() {
    let bed = Bed::ready();
    for (file, text) in [
        ("monitoring_attrs/intervals/aggr_us", "200000"),
        ("monitoring_attrs/intervals/update_us", "100000"),
        ("monitoring_attrs/intervals/intervals_goal/access_bp", "400"),
        ("monitoring_attrs/intervals/intervals_goal/aggrs", "3"),
        ("monitoring_attrs/intervals/intervals_goal/min_sample_us", "5000"),
        ("monitoring_attrs/intervals/intervals_goal/max_sample_us", "10000000"),
        ("targets/nr_targets", "3"),
        ("targets/0/pid_target", "8"),
        ("targets/1/pid_target", "9"),
        ("targets/2/pid_target", "8"),
    ] {
        bed.write(&format!("{CONTEXT}/{file}"), text).unwrap();
    }
    bed.state("on").unwrap();
    let started = bed.fake.0.started.lock().unwrap();
    let settings = &started[0];
    let mapped = |pid| WatchedProcess { pid, space: TargetRanges::Mapped };
    assert_eq!(settings.watched, KdamondTargets::Processes(vec![mapped(8), mapped(9), mapped(8)]));
    assert_eq!(settings.attrs, MonitorAttrs { aggr_us: 200_000, update_us: 200_000, ..MonitorAttrs::default() });
    assert_eq!(settings.intervals_goal.unwrap().access_bp, 400);
}

#[test]
fn ranges_are_fixed_or_a_beginning_as_the_operations_say() {
    let bed = Bed::ready();
    for (file, text) in
        [("nr_regions", "2"), ("0/start", "4096"), ("0/end", "8192"), ("1/start", "16384"), ("1/end", "20480")]
    {
        bed.write(&format!("{CONTEXT}/targets/0/regions/{file}"), text).unwrap();
    }
    let space = |operations: &str| -> TargetRanges {
        bed.write(&format!("{CONTEXT}/operations"), operations).unwrap();
        bed.state("on").unwrap();
        bed.state("off").unwrap();
        let started = bed.fake.0.started.lock().unwrap();
        let KdamondTargets::Processes(processes) = &started.last().unwrap().watched else { panic!("processes") };
        processes[0].space.clone()
    };
    let ranges = vec![AddrRange::new(4096, 8192), AddrRange::new(16384, 20480)];
    assert_eq!(space("vaddr"), TargetRanges::First(ranges.clone()));
    assert_eq!(space("fvaddr"), TargetRanges::Fixed(ranges));
    // The second overlaps the first.
    bed.write(&format!("{CONTEXT}/targets/0/regions/1/start"), "8191").unwrap();
    for operations in ["vaddr", "fvaddr"] {
        bed.write(&format!("{CONTEXT}/operations"), operations).unwrap();
        assert_eq!(bed.state("on"), Err(Errno::Invalid), "{operations}");
    }
    bed.write(&format!("{CONTEXT}/targets/0/regions/nr_regions"), "0").unwrap();
    assert_eq!(space("fvaddr"), TargetRanges::Fixed(vec![]));
    assert_eq!(space("vaddr"), TargetRanges::Mapped);
}

#[test]
fn a_scheme_is_what_its_files_say() {
    let bed = Bed::ready();
    for (file, text) in [
        ("action", "pageout"),
        ("apply_interval_us", "7000"),
        ("access_pattern/sz/min", "4096"),
        ("access_pattern/nr_accesses/min", "3"),
        ("access_pattern/nr_accesses/max", "6"),
        ("access_pattern/age/min", "50"),
        ("quotas/ms", "10"),
        ("quotas/bytes", "134217728"),
        ("quotas/reset_interval_ms", "1000"),
        ("quotas/weights/age_permil", "700"),
        ("quotas/goals/nr_goals", "3"),
        ("quotas/goals/0/target_value", "10000"),
        ("quotas/goals/0/current_value", "5000"),
        ("quotas/goals/1/target_metric", "node_mem_free_bp"),
        ("quotas/goals/1/target_value", "50"),
        ("quotas/goals/1/nid", "1"),
        ("watermarks/metric", "free_mem_rate"),
        ("watermarks/interval_us", "5000000"),
        ("watermarks/high", "500"),
        ("watermarks/mid", "400"),
        ("watermarks/low", "200"),
        ("filters/nr_filters", "1"),
        ("filters/0/type", "memcg"),
        ("filters/0/memcg_path", "/a"),
        ("core_filters/nr_filters", "1"),
        ("core_filters/0/type", "addr"),
        ("core_filters/0/addr_end", "4096"),
        ("core_filters/0/matching", "Y"),
        ("core_filters/0/allow", "1"),
    ] {
        bed.write(&format!("{SCHEME}/{file}"), text).unwrap();
    }
    let scheme = bed.scheme();
    assert_eq!((scheme.action, scheme.apply_ns), (Action::PageOut, 7_000_000));
    assert_eq!(scheme.pattern.size, Bounds::new(4096, u64::MAX));
    assert_eq!(scheme.pattern.rate_bp, Bounds::new(1500, 3000), "of 20 samples");
    assert_eq!(scheme.pattern.age_us, Bounds::new(5_000_000, u64::MAX));
    assert_eq!((scheme.quota.time_ns, scheme.quota.bytes), (Some(10_000_000), Some(128 << 20)));
    assert_eq!((scheme.quota.reset_ns, scheme.quota.weights.age), (1_000_000_000, 700));
    let targets: Vec<u64> = scheme.quota.goals.iter().map(|g| g.target).collect();
    assert_eq!(targets, [10_000, 50], "a goal of 0 is skipped");
    assert_eq!(scheme.quota.goals[0].metric, GoalMetric::UserInput);
    assert_eq!(scheme.watermarks.unwrap().mid_bp, 4000);
    assert!(matches!(&scheme.filters[0].what, FilterType::Addr(r) if (r.start, r.end) == (0, 4096)));
    assert!(scheme.filters[0].matching && scheme.filters[0].allow);
    assert!(matches!(&scheme.filters[1].what, FilterType::Cgroup(path) if path == "/a"));
    assert!(scheme.brake.is_none() && scheme.confirm_ns == 0, "the kernel has neither");
    assert_eq!(bed.fake.0.started.lock().unwrap()[0].goals[0].pushed, Some(5000));
}

#[test]
fn filters_on_addresses_and_targets_are_asked_before_those_on_pages() {
    let bed = Bed::ready();
    bed.write(&format!("{SCHEME}/filters/nr_filters"), "4").unwrap();
    for (number, kind) in ["young", "target", "anon", "addr"].into_iter().enumerate() {
        bed.write(&format!("{SCHEME}/filters/{number}/type"), kind).unwrap();
    }
    bed.write(&format!("{SCHEME}/filters/3/addr_end"), "4096").unwrap();
    let kinds: Vec<_> = bed.scheme().filters.iter().map(|f| f.what.name()).collect();
    assert_eq!(kinds, ["target", "addr", "young", "anon"]);
}

#[test]
fn a_pattern_that_cannot_be_matches_nothing() {
    for (file, text) in [("nr_accesses/min", "21"), ("sz/max", "0"), ("age/max", "0")] {
        let bed = Bed::ready();
        bed.write(&format!("{SCHEME}/access_pattern/sz/min"), "1").unwrap();
        bed.write(&format!("{SCHEME}/access_pattern/age/min"), "1").unwrap();
        bed.write(&format!("{SCHEME}/access_pattern/{file}"), text).unwrap();
        assert_eq!(bed.scheme().pattern.size, Bounds::new(u64::MAX, u64::MAX), "{file}");
    }
}

#[test]
fn figures_and_regions_come_when_asked_for() {
    let bed = Bed::ready();
    bed.state("on").unwrap();
    *bed.fake.0.stats.lock().unwrap() =
        vec![SchemeStats { nr_tried: 5, effective_quota: Some(4096), ..SchemeStats::default() }];
    assert_eq!(bed.read(&format!("{SCHEME}/stats/nr_tried")), "0\n");
    bed.state("update_schemes_stats").unwrap();
    assert_eq!(bed.read(&format!("{SCHEME}/stats/nr_tried")), "5\n");
    bed.state("update_schemes_effective_quotas").unwrap();
    assert_eq!(bed.read(&format!("{SCHEME}/quotas/effective_bytes")), "4096\n");
    bed.state("update_schemes_tried_bytes").unwrap();
    let tried = format!("{SCHEME}/tried_regions");
    assert_eq!(bed.read(&format!("{tried}/total_bytes")), "16384\n");
    assert_eq!(bed.write(&format!("{tried}/0/start"), "1"), Err(Errno::NoEntry));
    bed.state("update_schemes_tried_regions").unwrap();
    assert_eq!(bed.read(&format!("{tried}/1/start")), "8192\n");
    assert_eq!(bed.read(&format!("{tried}/0/nr_accesses")), "20\n");
    bed.state("clear_schemes_tried_regions").unwrap();
    assert_eq!(bed.read(&format!("{tried}/total_bytes")), "0\n");
    assert!(bed.admin.find(ROOT, &format!("admin/kdamonds/{tried}/0")).is_err());
    bed.state("update_tuned_intervals").unwrap();
    assert_eq!(bed.read(&format!("{CONTEXT}/monitoring_attrs/intervals/aggr_us")), "200000\n");
}

#[test]
fn figures_are_refreshed_where_that_is_wished_for() {
    let bed = Bed::ready();
    bed.state("on").unwrap();
    *bed.fake.0.stats.lock().unwrap() = vec![SchemeStats { nr_tried: 5, ..SchemeStats::default() }];
    let nr_tried = format!("{SCHEME}/stats/nr_tried");
    assert_eq!(bed.read(&nr_tried), "0\n");
    bed.write("0/refresh_ms", "3600000").unwrap();
    assert_eq!(bed.read("0/refresh_ms"), "3600000\n");
    assert_eq!(bed.read(&nr_tried), "5\n");
    *bed.fake.0.stats.lock().unwrap() = vec![SchemeStats { nr_tried: 6, ..SchemeStats::default() }];
    assert_eq!(bed.read(&nr_tried), "5\n", "not before an hour has passed");
}

#[test]
fn commits_hand_over_the_files_as_they_are_now() {
    let bed = Bed::ready();
    bed.state("on").unwrap();
    bed.write(&format!("{SCHEME}/action"), "cold").unwrap();
    bed.write(&format!("{SCHEME}/quotas/goals/nr_goals"), "1").unwrap();
    bed.write(&format!("{SCHEME}/quotas/goals/0/target_value"), "7").unwrap();
    bed.state("commit_schemes_quota_goals").unwrap();
    assert_eq!(bed.fake.0.goals.lock().unwrap()[0][0].goals[0].target, 7);
    assert!(bed.fake.0.committed.lock().unwrap().is_empty(), "goals alone");
    bed.state("commit").unwrap();
    assert_eq!(bed.fake.0.committed.lock().unwrap()[0].schemes[0].action, Action::Cold);
    bed.write(&format!("{CONTEXT}/operations"), "paddr").unwrap();
    assert_eq!(bed.state("commit"), Err(Errno::Invalid));
}

#[test]
fn obsolete_targets_are_left_out_of_commits_alone() {
    let bed = Bed::ready();
    for (file, text) in [("nr_targets", "2"), ("0/pid_target", "8"), ("0/obsolete_target", "Y"), ("1/pid_target", "9")]
    {
        bed.write(&format!("{CONTEXT}/targets/{file}"), text).unwrap();
    }
    let pids = |settings: &Settings| -> Vec<u32> {
        let KdamondTargets::Processes(processes) = &settings.watched else { panic!("processes") };
        processes.iter().map(|process| process.pid).collect()
    };
    bed.state("on").unwrap();
    assert_eq!(pids(&bed.fake.0.started.lock().unwrap()[0]), [8, 9]);
    bed.state("commit").unwrap();
    assert_eq!(pids(&bed.fake.0.committed.lock().unwrap()[0]), [9]);
    bed.write(&format!("{CONTEXT}/targets/1/obsolete_target"), "Y").unwrap();
    assert_eq!(bed.state("commit"), Err(Errno::Invalid), "none would be left");
}

#[test]
fn writes_are_cut_at_a_page_and_at_a_nul() {
    let bed = Bed::ready();
    let long = "x".repeat(MOST_WRITTEN + 1);
    assert_eq!(bed.write(&format!("{CONTEXT}/operations"), &long), Err(Errno::Invalid));
    assert_eq!(bed.write("0/refresh_ms", "5\0garbage"), Ok(9));
    assert_eq!(bed.read("0/refresh_ms"), "5\n");
    assert_eq!(bed.write("0/refresh_ms", ""), Ok(0));
    assert_eq!(bed.write("0/refresh_ms", "\n"), Err(Errno::Invalid));
    assert_eq!(bed.write("0", "1"), Err(Errno::Invalid), "a folder");
}

/// Does something while a command waits for an answer that takes long; what comes of the command.
fn meanwhile(then: impl FnOnce(&Bed)) -> Result<usize, Errno> {
    let bed = Bed::ready();
    bed.state("on").unwrap();
    bed.fake.0.slow.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let command = scope.spawn(|| bed.state("update_schemes_tried_regions"));
        assert!(bed.fake.0.wait(|seen| seen.waits.load(Ordering::Relaxed)));
        then(&bed);
        assert!(!bed.fake.0.running.load(Ordering::Relaxed));
        command.join().unwrap()
    })
}

#[test]
fn what_waits_for_a_kdamond_ends_where_that_is_switched_off() {
    let command = meanwhile(|bed| {
        assert_eq!(bed.state("commit"), Err(Errno::Busy));
        assert_eq!(bed.read("0/state"), "on\n", "it can be read");
        assert_eq!(bed.state("off"), Ok(3));
        assert_eq!(bed.read("0/state"), "off\n");
    });
    assert_eq!(command, Err(Errno::Invalid));
}

#[test]
fn what_waits_for_a_kdamond_ends_with_the_files() {
    let command = meanwhile(|bed| {
        bed.admin.stop();
        assert_eq!(bed.state("on"), Err(Errno::Gone), "nothing is begun any more");
    });
    assert_eq!(command, Err(Errno::Invalid));
}
