//! Which pages schemes about idle memory act on, judged page by page by what the simulated programs touch. In a dry run
//! nothing goes, so that what is asked for can be compared with the truth.

use isotherm_core::actuator::{Actuator, Outcome, Request};
use isotherm_core::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN, total_len};
use isotherm_core::clock::Clock;
use isotherm_core::engine::{Engine, Progress};
use isotherm_core::mapping::Mapping;
use isotherm_core::meter::{LiveTarget, NoMeter};
use isotherm_core::monitor::Monitor;
use isotherm_core::monitor::config::{Algorithm, DamonRules, MonitorConfig};
use isotherm_core::pages::PageSet;
use isotherm_core::scheme::Scheme;
use isotherm_core::scheme::action::Action;
use isotherm_core::scheme::engine::SchemeEngine;
use isotherm_core::scheme::filter::{Filter, FilterType};
use isotherm_core::scheme::pattern::{AccessPattern, Bounds};
use isotherm_sim::machine::activity::Activity;
use isotherm_sim::machine::{CostModel, Process, Region, SimClock, SimSource};
use isotherm_sim::workload::{Area, Order, Stage, Workload};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

const S: u64 = 1_000_000_000;
const MIB: u64 = 1 << 20;
const BASE: u64 = 1 << 40;

/// What was asked for: when, and what.
type Log = Rc<RefCell<Vec<(u64, Request)>>>;

/// Writes down what it is asked for.
struct Pen(SimClock, Log);

impl Actuator for Pen {
    fn submit(&mut self, request: Request) -> Result<(), Request> {
        self.1.borrow_mut().push((self.0.now_ns(), request));
        Ok(())
    }

    fn collect(&mut self, _out: &mut Vec<Outcome>) {}

    fn pending(&self, _scheme: usize) -> u64 {
        0
    }

    fn obstacle(&mut self, _action: Action, _target: LiveTarget) -> Option<String> {
        None
    }
}

fn pages(first: u64, end: u64) -> AddrRange {
    AddrRange::new(first * PAGE_SIZE, end * PAGE_SIZE)
}

/// Stages of so many seconds with the parts of the arena (pages) that are touched in them; the last goes on.
fn program(size: u64, stages: &[(u64, Vec<AddrRange>)]) -> Activity {
    let stages = stages.iter().map(|(seconds, touched)| Stage {
        name: "s".into(),
        duration_ns: seconds * S,
        areas: touched.iter().map(|&r| Area::new(r, r.len() as f64, Order::Scattered)).collect(),
    });
    Activity::new(Workload::new("p", size, 1, stages.collect()).unwrap(), 1e8)
}

/// Pages whose number is a multiple of `n`.
fn every(n: u64, size: u64) -> Vec<AddrRange> {
    (0..size / PAGE_SIZE / n).map(|i| pages(i * n, i * n + 1)).collect()
}

fn running(pid: u32, size: u64, touched: Vec<AddrRange>) -> Process {
    Process::running(pid, BASE, program(size, &[(1000, touched)])).unwrap()
}

fn idle_for(seconds: u64, action: Action) -> Scheme {
    let age_us = Bounds::new(seconds * 1_000_000, u64::MAX);
    Scheme::new(action, AccessPattern { rate_bp: Bounds::new(0, 0), age_us, ..Default::default() })
}

struct Run {
    log: Vec<(u64, Request)>,
    /// Why the scheme did nothing in the end.
    idle: Option<String>,
    filtered: u64,
}

impl Run {
    /// Every page that was asked for, by target.
    fn asked(&self) -> BTreeMap<u32, PageSet> {
        let mut out: BTreeMap<u32, PageSet> = BTreeMap::new();
        for (_, request) in &self.log {
            let set = out.entry(request.target.target).or_default();
            request.ranges.iter().for_each(|&r| set.insert(r));
        }
        out
    }

