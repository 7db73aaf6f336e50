use super::*;
use crate::args::monitor::{CpuBudget, ModeName};
use crate::schemes::settings::TargetSettings;
use isotherm_core::actuator::Destination;
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::meter::Metric;
use isotherm_core::scheme::Scheme;
use isotherm_core::scheme::action::Action;
use isotherm_core::scheme::brake::BrakeSpec;
use isotherm_core::scheme::filter::FilterType;
use isotherm_core::scheme::goal::{GoalMetric, Tuner};
use isotherm_core::scheme::pattern::{AccessPattern, Bounds};
use isotherm_core::scheme::priority::Weights;
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLE: &str = r#"
[[scheme]]
action = "pageout"
apply_interval = "100ms"
[scheme.pattern]                 # closed ranges
size = ["4K", "max"]
access_rate = ["0%", "5%"]
age = ["5s", "max"]
[scheme.quota]
bytes = "128M"
time = "10ms"
reset_interval = "1s"
weights = { size = 0, access_rate = 3, age = 7 }
[[scheme.goal]]
metric = "some_mem_psi"
target = "0.5%"
[scheme.watermarks]
metric = "free_mem_rate"
high = "50%"
mid = "40%"
low = "20%"
[[scheme.filter]]
type = "mapping"
matching = "heap"
allow = true
"#;

fn one(text: &str) -> Scheme {
    let mut schemes = parse("s.toml", text).unwrap().schemes;
    assert_eq!(schemes.len(), 1);
    schemes.remove(0)
}

fn fault(text: &str) -> String {
    parse("s.toml", text).unwrap_err().to_string()
}

#[test]
fn the_documented_example_is_read() {
    let s = one(EXAMPLE);
    assert_eq!((s.action, s.apply_ns), (Action::PageOut, 100_000_000));
    assert_eq!(s.pattern.size, Bounds::new(4096, u64::MAX));
    assert_eq!(s.pattern.rate_bp, Bounds::new(0, 500));
    assert_eq!(s.pattern.age_us, Bounds::new(5_000_000, u64::MAX));
    assert_eq!((s.quota.bytes, s.quota.time_ns, s.quota.reset_ns), (Some(128 << 20), Some(10_000_000), 1_000_000_000));
    assert_eq!(s.quota.weights, Weights { size: 0, access_rate: 3, age: 7 });
    let [goal] = s.quota.goals.as_slice() else { panic!("{:?}", s.quota.goals) };
    assert_eq!(goal.metric, GoalMetric::Read(Metric::SomeMemPsi(None)));
    assert_eq!((goal.target, goal.window_ns, goal.falls), (50_000, 10_000_000_000, false));
    let w = s.watermarks.unwrap();
    assert_eq!((w.high_bp, w.mid_bp, w.low_bp, w.interval_us), (5000, 4000, 2000, 5_000_000));
    let [filter] = s.filters.as_slice() else { panic!("{:?}", s.filters) };
    assert!(matches!(&filter.what, FilterType::Mapping(re) if re.as_str() == "heap"));
    assert!(filter.matching && filter.allow);
    assert_eq!(s.brake, Some(BrakeSpec::default()));
}

#[test]
fn all_but_the_action_has_a_default() {
    let s = one("[[scheme]]\naction = \"stat\"");
    assert_eq!(s.pattern, AccessPattern::default());
    assert!(s.brake.is_none() && s.watermarks.is_none() && s.filters.is_empty() && !s.quota.is_limited());
    assert_eq!(s.confirm_ns, 0);
    assert_eq!(one("[[scheme]]\naction = \"pageout\"").confirm_ns, isotherm_core::scheme::DEFAULT_CONFIRM_NS);
}

