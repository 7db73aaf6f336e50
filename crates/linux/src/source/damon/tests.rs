//! The engine against a simulated kernel.

use super::engine::{DamonConfig, DamonTargets, Inner};
use super::error::DamonError;
use super::files::ControlFiles;
use super::simulated::{Region, SimulatedKernel};
use crate::targets::{TargetSpec, TargetTracker};
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::clock::{Clock, VirtualClock, Wake};
use isotherm_core::engine::Progress;
use isotherm_core::event::{Collector, Event, Subscriber, SubscriberError};
use isotherm_core::target::TargetEnd;
use std::process::{Child, Command};

fn config() -> DamonConfig {
    DamonConfig { attrs: MonitorAttrs::default(), cpu_budget: None, kernel: "6.12.0".into(), realtime_offset_ns: 5 }
}

/// Ends with the test.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Self(Command::new("sleep").arg("1000").spawn().unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn end(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn processes(sleepers: &[Sleeper]) -> DamonTargets {
    let pids = sleepers.iter().map(Sleeper::pid).collect();
    DamonTargets::Processes(Box::new(TargetTracker::new(TargetSpec::Pids { pids, children: false }).unwrap()))
}

fn run(engine: &mut Inner<SimulatedKernel>, times: u32) -> (Collector, VirtualClock) {
    let (mut seen, mut clock) = (Collector::default(), VirtualClock::new(1_000_000_000));
    for _ in 0..times {
        assert_eq!(engine.run_interval(&mut clock, &mut seen).unwrap(), Progress::Aggregated);
    }
    (seen, clock)
}

const LOW: Region = (0x1000, 0x5000, 3, 7);
const HIGH: Region = (0x9000, 0xa000, 20, 0);

#[test]
fn the_guard_knows_what_to_put_back_while_damon_is_on() {
    let kernel = SimulatedKernel::new();
    let before = kernel.files();
    kernel.control.borrow_mut().regions = vec![vec![vec![LOW]]];
    // A second engine of the same process is guarded like the first.
    for _ in 0..2 {
        let mut engine = Inner::new(kernel.clone(), DamonTargets::Physical, config()).unwrap();
        assert!(kernel.control.borrow().guarded.is_empty(), "nothing is changed yet");
        run(&mut engine, 1);
        // Here we are killed: the guard does what it was given, the last first.
        let guarded = kernel.control.borrow().guarded.clone();
        assert_eq!(guarded, [("nr_kdamonds".into(), "0".into()), ("0/state".into(), "off".into())]);
        let mut guard = kernel.clone();
        for (path, value) in guarded.iter().rev() {
            guard.write(path, value).unwrap();
        }
        assert_eq!(kernel.files(), before);
        drop(engine);
        assert!(kernel.control.borrow().guarded.is_empty(), "whoever uses it now is left alone");
    }
}

#[test]
fn without_a_guard_nothing_is_changed() {
    let kernel = SimulatedKernel::new();
    kernel.control.borrow_mut().unguarded = true;
    let mut engine = Inner::new(kernel.clone(), DamonTargets::Physical, config()).unwrap();
    let error = engine.run_interval(&mut VirtualClock::new(1_000_000_000), &mut Collector::default()).unwrap_err();
    assert!(error.to_string().contains("guard"), "{error}");
    drop(engine);
    assert!(kernel.control.borrow().writes.is_empty());
}

