//! The memory by its sums, and against doing every touch.

use super::*;
use crate::machine::activity::Activity;
use crate::machine::device::{FAULT_NS, SlowTier, SwapDevice};
use crate::workload::patterns::{Parameters, Pattern};
use isotherm_core::actuator::{Destination, Outcome, Request};
use isotherm_core::meter::LiveTarget;
use isotherm_core::scheme::action::Action;
use proptest::prelude::*;

const START: u64 = 0x7000_0000_0000;
const MS: u64 = 1_000_000;

fn activity(pattern: Pattern, pages: u64, rate: f64) -> Activity {
    let p = Parameters { hot: Some(0.25), seed: 3, ..Parameters::new(pages * PAGE_SIZE) };
    Activity::new(pattern.build(&p).unwrap(), rate)
}

fn machine(pages: u64) -> Hardware {
    Hardware { slow: Some((SlowTier::CXL, pages * PAGE_SIZE)), ..Hardware::roomy(pages * PAGE_SIZE) }
}

fn pages(first: u64, count: u64) -> AddrRange {
    AddrRange::new(START + first * PAGE_SIZE, START + (first + count) * PAGE_SIZE)
}

fn request(action: Action, ranges: Vec<AddrRange>, node: u32) -> Request {
    let target = LiveTarget { target: 0, pid: Some(1) };
    Request { scheme: 0, target, action, ranges, destinations: vec![Destination { node, weight: 1 }] }
}

/// All sums against the sets that they are of.
fn check(m: &SimMemory) -> Result<(), TestCaseError> {
    prop_assert_eq!(m.out_bytes, m.out.len());
    prop_assert_eq!(m.hole_bytes, m.holes.len());
    prop_assert_eq!(m.slow_bytes, m.slow.len());
    prop_assert_eq!(m.rss() + m.swapped() + m.never_there(), m.arena().len());
    prop_assert!(m.out_bytes <= m.hardware.swap_size);
    for base in m.huge.iter().copied() {
        prop_assert_eq!(m.absent(base), [0; 8], "a huge page with holes");
    }
    for r in m.slow.ranges() {
        for base in (base_of(r.start)..r.end).step_by(TABLE_SPAN as usize) {
            let (slow, absent) = (m.slow.mask(base), m.absent(base));
            prop_assert!((0..8).all(|i| slow[i] & absent[i] == 0), "on the slow node, but not in memory");
        }
    }
    prop_assert!((0.0..=1.0 + 1e-9).contains(&m.huge_share) && (-1e-9..=1.0 + 1e-9).contains(&m.slow_share));
    let moving = |m: &SimMemory| m.taken() <= m.arena().len();
    prop_assert!(moving(m));
    Ok(())
}

fn arb_action() -> impl Strategy<Value = Action> {
    prop::sample::select(vec![
        Action::PageOut,
        Action::PageOut,
        Action::PageOut,
        Action::WillNeed,
        Action::Collapse,
        Action::HugePage,
        Action::NoHugePage,
        Action::MigrateCold,
        Action::MigrateHot,
        Action::Lock,
        Action::Unlock,
        Action::Cold,
        Action::Stat,
    ])
}