#[test]
fn the_other_keys() {
    let s = one(r#"
        [[scheme]]
        action = "migrate_cold"
        confirm = "500ms"
        brake = { refault_ratio = "10%" }
        destinations = [{ node = 1 }, { node = 2, weight = 3 }]
        [scheme.pattern]
        size = [4096, 1073741824]
        access_rate = [0, 2.5]
        [scheme.quota]
        tuner = "temporal"
        [[scheme.goal]]
        metric = "node_mem_used"
        node = 0
        target = "90%"
        [[scheme.goal]]
        metric = "some_mem_psi_us"
        path = "/a"
        target = 1000
    "#);
    assert_eq!((s.confirm_ns, s.quota.tuner), (500_000_000, Tuner::Temporal));
    assert_eq!(s.brake, Some(BrakeSpec { refault_ratio: 0.1, ..BrakeSpec::default() }));
    assert_eq!(s.destinations, [Destination { node: 1, weight: 1 }, Destination { node: 2, weight: 3 }]);
    assert_eq!((s.pattern.size, s.pattern.rate_bp), (Bounds::new(4096, 1 << 30), Bounds::new(0, 250)));
    let goal = &s.quota.goals[0];
    assert_eq!((goal.metric.clone(), goal.target, goal.falls), (GoalMetric::Read(Metric::NodeMemUsed(0)), 9000, true));
    assert_eq!((s.quota.goals[1].target, s.quota.goals[1].window_ns), (1000, 0));
    let s = one("[[scheme]]\naction = \"migrate_hot\"\ntarget_nid = 0\nbrake = true");
    assert_eq!(s.destinations, [Destination { node: 0, weight: 1 }]);
    assert_eq!(s.brake, Some(BrakeSpec::default()));
    assert_eq!(one("[[scheme]]\naction = \"pageout\"\nbrake = false").brake, None);
}

#[test]
fn every_filter() {
    let s = one(r#"
        [[scheme]]
        action = "stat"
        filter = [
            { type = "anon", matching = false },
            { type = "addr", start = 0x1000, end = "0x2000" },
            { type = "target", index = 3, allow = true },
            { type = "mapping", matching = "^/usr", invert = true },
            { type = "locked" },
            { type = "memcg", path = "/a" },
            { type = "young" },
            { type = "hugepage_size", min = "2M" },
        ]
    "#);
    let reported: Vec<_> = s.filters.iter().map(|f| (f.what.name(), f.matching, f.allow)).collect();
    assert_eq!(
        reported,
        [
            ("anon", false, false),
            ("addr", true, false),
            ("target", true, true),
            ("mapping", false, false),
            ("locked", true, false),
            ("memcg", true, false),
            ("young", true, false),
            ("hugepage_size", true, false),
        ]
    );
    assert!(matches!(s.filters[7].what, FilterType::HugepageSize { min: 0x20_0000, max: u64::MAX }));
}

#[test]
fn a_file_may_say_whom_to_watch_and_how() {
    let text = "[monitor]\nsample = \"10ms\"\naggr = \"2s\"\nmax_regions = 500\ncpu_budget = \"none\"\nmode = \"scan\"\n\
                tune_intervals = true\n[target]\npid = [7, 8]\nchildren = true\n";
    let read = parse("s.toml", text).unwrap();
    let monitor = read.monitor.unwrap();
    assert_eq!(monitor.sample, Some(Duration::from_millis(10)));
    assert_eq!(monitor.over(&MonitorAttrs::default()).update_us, 2_000_000);
    assert_eq!((monitor.max_regions, monitor.mode, monitor.seed), (Some(500), Some(ModeName::Scan), None));
    assert_eq!((monitor.cpu_budget, monitor.tune_intervals), (Some(CpuBudget(None)), Some(true)));
    assert_eq!(read.target, Some(TargetSettings { pids: vec![7, 8], children: true, ..TargetSettings::default() }));
    let target = |text: &str| parse("s.toml", &format!("[target]\n{text}\n")).unwrap().target.unwrap();
    assert_eq!(target("cgroup = \"/a\"").cgroups, ["/a"].map(PathBuf::from));
    assert_eq!(target("cgroup = [\"/a\", \"/b\"]").cgroups, ["/a", "/b"].map(PathBuf::from));
    assert_eq!(target("name = [\"java\"]").names, ["java"]);
    assert!(target("all = true").all);
    for (text, parts) in [
        ("[monitor]\nsample = \"1s\"", &["line 1, monitor", "aggregation"][..]),
        ("[monitor]\nsampling = \"1s\"", &["line 2", "sampling"]),
        ("[monitor]\nmode = \"fast\"", &["line 2, monitor.mode", "sample"]),
        ("[monitor]\ncpu_budget = \"0%\"", &["line 2, monitor.cpu_budget"]),
        ("[monitor]\nmin_regions = -1", &["line 2, monitor.min_regions"]),
        ("[target]\npid = [0]", &["line 2, target.pid"]),
        ("[target]\npid = [1]\ncgroup = \"/a\"", &["line 3, target.cgroup"]),
        ("[target]\ncgroup = \"\"", &["line 2, target.cgroup"]),
        ("[target]\nname = [\"sh\", \"\"]", &["line 2, target.name"]),
        ("[target]\nall = true\nname = \"sh\"", &["line 2, target.all"]),
        ("[target]\nall = 1", &["line 2, target.all"]),
    ] {
        let reported = fault(text);
        parts.iter().for_each(|part| assert!(reported.contains(part), "{text:?}: {reported:?} lacks {part:?}"));
    }
}

#[test]
fn errors_name_file_line_and_key() {
    let scheme = |rest: &str| format!("[[scheme]]\naction = \"pageout\"\n{rest}");
    for (text, parts) in [
        ("[[scheme]]\naction = \"page_out\"".to_owned(), &["s.toml, line 2, scheme.action", "page_out", "pageout"][..]),
        ("[[scheme]]\nconfirm = \"1s\"".into(), &["line 1", "action"]),
        ("[[scheme]\n".into(), &["s.toml, line 1"]),
        (scheme("age = 5"), &["line 3", "unknown field `age`", "pattern"]),
        (scheme("[scheme.quota]\nbites = 5"), &["line 4", "bites", "bytes"]),
        (scheme("[scheme.quota.weights]\nsz = 5"), &["line 4", "sz"]),
        (scheme("[scheme.brake]\nx = 5"), &["line 4", "`x`", "some_psi"]),
        (scheme("brake = \"no\""), &["line 3", "brake", "false (no brake)"]),
        (scheme("brake = { some_psi = \"300%\" }"), &["line 3, scheme.brake.some_psi", "brake = false"]),
        (scheme("brake = { some_psi = 0.3 }"), &["line 3, scheme.brake.some_psi", "30%"]),
        (scheme("apply_interval = 5"), &["line 3, scheme.apply_interval", "'5'", "100ms"]),
        (scheme("apply_interval = [5]"), &["line 3", "apply_interval", "a text, a number"]),
        (scheme("[scheme.pattern]\nsize = [\"8K\", \"4K\"]"), &["line 4, scheme.pattern.size", "8K", "above", "4K"]),
        (scheme("[scheme.pattern]\nage = [\"5s\"]"), &["line 4, scheme.pattern.age", "two values", "not 1"]),
        (scheme("[scheme.pattern]\nage = \"5s\""), &["line 4", "age"]),
        (scheme("[scheme.pattern]\naccess_rate = [\n0,\n\"500%\"]"), &["line 6, scheme.pattern.access_rate", "500%"]),
        (scheme("[scheme.quota]\n\nbytes = 100"), &["line 5, scheme.quota", "below one page"]),
        (scheme("[scheme.quota]\ntime = \"0\""), &["line 4, scheme.quota", "no time"]),
        (scheme("min_density = \"200%\""), &["line 3, scheme.min_density", "100%"]),
        (scheme("used_within = \"5s\""), &["line 3, scheme.used_within", "collapse and stat"]),
        (scheme("used_within = 5"), &["line 3, scheme.used_within", "'5'"]),
        (scheme("[scheme.quota]\ntuner = \"fast\""), &["line 4, scheme.quota.tuner", "consist or temporal"]),
        (
            scheme("[[scheme.goal]]\nmetric = \"some_mem_psi\"\ntarget = 0"),
            &["line 5, scheme.goal.target", "goal of 0"],
        ),
        (scheme("[[scheme.goal]]\nmetric = \"psi\"\ntarget = 1"), &["line 4, scheme.goal.metric", "some_mem_psi"]),
        (scheme("[[scheme.goal]]\nmetric = \"node_mem_used\"\ntarget = 1"), &["line 3, scheme.goal", "node = 0"]),
        (scheme("[[scheme.goal]]\nmetric = \"cgroup_mem_used\"\ntarget = 1"), &["scheme.goal", "path ="]),
        (scheme("[[scheme.goal]]\nmetric = \"target_rss\"\ntarget = 1\nnode = 1"), &["line 6, scheme.goal.node"]),
        (scheme("[[scheme.goal]]\nmetric = \"target_rss\"\ntarget = 1\npath = \"/\""), &["line 6, scheme.goal.path"]),
        (
            scheme("[[scheme.goal]]\nmetric = \"target_rss\"\ntarget = 1\nwindow = \"1s\""),
            &["line 6, scheme.goal.window"],
        ),
        (scheme("[[scheme.goal]]\nmetric = \"swap_in\"\ntarget = 1\nwindow = \"0s\""), &["line 6, scheme.goal.window"]),
        (scheme("[[scheme.goal]]\nmetric = \"swap_in\""), &["line 3", "target"]),
        (scheme("[scheme.watermarks]\nhigh = \"10%\""), &["scheme.watermarks", "rise"]),
        (scheme("[scheme.watermarks]\nmetric = \"x\""), &["line 4, scheme.watermarks.metric", "free_mem_rate"]),
        (scheme("filter = [{ type = \"anno\" }]"), &["line 3, scheme.filter.type", "anno", "anon"]),
        (scheme("filter = [{ type = \"anon\", path = \"/\" }]"), &["scheme.filter.path", "anon"]),
        (scheme("filter = [{ type = \"anon\", matching = \"x\" }]"), &["scheme.filter.matching", "mapping"]),
        (scheme("filter = [{ type = \"mapping\" }]"), &["scheme.filter.matching", "heap"]),
        (scheme("filter = [{ type = \"mapping\", matching = \"(\" }]"), &["scheme.filter.matching", "expression"]),
        (scheme("filter = [{ type = \"mapping\", matching = true }]"), &["scheme.filter.matching", "invert"]),
        (scheme("filter = [{ type = \"addr\", start = 9, end = 8 }]"), &["scheme.filter", "below end"]),
        (scheme("filter = [{ type = \"addr\", start = 8, end = 9 }]"), &["scheme.filter", "no page begins"]),
        (scheme("used_within = \"0s\""), &["scheme.used_within", "no time"]),
        ("[target]\npid = []".into(), &["target.pid", "names nobody"]),
        ("[target]\ncgroup = []".into(), &["target.cgroup", "names nobody"]),
        (scheme("filter = [{ type = \"target\" }]"), &["scheme.filter.index"]),
        (scheme("target_nid = 1"), &["line 2, scheme", "moves no pages"]),
        ("[[scheme]]\naction = \"migrate_cold\"".into(), &["line 2, scheme", "target_nid"]),
        (
            "[[scheme]]\naction = \"migrate_cold\"\ndestinations = [{ node = 1, weight = 0 }]".into(),
            &["line 3, scheme", "weight 0"],
        ),
        (
            "[[scheme]]\naction = \"migrate_cold\"\ntarget_nid = 1\ndestinations = []".into(),
            &["line 4, scheme.destinations", "leave one out"],
        ),
    ] {
        let reported = fault(&text);
        for part in parts {
            assert!(reported.contains(part), "{text:?}: {reported:?} lacks {part:?}");
        }
    }
}

mod written {
    use super::*;
    use crate::schemes::metric::MetricName;
    use isotherm_core::addr::AddrRange;
    use isotherm_core::scheme::filter::Filter;
    use isotherm_core::scheme::goal::Goal;
    use isotherm_core::scheme::quota::QuotaSpec;
    use isotherm_core::scheme::watermark::{WatermarkMetric, Watermarks};
    use proptest::prelude::*;
    use regex_lite::Regex;

    fn bounds<T: Copy + Ord + std::fmt::Debug>(value: impl Strategy<Value = T>) -> impl Strategy<Value = Bounds<T>> {
        prop::collection::vec(value, 2).prop_map(|v| Bounds::new(v[0].min(v[1]), v[0].max(v[1])))
    }

    fn time() -> impl Strategy<Value = u64> {
        prop_oneof![0..1u64 << 61, (0u64..1 << 30).prop_map(|ms| ms * 1_000_000)]
    }

    fn edge() -> impl Strategy<Value = u64> {
        prop_oneof![Just(0), Just(u64::MAX), any::<u64>(), (0u64..1 << 30).prop_map(|k| k << 10)]
    }

    fn goal() -> impl Strategy<Value = Goal> {
        let group = prop::option::of("/\\PC{0,9}");
        let metric = prop_oneof![
            Just(GoalMetric::UserInput),
            group.clone().prop_map(|p| GoalMetric::Read(Metric::SomeMemPsi(p))),
            group.prop_map(|p| GoalMetric::Read(Metric::FullMemPsi(p))),
            Just(GoalMetric::Read(Metric::FreeMemRate)),
            (0u32..9).prop_map(|n| GoalMetric::Read(Metric::NodeMemUsed(n))),
            (0u32..9).prop_map(|n| GoalMetric::Read(Metric::NodeMemFree(n))),
            "/\\PC{0,9}".prop_map(|p| GoalMetric::Read(Metric::CgroupMemUsed(p))),
            "/\\PC{0,9}".prop_map(|p| GoalMetric::Read(Metric::CgroupMemFree(p))),
            Just(GoalMetric::Read(Metric::TargetRss)),
            Just(GoalMetric::Read(Metric::ActiveMem)),
            Just(GoalMetric::Read(Metric::InactiveMem)),
            Just(GoalMetric::Read(Metric::SwapIn)),
            Just(GoalMetric::Read(Metric::Refault)),
            Just(GoalMetric::Read(Metric::TargetMajorFaults)),
            Just(GoalMetric::Read(Metric::TargetStall)),
        ];
        (metric, 1u64..10_000, 1u64..100, any::<bool>(), any::<bool>()).prop_map(
            |(metric, target, tenths, falls, per_reset)| {
                let goal = Goal { metric, target, window_ns: tenths * 100_000_000, falls };
                let name = MetricName::of(&goal);
                match &goal.metric {
                    GoalMetric::Read(Metric::SomeMemPsi(_) | Metric::FullMemPsi(_)) if per_reset => {
                        Goal { window_ns: 0, ..goal }
                    }
                    // What a rate in bytes or faults per second cannot say is never read either.
                    GoalMetric::Read(Metric::SwapIn | Metric::Refault | Metric::TargetMajorFaults) => {
                        Goal { target: target * 10 * tenths, ..goal }
                    }
                    _ if name.has_window() => goal,
                    _ => Goal { window_ns: 0, ..goal },
                }
            },
        )
    }

    fn filter() -> impl Strategy<Value = Filter> {
        let what = prop_oneof![
            Just(FilterType::Anon),
            Just(FilterType::Locked),
            Just(FilterType::Young),
            (any::<u32>(), any::<u64>())
                .prop_filter("empty", |&(a, b)| u64::from(a) < b)
                .prop_map(|(start, end)| { FilterType::Addr(AddrRange::new(u64::from(start), end)) }),
            any::<u32>().prop_map(FilterType::Target),
            "\\PC{0,9}".prop_filter_map("no expression", |e| Regex::new(&e).ok()).prop_map(FilterType::Mapping),
            "/\\PC{0,9}[\u{0}-\u{7f}]".prop_map(FilterType::Cgroup),
            bounds(edge()).prop_map(|b| FilterType::HugepageSize { min: b.min, max: b.max }),
        ];
        (what, any::<bool>(), any::<bool>()).prop_map(|(what, matching, allow)| Filter { what, matching, allow })
    }

    fn quota() -> impl Strategy<Value = QuotaSpec> {
        let weights = (any::<u32>(), any::<u32>(), any::<u32>());
        let weights = weights.prop_map(|(size, access_rate, age)| Weights { size, access_rate, age });
        let tuner = prop_oneof![Just(Tuner::Consist), Just(Tuner::Temporal)];
        (
            prop::option::of(4096u64..),
            prop::option::of(1u64..1 << 61),
            1_000_000u64..1 << 61,
            weights,
            prop::collection::vec(goal(), 0..3),
            tuner,
        )
            .prop_map(|(bytes, time_ns, reset_ns, weights, goals, tuner)| QuotaSpec {
                bytes,
                time_ns,
                reset_ns,
                weights,
                goals,
                tuner,
            })
    }

    fn watermarks() -> impl Strategy<Value = Watermarks> {
        (1_000u64..100_000_000, prop::collection::vec(0u32..=10_000, 3)).prop_map(|(interval_us, mut marks)| {
            marks.sort_unstable();
            Watermarks {
                metric: WatermarkMetric::FreeMemRate,
                interval_us,
                high_bp: marks[2],
                mid_bp: marks[1],
                low_bp: marks[0],
            }
        })
    }

    fn scheme() -> impl Strategy<Value = Scheme> {
        let pattern = (bounds(edge()), bounds(0u32..=10_000), bounds(prop_oneof![Just(u64::MAX), 0..1u64 << 51]));
        let pattern = pattern.prop_map(|(size, rate_bp, age_us)| AccessPattern { size, rate_bp, age_us });
        let brake = prop::option::of((0u32..10_000, 0u32..10_000)).prop_map(|b| {
            b.map(|(r, p)| BrakeSpec { refault_ratio: f64::from(r) / 1e4, some_psi: f64::from(p) / 1e4 })
        });
        let nodes = prop::collection::vec((0u32..9, 1u32..9), 1..3);
        (
            prop::sample::select(Action::ALL.to_vec()),
            pattern,
            (time(), time(), 0u32..=10_000),
            quota(),
            prop::option::of(watermarks()),
            prop::collection::vec(filter(), 0..4),
            brake,
            (nodes, prop::option::of("/[a-z\"/]{0,9}")),
        )
            .prop_map(
                |(
                    action,
                    pattern,
                    (apply_ns, confirm_ns, density),
                    quota,
                    watermarks,
                    filters,
                    brake,
                    (nodes, group),
                )| {
                    let migrates = matches!(action, Action::MigrateHot | Action::MigrateCold);
                    let nodes = nodes.into_iter().filter(|_| migrates);
                    let destinations = nodes.map(|(node, weight)| Destination { node, weight }).collect();
                    Scheme {
                        pattern,
                        action,
                        apply_ns,
                        quota,
                        watermarks,
                        group,
                        filters,
                        confirm_ns,
                        brake,
                        min_density_bp: density,
                        used_within_ns: if matches!(action, Action::Collapse | Action::Stat) { confirm_ns } else { 0 },
                        destinations,
                    }
                },
            )
    }

    fn assert_same(a: &Scheme, b: &Scheme, text: &str) {
        let shown = |s: &Scheme| format!("{:?}", Scheme { brake: None, ..s.clone() });
        assert_eq!(shown(a), shown(b), "{text}");
        assert_eq!(a.brake.is_some(), b.brake.is_some());
        if let (Some(a), Some(b)) = (a.brake, b.brake) {
            assert!((a.refault_ratio - b.refault_ratio).abs() < 1e-9 && (a.some_psi - b.some_psi).abs() < 1e-9);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(schemes in prop::collection::vec(scheme(), 1..3)) {
            let text = to_toml(&schemes);
            let read = parse("x", &text).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?.schemes;
            prop_assert_eq!(read.len(), schemes.len());
            schemes.iter().zip(&read).for_each(|(a, b)| assert_same(a, b, &text));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "(\\PC|\n){0,200}") {
            let _ = parse("x", &text);
        }

        #[test]
        fn a_broken_file_is_read_or_refused(cut in 0..EXAMPLE.len(), len in 0usize..20, new in "[\\PC\n]{0,8}") {
            let end = (cut + len).min(EXAMPLE.len());
            let text = format!("{}{new}{}", &EXAMPLE[..cut], &EXAMPLE[end..]);
            if let Err(e) = parse("x", &text) {
                prop_assert!(e.to_string().starts_with("x"), "{e}");
            }
        }
    }
}
