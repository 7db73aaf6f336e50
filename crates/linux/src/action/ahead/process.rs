//! One process that is followed.

use super::probe::Probe;
use super::sample::Sampler;
use super::system_time::SystemTime;
use super::{MADE_NS, Shared};
use crate::action::inject::{Call, Injector};
use crate::action::tally::{Tally, refusal};
use crate::clock::{monotonic_ns, thread_cpu_ns};
use crate::facts::{HugePages, buddyinfo};
use crate::mm::advise::{Advice, advise};
use crate::mm::pagemap::Pagemap;
use crate::proc::maps::anonymous_ranges;
use crate::proc::stat::Stat;
use crate::proc::statm::Statm;
use crate::proc::{PidFd, ProcessDir};
use crate::roots::Roots;
use isotherm_core::addr::{AddrRange, TABLE_SPAN};
use isotherm_core::filling::{Fill, Filling, Populated, Verdict, WORTH};
use isotherm_core::scheme::action::Action;
use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

/// Between two looks at a process that grows, ns: at a GiB a second it fills five blocks meanwhile.
const SHORT_NS: u64 = 10_000_000;
/// Between two looks at one that has not grown for long, ns.
const LONG_NS: u64 = 1_000_000_000;
/// A rest grows by a part of the time since the process has last grown.
const REST_PART: u64 = 20;
/// After a request that could not be taken back, or a look that failed, ns.
const AGAIN_NS: u64 = 100_000_000;
/// A process that has not grown for so long gets back what was taken from it for now, ns.
const QUIET_NS: u64 = 10_000_000_000;
/// Growth that is worth looking at the mappings, pages.
const GROWN_PAGES: u64 = 256;
/// After refusals in a row the process is left alone for twice as long each time, up to this, ns: one that reads a file cannot be stopped at
/// this moment, another never lets itself be asked.
const REFUSED_NS: u64 = 10_000_000_000;
/// Free memory in blocks of 2 MiB that there must be to ask for some: with little, faults would wait for the kernel to
/// make such blocks.
const FREE: u64 = 256 << 20;
/// With less than this, what was asked for is taken back. At 2 GiB a second a program takes a sixth of it between two looks.
const FREE_AT_LEAST: u64 = 128 << 20;
/// More stretches than this, and a mapping is scattered in any case: then blocks all over it are looked into, so many.
const MOST_STRETCHES: usize = 2048;
const SAMPLED_BLOCKS: u64 = 8;
/// Blocks that one call collapses: each has the kernel drain what all processors keep back, which takes as long as several.
const COLLAPSED_AT_ONCE: usize = 16;

/// What is kept of it.
#[derive(Debug)]
pub(super) struct Process {
    held: PidFd,
    dir: ProcessDir,
    filling: Filling,
    injector: Injector,
    sampler: Sampler,
    /// Since something is asked for.
    system_time: SystemTime,
    pub(super) populated: Vec<Populated>,
    /// By a mapping's start: up to where it was filled with base pages without a gap, a multiple of 2 MiB.
    fronts: HashMap<u64, u64>,
    /// Its size at the last look at its mappings.
    seen: Statm,
    grown_ns: u64,
    /// Until when it is left alone, after a refusal.
    blocked_ns: u64,
    /// How long after the next refusal.
    refused_ns: u64,
    due_ns: u64,
    /// Whether it makes a large mapping that was not looked at yet.
    has_arrived: bool,
}

/// What a look at its mappings came to.
#[derive(Debug, Default)]
struct Found {
    ask: Vec<AddrRange>,
    room: u64,
    /// Those whose memory becomes huge pages at once.
    collapse: Vec<AddrRange>,
    take_back: Vec<AddrRange>,
    /// How each of `take_back` is filled.
    fills: Vec<Fill>,
}

impl Found {
    fn take_back(&mut self, mapping: AddrRange, fill: Fill) {
        self.take_back.push(mapping);
        self.fills.push(fill);
    }
}

