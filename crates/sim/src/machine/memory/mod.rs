//! The memory of a simulated process over time: what is in memory, what is out, what comes back and what that costs.
//!
//! When a page leaves memory, the workload tells when it will be touched next; those moments, in time of work, wait in
//! a heap. So the program runs from one event to the next, whatever lies between, and a page that is never touched
//! again costs nothing. Time of work stands still while the program waits, which is how stalls make it slower.

mod act;
mod events;
mod pages;
mod reclaim;
mod worker;

#[cfg(test)]
mod tests;

use super::activity::Activity;
use super::hardware::{Hardware, Thp};
use super::progress::Progress;
use isotherm_core::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN};
use isotherm_core::mask::PageMask;
use isotherm_core::pages::PageSet;
use reclaim::Reclaim;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::rc::Rc;
use worker::Worker;

/// One memory, looked at from several sides.
pub type SharedMemory = Rc<RefCell<SimMemory>>;

/// What happened to the program so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Touches of pages that were out.
    pub major_faults: u64,
    /// Touches of pages that had never been there.
    pub first_touches: u64,
    /// Bytes read back, also ahead of use.
    pub swap_in: u64,
    /// Bytes that left memory.
    pub swap_out: u64,
    /// The part of them that the kernel took by itself.
    pub reclaimed: u64,
    /// Time that whoever acts on memory worked, ns.
    pub worker_ns: u64,
    /// Time that the program lost to being watched, ns.
    pub watched_ns: u64,
}

/// The memory of a process that runs an [`Activity`], on some [`Hardware`].
#[derive(Debug)]
pub struct SimMemory {
    activity: Activity,
    hardware: Hardware,
    arena: AddrRange,
    progress: Progress,
    goal_ns: u64,
    out: PageSet,
    out_bytes: u64,
    /// Never populated so far.
    holes: PageSet,
    hole_bytes: u64,
    locked: PageSet,
    /// On the slow node.
    slow: PageSet,
    slow_bytes: u64,
    /// Spans of 2 MiB backed by a huge page.
    huge: BTreeSet<u64>,
    advised: BTreeSet<u64>,
    forbidden: BTreeSet<u64>,
    /// When khugepaged comes by next, ns.
    next_khugepaged: f64,
    /// Where it goes on.
    khugepaged_at: u64,
    /// Shares of the touches that go to huge pages and to the slow node in this stage.
    huge_share: f64,
    slow_share: f64,
    /// End of the stage, in time of work; looked at only while those shares matter.
    stage_end: u64,
    /// Touches to come of pages that are not there: time of work, address. One whose page is back means nothing.
    due: BinaryHeap<Reverse<(u64, u64)>>,
    worker: Worker,
    reclaim: Reclaim,
    counters: Counters,
    averages: Averages,
}

/// Sums of bytes over time, until the program is done.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Averages {
    last: f64,
    rss: f64,
    fast: f64,
    taken: f64,
}

/// Bytes, on average over the time until the program was done (or until now).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mean {
    pub rss: u64,
    /// Resident in main memory, not on the slow node.
    pub fast: u64,
    /// Main memory taken: the latter and what compressed pages take.
    pub taken: u64,
}

impl SimMemory {
    /// The memory at `arena_start` (page aligned) of a process that is done after `goal_ns` of work.
    pub fn new(activity: Activity, arena_start: u64, goal_ns: u64, hardware: Hardware) -> Self {
        let arena = AddrRange::new(arena_start, arena_start.saturating_add(activity.workload().size()));
        let mut memory = Self {
            progress: Progress::new(goal_ns),
            goal_ns,
            out: PageSet::default(),
            out_bytes: 0,
            holes: PageSet::default(),
            hole_bytes: 0,
            locked: PageSet::default(),
            slow: PageSet::default(),
            slow_bytes: 0,
            huge: BTreeSet::new(),
            advised: BTreeSet::new(),
            forbidden: BTreeSet::new(),
            next_khugepaged: events::KHUGEPAGED_EVERY_NS,
            khugepaged_at: 0,
            huge_share: 0.0,
            slow_share: 0.0,
            stage_end: activity.stage_end_ns(0),
            due: BinaryHeap::new(),
            worker: Worker::default(),
            reclaim: Reclaim::default(),
            counters: Counters::default(),
            averages: Averages::default(),
            activity,
            hardware,
            arena,
        };
        memory.begin();
        memory
    }

