//! What must hold on every machine.

use super::*;
use crate::policy::PolicyName;
use crate::replay::{Figures, Job, Replay};
use crate::trace::{Generator, Manner, Selection, generate};
use proptest::prelude::*;

fn replay(trace: &str, manner: Manner, machine: &Machine) -> Replay {
    let selection = Selection { manner: Some(manner), ..Selection::default() };
    let trace = generate(&Generator::parse(trace).expect("a trace"), selection, &mut |_| {}).expect("made");
    Replay::new(trace).with_machine(machine.clone())
}

fn machine(spec: &str) -> Machine {
    Machine::parse(spec).expect("a machine")
}

fn outcome(figures: &Figures) -> Option<Outcome> {
    figures.machine.as_ref().expect("a machine was described").outcome
}

fn run(trace: &str, spec: &str, policy: PolicyName, size: u32) -> (Figures, Outcome) {
    let figures = replay(trace, Manner::MAPPED, &machine(spec)).run(Job { policy, size });
    let outcome = outcome(&figures).expect("it fits");
    (figures, outcome)
}

#[track_caller]
fn near(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0), "{a} is not {b}");
}

#[test]
fn who_misses_nothing_waits_for_nothing() {
    for spec in ["zram", "ssd", "tier"] {
        for policy in PolicyName::ALL {
            // Twice the memory: background reclaim has no reason to wake.
            let (f, o) = run("zipf:pages=500,requests=20000", &format!("{spec}:tasks=3"), policy, 1000);
            assert_eq!((f.refaults, o.major_faults, o.direct_reclaims, o.background_reclaims), (0, 0, 0, 0), "{f:?}");
            assert_eq!((o.some, o.full, o.stall_seconds, o.reclaim_seconds), (0.0, 0.0, 0.0, 0.0), "{f:?}");
        }
    }
}

#[test]
fn a_single_task_spends_its_time_on_what_there_is() {
    let spec = "ssd:work=2us,fault=1us,read=90us,write=7us,reclaim=3us,headroom=0%";
    let (f, o) = run("loop:pages=300,requests=9000", spec, PolicyName::Lru, 200);
    assert_eq!((f.misses, f.refaults, o.direct_reclaims, o.resident), (9000, 8700, 8800, 200));
    near(o.run_seconds, 1e-6 * (9000.0 * 3.0 + 8700.0 * 90.0 + 8800.0 * 10.0));
    near(o.stall_seconds, 1e-6 * (8700.0 * 90.0 + 8800.0 * 10.0));
    near(o.some, o.stall_seconds / o.run_seconds);
    near(o.full, o.some);
    near(o.reclaim_seconds, 1e-6 * 8800.0 * 10.0);
    near(o.requests_per_second, 9000.0 / o.run_seconds);
}

#[test]
fn reclaim_ahead_of_need_takes_waiting_away() {
    let load = "uniform:pages=2000,requests=40000";
    let with = |headroom: &str| run(load, &format!("zram:work=50us,headroom={headroom}"), PolicyName::Lru, 1600).1;
    let (none, some) = (with("0%"), with("2%"));
    assert_eq!((none.background_reclaims, some.direct_reclaims), (0, 0), "{some:?}");
    assert!(none.direct_reclaims > 5000 && some.background_reclaims > 5000, "{none:?} {some:?}");
    assert!(some.requests_per_second > none.requests_per_second && some.some < none.some, "{none:?} {some:?}");
    // Who leaves no time for it gets none of it.
    let busy = run(load, "zram:work=1ns,fault=0,write=1ms,headroom=2%", PolicyName::Lru, 1600).1;
    assert!(busy.direct_reclaims * 3 > busy.background_reclaims, "{busy:?}");
}

#[test]
fn a_device_serves_as_many_as_it_has_channels() {
    let load = "loop:pages=2000,requests=20000";
    let with = |channels: u32| {
        let spec = format!("ssd:tasks=16,channels={channels},work=1us,reclaim=0,write=0,read=100us");
        run(load, &spec, PolicyName::Lru, 1000).1
    };
    let (one, four, many) = (with(1), with(4), with(64));
    let ratio = |a: Outcome, b: Outcome| a.requests_per_second / b.requests_per_second;
    assert!((ratio(four, one) - 4.0).abs() < 0.2 && (ratio(many, one) - 16.0).abs() < 1.5, "{one:?} {four:?} {many:?}");
    assert!(one.some > 0.8 && one.full > 0.8 && one.major_fault_us > 1000.0, "all wait in line: {one:?}");
}

#[test]
fn packed_pages_take_their_place() {
    let m = machine("zram:ratio=3,headroom=0%");
    assert_eq!(m.resident(3000, 3000, 3000), Some(Room { resident: 3000, headroom: 0 }));
    // 1500 resident and 1500 packed into 500.
    assert_eq!(m.resident(2000, 3000, 3000), Some(Room { resident: 1500, headroom: 0 }));
    assert_eq!(m.resident(1000, 3000, 3000), None, "that is all packed and no room left");
    assert_eq!(m.resident(1000, 3000, 0), Some(Room { resident: 1000, headroom: 0 }), "files are dropped, not packed");
    assert_eq!(machine("ssd").resident(1000, 3000, 3000), Some(Room { resident: 998, headroom: 2 }));
    let figures =
        replay("uniform:pages=3000,requests=9000", Manner::MAPPED, &m).run(Job { policy: PolicyName::Lru, size: 900 });
    let prediction = figures.machine.expect("there is one");
    assert!(prediction.out_of_memory && prediction.outcome.is_none());
}