proptest! {
    #[test]
    fn nothing_is_lost_whatever_is_done(
        steps in prop::collection::vec((arb_action(), 0u64..3000, 1u64..1500, 0u32..2, 0u64..40), 1..25),
        pattern in prop::sample::select(vec![Pattern::Hotspot, Pattern::Stairs, Pattern::Zipf, Pattern::Scan]),
        prefault in any::<bool>(),
        thp in prop::sample::select(vec![Thp::Never, Thp::Madvise, Thp::Always]),
    ) {
        let hardware = Hardware { prefault, thp, ..machine(3000) };
        let mut m = SimMemory::new(activity(pattern, 3000, 1e6), START, u64::MAX, hardware);
        let (mut now, mut outcomes, mut work) = (0, Vec::<Outcome>::new(), 0);
        for (action, first, count, node, wait_ms) in steps {
            let ranges = vec![pages(first, count.min(3000 - first).max(1))];
            m.submit(request(action, ranges, node), now);
            check(&m)?;
            now += wait_ms * MS;
            m.advance(now);
            check(&m)?;
            prop_assert!(m.work_ns() >= work, "work is never undone");
            work = m.work_ns();
        }
        now += 100_000 * MS;
        m.advance(now);
        m.collect(&mut outcomes);
        prop_assert_eq!(m.pending(0), 0);
        for o in &outcomes {
            prop_assert!(o.applied <= isotherm_core::addr::total_len(&o.request.ranges), "{:?}", o);
            prop_assert!(o.done_ns <= now);
        }
        check(&m)?;
    }

    #[test]
    fn pages_come_back_when_the_workload_says(
        pattern in prop::sample::select(vec![Pattern::Hotspot, Pattern::Stairs, Pattern::Zipf, Pattern::Alternate]),
        at_ms in 0u64..30_000,
        first in 0u64..900,
        count in 1u64..300,
        later_ms in 1u64..20_000,
    ) {
        let activity = activity(pattern, 1000, 5e3);
        // Writing and reading take no time beyond the fault itself.
        let device = SwapDevice { read_ns: 0, write_ns: 0, ..SwapDevice::SSD };
        let hardware = Hardware { swap: Some(device), ..machine(1000) };
        let mut m = SimMemory::new(activity.clone(), START, u64::MAX, hardware);
        let (first, count) = (first.min(999), count.min(1000 - first.min(999)));
        let at = at_ms * MS;
        m.submit(request(Action::PageOut, vec![pages(first, count)], 0), at);
        // More than reclaiming them takes.
        let gone = at + MS;
        m.advance(gone);
        let until = gone + later_ms * MS;
        m.advance(until);
        for page in first..first + count {
            let there = m.absent(base_of(START + page * PAGE_SIZE))[(page % 512 / 64) as usize] >> (page % 64) & 1 == 0;
            // Each fault before took the program two microseconds, within which an answer is not certain.
            let slack = (m.waited_ns() + 2000).min(gone);
            if activity.touched(page, gone, until - slack.min(until - gone)) {
                prop_assert!(there, "page {} was touched and is not there", page);
            }
            if there {
                prop_assert!(activity.touched(page, at, until), "page {} is there without a touch", page);
            }
        }
    }
}

#[test]
fn left_alone_the_work_takes_its_own_time() {
    for prefault in [true, false] {
        let hardware = Hardware { prefault, ..machine(1000) };
        let mut m = SimMemory::new(activity(Pattern::Hotspot, 1000, 1e6), START, 5000 * MS, hardware);
        m.advance(60_000 * MS);
        let faults = m.counters().first_touches;
        assert_eq!(faults, if prefault { 0 } else { 250 });
        assert_eq!(m.finished_ns(), Some(5000 * MS + faults * FAULT_NS));
        assert_eq!(m.waited_ns(), 0);
    }
}

#[test]
fn the_price_of_coming_back_is_paid_by_the_program() {
    let mut m = SimMemory::new(activity(Pattern::Scan, 1000, 1e6), START, 5000 * MS, machine(1000));
    m.submit(request(Action::PageOut, vec![pages(0, 400)], 0), 0);
    m.advance(60_000 * MS);
    // Scanning goes on while pages leave; each that has gone comes back once.
    let c = *m.counters();
    assert_eq!((c.swap_out, m.swapped()), (400 * PAGE_SIZE, 0));
    assert_eq!(c.major_faults, 400);
    let device = SwapDevice::ZRAM;
    assert_eq!(m.waited_ns(), 400 * device.fault_ns());
    assert_eq!(m.finished_ns(), Some(5000 * MS + m.waited_ns()));
    assert_eq!(c.worker_ns, 1000 + 400 * device.page_out_ns(), "one call");
}