impl Process {
    pub fn open(pid: u32) -> io::Result<Self> {
        Ok(Self {
            held: PidFd::open(pid)?,
            dir: ProcessDir::live(pid),
            filling: Filling::default(),
            injector: Injector::default(),
            sampler: Sampler::default(),
            system_time: SystemTime::default(),
            populated: Vec::new(),
            fronts: HashMap::new(),
            seen: Statm::default(),
            grown_ns: monotonic_ns(),
            blocked_ns: 0,
            refused_ns: AGAIN_NS,
            due_ns: 0,
            has_arrived: false,
        })
    }

    pub const fn pid(&self) -> u32 {
        self.held.pid()
    }

    /// It makes a large mapping.
    pub fn arrive(&mut self) {
        self.has_arrived = true;
        self.due_ns = self.blocked_ns.max(monotonic_ns() + MADE_NS);
    }

    /// Whether it makes a large mapping that was not looked at yet.
    pub const fn has_arrived(&self) -> bool {
        self.has_arrived
    }

    /// When it is to be looked at again, ns.
    pub const fn due_ns(&self) -> u64 {
        self.due_ns
    }

    /// Looks at it, and asks for what is wanted. How much CPU time it took to make huge pages of what is there, ns.
    pub fn turn(&mut self, shared: &Shared, roots: &Roots, probe: &mut Probe) -> u64 {
        let begin = monotonic_ns();
        let Some(statm) = Statm::read(&self.dir) else {
            self.due_ns = begin + LONG_NS;
            return 0;
        };
        let mut acting_ns = 0;
        let arrived = std::mem::take(&mut self.has_arrived);
        if arrived || statm.differs(&self.seen, GROWN_PAGES) {
            self.seen = statm;
            self.grown_ns = begin;
            acting_ns = self.look_and_act(shared, roots, probe);
        } else if self.filling.settles_ns().is_some_and(|due_ns| due_ns <= begin) {
            acting_ns = self.look_and_act(shared, roots, probe);
        } else if begin - self.grown_ns >= QUIET_NS && self.filling.has_paused() {
            // Nothing is touched for the first time, so that they cost nothing now; and may be wanted later.
            acting_ns = self.look_and_act(shared, roots, &mut Probe::good());
        }
        let now = monotonic_ns();
        let rest = ((now - self.grown_ns) / REST_PART).clamp(SHORT_NS, LONG_NS);
        self.due_ns = self.blocked_ns.max(now + rest);
        acting_ns
    }

    /// As [`turn`](Self::turn).
    fn look_and_act(&mut self, shared: &Shared, roots: &Roots, probe: &mut Probe) -> u64 {
        // Others may set it: looked at each time.
        if HugePages::read(roots) != Some(HugePages::OnRequest) {
            return 0;
        }
        if !self.filling.has_asked() {
            self.system_time.forget();
        } else if Stat::read(&self.dir).is_ok_and(|stat| self.system_time.raises_doubt(&stat)) {
            probe.doubt(monotonic_ns());
        }
        let mut expensive = |stands: bool| {
            let wanted = if stands { FREE_AT_LEAST } else { FREE };
            let few = roots.read(buddyinfo::FILE).is_ok_and(|text| buddyinfo::free_huge(&text) < wanted);
            few || probe.is_expensive(monotonic_ns())
        };
        let found = match self.look(&mut expensive) {
            Ok(found) => found,
            Err(e) => {
                // One that is about to end has no memory any more, and is not over yet.
                let ends = e.raw_os_error() == Some(libc::ESRCH) || self.held.has_exited();
                if e.raw_os_error() == Some(libc::ENOTTY) {
                    shared.refuse("the kernel does not tell which pages are there (PAGEMAP_SCAN, Linux 6.7)".into());
                } else if !ends {
                    shared
                        .refuse(format!("pid {}: it cannot be seen how its mappings are filled: {e}", self.held.pid()));
                }
                self.blocked_ns = monotonic_ns() + AGAIN_NS;
                return 0;
            }
        };
        if !found.take_back.is_empty() {
            let tally = self.call(Action::NoHugePage, &found.take_back, shared);
            if tally.error.is_some() {
                // Whether or not one of several was: they are asked about again.
                let all = found.take_back.iter().zip(&found.fills);
                all.for_each(|(mapping, fill)| self.filling.stands(*mapping, fill));
                self.blocked_ns = monotonic_ns() + AGAIN_NS;
            }
            shared.taken_back.fetch_add(tally.ranges(&found.take_back), Ordering::Relaxed);
        }
        if !found.ask.is_empty() {
            let tally = self.call(Action::HugePage, &found.ask, shared);
            if tally.applied == 0 {
                self.blocked_ns = monotonic_ns() + self.refused_ns;
                self.refused_ns = (self.refused_ns * 2).min(REFUSED_NS);
            } else {
                self.refused_ns = AGAIN_NS;
                shared.asked.fetch_add(tally.ranges(&found.ask), Ordering::Relaxed);
                shared.room.fetch_add(found.room, Ordering::Relaxed);
            }
        }
        if found.collapse.is_empty() {
            return 0;
        }
        let begin = thread_cpu_ns();
        found.collapse.iter().for_each(|mapping| self.collapse(*mapping, shared));
        thread_cpu_ns() - begin
    }