#[test]
fn physical_memory_is_set_up_read_and_put_back() {
    let kernel = SimulatedKernel::new();
    let before = kernel.files();
    kernel.control.borrow_mut().regions = vec![vec![vec![LOW, HIGH]]];
    let mut engine = Inner::new(kernel.clone(), DamonTargets::Physical, config()).unwrap();
    assert_eq!(kernel.files(), before, "nothing is set up before the first interval");
    let (seen, _) = run(&mut engine, 2);

    let control = kernel.control.borrow();
    let value = |name: &str| control.at_start[0][&format!("0/contexts/0/{name}")].clone();
    assert_eq!(value("operations"), "paddr");
    assert_eq!(value("monitoring_attrs/intervals/sample_us"), "5000");
    assert_eq!(value("monitoring_attrs/intervals/update_us"), "1000000");
    assert_eq!(value("monitoring_attrs/nr_regions/max"), "1000");
    assert_eq!(value("targets/0/regions/1/start"), (0x1000_0000u64).to_string());
    assert_eq!(value("targets/0/regions/1/end"), (0x2000_0000u64).to_string());
    assert_eq!(value("schemes/0/action"), "stat");
    assert_eq!(value("schemes/0/access_pattern/sz/max"), u64::MAX.to_string());
    assert_eq!(value("schemes/0/access_pattern/nr_accesses/max"), u32::MAX.to_string());
    assert_eq!(value("schemes/0/access_pattern/age/max"), u32::MAX.to_string());
    assert_eq!(control.at_start.len(), 1);
    drop(control);

    let Event::Run(run) = &seen.events[0] else { panic!("{:?}", seen.events[0]) };
    assert_eq!((run.source.as_str(), run.kernel.as_str()), ("damon", "6.12.0"));
    let first = seen.snapshots().next().unwrap();
    assert_eq!((first.pid, first.max_nr_accesses, first.regions.len()), (None, 20, 2));
    let r = first.regions[1];
    assert_eq!((r.start, r.end, r.nr_accesses, r.age, r.evidence), (0x9000, 0xa000, 20, 0, None));
    assert_eq!(seen.snapshots().count(), 2);
    let stats = seen.events.iter().find_map(|e| match e {
        Event::Stats(s) => Some(*s),
        _ => None,
    });
    assert!(stats.is_some_and(|s| s.monitor_ns >= 7000 && s.nr_regions == 2 && s.clears == 23), "{stats:?}");
    drop(engine);
    assert_eq!(kernel.files(), before);
}

#[test]
fn several_processes_get_a_scheme_each() {
    let kernel = SimulatedKernel::new();
    let sleepers = [Sleeper::start(), Sleeper::start()];
    kernel.control.borrow_mut().regions = vec![vec![vec![LOW], vec![HIGH]]];
    let mut engine = Inner::new(kernel.clone(), processes(&sleepers), config()).unwrap();
    let (seen, _) = run(&mut engine, 1);
    let control = kernel.control.borrow();
    let value = |name: &str| control.at_start[0][&format!("0/contexts/0/{name}")].clone();
    assert_eq!(value("operations"), "vaddr");
    for (i, sleeper) in sleepers.iter().enumerate() {
        assert_eq!(value(&format!("targets/{i}/pid_target")), sleeper.pid().to_string());
        assert_eq!(value(&format!("schemes/{i}/filters/0/type")), "target");
        assert_eq!(value(&format!("schemes/{i}/filters/0/damon_target_idx")), i.to_string());
        assert_eq!(value(&format!("schemes/{i}/filters/0/matching")), "N");
    }
    let starts: Vec<_> = seen.snapshots().map(|s| (s.target, s.pid, s.regions[0].start)).collect();
    assert_eq!(starts, [(0, Some(sleepers[0].pid()), 0x1000), (1, Some(sleepers[1].pid()), 0x9000)]);
    assert!(
        seen.events.iter().any(|e| matches!(e, Event::Mappings { target: 1, mappings, .. } if !mappings.is_empty()))
    );
    assert!(seen.events.iter().any(|e| matches!(e, Event::Footprint(f) if f.rss > 0)));
}

#[test]
fn kernels_without_target_filters_watch_one_process_only() {
    let kernel = SimulatedKernel::new();
    let before = kernel.files();
    kernel.control.borrow_mut().target_filters = false;
    let sleepers = [Sleeper::start(), Sleeper::start()];
    let mut engine = Inner::new(kernel.clone(), processes(&sleepers), config()).unwrap();
    let e = engine.run_interval(&mut VirtualClock::new(1), &mut Collector::default()).unwrap_err();
    assert!(e.to_string().contains("6.6"), "{e}");
    drop(engine);
    assert_eq!(kernel.files(), before);
}