#[test]
fn averages_end_with_the_work() {
    let mut m = SimMemory::new(activity(Pattern::Idle, 1024, 1e6), START, 1000 * MS, machine(1024));
    m.submit(request(Action::PageOut, vec![pages(0, 512)], 0), 500 * MS);
    m.advance(9000 * MS);
    let took_ns = 1000 + 512 * SwapDevice::ZRAM.page_out_ns();
    let expected = 1024.0 * 4096.0 * (1.0 - 0.5 * (500.0 - took_ns as f64 / 1e6) / 1000.0);
    assert!((m.mean().rss as f64 - expected).abs() < 2.0, "{} {expected}", m.mean().rss);
    assert_eq!(m.taken(), m.rss() + SwapDevice::ZRAM.memory_for(m.swapped()));
}

#[test]
fn huge_pages_make_touches_faster_and_the_slow_node_makes_them_slower() {
    let work = |action: Action, node| {
        let mut m = SimMemory::new(activity(Pattern::Scan, 1024, 1e6), START, u64::MAX, machine(1024));
        m.submit(request(action, vec![pages(0, 1024)], node), 0);
        m.advance(1000 * MS);
        let before = m.work_ns();
        m.advance(2000 * MS);
        (m.work_ns() - before) as f64 / (1000 * MS) as f64
    };
    assert_eq!(work(Action::Stat, 0), 1.0);
    let huge = work(Action::Collapse, 0);
    assert!((huge - 1.0 / (1.0 - crate::machine::device::HUGE_GAIN)).abs() < 1e-6, "{huge}");
    let slow = work(Action::MigrateCold, 1);
    assert!((slow - 1.0 / 1.15).abs() < 1e-6, "1 us a touch and 150 ns more: {slow}");
}

#[test]
fn sparse_memory_grows_with_huge_pages() {
    let sparse = |thp, action: Option<Action>| {
        let hardware = Hardware { prefault: false, thp, ..machine(10 * 512) };
        // The first quarter is touched, one page after the other.
        let area = crate::workload::Area::new(AddrRange::new(0, 5 << 20), 1.0, crate::workload::Order::Scattered);
        let stage = crate::workload::Stage { name: "s".into(), duration_ns: u64::MAX, areas: vec![area] };
        let w = crate::workload::Workload::new("sparse", 20 << 20, 0, vec![stage]).unwrap();
        let mut m = SimMemory::new(Activity::new(w, 1e6), START, u64::MAX, hardware);
        m.advance(100 * MS);
        if let Some(action) = action {
            m.submit(request(action, vec![pages(0, 5 * 512)], 0), 100 * MS);
        }
        m.advance(50_000 * MS);
        check(&m).unwrap();
        m.rss() >> 20
    };
    assert_eq!(sparse(Thp::Never, None), 5);
    assert_eq!(sparse(Thp::Always, None), 6, "whole blocks of 2 MiB");
    assert_eq!(sparse(Thp::Never, Some(Action::Collapse)), 6, "empty blocks stay empty");
    assert_eq!(sparse(Thp::Madvise, None), 5);
    assert_eq!(sparse(Thp::Madvise, Some(Action::HugePage)), 6, "by khugepaged");
    assert_eq!(sparse(Thp::Never, Some(Action::Lock)), 10, "mlock populates");
}

#[test]
fn what_is_locked_stays_and_what_is_huge_goes_whole() {
    let hardware = Hardware { thp: Thp::Always, ..machine(2048) };
    let mut m = SimMemory::new(activity(Pattern::Idle, 2048, 1e6), START, u64::MAX, hardware);
    m.submit(request(Action::Lock, vec![pages(0, 512)], 0), 0);
    m.submit(request(Action::PageOut, vec![pages(0, 512), pages(600, 100), pages(1024, 512)], 0), 0);
    m.advance(1000 * MS);
    let mut outcomes = Vec::new();
    m.collect(&mut outcomes);
    let out = &outcomes[1];
    assert_eq!((out.applied, out.nr_applied), (512 * PAGE_SIZE, 1));
    assert!(out.error.as_ref().is_some_and(|e| e.contains("split")), "{out:?}");
    assert_eq!(m.in_huge_pages(), 3 * TABLE_SPAN);
}