    fn of_one(&self) -> PageSet {
        self.asked().remove(&0).unwrap_or_default()
    }

    /// Bytes asked for, those asked for twice counted twice.
    fn bytes(&self) -> u64 {
        self.log.iter().map(|(_, r)| total_len(&r.ranges)).sum()
    }
}

fn run_by(algorithm: Algorithm, processes: Vec<Process>, scheme: Scheme, seconds: u64) -> Run {
    scheme.validate().expect("a sound scheme");
    let (clock, log) = (SimClock::new(0), Log::default());
    let source = SimSource::new(clock.clone(), CostModel::free(), processes);
    let mut monitor = Monitor::new(source, MonitorConfig { algorithm, cpu_budget: None, ..MonitorConfig::default() });
    let pen = Box::new(Pen(clock.clone(), log.clone()));
    let mut engine = SchemeEngine::new(vec![scheme], pen, Box::new(NoMeter)).dry_run();
    let mut driver = clock.clone();
    while clock.now_ns() < seconds * S {
        if monitor.run_interval(&mut driver, &mut engine).expect("runs") != Progress::Aggregated {
            break;
        }
    }
    let status = engine.status().remove(0);
    let (idle, filtered) = (status.idle.map(ToString::to_string), status.stats.sz_filtered);
    Run { log: log.take(), idle, filtered }
}

fn run(processes: Vec<Process>, scheme: Scheme, seconds: u64) -> Run {
    run_by(Algorithm::Isotherm, processes, scheme, seconds)
}

/// The arena without `touched`.
fn rest(size: u64, touched: &[AddrRange]) -> PageSet {
    let mut all = PageSet::of(&[AddrRange::new(BASE, BASE + size)]);
    all.subtract(&at_base(touched));
    all
}

fn at_base(arena: &[AddrRange]) -> PageSet {
    PageSet::of(&arena.iter().map(|r| AddrRange::new(BASE + r.start, BASE + r.end)).collect::<Vec<_>>())
}

#[test]
fn scattered_cold_pages_go_and_not_one_hot_page() {
    let size = 16 * MIB;
    for (n, action) in [(50, Action::PageOut), (3, Action::MigrateCold), (50, Action::Cold), (50, Action::LruDeprio)] {
        let mut scheme = idle_for(5, action);
        if action == Action::MigrateCold {
            scheme.destinations = vec![isotherm_core::actuator::Destination { node: 1, weight: 1 }];
        }
        let r = run(vec![running(1, size, every(n, size))], scheme, 12);
        assert_eq!(r.of_one(), rest(size, &every(n, size)), "{action}, every {n}th page is hot: {:?}", r.idle);
        assert_eq!(r.bytes(), r.of_one().len(), "{action}: each page once");
        assert!(r.log[0].0 < 7 * S, "{action}: first at {} ns", r.log[0].0);
    }
}

#[test]
fn fifty_programs_are_each_judged_by_their_own_pages() {
    let size = 2 * MIB;
    let processes = (0..50).map(|i| running(100 + i, size, every(5 + u64::from(i), size))).collect();
    let r = run(processes, idle_for(3, Action::PageOut), 8);
    let asked = r.asked();
    assert_eq!(asked.len(), 50);
    for (target, asked) in asked {
        assert_eq!(asked, rest(size, &every(5 + u64::from(target), size)), "target {target}");
    }
}