#[test]
fn whoever_uses_it_is_named_and_left_alone() {
    let kernel = SimulatedKernel::new();
    kernel.put("nr_kdamonds", "1");
    kernel.put("0/state", "off");
    kernel.put("0/pid", "-1");
    kernel.put("0/contexts/nr_contexts", "1");
    kernel.put("0/contexts/0/operations", "paddr");
    kernel.put("0/contexts/0/schemes/0/action", "pageout");
    let before = kernel.files();
    for state in ["off", "on"] {
        kernel.put("0/state", state);
        let e = Inner::new(kernel.clone(), DamonTargets::Physical, config()).unwrap_err();
        let DamonError::InUse { users } = e else { panic!("{e}") };
        assert!(users.contains("kdamonds/0") && users.contains("pageout"), "{users}");
    }
    kernel.put("0/state", "off");
    assert_eq!(kernel.files(), before);
    assert!(kernel.control.borrow().writes.is_empty());
}

#[test]
fn two_engines_exclude_each_other() {
    let kernel = SimulatedKernel::new();
    let first = Inner::new(kernel.clone(), DamonTargets::Physical, config()).unwrap();
    let e = Inner::new(kernel.clone(), DamonTargets::Physical, config()).unwrap_err();
    assert!(e.to_string().contains("another Isotherm"), "{e}");
    drop(first);
    assert!(Inner::new(kernel, DamonTargets::Physical, config()).is_ok());
}

#[test]
fn every_failing_write_is_undone() {
    let probe = SimulatedKernel::new();
    let sleepers = [Sleeper::start(), Sleeper::start()];
    drop(run(&mut Inner::new(probe.clone(), processes(&sleepers), config()).unwrap(), 1));
    let writes: std::collections::BTreeSet<String> =
        probe.control.borrow().writes.iter().map(|w| w.0.clone()).collect();
    assert!(writes.len() > 20);
    for path in writes.into_iter().filter(|p| p != "nr_kdamonds") {
        let kernel = SimulatedKernel::new();
        let before = kernel.files();
        kernel.control.borrow_mut().fail = Some((path.clone(), libc::EIO));
        let mut engine = Inner::new(kernel.clone(), processes(&sleepers), config()).unwrap();
        let e = engine.run_interval(&mut VirtualClock::new(1), &mut Collector::default()).unwrap_err();
        assert!(e.to_string().contains(&path) || e.to_string().contains("6.6"), "{path}: {e}");
        drop(engine);
        assert_eq!(kernel.files(), before, "{path}");
    }
}

#[test]
fn missing_operations_are_named() {
    let kernel = SimulatedKernel::new();
    let before = kernel.files();
    kernel.control.borrow_mut().fail = Some(("operations".into(), libc::EINVAL));
    let sleepers = [Sleeper::start()];
    let mut engine = Inner::new(kernel.clone(), processes(&sleepers), config()).unwrap();
    let e = engine.run_interval(&mut VirtualClock::new(1), &mut Collector::default()).unwrap_err();
    assert!(e.to_string().contains("CONFIG_DAMON_VADDR"), "{e}");
    drop(engine);
    assert_eq!(kernel.files(), before);
}

#[test]
fn a_kernel_whose_symbols_lack_the_operations_is_refused_at_once() {
    let kernel = SimulatedKernel::new();
    std::fs::write(kernel.roots().path("/proc/kallsyms"), "0 t damon_pa_check_accesses\n").unwrap();
    let e = Inner::new(kernel.clone(), processes(&[Sleeper::start()]), config()).unwrap_err();
    assert!(matches!(&e, DamonError::NoOperations { available, .. } if available == "paddr"), "{e}");
    assert!(kernel.control.borrow().writes.is_empty());
    assert!(Inner::new(kernel, DamonTargets::Physical, config()).is_ok());
}

#[test]
fn an_interval_without_regions_is_no_snapshot() {
    let kernel = SimulatedKernel::new();
    // Linux up to 6.13 answers with an empty list when its request times out.
    kernel.control.borrow_mut().regions = vec![vec![vec![LOW]], vec![vec![]], vec![vec![HIGH]]];
    let mut engine = Inner::new(kernel, DamonTargets::Physical, config()).unwrap();
    let (seen, _) = run(&mut engine, 3);
    assert_eq!(seen.snapshots().map(|s| s.regions[0].start).collect::<Vec<_>>(), [LOW.0, HIGH.0]);
}

