//! Huge pages ahead of the faults: a thread that follows how the mappings of processes are filled, and asks for huge
//! pages where [`Filling`](isotherm_core::filling::Filling) says so, in the process's own name.

mod arrivals;
mod probe;
mod process;
mod sample;
mod system_time;

use crate::clock::{monotonic_ns, thread_cpu_ns};
use crate::roots::Roots;
pub use arrivals::Arrivals;
use isotherm_core::meter::LiveTarget;
use isotherm_core::scheme::ahead::AheadTotals;
use isotherm_core::target::TargetId;
use probe::Probe;
use process::Process;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The longest rest while there is nobody to look at, ns.
const IDLE_NS: u64 = 20_000_000;

/// Looks that took so much CPU time are followed by a rest of so many times that: 2 % of a core, however many the processes. ...
const REST_OF_COST: u64 = 50;
/// ... What makes a large mapping is looked at before that, as long as no more rest than this is owed, ns: CPU time of 4 ms.
const MOST_OWED_NS: u64 = 200_000_000;
/// After a large mapping was asked for it takes the kernel a moment to make it, and its program to give back what aligns it, ns.
const MADE_NS: u64 = 200_000;

/// Follows processes, in a thread of its own, until it is dropped.
#[derive(Debug)]
pub struct Ahead {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Ends its rest.
    wake: OwnedFd,
}

#[derive(Debug, Default)]
struct Shared {
    stop: Arc<AtomicBool>,
    targets: Mutex<BTreeMap<TargetId, u32>>,
    asked: AtomicU64,
    room: AtomicU64,
    collapsed: AtomicU64,
    taken_back: AtomicU64,
    refusal: Mutex<Option<String>>,
}

impl Ahead {
    /// Starts the thread. `at_any_price`: also while huge pages cost more than base pages, as with a host that takes
    /// free memory back.
    pub fn start(at_any_price: bool, arrivals: Arrivals) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let its = shared.clone();
        let probe = if at_any_price { Probe::good() } else { Probe::new() };
        let wake = arrivals.waker()?;
        let thread =
            std::thread::Builder::new().name("isotherm-ahead".into()).spawn(move || run(&its, probe, arrivals))?;
        Ok(Self { shared, thread: Some(thread), wake })
    }

    /// Follows this process, too; ids are never given twice. Does nothing for what is no process.
    pub fn follow(&self, target: LiveTarget) {
        if let Some(pid) = target.pid {
            self.shared.targets().insert(target.target, pid);
        }
    }

    /// Follows it no longer.
    pub fn leave(&self, target: TargetId) {
        self.shared.targets().remove(&target);
    }

    /// What was done so far.
    pub fn totals(&self) -> AheadTotals {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Shared { asked, room, collapsed, taken_back, refusal, .. } = &*self.shared;
        let refusal = refusal.lock().unwrap_or_else(PoisonError::into_inner).clone();
        AheadTotals {
            asked: count(asked),
            room: count(room),
            collapsed: count(collapsed),
            taken_back: count(taken_back),
            refusal,
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It cannot be full; and then the thread looks by itself before long.
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
            // One that panicked has nothing left to clean up: calls in a process's name end by themselves.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn targets(&self) -> std::sync::MutexGuard<'_, BTreeMap<TargetId, u32>> {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refuse(&self, why: String) {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    }
}

/// The thread: each process has its turn when it is due, or makes a large mapping.
fn run(shared: &Shared, mut probe: Probe, mut arrivals: Arrivals) {
    let roots = Roots::system();
    let mut processes: BTreeMap<TargetId, Process> = BTreeMap::new();
    // Until when it rests for what it has cost, ns.
    let mut rests_ns = 0;
    let mut cpu = thread_cpu_ns();
    while !shared.stop.load(Ordering::Relaxed) {
        let wanted = shared.targets().clone();
        processes.retain(|target, _| wanted.contains_key(target));
        for (target, pid) in wanted {
            if let std::collections::btree_map::Entry::Vacant(entry) = processes.entry(target) {
                // One that has ended is left out once the monitor says so.
                let Ok(process) = Process::open(pid) else { continue };
                entry.insert(process);
            }
        }
        let now = monotonic_ns();
        let (rested, may_hurry) = (now >= rests_ns, rests_ns < now + MOST_OWED_NS);
        let mut acting_ns = 0;
        for process in processes.values_mut().filter(|p| p.due_ns() <= now) {
            if rested || may_hurry && process.has_arrived() {
                acting_ns += process.turn(shared, &roots, &mut probe);
            }
        }
        let spent = thread_cpu_ns().saturating_sub(cpu + acting_ns);
        cpu += spent + acting_ns;
        rests_ns = rests_ns.max(monotonic_ns()) + spent * REST_OF_COST;
        let now = monotonic_ns();
        let due = processes.values().map(Process::due_ns).min().unwrap_or(u64::MAX).min(now + IDLE_NS).max(rests_ns);
        let hurried = processes.values().filter(|p| p.has_arrived() && rests_ns < now + MOST_OWED_NS);
        let until = hurried.map(Process::due_ns).fold(due, u64::min);
        arrivals.wait(Duration::from_nanos(until.saturating_sub(now)), |pid| {
            processes.values_mut().filter(|p| p.pid() == pid).for_each(Process::arrive);
        });
    }
}

#[cfg(test)]
mod tests;
