//! One budget for many programs: what the page history says of a large one beside many busy ones.

use isotherm_core::addr::{AddrRange, PAGE_SIZE};
use isotherm_core::clock::Clock;
use isotherm_core::engine::Engine;
use isotherm_core::event::{Event, Subscriber, SubscriberError};
use isotherm_core::history::frame::PageFrame;
use isotherm_core::monitor::Monitor;
use isotherm_core::monitor::config::{Algorithm, MonitorConfig};
use isotherm_core::source::AccessSource;
use isotherm_sim::machine::activity::Activity;
use isotherm_sim::machine::{CostModel, Process, SimClock, SimSource};
use isotherm_sim::workload::members::Members;
use isotherm_sim::workload::{Area, Order, Stage, Workload};
use std::collections::BTreeMap;

const S: u64 = 1_000_000_000;
const MIB: u64 = 1 << 20;
const BUDGET: f64 = 0.01;
const TEN: u64 = 10 * S;
/// What a look at one of 150 programs costs that take the caches in turn, whatever is read, ns (6.18, two cores).
const LOOK_NS: f64 = 150_000.0;

/// Each target's latest figures.
#[derive(Default)]
struct Latest(BTreeMap<u32, PageFrame>);

impl Subscriber for Latest {
    fn event(&mut self, event: &Event) -> Result<(), SubscriberError> {
        if let Event::Pages(frame) = event {
            self.0.insert(frame.target, frame.clone());
        }
        Ok(())
    }
}

impl Latest {
    /// Of a target: bytes idle for ten seconds as estimated, at least, and at most.
    fn cold(&self, target: u32) -> Option<[u64; 3]> {
        let idle = *self.0.get(&target)?.total().idle_for(TEN)?;
        Some([idle.pages, idle.least, idle.most].map(|pages| pages * PAGE_SIZE))
    }
}

/// A program with `size` bytes, of which it uses `hot` pages, chosen at random, five times a second.
fn program(pid: u32, size: u64, hot: u64) -> Process {
    let members = Members::Random { count: hot, seed: u64::from(pid) };
    let area = Area::sparse(AddrRange::new(0, size), 1.0, Order::Scattered, members);
    let stage = Stage { name: "s".into(), duration_ns: 1000 * S, areas: vec![area] };
    let workload = Workload::new("p", size, 1, vec![stage]).unwrap();
    Process::running(pid, 1 << 40, Activity::new(workload, hot as f64 * 5.0)).unwrap()
}

/// A monitor of pages alone, at the default budget, of programs with so many bytes and pages in use each.
struct Machine {
    clock: SimClock,
    monitor: Monitor<SimSource>,
    latest: Latest,
}

impl Machine {
    fn new(programs: &[(u64, u64)]) -> Self {
        Self::with_look(programs, LOOK_NS)
    }

    /// Where a look at a program costs `look_ns`.
    fn with_look(programs: &[(u64, u64)], look_ns: f64) -> Self {
        let processes = programs.iter().zip(1..).map(|(&(size, hot), pid)| program(pid, size, hot)).collect();
        let clock = SimClock::new(0);
        let model = CostModel { read_call: look_ns, ..CostModel::MEASURED };
        let source = SimSource::new(clock.clone(), model, processes);
        let config =
            MonitorConfig { algorithm: Algorithm::PagesOnly, cpu_budget: Some(BUDGET), ..MonitorConfig::default() };
        Self { clock, monitor: Monitor::new(source, config), latest: Latest::default() }
    }

    /// Watches until a moment; the budget holds all the time.
    fn run_until(&mut self, until_ns: u64) {
        let mut driver = self.clock.clone();
        while self.clock.now_ns() < until_ns {
            self.monitor.run_interval(&mut driver, &mut self.latest).expect("the simulation never fails");
            let cost = self.monitor.source().cost();
            let now_ns = self.clock.now_ns();
            let spent = (cost.monitor_ns + cost.target_ns) as f64 / now_ns as f64;
            assert!(now_ns < S || spent <= BUDGET, "{spent} of a core by {} ms", now_ns / 1_000_000);
        }
    }
}

#[test]
fn large_programs_are_known_after_a_minute_beside_150_busy_ones() {
    let large = [(300 * MIB, 15_000), (350 * MIB, 5_000)];
    let busy = (80 * MIB, 2048);
    let all: Vec<(u64, u64)> = large.into_iter().chain(vec![busy; 150]).collect();
    let mut machine = Machine::new(&all);
    for (seconds, sure) in [(60, 0.0), (90, 0.85)] {
        machine.run_until(seconds * S);
        for (target, &(size, hot)) in (0..).zip(&all) {
            let truth = size - hot * PAGE_SIZE;
            let [pages, least, most] = machine.latest.cold(target).expect("it has been watched for a minute");
            if target < 4 {
                println!(
                    "{target}: cold {} MiB, said {} ({} to {})",
                    truth / MIB,
                    pages / MIB,
                    least / MIB,
                    most / MIB
                );
            }
            assert!(truth.abs_diff(pages) * 20 <= truth, "{target}: {truth}, said {pages}");
            assert!(least as f64 >= truth as f64 * sure, "{target}: {truth}, known {least}");
        }
    }
}

/// The last few are not put off until all others have been walked twice: their own second walk comes ten seconds later.
#[test]
fn the_last_of_150_processes_are_known_soon_after_the_others() {
    let mut machine = Machine::with_look(&[(80 * MIB, 2048); 150], 4.0 * LOOK_NS);
    let known = |machine: &Machine| (0..150).filter(|&target| machine.latest.cold(target).is_some()).count();
    let mut reached = [150, 100].map(|wanted| (wanted, 0));
    for seconds in 10..90 {
        machine.run_until(seconds * S);
        for (wanted, at) in reached.iter_mut().filter(|(_, at)| *at == 0) {
            if known(&machine) >= *wanted {
                *at = seconds;
            }
        }
    }
    println!("{reached:?}");
    let [(_, all), (_, most)] = reached;
    assert!(all > 0 && all < most + 12, "{all} {most}");
}

/// What is known of some processes is worth more than that all have been looked at once.
#[test]
fn of_thousands_of_processes_the_largest_are_known_first() {
    let large = [(300 * MIB, 5_000), (350 * MIB, 5_000)];
    let small = (MIB, 32);
    let mut all = vec![small; 4000];
    all.extend(large);
    let mut machine = Machine::new(&all);
    machine.run_until(30 * S);
    for (target, (size, hot)) in (4000..).zip(large) {
        let truth = size - hot * PAGE_SIZE;
        let [pages, least, most] = machine.latest.cold(target).expect("it is one of the largest");
        println!("cold {} MiB, said {} ({} to {})", truth / MIB, pages / MIB, least / MIB, most / MIB);
        assert!(truth.abs_diff(pages) * 20 <= truth, "{target}: {truth}, said {pages}");
    }
    machine.run_until(60 * S);
    let known = (0..4000).filter(|&target| machine.latest.cold(target).is_some()).count();
    println!("{known} of the small ones are known");
    assert!(known > 500, "{known}");
}