#[test]
fn files_are_read_and_not_written() {
    let m = machine("zram:read=1ns,write=1m,file_read=70us,reclaim=1us,headroom=0%");
    let figures = replay("loop:pages=30,requests=300", Manner::FD, &m).run(Job { policy: PolicyName::Lru, size: 20 });
    let o = outcome(&figures).expect("it fits");
    assert_eq!((o.major_faults, o.direct_reclaims), (300, 280));
    near(o.stall_seconds, 1e-6 * (270.0 * 70.0 + 280.0));
}

#[test]
fn descriptions_that_make_no_sense() {
    for (spec, word) in [
        ("", "known are"),
        ("disk", "known are"),
        ("zram:ratio", "KEY=VALUE"),
        ("zram:ratio=1", "ratio"),
        ("zram:ratio=nan", "ratio"),
        ("zram:channels=3", "channels"),
        ("ssd:ratio=3", "ratio"),
        ("ssd:channels=0", "channels"),
        ("tier:tasks=0", "tasks"),
        ("tier:tasks=5000", "tasks"),
        ("tier:work=3", "work"),
        ("tier:work=2m", "minute"),
        ("tier:headroom=95%", "headroom"),
        ("tier:read=1us,read=2us", "twice"),
    ] {
        let error = Machine::parse(spec).expect_err(spec).to_string();
        assert!(error.contains(word) && error.contains(spec), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn figures_stay_within_their_bounds(
        kind in prop::sample::select(vec!["zram", "zram-zstd", "ssd", "tier"]),
        tasks in 1u32..9,
        headroom in 0u32..30,
        size in 100u32..400,
        seed in 1u64..1000,
        policy in prop::sample::select(PolicyName::ALL.to_vec()),
    ) {
        let spec = format!("{kind}:tasks={tasks},headroom={headroom}%");
        let load = format!("zipf:pages=400,requests=3000,theta=0.6,seed={seed}");
        let figures = replay(&load, Manner::MAPPED, &machine(&spec)).run(Job { policy, size });
        let Some(o) = outcome(&figures) else { return Ok(()) };
        prop_assert!(0.0 <= o.full && o.full <= o.some && o.some <= 1.0, "{:?}", o);
        prop_assert!(tasks > 1 || (o.some - o.full).abs() < 1e-12);
        prop_assert!(o.stall_seconds <= f64::from(tasks) * o.run_seconds);
        prop_assert_eq!(o.major_faults, figures.refaults);
        prop_assert!(o.direct_reclaims + o.background_reclaims <= figures.misses);
        prop_assert!(o.resident <= size);
        let least = 1e-6 * 3000.0 / f64::from(tasks);
        prop_assert!(o.run_seconds >= least);
    }

    /// Of a policy whose smaller cache holds nothing that a larger one does not.
    #[test]
    fn more_memory_is_never_slower(
        kind in prop::sample::select(vec!["zram", "zram-zstd", "ssd", "tier"]),
        headroom in 0u32..20,
        work in 1u32..100,
        seed in 1u64..1000,
        policy in prop::sample::select(vec![PolicyName::Lru, PolicyName::Opt]),
    ) {
        let spec = format!("{kind}:work={work}us,headroom={headroom}%");
        let load = format!("zipf:pages=300,requests=2000,theta=0.7,seed={seed}");
        let replay = replay(&load, Manner::MAPPED, &machine(&spec));
        let times: Vec<f64> = (1..=30)
            .filter_map(|n| outcome(&replay.run(Job { policy, size: n * 11 })))
            .map(|o| o.run_seconds)
            .collect();
        prop_assert!(times.len() > 15 && times.windows(2).all(|pair| pair[1] <= pair[0]), "{:?}", times);
    }

    #[test]
    fn more_memory_is_never_less_for_pages(
        pages in 1u32..100_000, anon_share in 0.0f64..1.0, ratio in 1.02f64..20.0, headroom in 0u32..90,
    ) {
        let m = machine(&format!("zram:ratio={ratio},headroom={headroom}%"));
        let anon = (f64::from(pages) * anon_share) as u32;
        let (mut before, mut fitted) = (0, false);
        for size in (1..=pages + 10).step_by(1 + pages as usize / 300) {
            let room = m.resident(size, pages, anon);
            prop_assert!(room.is_some() || !fitted, "what fits into less fits into more");
            let Some(Room { resident, headroom }) = room else { continue };
            fitted = true;
            prop_assert!(resident >= before && resident >= 1 && resident + headroom <= size, "{} {}", resident, before);
            before = resident;
        }
    }

    #[test]
    fn specs_never_panic(spec in "(zram|ssd|tier)?[a-z:=,0-9.%\\-]{0,30}") {
        _ = Machine::parse(&spec);
    }
}