#[test]
fn the_oldest_pages_go_first_where_the_quota_does_not_suffice() {
    // Of four parts of the memory one is always in use; the others come to rest one after the other, the highest first.
    let part = |i: u64| pages(i * 1024, (i + 1) * 1024);
    let stages = [(2, vec![part(0), part(1), part(2), part(3)]), (2, vec![part(0), part(1), part(2)])];
    let stages = [&stages[..], &[(2, vec![part(0), part(1)]), (1000, vec![part(0)])]].concat();
    let mut scheme = idle_for(10, Action::PageOut);
    (scheme.quota.bytes, scheme.quota.reset_ns) = (Some(MIB / 2), S);
    let r = run(vec![Process::running(1, BASE, program(16 * MIB, &stages)).unwrap()], scheme, 45);
    let order: Vec<u64> = r
        .log
        .iter()
        .flat_map(|(_, request)| &request.ranges)
        .flat_map(|r| (r.start..r.end).step_by(PAGE_SIZE as usize))
        .map(|addr| (addr - BASE) / (4 * MIB))
        .collect();
    assert_eq!(order.len() as u64, 12 * MIB / PAGE_SIZE, "{:?}", r.idle);
    assert!(order.is_sorted_by(|a, b| a >= b), "the longest idle first: {:?}", r.log);
    let by = |t: u64| r.log.iter().filter(|l| l.0 < t).map(|(_, r)| total_len(&r.ranges)).sum::<u64>();
    assert!((13..40).all(|s| by((s + 1) * S) - by(s * S) <= MIB), "two windows at most touch a second");
}

#[test]
fn what_cannot_be_observed_never_goes() {
    let mut region = Region::new(Mapping::anon(BASE, BASE + 4 * MIB));
    region.blind = vec![AddrRange::new(BASE + MIB, BASE + 2 * MIB)];
    let process = Process::new(1, "p", vec![region]).unwrap();
    let r = run(vec![process], idle_for(3, Action::PageOut), 10);
    assert_eq!(r.of_one(), rest(4 * MIB, &[AddrRange::new(MIB, 2 * MIB)]));
}

#[test]
fn huge_pages_go_whole_or_not_at_all() {
    let (size, touched) = (64 * MIB, [pages(100, 101), pages(5000, 5003)]);
    let whole = |bytes: Option<u64>| {
        let process = running(1, size, touched.to_vec()).with_huge_leaves(1.0);
        let mut scheme = idle_for(3, Action::PageOut);
        scheme.quota.bytes = bytes;
        let r = run(vec![process], scheme, 12);
        assert!(r.log.iter().flat_map(|l| &l.1.ranges).all(|r| r.start % TABLE_SPAN == 0 && r.end % TABLE_SPAN == 0));
        r
    };
    let hot = [AddrRange::new(0, 2 * MIB), AddrRange::new(18 * MIB, 20 * MIB)];
    assert_eq!(whole(None).of_one(), rest(size, &hot));
    assert!(whole(Some(5 * MIB)).log.iter().all(|(_, r)| total_len(&r.ranges) == 4 * MIB));
    let none = whole(Some(MIB));
    assert_eq!(none.bytes(), 0, "none is cut in two to fit");
    assert!(none.idle.unwrap().contains("quota of 1.00 MiB"));
}

#[test]
fn filters_see_huge_pages_and_mappings() {
    let process = || running(1, 8 * MIB, Vec::new()).with_huge_leaves(1.0);
    let with = |what: FilterType| {
        let mut scheme = idle_for(3, Action::PageOut);
        scheme.filters = vec![Filter { what, matching: true, allow: false }];
        run(vec![process()], scheme, 8)
    };
    let r = with(FilterType::HugepageSize { min: 2 * MIB, max: 2 * MIB });
    assert_eq!(r.bytes(), 0);
    assert!(r.filtered >= 8 * MIB && r.idle.unwrap().starts_with("filters reject all"), "{}", r.filtered);
    let r = with(FilterType::Addr(AddrRange::new(BASE, BASE + 3 * MIB)));
    assert_eq!(r.of_one(), rest(8 * MIB, &[AddrRange::new(0, 4 * MIB)]), "half a huge page is none");
    assert_eq!(with(FilterType::Young).bytes(), 8 * MIB, "what is idle is not young");
}

