//! Paging out memory that was chosen page by page, in the caller's thread.

use super::advice::{self, Shape};
use super::batches::{self, Batches};
use super::holds::{HoldError, Holds};
use super::obstacle::Obstacles;
use super::pace::Pace;
use super::place::{Place, wanted_ns};
use super::tally::Tally;
use super::worker::Process;
use crate::beside::{Beside, Running, Turn};
use crate::clock::{monotonic_ns, thread_cpu_ns};
use crate::mm::advise::Advice;
use crate::proc::{PidFd, ProcessDir};
use crate::roots::Roots;
use isotherm_core::addr::AddrRange;
use isotherm_core::keeper::memory::{PageOut, PagedOut};
use isotherm_core::meter::LiveTarget;
use isotherm_core::scheme::action::Action;
use isotherm_core::target::TargetId;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Pages out ranges of live processes with `process_madvise(MADV_PAGEOUT)`: up to 1024 ranges in one call, calls of
/// about 20 ms.
///
/// A target that runs one thread at a time is paged out on its own processor, a few pages at a time. From another one each page
/// costs twice as much CPU time: that one's translations have to be flushed by interrupts, and the page is in its caches.
///
/// Unlike the actions of schemes it does not look for huge pages that a range would split: whoever chose the ranges has
/// read the page table and asks for huge pages as a whole.
#[derive(Debug)]
pub struct LivePageOut {
    pids: HashMap<TargetId, u32>,
    holds: Holds,
    obstacles: Obstacles,
    pace: Pace,
    batches: Batches,
    places: HashMap<TargetId, Place>,
    stop: AtomicBool,
    /// What [`files_only`](Self::files_only) says.
    files_only: bool,
}

impl LivePageOut {
    /// For no process yet; what forbids paging out is read below `roots`.
    pub fn new(roots: &Roots) -> Self {
        Self {
            pids: HashMap::new(),
            holds: Holds::default(),
            obstacles: Obstacles::new(roots.clone()),
            pace: Pace::default(),
            batches: Batches::default(),
            places: HashMap::new(),
            stop: AtomicBool::new(false),
            files_only: false,
        }
    }

    /// From now on only pages of files are paged out, as its caller sees to: these take no swap, so none is asked for.
    pub fn files_only(&mut self) {
        self.files_only = true;
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
        self.places.retain(|target, _| keep(*target));
        self.holds.keep_only(keep);
        self.holds.release(Instant::now());
    }

    /// Why nothing of a target must be paged out: no swap, swap nearly full, a process that is to be left alone. The
    /// answer is kept for a second.
    pub fn obstacle(&mut self, target: TargetId) -> Option<String> {
        match self.pids.get(&target) {
            // Of cold memory nothing is asked but that the process may be touched at all.
            Some(&pid) => self.obstacles.find(if self.files_only { Action::Cold } else { Action::PageOut }, pid),
            None => Some(format!("target {target} is not a process")),
        }
    }

    /// Whether those of the targets that were paged out lately never sleep: the threads of each together
    /// always run or wait to. False if none was.
    pub fn never_sleep(&self, targets: impl Iterator<Item = TargetId>, now_ns: u64) -> bool {
        let known = targets.filter_map(|target| self.places.get(&target)?.never_sleeps(now_ns));
        known.reduce(|a, b| a && b).unwrap_or(false)
    }

    /// Moves the calling thread to the processor of a target that runs one thread at a time, to take turns with it; `None`
    /// where it does not, the processor is crowded, or `ranges` are too few for finding out.
    fn go_beside(&mut self, target: TargetId, ranges: usize) -> Option<(Beside, Turn)> {
        let pid = *self.pids.get(&target)?;
        let (process, now_ns) = (ProcessDir::live(pid), monotonic_ns());
        let place = self.places.entry(target).or_default();
        place.watch(now_ns, || wanted_ns(&process));
        if !place.may_be_beside(now_ns) {
            return None;
        }
        match Running::of(&process, ranges) {
            Running::One(processor) | Running::None(Some(processor)) => {
                Some((Beside::move_to(processor)?, Turn::with(pid)))
            }
            Running::None(None) | Running::Several(_) => None,
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
        let beside = self.go_beside(target, ranges.len());
        let (action, advice, takes_swap) = (Action::PageOut, Advice::PageOut, !self.files_only);
        let mut to = Process { action, advice, process: &process, stop: &self.stop, takes_swap };
        let Some((beside, mut turn)) = beside else {
            let tally = advice::give(&mut to, ranges, Shape::Pages, &mut self.pace);
            return PagedOut { taken: tally.applied, error: tally.error };
        };
        let (begin_ns, begin_cpu_ns) = (monotonic_ns(), thread_cpu_ns());
        let mut is_crowded = || {
            let (now_ns, cpu_ns) = (monotonic_ns(), thread_cpu_ns() - begin_cpu_ns);
            self.places.get_mut(&target).is_some_and(|place| place.learn(now_ns, now_ns - begin_ns, cpu_ns))
        };
        let (mut left, mut sum) = (VecDeque::from(ranges.to_vec()), PagedOut { taken: 0, error: None });
        let mut add = |tally: Tally| {
            sum.taken += tally.applied;
            sum.error = sum.error.take().or(tally.error);
        };
        while !left.is_empty() && !is_crowded() {
            let part = batches::take(&mut left, self.batches.pages());
            let before_ns = thread_cpu_ns();
            let tally = advice::give(&mut to, &part, Shape::Pages, &mut self.pace);
            self.batches.learn(tally.applied, thread_cpu_ns() - before_ns);
            add(tally);
            turn.pass();
        }
        drop(beside);
        if !left.is_empty() {
            add(advice::give(&mut to, left.make_contiguous(), Shape::Pages, &mut self.pace));
        }
        sum
    }
}
