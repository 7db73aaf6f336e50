//! The thread that does the work.

use super::advice::{self, Advised, Shape};
use super::holds::HoldError;
use super::inject::{Call, Injector};
use super::migrate::migrate;
use super::obstacle::LRU_PRIO;
use super::pace::Pace;
use super::swap_room::{NoSwapRoom, SwapRoom};
use super::tally::{Tally, refusal};
use crate::clock::monotonic_ns;
use crate::mm::advise::{Advice, advise};
use crate::mm::pagemap::Pagemap;
use crate::proc::PidFd;
use crate::proc::ProcessDir;
use crate::proc::maps::mapped_ranges;
use isotherm_core::actuator::{Outcome, Request};
use isotherm_core::addr::{AddrRange, PAGE_SIZE, is_sorted_disjoint, normalize};
use isotherm_core::scheme::action::Action;
use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};

/// A request and the process that it is about.
#[derive(Debug)]
pub(super) struct Job {
    pub request: Request,
    /// Why there is none, otherwise.
    pub process: Result<Arc<PidFd>, HoldError>,
}

/// What the thread owns.
#[derive(Debug)]
pub(super) struct Worker {
    jobs: Receiver<Job>,
    outcomes: Sender<Outcome>,
    stop: Arc<AtomicBool>,
    paces: HashMap<Action, Pace>,
    injector: Injector,
}

impl Worker {
    pub fn new(jobs: Receiver<Job>, outcomes: Sender<Outcome>, stop: Arc<AtomicBool>) -> Self {
        Self { jobs, outcomes, stop, paces: HashMap::new(), injector: Injector::default() }
    }

    /// Works until nobody can send any more or a stop is asked for.
    pub fn run(mut self) {
        while let Ok(job) = self.jobs.recv() {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let outcome = self.outcome(job);
            if self.outcomes.send(outcome).is_err() {
                return;
            }
        }
    }

    fn outcome(&mut self, job: Job) -> Outcome {
        let begin = monotonic_ns();
        let Job { request, process } = job;
        let tally = match process {
            _ if !is_proper(&request.ranges) => failed("ranges that are not sorted, disjoint and page aligned".into()),
            Err(why) => failed(why.to_string()),
            Ok(process) => self.act(&request, &process),
        };
        let done_ns = monotonic_ns();
        Outcome {
            nr_applied: tally.ranges(&request.ranges),
            applied: tally.applied,
            took_ns: done_ns - begin,
            done_ns,
            error: tally.error,
            request,
        }
    }

    fn act(&mut self, request: &Request, process: &PidFd) -> Tally {
        let mut tally = self.act_on_live(request, process);
        if process.has_exited() || tally.error.is_some() && process.is_ending() {
            // Whatever the kernel said of a dying process, or /proc, this is what matters.
            tally.error = Some(format!("pid {} has exited", process.pid()));
        }
        tally
    }

    fn act_on_live(&mut self, request: &Request, process: &PidFd) -> Tally {
        let action = request.action;
        let pace = self.paces.entry(action).or_default();
        let (advice, shape) = match action {
            Action::WillNeed => (Advice::WillNeed, Shape::Pages),
            // There is no advice that only moves pages to the inactive list.
            Action::Cold | Action::LruDeprio => (Advice::Cold, Shape::Pages),
            Action::PageOut => (Advice::PageOut, Shape::Pages),
            Action::Collapse => (Advice::Collapse, Shape::Blocks),
            Action::Stat => return failed("counting is not done here".into()),
            Action::LruPrio => return failed(format!("{action} of pid {} is not possible: {LRU_PRIO}", process.pid())),
            Action::MigrateHot | Action::MigrateCold => return migrate(request, process, &self.stop, pace),
            Action::HugePage | Action::NoHugePage | Action::Lock | Action::Unlock => {
                return match Call::of(action) {
                    Some(call) => self.injector.run(process, call, &request.ranges, &self.stop),
                    None => failed(format!("{action} is not done by a call in the target's name")),
                };
            }
        };
        let mut ranges = request.ranges.clone();
        if matches!(action, Action::Cold | Action::LruDeprio | Action::PageOut) {
            ranges = unsplit(process.pid(), ranges);
            if ranges.is_empty() {
                return failed(format!(
                    "{action} of pid {}: the memory asked for is part of huge pages, which would have to be split; use nohugepage \
                     first",
                    process.pid()
                ));
            }
        }
        let mut to = Process { action, advice, process, stop: &self.stop, takes_swap: advice == Advice::PageOut };
        advice::give(&mut to, &ranges, shape, pace)
    }
}

/// The ranges without what would split a huge page. Kernels before 6.7 do not tell; then all of them.
fn unsplit(pid: u32, mut ranges: Vec<AddrRange>) -> Vec<AddrRange> {
    normalize(&mut ranges);
    if let Ok(pages) = Pagemap::open(pid) {
        ranges.iter_mut().for_each(|r| *r = pages.whole(*r));
        ranges.retain(|r| !r.is_empty());
    }
    ranges
}

fn is_proper(ranges: &[AddrRange]) -> bool {
    let aligned = |r: &AddrRange| r.start.is_multiple_of(PAGE_SIZE) && r.end.is_multiple_of(PAGE_SIZE);
    is_sorted_disjoint(ranges) && ranges.iter().all(aligned)
}

fn failed(why: String) -> Tally {
    Tally { error: Some(why), ..Tally::default() }
}

/// A live process that is given advice.
pub(super) struct Process<'a> {
    pub(super) action: Action,
    pub(super) advice: Advice,
    pub(super) process: &'a PidFd,
    pub(super) stop: &'a AtomicBool,
    /// Whether what goes may go to swap.
    pub(super) takes_swap: bool,
}

impl Advised for Process<'_> {
    fn advise(&mut self, ranges: &[AddrRange]) -> io::Result<u64> {
        advise(self.process.as_fd(), ranges, self.advice)
    }

    /// Looked at before each call: calls of others, and memory that does not compress, take room, too. Where there is no swap at
    /// all, only files can go.
    fn room(&mut self) -> Result<u64, NoSwapRoom> {
        let room = SwapRoom::now().filter(|room| self.takes_swap && room.is_there());
        let Some(room) = room else { return Ok(u64::MAX) };
        room.for_a_huge_page()
    }

    fn mappings(&mut self) -> Vec<AddrRange> {
        let ranges = mapped_ranges(&ProcessDir::live(self.process.pid())).unwrap_or_default();
        // Only a process that is still there has been read, not another one with its pid.
        if self.process.has_exited() { Vec::new() } else { ranges }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn refusal(&self, range: AddrRange, error: &io::Error) -> String {
        refusal(self.action, self.process.pid(), range, error)
    }
}