    /// Makes huge pages of the blocks of a mapping that have base pages. What is refused stays as it is.
    fn collapse(&self, mapping: AddrRange, shared: &Shared) {
        let (first, end) = (mapping.start.next_multiple_of(TABLE_SPAN), mapping.end / TABLE_SPAN * TABLE_SPAN);
        // Of another program that the process has executed meanwhile none is there.
        let Ok(pagemap) = Pagemap::open(self.held.pid()) else { return };
        let mut pages = Vec::new();
        let mut has = |block: u64, huge: bool| {
            pages.clear();
            let told = pagemap.populated(AddrRange::new(block, block + TABLE_SPAN), 1, &mut pages);
            told.is_ok() && pages.first().is_some_and(|first| first.huge == huge)
        };
        let wanted: Vec<u64> = (first..end).step_by(TABLE_SPAN as usize).filter(|block| has(*block, false)).collect();
        let adjacent = wanted.chunk_by(|a, b| a + TABLE_SPAN == *b);
        for blocks in adjacent.flat_map(|blocks| blocks.chunks(COLLAPSED_AT_ONCE)) {
            if shared.stop.load(Ordering::Relaxed) {
                break;
            }
            let range = AddrRange::new(blocks[0], blocks[blocks.len() - 1] + TABLE_SPAN);
            match advise(self.held.as_fd(), &[range], Advice::Collapse) {
                Ok(_) => {}
                // Pages were in use by the kernel, in one block or several.
                Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) => {}
                Err(e) => {
                    if anonymous_ranges(&self.dir).is_ok_and(|mappings| mappings.contains(&mapping)) {
                        shared.refuse(refusal(Action::Collapse, self.held.pid(), range, &e));
                    }
                    break;
                }
            }
        }
        let collapsed = wanted.iter().filter(|block| has(**block, true)).count() as u64;
        shared.collapsed.fetch_add(collapsed * TABLE_SPAN, Ordering::Relaxed);
    }

    /// Makes the process call. What is refused is not forgotten: without effect, the mapping fills with base pages,
    /// which shows.
    fn call(&mut self, action: Action, ranges: &[AddrRange], shared: &Shared) -> Tally {
        let Some(call) = Call::of(action) else { return Tally::default() };
        let tally = self.injector.run(&self.held, call, ranges, &shared.stop);
        if let Some(why) = tally.error.as_ref().filter(|_| !self.held.has_exited()) {
            shared.refuse(why.clone());
        }
        tally
    }

    /// Looks at all mappings that are worth it.
    fn look(&mut self, expensive: &mut dyn FnMut(bool) -> bool) -> io::Result<Found> {
        // Opened anew: the process may have executed another program.
        let pagemap = Pagemap::open(self.held.pid())?;
        let mut mappings = anonymous_ranges(&self.dir).map_err(io::Error::other)?;
        mappings.retain(|m| m.len() >= WORTH);
        let starts: Vec<u64> = mappings.iter().map(|m| m.start).collect();
        self.filling.begin(&starts, monotonic_ns());
        self.fronts.retain(|start, _| starts.binary_search(start).is_ok());
        let mut found = Found::default();
        for mapping in mappings {
            self.scan(&pagemap, mapping)?;
            let fill = Fill::of(mapping, &self.populated);
            let sample = match self.populated.len() {
                MOST_STRETCHES.. => Some(self.sampled_fill(&pagemap, mapping)?),
                _ => None,
            };
            match self.filling.look(mapping, &fill, sample.as_ref(), &mut *expensive) {
                Verdict::Leave => {}
                Verdict::TakeBack => found.take_back(mapping, fill),
                Verdict::Ask => {
                    found.ask.push(mapping);
                    found.room += fill.empty * TABLE_SPAN;
                }
                Verdict::AskAndCollapse => {
                    found.ask.push(mapping);
                    found.collapse.push(mapping);
                }
                Verdict::Collapse => found.collapse.push(mapping),
                Verdict::Sample(blocks) => {
                    let pid = self.held.pid();
                    let mut zero_part = |block: u64| self.sampler.zero_part(pid, block).ok();
                    let zeros: Vec<f64> = blocks.iter().filter_map(|b| zero_part(*b)).collect();
                    let of_full = fill.last_full.and_then(zero_part);
                    // Of none: all of them are gone.
                    if !zeros.is_empty() && self.filling.sampled(mapping, &fill, blocks, &zeros, of_full) {
                        found.take_back(mapping, fill);
                    }
                }
            }
        }
        Ok(found)
    }

    /// Sets `populated` to what of a mapping is in memory. What was filled already at the last look is not looked at
    /// again, as that costs a millisecond for each 800 MiB: if its last block is as it was, so is the rest.
    pub(super) fn scan(&mut self, pagemap: &Pagemap, mapping: AddrRange) -> io::Result<()> {
        let populated = &mut self.populated;
        populated.clear();
        let mut from = mapping.start;
        if let Some(&front) = self.fronts.get(&mapping.start).filter(|front| **front <= mapping.end) {
            let last = AddrRange::new(front - TABLE_SPAN, front);
            pagemap.populated(last, MOST_STRETCHES, populated)?;
            if *populated == [Populated { range: last, huge: false }] {
                populated[0].range.start = mapping.start;
                from = front;
            } else {
                populated.clear();
            }
        }
        pagemap.populated(AddrRange::new(from, mapping.end), MOST_STRETCHES, populated)?;
        let front = match populated.first() {
            Some(first) if !first.huge && first.range.start == mapping.start => {
                first.range.end / TABLE_SPAN * TABLE_SPAN
            }
            _ => 0,
        };
        if front >= mapping.start + TABLE_SPAN {
            self.fronts.insert(mapping.start, front);
        } else {
            self.fronts.remove(&mapping.start);
        }
        Ok(())
    }

    /// How blocks all over a mapping are filled.
    fn sampled_fill(&mut self, pagemap: &Pagemap, mapping: AddrRange) -> io::Result<Fill> {
        let first = mapping.start.next_multiple_of(TABLE_SPAN);
        let blocks = (mapping.end / TABLE_SPAN).saturating_sub(first / TABLE_SPAN);
        let mut fill = Fill::default();
        for i in 0..SAMPLED_BLOCKS.min(blocks) {
            let start = first + i * blocks / SAMPLED_BLOCKS.min(blocks) * TABLE_SPAN;
            let block = AddrRange::new(start, start + TABLE_SPAN);
            self.populated.clear();
            pagemap.populated(block, usize::MAX, &mut self.populated)?;
            fill.add(Fill::of(block, &self.populated));
        }
        Ok(fill)
    }
}