struct FullDisk;

impl Subscriber for FullDisk {
    fn event(&mut self, event: &Event) -> Result<(), SubscriberError> {
        match event {
            Event::Snapshot(_) => Err("disk full".into()),
            _ => Ok(()),
        }
    }
}

#[test]
fn a_failing_subscriber_leaves_nothing_behind() {
    let kernel = SimulatedKernel::new();
    let before = kernel.files();
    kernel.control.borrow_mut().regions = vec![vec![vec![LOW]]];
    let mut engine = Inner::new(kernel.clone(), DamonTargets::Physical, config()).unwrap();
    let e = engine.run_interval(&mut VirtualClock::new(1), &mut FullDisk).unwrap_err();
    assert!(e.to_string().contains("disk full"));
    drop(engine);
    assert_eq!(kernel.files(), before);
}

struct Interrupted;

impl Clock for Interrupted {
    fn now_ns(&self) -> u64 {
        1
    }

    fn sleep_until_ns(&mut self, _: u64) -> Wake {
        Wake::Interrupted
    }
}

#[test]
fn a_signal_ends_it_and_everything_is_put_back() {
    let kernel = SimulatedKernel::new();
    let before = kernel.files();
    let mut engine = Inner::new(kernel.clone(), DamonTargets::Physical, config()).unwrap();
    run(&mut engine, 1);
    assert_eq!(engine.run_interval(&mut Interrupted, &mut Collector::default()).unwrap(), Progress::Interrupted);
    drop(engine);
    assert_eq!(kernel.files(), before);
}

#[test]
fn ended_targets_are_told_and_never_shown_idle() {
    let kernel = SimulatedKernel::new();
    kernel.control.borrow_mut().regions = vec![vec![vec![LOW], vec![HIGH]]];
    let mut sleepers = [Sleeper::start(), Sleeper::start()];
    let mut engine = Inner::new(kernel.clone(), processes(&sleepers), config()).unwrap();
    let (mut seen, mut clock) = run(&mut engine, 1);
    sleepers[0].end();
    assert_eq!(engine.run_interval(&mut clock, &mut seen).unwrap(), Progress::Aggregated);
    assert_eq!(seen.snapshots().map(|s| s.target).collect::<Vec<_>>(), [0, 1, 1]);
    sleepers[1].end();
    kernel.control.borrow_mut().stop = 1;
    assert_eq!(engine.run_interval(&mut clock, &mut seen).unwrap(), Progress::TargetsGone);
    let ends = seen.events.iter().filter_map(|e| match e {
        Event::End { target, why: TargetEnd::Exited, .. } => Some(*target),
        _ => None,
    });
    assert_eq!(ends.collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn a_kdamond_that_stops_is_started_again_but_not_for_ever() {
    let kernel = SimulatedKernel::new();
    kernel.control.borrow_mut().stop = 1;
    let mut engine = Inner::new(kernel.clone(), DamonTargets::Physical, config()).unwrap();
    let (_, mut clock) = run(&mut engine, 1);
    assert_eq!(kernel.control.borrow().at_start.len(), 2);
    kernel.control.borrow_mut().stop = u32::MAX;
    let e = engine.run_interval(&mut clock, &mut Collector::default()).unwrap_err();
    assert!(e.to_string().contains("10 times"), "{e}");
}

#[test]
fn a_small_budget_reads_fewer_intervals() {
    let times = |cpu_budget| {
        let kernel = SimulatedKernel::new();
        kernel.control.borrow_mut().regions = vec![vec![vec![LOW, HIGH]]];
        let config = DamonConfig { cpu_budget, ..config() };
        let mut engine = Inner::new(kernel, DamonTargets::Physical, config).unwrap();
        run(&mut engine, 5).1.now_ns()
    };
    // Any read costs more than a ten-millionth of an interval.
    assert!(times(Some(1e-7)) > times(None));
}
