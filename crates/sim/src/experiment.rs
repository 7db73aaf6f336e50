//! Schemes at work on a simulated machine: the same monitor and engine as on a real one, in virtual time.

use crate::machine::activity::Activity;
use crate::machine::process::ProcessError;
use crate::machine::{CostModel, Hardware, Process, SimActuator, SimClock, SimMemory, SimMeter, SimSource};
use crate::workload::Workload;
use isotherm_core::clock::Clock;
use isotherm_core::context::Context;
use isotherm_core::engine::{EngineError, Progress};
use isotherm_core::monitor::Monitor;
use isotherm_core::monitor::config::MonitorConfig;
use isotherm_core::scheme::Scheme;
use isotherm_core::scheme::engine::SchemeEngine;
use isotherm_core::source::AccessSource;
use serde::Serialize;

/// Where the simulated memory begins: where Linux puts large mappings.
pub const ARENA_START: u64 = 0x7000_0000_0000;
/// How often somebody may look in, ns.
const LOOK_EVERY_NS: u64 = 1_000_000_000;

/// A program on a machine, and what is done to its memory.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// What the program touches.
    pub workload: Workload,
    /// Touches per second while nothing gets in its way.
    pub rate: f64,
    /// When it is done: time that its work takes undisturbed, ns.
    pub work_ns: u64,
    /// When the run is given up, ns: a program that thrashes may never be done.
    pub limit_ns: u64,
    pub hardware: Hardware,
    pub costs: CostModel,
    /// How it is watched.
    pub monitor: MonitorConfig,
    /// What is done; valid. Nothing: the program is left alone, and nobody watches.
    pub schemes: Vec<Scheme>,
}

/// Why an experiment failed.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// A process that cannot be.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The program does not fit.
    #[error(
        "the simulated machine is out of memory after {0:.1} s: nothing is left that could be swapped out; give more --memory or \
         --swap-size"
    )]
    OutOfMemory(f64),
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Whoever looked in failed, for example because the disk is full.
    #[error(transparent)]
    Visitor(#[from] std::io::Error),
}

/// What came of it. Shares are of one core, or of the time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Figures {
    /// Whether the program was done within the limit.
    pub finished: bool,
    /// Time until it was done, or until the run was given up, s.
    pub runtime_s: f64,
    /// That time divided by what the work done takes undisturbed.
    pub slowdown: f64,
    /// Resident memory, mean over the run, bytes.
    pub rss: u64,
    /// The part of it on the fast node.
    pub rss_fast: u64,
    /// Main memory taken, mean over the run: the latter and what compressed pages take.
    pub memory: u64,
    /// Resident at the end.
    pub rss_at_end: u64,
    /// Swapped out at the end.
    pub swapped_at_end: u64,
    /// In huge pages at the end.
    pub huge_at_end: u64,
    /// Touches of pages that were out.
    pub major_faults: u64,
    /// Bytes that left memory.
    pub swap_out: u64,
    /// The part of them that the kernel took by itself, because memory was short.
    pub reclaimed: u64,
    /// Bytes read back.
    pub swap_in: u64,
    /// Share of the time that the program waited for memory.
    pub some_psi: f64,
    pub monitor_share: f64,
    /// What the program lost to being watched.
    pub target_share: f64,
    /// Cost of acting on memory, compression included.
    pub action_share: f64,
}

/// Looks in about once a second of virtual time; false ends the run.
pub type Visitor<'a> = dyn FnMut(u64, &mut SchemeEngine) -> std::io::Result<bool> + 'a;

impl Experiment {
    /// Runs it until the program is done.
    pub fn run(&self, visitor: &mut Visitor<'_>) -> Result<Figures, ExperimentError> {
        let clock = SimClock::new(0);
        let activity = Activity::new(self.workload.clone(), self.rate);
        let memory = SimMemory::new(activity.clone(), ARENA_START, self.work_ns, self.hardware.clone()).shared();
        let process = Process::running(1, ARENA_START, activity)?;
        let source = SimSource::new(clock.clone(), self.costs.clone(), vec![process]).with_memory(memory.clone());
        let monitor = Monitor::new(source, self.monitor.clone());
        let actuator = Box::new(SimActuator::new(clock.clone(), memory.clone()));
        let meter = Box::new(SimMeter::new(clock.clone(), memory.clone()));
        let mut context = Context::new(monitor).with_schemes(SchemeEngine::new(self.schemes.clone(), actuator, meter));
        let mut driver = clock.clone();
        let mut next_look = LOOK_EVERY_NS;
        loop {
            let progress = if self.schemes.is_empty() {
                driver.sleep_until_ns(clock.now_ns().saturating_add(LOOK_EVERY_NS));
                Progress::Aggregated
            } else {
                context.turn(&mut driver, u64::MAX, &mut ())?
            };
            let now = clock.now_ns();
            memory.borrow_mut().advance(now);
            let done = memory.borrow().finished_ns().is_some();
            if memory.borrow().out_of_memory() {
                return Err(ExperimentError::OutOfMemory(now as f64 / 1e9));
            }
            let mut over = done || now >= self.limit_ns || progress != Progress::Aggregated;
            if now >= next_look || over {
                next_look = now + LOOK_EVERY_NS;
                if over {
                    context.settle(&mut driver, now);
                }
                if let Some(schemes) = context.schemes() {
                    over |= !visitor(now, schemes)?;
                }
            }
            if over {
                break;
            }
        }
        let cost = context.engine().source().cost();
        let memory = memory.borrow();
        Ok(figures(&memory, clock.now_ns(), self.work_ns, cost.monitor_ns))
    }

    /// The same program on the same machine, to be left alone.
    pub fn without_schemes(&self) -> Self {
        Self { schemes: Vec::new(), ..self.clone() }
    }

    pub fn alone(&self) -> Result<Figures, ExperimentError> {
        self.without_schemes().run(&mut |_, _| Ok(true))
    }
}

fn figures(memory: &SimMemory, now_ns: u64, work_ns: u64, monitor_ns: u64) -> Figures {
    let finished = memory.finished_ns();
    let runtime_ns = finished.unwrap_or(now_ns).max(1);
    let work_done = if finished.is_some() { work_ns } else { memory.work_ns().max(1) };
    // Counters go on until the run's last look; shares are of the time until then.
    let share = |ns: u64| ns as f64 / now_ns.max(1) as f64;
    let (mean, counters) = (memory.mean(), memory.counters());
    Figures {
        finished: finished.is_some(),
        runtime_s: runtime_ns as f64 / 1e9,
        slowdown: runtime_ns as f64 / work_done as f64,
        rss: mean.rss,
        rss_fast: mean.fast,
        memory: mean.taken,
        rss_at_end: memory.rss(),
        swapped_at_end: memory.swapped(),
        huge_at_end: memory.in_huge_pages(),
        major_faults: counters.major_faults,
        swap_out: counters.swap_out,
        reclaimed: counters.reclaimed,
        swap_in: counters.swap_in,
        some_psi: share(memory.waited_ns()),
        monitor_share: share(monitor_ns),
        target_share: share(counters.watched_ns),
        action_share: share(counters.worker_ns),
    }
}
