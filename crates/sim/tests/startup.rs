//! What watching costs from the first second on: never more than the budget.

use isotherm_core::clock::Clock;
use isotherm_core::engine::Engine;
use isotherm_core::event::Step;
use isotherm_core::event::{Event, Subscriber, SubscriberError};
use isotherm_core::monitor::Monitor;
use isotherm_core::monitor::config::{Algorithm, MonitorConfig};
use isotherm_core::source::AccessSource;
use isotherm_sim::machine::activity::Activity;
use isotherm_sim::machine::{CostModel, Process, SimClock, SimSource};
use isotherm_sim::workload::patterns::{Parameters, Pattern};

const S: f64 = 1e9;
const BUDGET: f64 = 0.01;
const ARENA: u64 = 1 << 40;
const GIB: u64 = 1 << 30;

/// Cost at each step of the loop: time and what was spent until then, ns.
#[derive(Default)]
struct Spending(Vec<(u64, u64)>);

impl Subscriber for Spending {
    fn event(&mut self, _: &Event) -> Result<(), SubscriberError> {
        Ok(())
    }

    fn step_with(&mut self, _: Step, now_ns: u64, source: &mut dyn AccessSource) {
        let cost = source.cost();
        self.0.push((now_ns, cost.monitor_ns + cost.target_ns));
    }
}

fn processes(pattern: Pattern, size: u64, hot: f64, rate: f64, count: u32) -> Vec<Process> {
    let parameters = |seed| Parameters { hot: Some(hot), seed, ..Parameters::new(size) };
    (0..count)
        .map(|i| {
            let activity = Activity::new(pattern.build(&parameters(u64::from(i))).unwrap(), rate);
            Process::running(100 + i, ARENA, activity).unwrap()
        })
        .collect()
}

fn spending(name: &str, processes: Vec<Process>, seconds: u64, seed: u64) {
    spending_by(Algorithm::Isotherm, name, processes.clone(), seconds, seed);
    spending_by(Algorithm::PagesOnly, &format!("{name}, pages only"), processes, seconds, seed);
}

fn spending_by(algorithm: Algorithm, name: &str, processes: Vec<Process>, seconds: u64, seed: u64) {
    let clock = SimClock::new(0);
    let source = SimSource::new(clock.clone(), CostModel::default(), processes);
    let config = MonitorConfig { algorithm, seed, cpu_budget: Some(BUDGET), ..MonitorConfig::default() };
    let mut monitor = Monitor::new(source, config);
    let (mut driver, mut spending) = (clock.clone(), Spending::default());
    while clock.now_ns() < seconds * 1_000_000_000 {
        monitor.run_interval(&mut driver, &mut spending).expect("the simulation never fails");
    }
    let share = |&(t, spent): &(u64, u64)| spent as f64 / t as f64;
    let by_second: Vec<String> = [1, 2, 3, 5, 10, 20, 30]
        .iter()
        .filter_map(|&s| spending.0.iter().rfind(|x| x.0 <= s * 1_000_000_000))
        .map(|x| format!("{:.2}", 100.0 * share(x)))
        .collect();
    let worst = spending.0.iter().filter(|x| x.0 as f64 >= S).max_by(|a, b| share(a).total_cmp(&share(b))).unwrap();
    println!(
        "{name}: by second {by_second:?} %, worst {:.3} % at {:.2} s, aggr {} ms",
        100.0 * share(worst),
        worst.0 as f64 / S,
        monitor.attrs().aggr_us / 1000
    );
    assert!(
        share(worst) <= BUDGET,
        "{name}: {:.3} % of a core until {:.2} s",
        100.0 * share(worst),
        worst.0 as f64 / S
    );
}

#[test]
fn one_gibibyte_that_is_hot() {
    spending("1 GiB hot", processes(Pattern::Hotspot, GIB, 0.9, 20e6, 1), 30, 1);
}

#[test]
fn one_gibibyte_that_is_idle() {
    spending("1 GiB idle", processes(Pattern::Idle, GIB, 0.1, 1.0, 1), 30, 2);
}

#[test]
fn eight_gibibytes() {
    spending("8 GiB", processes(Pattern::Hotspot, 8 * GIB, 0.1, 20e6, 1), 30, 3);
}

#[test]
fn a_hundred_gibibytes_with_a_hot_set_that_moves() {
    spending("100 GiB", processes(Pattern::Stairs, 100 * GIB, 0.1, 20e6, 1), 30, 4);
}

#[test]
fn five_tebibytes() {
    spending("5 TiB", processes(Pattern::Hotspot, 5 << 40, 0.1, 4e9, 1), 30, 5);
}

#[test]
fn a_hundred_and_fifty_processes() {
    spending("150 processes", processes(Pattern::Hotspot, 80 << 20, 0.1, 1e6, 150), 30, 6);
}