#[test]
fn obstacles_name_what_is_missing() {
    let none = Hardware { swap: None, ..Hardware::roomy(1 << 20) };
    let m = SimMemory::new(activity(Pattern::Idle, 256, 1e6), START, 1, none);
    assert!(m.obstacle(Action::PageOut).unwrap().contains("no swap"));
    assert!(m.obstacle(Action::MigrateCold).unwrap().contains("--slow-node"));
    assert!(m.obstacle(Action::HugePage).unwrap().contains("--thp"));
    assert_eq!(m.obstacle(Action::Collapse), None);
    let small = Hardware { swap_size: 65 << 20, ..Hardware::roomy(64 << 20) };
    let mut m = SimMemory::new(activity(Pattern::Idle, 16 << 10, 1e6), START, 1, small);
    assert_eq!(m.obstacle(Action::PageOut), None);
    m.submit(request(Action::PageOut, vec![pages(0, 4096)], 0), 0);
    m.advance(1000 * MS);
    assert!(m.obstacle(Action::PageOut).unwrap().contains("nearly full"));
}

/// A quarter of memory is hot and fits; a machine with room for half of all.
fn short(pattern: Pattern, memory_mib: u64) -> SimMemory {
    let hardware = Hardware { memory: memory_mib << 20, ..Hardware::roomy(64 << 20) };
    SimMemory::new(activity(pattern, 16 << 10, 1e6), START, 20_000 * MS, hardware)
}

#[test]
fn what_does_not_fit_goes_by_itself_and_what_is_used_stays() {
    let mut m = short(Pattern::Hotspot, 48);
    assert!(m.taken() <= 48 << 20 && m.rss() > 32 << 20, "{}", m.rss());
    m.advance(60_000 * MS);
    check(&m).unwrap();
    let faults = m.counters().major_faults;
    assert!(faults <= 4096, "each hot page came back at most once: {faults}");
    assert!(!m.out_of_memory() && m.finished_ns().is_some());
}

#[test]
fn a_scan_of_more_than_memory_misses_all_the_time() {
    let mut m = short(Pattern::Scan, 48);
    m.advance(2000 * MS);
    check(&m).unwrap();
    let c = *m.counters();
    assert!(c.major_faults > 5000 && c.reclaimed > 5000 * PAGE_SIZE, "{c:?}");
    assert!(m.taken() <= 48 << 20);
    assert!(m.waited_ns() > 0 && m.work_ns() < 2000 * MS);
}

#[test]
fn what_was_named_as_cold_goes_first() {
    let faults = |cold: bool| {
        let mut m = short(Pattern::Idle, 80);
        if cold {
            m.submit(request(Action::Cold, vec![pages(8000, 4000)], 0), 0);
        }
        m.advance(MS * 1000);
        m.hardware.memory = 56 << 20;
        let waits = m.relieve(1e9);
        assert!(waits > 0);
        (8000..12_000u64)
            .map(|page| START + page * PAGE_SIZE)
            .filter(|a| m.out.mask(base_of(*a))[(a % TABLE_SPAN / PAGE_SIZE / 64) as usize] != 0)
            .count()
    };
    assert_eq!(faults(false), 0);
    assert!(faults(true) > 1000);
}

#[test]
fn without_room_anywhere_it_is_out_of_memory() {
    let hardware = Hardware { memory: 32 << 20, swap: None, ..Hardware::roomy(64 << 20) };
    let mut m = SimMemory::new(
        activity(Pattern::Scan, 16 << 10, 1e6),
        START,
        u64::MAX,
        Hardware { prefault: false, ..hardware },
    );
    m.advance(1000 * MS);
    assert!(m.out_of_memory());
}
