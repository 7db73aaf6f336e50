//! Acting on simulated memory, and reading its figures: what a scheme engine needs beside the access source.

use super::clock::SimClock;
use super::memory::SharedMemory;
use isotherm_core::actuator::{Actuator, Outcome, Request};
use isotherm_core::clock::Clock;
use isotherm_core::meter::{LiveTarget, Meter, MeterError, Metric};
use isotherm_core::scheme::action::Action;

/// Acts on simulated memory, in virtual time.
#[derive(Debug)]
pub(crate) struct SimActuator {
    clock: SimClock,
    memory: SharedMemory,
}

impl SimActuator {
    /// Acts on `memory`.
    pub const fn new(clock: SimClock, memory: SharedMemory) -> Self {
        Self { clock, memory }
    }
}

impl Actuator for SimActuator {
    fn submit(&mut self, request: Request) -> Result<(), Request> {
        self.memory.borrow_mut().submit(request, self.clock.now_ns());
        Ok(())
    }

    fn collect(&mut self, out: &mut Vec<Outcome>) {
        let mut memory = self.memory.borrow_mut();
        memory.advance(self.clock.now_ns());
        memory.collect(out);
    }

    fn pending(&self, scheme: usize) -> u64 {
        self.memory.borrow().pending(scheme)
    }

    fn obstacle(&mut self, action: Action, _target: LiveTarget) -> Option<String> {
        self.memory.borrow().obstacle(action)
    }
}

/// Reads the figures of a simulated machine.
///
/// One program runs on it, so that tasks wait either all or none: both pressures are the same, and every wait counts.
#[derive(Debug)]
pub(crate) struct SimMeter {
    clock: SimClock,
    memory: SharedMemory,
}

impl SimMeter {
    /// Reads the figures of `memory`.
    pub const fn new(clock: SimClock, memory: SharedMemory) -> Self {
        Self { clock, memory }
    }
}

/// `part` of `whole` in basis points.
fn basis_points(part: u64, whole: u64) -> u64 {
    if whole == 0 { 0 } else { (u128::from(part) * 10_000 / u128::from(whole)) as u64 }
}

impl Meter for SimMeter {
    fn read(&mut self, metric: &Metric, targets: &[LiveTarget]) -> Result<u64, MeterError> {
        let mut memory = self.memory.borrow_mut();
        memory.advance(self.clock.now_ns());
        let missing = |reason: &str, remedy: &str| {
            Err(MeterError { metric: metric.to_string(), reason: reason.into(), remedy: remedy.into() })
        };
        let counters = memory.counters();
        let main = memory.hardware().memory;
        let slow = memory.hardware().slow.map(|(_, size)| size);
        Ok(match metric {
            Metric::SomeMemPsi(None) | Metric::FullMemPsi(None) | Metric::TargetStall => memory.waited_ns() / 1000,
            Metric::FreeMemRate | Metric::NodeMemFree(0) => basis_points(memory.free(), main),
            Metric::NodeMemUsed(0) => 10_000 - basis_points(memory.free(), main),
            Metric::NodeMemUsed(1) if slow.is_some() => basis_points(memory.on_slow_node(), slow.unwrap_or(0)),
            Metric::NodeMemFree(1) if slow.is_some() => 10_000 - basis_points(memory.on_slow_node(), slow.unwrap_or(0)),
            Metric::TargetRss => {
                if targets.is_empty() {
                    0
                } else {
                    memory.rss()
                }
            }
            Metric::SwapIn => counters.swap_in,
            Metric::Refault => counters.major_faults * isotherm_core::addr::PAGE_SIZE,
            Metric::TargetMajorFaults => counters.major_faults,
            Metric::SomeMemPsi(Some(_))
            | Metric::FullMemPsi(Some(_))
            | Metric::CgroupMemUsed(_)
            | Metric::CgroupMemFree(_) => {
                return missing("the simulated machine has no control groups", "use the metric of the machine");
            }
            Metric::NodeMemUsed(_) | Metric::NodeMemFree(_) => {
                return missing("the simulated machine has no such node", "name 0, or 1 with --slow-node");
            }
            Metric::ActiveMem | Metric::InactiveMem => {
                return missing("the simulated machine keeps no LRU lists", "use another metric");
            }
        })
    }
}
