//! The front: a bounded queue to the worker, and what came back.

use super::holds::Holds;
use super::obstacle::Obstacles;
use super::worker::{Job, Worker};
use crate::clock::monotonic_ns;
use crate::roots::Roots;
use isotherm_core::actuator::{Actuator, Outcome, Request};
use isotherm_core::addr::total_len;
use isotherm_core::meter::LiveTarget;
use isotherm_core::scheme::action::Action;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::thread::JoinHandle;

/// Requests that may wait.
const QUEUE: usize = 64;

/// Acts on live processes, in a thread of its own.
///
/// Dropping it ends the thread after at most one more system call (about 20 ms); requests that still wait are
/// forgotten.
#[derive(Debug)]
pub struct LinuxActuator {
    jobs: Option<SyncSender<Job>>,
    outcomes: Receiver<Outcome>,
    stop: Arc<AtomicBool>,
    worker: Option<JoinHandle<()>>,
    holds: Holds,
    pending: HashMap<usize, u64>,
    /// What only counts needs no thread.
    counted: Vec<Outcome>,
    obstacles: Obstacles,
}

impl LinuxActuator {
    /// Starts the thread. Files of `/proc` and `/sys` that tell what must not be done are read through `roots`.
    pub fn new(roots: &Roots) -> io::Result<Self> {
        let (jobs, receiver) = sync_channel(QUEUE);
        let (sender, outcomes) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let worker = Worker::new(receiver, sender, stop.clone());
        let worker = std::thread::Builder::new().name("isotherm-act".into()).spawn(move || worker.run())?;
        Ok(Self {
            jobs: Some(jobs),
            outcomes,
            stop,
            worker: Some(worker),
            holds: Holds::default(),
            pending: HashMap::new(),
            counted: Vec::new(),
            obstacles: Obstacles::new(roots.clone()),
        })
    }
}

impl Actuator for LinuxActuator {
    fn submit(&mut self, request: Request) -> Result<(), Request> {
        if request.action == Action::Stat {
            self.counted.push(counted(request));
            return Ok(());
        }
        let Some(jobs) = &self.jobs else { return Err(request) };
        let (scheme, bytes) = (request.scheme, total_len(&request.ranges));
        let process = self.holds.get(request.target);
        match jobs.try_send(Job { request, process }) {
            Ok(()) => {
                *self.pending.entry(scheme).or_default() += bytes;
                Ok(())
            }
            Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) => Err(job.request),
        }
    }

    fn collect(&mut self, out: &mut Vec<Outcome>) {
        out.append(&mut self.counted);
        for outcome in self.outcomes.try_iter() {
            let bytes = total_len(&outcome.request.ranges);
            if let Some(pending) = self.pending.get_mut(&outcome.request.scheme) {
                *pending = pending.saturating_sub(bytes);
            }
            out.push(outcome);
        }
    }

    fn pending(&self, scheme: usize) -> u64 {
        self.pending.get(&scheme).copied().unwrap_or(0)
    }

    fn obstacle(&mut self, action: Action, target: LiveTarget) -> Option<String> {
        if action == Action::Stat {
            return None;
        }
        match self.holds.get(target) {
            Ok(process) => self.obstacles.find(action, process.pid()),
            Err(why) => Some(why.to_string()),
        }
    }
}

fn counted(request: Request) -> Outcome {
    Outcome {
        nr_applied: request.ranges.len() as u64,
        applied: total_len(&request.ranges),
        took_ns: 0,
        done_ns: monotonic_ns(),
        error: None,
        request,
    }
}

impl Drop for LinuxActuator {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.jobs = None;
        if let Some(worker) = self.worker.take() {
            // A worker that panicked has nothing left to clean up.
            let _ = worker.join();
        }
    }
}