    /// For several parties to look at.
    pub fn shared(self) -> SharedMemory {
        Rc::new(RefCell::new(self))
    }

    /// What is there before the first touch.
    fn begin(&mut self) {
        if !self.hardware.prefault {
            self.holes.insert(self.arena);
            self.hole_bytes = self.arena.len();
            self.expect_touches(self.arena);
        } else if self.hardware.thp == Thp::Always {
            let spans = self.arena.start.div_ceil(TABLE_SPAN)..self.arena.end / TABLE_SPAN;
            spans.for_each(|i| self.set_huge(i * TABLE_SPAN, true));
        }
        self.fit();
        // What went before the start is no news.
        self.counters = Counters::default();
    }

    pub const fn hardware(&self) -> &Hardware {
        &self.hardware
    }

    /// All addresses of it.
    pub const fn arena(&self) -> AddrRange {
        self.arena
    }

    /// What happened so far.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Work done, ns.
    pub const fn work_ns(&self) -> u64 {
        self.progress.work_ns()
    }

    /// When the program was done, ns.
    pub(crate) fn finished_ns(&self) -> Option<u64> {
        self.progress.finished().map(|t| t.round() as u64)
    }

    /// Time that the program spent waiting for memory, ns.
    pub(crate) const fn waited_ns(&self) -> u64 {
        self.progress.waited_ns()
    }

    /// Takes time from the program for being watched: the hardware had to set bits again.
    pub fn lose(&mut self, ns: u64) {
        self.counters.watched_ns += ns;
        self.progress.lose(ns as f64);
    }

    /// Resident bytes.
    pub const fn rss(&self) -> u64 {
        self.arena.len() - self.hole_bytes - self.out_bytes
    }

    /// Bytes swapped out.
    pub const fn swapped(&self) -> u64 {
        self.out_bytes
    }

    /// Bytes that were never touched.
    #[cfg(test)]
    pub(crate) const fn never_there(&self) -> u64 {
        self.hole_bytes
    }

    /// Resident bytes on the slow node.
    pub(crate) const fn on_slow_node(&self) -> u64 {
        self.slow_bytes
    }

    /// Resident bytes in huge pages.
    pub(crate) fn in_huge_pages(&self) -> u64 {
        self.huge.len() as u64 * TABLE_SPAN
    }

    /// Main memory that the process takes: resident there, or compressed.
    pub fn taken(&self) -> u64 {
        self.rss() - self.slow_bytes + self.hardware.swap.map_or(0, |d| d.memory_for(self.out_bytes))
    }

    /// Free main memory, bytes.
    pub fn free(&self) -> u64 {
        self.hardware.memory.saturating_sub(self.taken())
    }

    pub fn mean(&self) -> Mean {
        let a = &self.averages;
        let mean = |sum: f64, now: u64| if a.last > 0.0 { (sum / a.last) as u64 } else { now };
        Mean {
            rss: mean(a.rss, self.rss()),
            fast: mean(a.fast, self.rss() - self.slow_bytes),
            taken: mean(a.taken, self.taken()),
        }
    }

    /// Whether the 2 MiB at `base` are one huge page.
    pub fn is_huge(&self, base: u64) -> bool {
        self.huge.contains(&base)
    }

    /// The pages of the 2 MiB at `base` that are not in memory.
    pub fn absent(&self, base: u64) -> PageMask {
        let (out, holes) = (self.out.mask(base), self.holes.mask(base));
        std::array::from_fn(|i| out[i] | holes[i])
    }

    /// Adds up the time until `wall`; to be called before anything changes.
    fn average(&mut self, wall: f64) {
        let until = self.progress.finished().map_or(wall, |end| wall.min(end));
        let span = until - self.averages.last;
        if span > 0.0 {
            let (rss, taken) = (self.rss(), self.taken());
            self.averages.last = until;
            self.averages.rss += rss as f64 * span;
            self.averages.fast += (rss - self.slow_bytes) as f64 * span;
            self.averages.taken += taken as f64 * span;
        }
    }
}

fn base_of(addr: u64) -> u64 {
    addr / TABLE_SPAN * TABLE_SPAN
}

fn bytes_of(mask: &PageMask) -> u64 {
    mask.iter().map(|w| u64::from(w.count_ones())).sum::<u64>() * PAGE_SIZE
}
