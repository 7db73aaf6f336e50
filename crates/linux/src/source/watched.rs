//! The targets of a source that looks at single pages, with what the source keeps about each.

use crate::clock::{cpu_ns_of, thread_cpu_ns};
use crate::proc::Process;
use crate::proc::sharers::is_alone;
use crate::source::reset::RESET_NS;
use crate::targets::TargetTracker;
use isotherm_core::mapping::Mapping;
use isotherm_core::source::{Cost, SourceError};
use isotherm_core::target::{Footprint, Start, TargetId, TargetInfo};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Why an address space cannot be read.
#[derive(Debug)]
pub enum SpaceError {
    /// The process has exited, or is about to.
    Gone,
    /// It has executed another program.
    Replaced,
    /// Anything else.
    Failed(String),
}

/// A process that has spent so much CPU time up to the last look.
#[derive(Debug)]
struct Rest {
    cpu_ns: u64,
    /// Whether nobody else runs in its memory; `None`: that was not looked for since it last ran.
    alone: Option<bool>,
}

/// Targets, and an `S` for each address space that has been looked at.
#[derive(Debug)]
pub(super) struct Targets<S> {
    pub(super) tracker: TargetTracker,
    kept: HashMap<TargetId, S>,
    rests: HashMap<TargetId, Rest>,
    /// How many targets had been closed when what is kept of them was dropped last.
    closed: u64,
    cpu_at_start: u64,
}

impl<S> Targets<S> {
    /// `cpu_at_start` is our thread's CPU time from which on costs count.
    pub(super) fn new(tracker: TargetTracker, cpu_at_start: u64) -> Self {
        Self { tracker, kept: HashMap::new(), rests: HashMap::new(), closed: 0, cpu_at_start }
    }

    /// See [`isotherm_core::source::AccessSource::poll_targets`].
    pub(super) fn poll(&mut self) -> Result<Vec<TargetInfo>, SourceError> {
        let new = self.tracker.poll().map_err(|e| SourceError::Failed(e.to_string()))?;
        // Nobody may ever ask about those again that it has just found ended.
        if std::mem::replace(&mut self.closed, self.tracker.closed()) != self.closed {
            self.kept.retain(|target, _| self.tracker.is_running(*target));
            self.rests.retain(|target, _| self.tracker.is_running(*target));
        }
        Ok(new)
    }

    /// Closes a target, and forgets what was kept of it.
    pub(super) fn close(&mut self, target: TargetId) {
        self.tracker.close(target);
        self.kept.remove(&target);
        self.rests.remove(&target);
    }

    /// See [`isotherm_core::source::AccessSource::start`].
    pub(super) fn start(&mut self, target: TargetId) -> Option<Start> {
        Some(self.tracker.process(target).ok()?.start())
    }

    /// See [`isotherm_core::source::AccessSource::cpu_ns`].
    ///
    /// It says nothing of a process in whose memory another one runs. To look for one is expensive, so that is done for those that
    /// seem to rest, once: whoever came to share the memory later was made by a process that ran. Who shared it before may have ended
    /// meanwhile: a process rests from the look on at the earliest.
    pub(super) fn cpu_ns(&mut self, target: TargetId) -> Option<u64> {
        let pid = self.tracker.process(target).ok()?.pid();
        let cpu_ns = cpu_ns_of(pid)?;
        match self.rests.get_mut(&target).filter(|rest| rest.cpu_ns == cpu_ns) {
            Some(Rest { alone: Some(alone), .. }) => alone.then_some(cpu_ns),
            Some(rest) => {
                rest.alone = Some(is_alone(pid));
                None
            }
            None => {
                self.rests.insert(target, Rest { cpu_ns, alone: None });
                Some(cpu_ns)
            }
        }
    }

    /// See [`isotherm_core::source::AccessSource::footprint`].
    pub(super) fn footprint(&mut self, target: TargetId, now_ns: u64) -> Option<Footprint> {
        self.tracker.process(target).ok()?.footprint(target, now_ns)
    }

    /// Runs `work` on a target's memory, and gives its errors the form the monitor expects. What is kept about an
    /// address space goes with it. `source` is what all targets share; `open` begins to keep something.
    pub(super) fn with<C, T>(
        &mut self,
        target: TargetId,
        source: &mut C,
        open: impl FnOnce(&mut C, &Process) -> Result<S, SourceError>,
        work: impl FnOnce(&mut C, &mut S, &mut Process) -> Result<T, SpaceError>,
    ) -> Result<T, SourceError> {
        let process = self.tracker.process(target).map_err(|e| e.into_source_error(target))?;
        let pid = process.pid();
        let kept = match self.kept.entry(target) {
            Entry::Occupied(e) => e.into_mut(),
            Entry::Vacant(e) => e.insert(open(source, process)?),
        };
        match work(source, kept, process) {
            Ok(value) => Ok(value),
            Err(SpaceError::Gone) => {
                self.kept.remove(&target);
                self.tracker.close(target);
                Err(SourceError::Gone { target, pid })
            }
            Err(SpaceError::Replaced) => {
                self.kept.remove(&target);
                // The reader of mappings would tell the same exec once more: let it follow now.
                let _ = process.mappings(&mut Vec::new());
                Err(SourceError::Replaced { target, pid })
            }
            Err(SpaceError::Failed(why)) => Err(SourceError::Failed(why)),
        }
    }

    /// See [`isotherm_core::source::AccessSource::mappings`]. `listed` sees them, too.
    pub(super) fn mappings<C>(
        &mut self,
        target: TargetId,
        source: &mut C,
        open: impl FnOnce(&mut C, &Process) -> Result<S, SourceError>,
        out: &mut Vec<Mapping>,
        listed: impl FnOnce(&mut S, &[Mapping]),
    ) -> Result<(), SourceError> {
        let result = self.with(target, source, open, |_, kept, process| {
            let result = process.mappings(out);
            if result.is_ok() {
                listed(kept, out);
            }
            // An exec that the reader of mappings notices is reported once, by it: not for `with` to follow.
            Ok(result)
        })?;
        result.map_err(|e| {
            let e = e.into_source_error(target);
            if matches!(e, SourceError::Gone { .. } | SourceError::Replaced { .. }) {
                self.kept.remove(&target);
            }
            if matches!(e, SourceError::Gone { .. }) {
                self.tracker.close(target);
            }
            e
        })
    }

    /// See [`isotherm_core::source::AccessSource::cost`].
    /// `disturbed_ns` is what targets lost otherwise than by setting cleared bits again.
    pub(super) fn cost(&self, pages_read: u64, pages_cleared: u64, disturbed_ns: u64) -> Cost {
        Cost {
            monitor_ns: thread_cpu_ns().saturating_sub(self.cpu_at_start),
            clear_ns: None,
            target_ns: pages_cleared * RESET_NS + disturbed_ns,
            pages_read,
            pages_cleared,
        }
    }
}