#[test]
fn only_runs_of_the_size_asked_for_go() {
    let size = 8 * MIB;
    // Every 16th page of the lower half is hot.
    let hot = every(16, size / 2);
    let mut scheme = idle_for(3, Action::PageOut);
    scheme.pattern.size.min = 128 << 10;
    let r = run(vec![running(1, size, hot.clone())], scheme.clone(), 8);
    assert_eq!(r.of_one(), at_base(&[pages(1024 - 15, 2048)]), "the last run of the lower half goes on");
    scheme.pattern.size = Bounds::new(0, 128 << 10);
    let r = run(vec![running(1, size, hot.clone())], scheme, 8);
    let mut short = rest(size, &hot);
    short.subtract(&at_base(&[pages(1024 - 15, 2048)]));
    assert_eq!(r.of_one(), short);
}

#[test]
fn ages_have_an_upper_bound_too() {
    // The lower half is never touched, the upper half comes to rest after 10 s.
    let stages = [(10, vec![pages(512, 1024)]), (1000, vec![])];
    let mut scheme = idle_for(3, Action::PageOut);
    scheme.pattern.age_us.max = 6_000_000;
    let process = || Process::running(1, BASE, program(4 * MIB, &stages)).unwrap();
    let r = run(vec![process()], scheme.clone(), 20);
    assert_eq!(r.of_one(), at_base(&[pages(0, 1024)]));
    let late = r.log.iter().filter(|l| l.0 > 8 * S).flat_map(|l| &l.1.ranges).copied().collect::<Vec<_>>();
    assert_eq!(PageSet::of(&late), at_base(&[pages(512, 1024)]), "the lower half has grown too old");
}

#[test]
fn an_age_longer_than_the_watch_does_nothing_and_says_so() {
    let r = run(vec![running(1, 4 * MIB, Vec::new())], idle_for(60, Action::PageOut), 20);
    assert_eq!(r.bytes(), 0);
    assert_eq!(r.idle.unwrap(), "watched for 20.0 s so far; pages must be idle for 1 m 00 s");
}

#[test]
fn another_program_is_watched_anew_and_an_ended_one_is_left_alone() {
    let brief = running(1, 4 * MIB, Vec::new()).executing(vec![10 * S]);
    let ended = running(2, 4 * MIB, Vec::new()).living(0, 9 * S);
    let late = running(3, 4 * MIB, Vec::new()).living(12 * S, u64::MAX);
    let r = run(vec![brief, ended, late], idle_for(5, Action::PageOut), 25);
    let times =
        |target: u32| -> Vec<u64> { r.log.iter().filter(|l| l.1.target.target == target).map(|l| l.0 / S).collect() };
    assert!(times(0).iter().all(|t| (5..8).contains(t) || (15..18).contains(t)), "{:?}", times(0));
    assert!(times(1).iter().all(|t| (5..8).contains(t)) && !times(1).is_empty(), "{:?}", times(1));
    assert!(times(2).iter().all(|t| (17..20).contains(t)) && !times(2).is_empty(), "{:?}", times(2));
    assert_eq!(r.bytes(), (4 + 4 + 4 + 4) * MIB, "the other program's pages count anew");
}

#[test]
fn by_damons_algorithm_regions_decide_and_pages_in_use_stay_all_the_same() {
    let size = 16 * MIB;
    // One page in use among many in the lower half, in which regions call nearly everything cold.
    let hot: Vec<_> = (0..32).map(|i| pages(i * 64, i * 64 + 1)).chain([pages(3000, 4096)]).collect();
    let mut scheme = idle_for(2, Action::PageOut);
    scheme.pattern.rate_bp = Bounds::new(0, 500);
    let r = run_by(Algorithm::Damon(DamonRules::default()), vec![running(1, size, hot.clone())], scheme, 30);
    let mut asked = r.of_one();
    assert!(asked.len() > 2 * MIB, "{} bytes: {:?}", asked.len(), r.idle);
    let before = asked.len();
    asked.subtract(&at_base(&hot));
    assert_eq!(asked.len(), before, "a page in use");
}
