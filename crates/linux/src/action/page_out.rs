//! Paging out memory that was chosen page by page, in the caller's thread.

use super::advice::{self, Shape};
use super::holds::{HoldError, Holds};
use super::obstacle::Obstacles;
use super::pace::Pace;
use super::worker::Process;
use crate::mm::advise::Advice;
use crate::proc::PidFd;
use crate::roots::Roots;
use isotherm_core::addr::AddrRange;
use isotherm_core::keeper::memory::{PageOut, PagedOut};
use isotherm_core::meter::LiveTarget;
use isotherm_core::scheme::action::Action;
use isotherm_core::target::TargetId;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Pages out ranges of live processes with `process_madvise(MADV_PAGEOUT)`: up to 1024 ranges in one call, calls of
/// about 20 ms.
///
/// Unlike the actions of schemes it does not look for huge pages that a range would split: whoever chose the ranges has
/// read the page table and asks for huge pages as a whole.
#[derive(Debug)]
pub struct LivePageOut {
    pids: HashMap<TargetId, u32>,
    holds: Holds,
    obstacles: Obstacles,
    pace: Pace,
    stop: AtomicBool,
}

impl LivePageOut {
    /// For no process yet; what forbids paging out is read below `roots`.
    pub fn new(roots: &Roots) -> Self {
        Self {
            pids: HashMap::new(),
            holds: Holds::default(),
            obstacles: Obstacles::new(roots.clone()),
            pace: Pace::default(),
            stop: AtomicBool::new(false),
        }
    }

    /// Names a target's process. From here on it is held by a pidfd.
    pub fn add(&mut self, target: TargetId, pid: u32) {
        self.pids.insert(target, pid);
        // If it has gone, paging out tells.
        let _ = self.process(target);
    }

    /// Forgets the other targets, and lets go of those that have ended.
    pub fn keep_only(&mut self, keep: impl Fn(TargetId) -> bool) {
        self.pids.retain(|target, _| keep(*target));
        self.holds.keep_only(keep);
        self.holds.release(Instant::now());
    }

    /// Why nothing of a target must be paged out: no swap, swap nearly full, a process that is to be left alone. The
    /// answer is kept for a second.
    pub fn obstacle(&mut self, target: TargetId) -> Option<String> {
        match self.pids.get(&target) {
            Some(&pid) => self.obstacles.find(Action::PageOut, pid),
            None => Some(format!("target {target} is not a process")),
        }
    }

    pub fn process(&mut self, target: TargetId) -> Result<Arc<PidFd>, HoldError> {
        let pid = self.pids.get(&target).copied();
        self.holds.get(LiveTarget { target, pid })
    }
}

impl PageOut for LivePageOut {
    fn page_out(&mut self, target: TargetId, ranges: &[AddrRange]) -> PagedOut {
        if let Some(why) = self.obstacle(target) {
            return PagedOut { taken: 0, error: Some(why) };
        }
        let process = match self.process(target) {
            Ok(process) => process,
            Err(why) => return PagedOut { taken: 0, error: Some(why.to_string()) },
        };
        let mut to = Process { action: Action::PageOut, advice: Advice::PageOut, process: &process, stop: &self.stop };
        let tally = advice::give(&mut to, ranges, Shape::Pages, &mut self.pace);
        PagedOut { taken: tally.applied, error: tally.error }
    }
}
