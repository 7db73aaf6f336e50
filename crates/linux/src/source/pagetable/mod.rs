//! The page table source: reads accessed bits with eBPF, clears them with `process_madvise(MADV_COLD)`.
//!
//! * [`walker`] runs the programs of [`crate::bpf::walk`]; [`calibrate`] tells it where page tables are visible.
//! * [`space`] is one watched process: it notices exit and exec, and knows what cannot be observed.
//! * [`windows`] looks at and arms windows, [`scan`] reads everything; [`plan`], [`clear`], [`frames`] and [`sharing`]
//!   decide and do the clearing without splitting folios and without taking shared pages for hot ones; [`prices`] and
//!   [`beside`](crate::beside) keep its cost low for both sides.
//! * [`whole`] and `scan_whole` clear through `/proc/PID/clear_refs` instead, which reaches shared and locked pages
//!   too, but only the whole process at once while its page faults wait.
//! * [`selftest`] must pass before any of this is believed.

pub mod areas;
#[cfg(test)]
mod c_twin_tests;
pub mod calibrate;
pub mod clear;
pub mod clear_budget;
mod descriptor_types;
mod descriptors;
mod folios;
mod frame_numbers;
pub mod frames;
mod memory_end;
pub mod plan;
mod populated;
pub mod prices;
pub mod pte;
pub mod scan;
mod scan_whole;
pub mod selftest;
pub mod sharing;
mod small_pages;
pub mod space;
mod tally;
pub mod walker;
#[cfg(test)]
mod walker_tests;
pub mod whole;
pub mod windows;

use crate::bpf::sys::BpfError;
use crate::clock::thread_cpu_ns;
use crate::proc::Process;
use crate::proc::status::Status;
use crate::roots::Roots;
use crate::source::SourceUnavailable;
use crate::source::watched::Targets;
use crate::targets::TargetTracker;
use frames::Frames;
use isotherm_core::addr::AddrRange;
use isotherm_core::bits::{TableBits, Window};
use isotherm_core::mapping::Mapping;
use isotherm_core::source::{AccessSource, Clear, Cost, Refused, SourceError};
use isotherm_core::target::{Footprint, Start, TargetId, TargetInfo};
use space::{Observer, ProcessSpace, SpaceError};
use std::io;
use std::time::Instant;
use walker::{Walker, WalkerError};

fn unavailable(reason: impl Into<String>, remedy: impl Into<String>) -> SourceUnavailable {
    SourceUnavailable { what: "page tables cannot be read", reason: reason.into(), remedy: remedy.into() }
}

impl From<WalkerError> for SourceUnavailable {
    fn from(e: WalkerError) -> Self {
        let remedy = match &e {
            WalkerError::Btf(_) => "use a kernel with CONFIG_DEBUG_INFO_BTF=y (5.10 or later), or another source",
            WalkerError::Bpf(BpfError::Load { log, .. }) if !log.is_empty() => {
                "please report this with the lines above and your kernel's version; until then use another source"
            }
            WalkerError::Bpf(_) => {
                "run as root, or with CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE, CAP_SYS_NICE and CAP_DAC_READ_SEARCH"
            }
            WalkerError::Assemble(_) => "please report this",
            WalkerError::Calibrate(_) => {
                "run as root on an x86-64 kernel, in the host's pid namespace, or use another source"
            }
        };
        unavailable(e.to_string(), remedy)
    }
}

/// Watches processes through their page tables.
#[derive(Debug)]
pub struct PageTableSource {
    targets: Targets<ProcessSpace>,
    observer: Observer,
    /// Whether there are descriptors enough for each target to keep [`FILES_KEPT`] more, as samples are taken ever again.
    keeps_files: bool,
}

/// Descriptors that a target may keep: a link for each program that reads its page tables, and its pagemap.
const FILES_KEPT: u64 = 3;

/// What page tables are read with: programs that have been loaded and have passed the self-test.
#[derive(Debug)]
pub struct PageTableReader {
    observer: Observer,
    /// CPU time of this thread before they were loaded: the source's cost counts from there.
    cpu_at_start: u64,
    no_descriptors: Option<WalkerError>,
}

impl PageTableReader {
    /// Loads the programs and runs the self-test. The error says why the source does not work here. Changes nothing but
    /// accessed bits of pages of its own.
    pub fn ready() -> Result<Self, SourceUnavailable> {
        let cpu_at_start = thread_cpu_ns();
        let (observer, no_descriptors) = ready_observer()?;
        Ok(Self { observer, cpu_at_start, no_descriptors })
    }

    /// Why large folios are told by `/proc/kpageflags`, at about five times the price, and not by page descriptors;
    /// `None`: they are read.
    pub fn no_descriptors(&self) -> Option<&WalkerError> {
        self.no_descriptors.as_ref()
    }

    /// A source for these targets, on the same thread.
    pub fn watch(self, tracker: TargetTracker) -> PageTableSource {
        PageTableSource {
            observer: self.observer,
            targets: Targets::new(tracker, self.cpu_at_start),
            keeps_files: false,
        }
    }
}

impl PageTableSource {
    /// Loads the programs, runs the self-test, and takes over the targets.
    pub fn new(tracker: TargetTracker) -> Result<Self, SourceUnavailable> {
        Ok(PageTableReader::ready()?.watch(tracker))
    }

    /// Whether a target has not ended, as far as it was found out.
    pub fn is_running(&self, target: TargetId) -> bool {
        self.targets.tracker.is_running(target)
    }

    /// Closes a target whose user watches it no more.
    pub fn close(&mut self, target: TargetId) {
        self.targets.close(target);
    }

    /// Limits what may be spent on `clear_refs` (see [`whole`]) to a part of this share of one core.
    pub fn with_cpu_budget(mut self, budget: Option<f64>) -> Self {
        self.observer.set_cpu_budget(budget);
        self
    }

    /// Has scans clear all bits of a process at once (see [`whole`]) wherever that costs less than page by page. For
    /// whoever scans all of it now and then. Short stalls of its page faults (10 ms a GiB) are the price, and that no
    /// processor's cached translations are dropped: what is in constant use through them may look idle.
    pub fn prefer_cheapest(mut self) -> Self {
        self.observer.budget.prefer_cheapest();
        self
    }

    /// Processes and control group that are watched.
    pub fn tracker(&mut self) -> &mut TargetTracker {
        &mut self.targets.tracker
    }

    /// Runs `work` on a target's memory.
    fn with_space<T>(
        &mut self,
        target: TargetId,
        work: impl FnOnce(&mut Observer, &mut ProcessSpace, &mut Process) -> Result<T, SpaceError>,
    ) -> Result<T, SourceError> {
        let keeps_files = self.keeps_files;
        self.targets.with(target, &mut self.observer, open_space, |observer, space, process| {
            let result = work(observer, space, process);
            if !keeps_files {
                space.close_files();
            }
            result
        })
    }
}

fn open_space(observer: &mut Observer, process: &Process) -> Result<ProcessSpace, SourceError> {
    Ok(ProcessSpace::new(observer.walker(), process.pid()))
}

/// With it, why there are no page descriptors.
fn ready_observer() -> Result<(Observer, Option<WalkerError>), SourceUnavailable> {
    if !has_sys_nice() {
        return Err(unavailable(
            "clearing accessed bits of other processes needs CAP_SYS_NICE",
            "run as root, or with CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE, CAP_SYS_NICE and CAP_DAC_READ_SEARCH",
        ));
    }
    let mut walker = Walker::load()?;
    calibrate::calibrate(&mut walker)?;
    let mut frames = Frames::open(&Roots::system()).map_err(|e| {
        let remedy = match e.kind() {
            io::ErrorKind::NotFound => "use a kernel with CONFIG_PROC_PAGE_MONITOR=y, or another source",
            _ => "run as root, or with CAP_DAC_READ_SEARCH in addition",
        };
        unavailable(format!("cannot read /proc/kpageflags, which tells large folios: {e}"), remedy)
    })?;
    let no_descriptors = frames.find_descriptors(&mut walker).err();
    let mut observer = Observer::new(walker, frames);
    selftest::run(&mut observer).map_err(|why| {
        unavailable(format!("the self-test failed: {why}"), "use another source, and please report this")
    })?;
    observer.pages_read = 0;
    observer.pages_cleared = 0;
    observer.pages_cleared_first = 0;
    observer.disturbed_ns = 0;
    observer.clear_ns = 0;
    Ok((observer, no_descriptors))
}

/// Whether this process has CAP_SYS_NICE; yes if that cannot be known, for then clearing will tell. The self-test
/// cannot, because a process may always advise on its own memory.
fn has_sys_nice() -> bool {
    const CAP_SYS_NICE: u32 = 23;
    let status = std::fs::read("/proc/self/status").unwrap_or_default();
    Status::parse(&status).capabilities.is_none_or(|caps| caps >> CAP_SYS_NICE & 1 == 1)
}

impl AccessSource for PageTableSource {
    fn name(&self) -> &'static str {
        "pagetable"
    }

    fn poll_targets(&mut self) -> Result<Vec<TargetInfo>, SourceError> {
        let new = self.targets.poll();
        self.keeps_files = self.targets.tracker.has_room_for(FILES_KEPT);
        new
    }

    fn may_gain_targets(&self) -> bool {
        self.targets.tracker.may_gain_targets()
    }

    fn refused(&self) -> Refused {
        self.targets.tracker.refused()
    }

    fn start(&mut self, target: TargetId) -> Option<Start> {
        self.targets.start(target)
    }

    fn cpu_ns(&mut self, target: TargetId) -> Option<u64> {
        self.targets.cpu_ns(target)
    }

    fn footprint(&mut self, target: TargetId, now_ns: u64) -> Option<Footprint> {
        self.targets.footprint(target, now_ns)
    }

    fn mappings(&mut self, target: TargetId, out: &mut Vec<Mapping>) -> Result<(), SourceError> {
        self.targets.mappings(target, &mut self.observer, open_space, out, |space, mappings| {
            space.areas.update(mappings);
            space.tidy(Instant::now());
        })
    }

    fn populated(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        out: &mut Vec<AddrRange>,
    ) -> Result<(), SourceError> {
        self.with_space(target, |observer, space, process| observer.populated(space, process, ranges, out))
    }

    fn arm(&mut self, target: TargetId, windows: &mut [Window]) -> Result<(), SourceError> {
        self.with_space(target, |observer, space, process| observer.arm(space, process, windows))
    }

    fn look(&mut self, target: TargetId, windows: &mut [Window]) -> Result<(), SourceError> {
        self.with_space(target, |observer, space, process| observer.look(space, process, windows))
    }

    fn scan(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        clear: Clear<'_>,
        sink: &mut dyn FnMut(&TableBits),
    ) -> Result<(), SourceError> {
        self.with_space(target, |observer, space, process| observer.scan(space, process, ranges, clear, sink))
    }

    fn frames(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        one_in: u32,
        sink: &mut dyn FnMut(u64, u64),
    ) -> Result<bool, SourceError> {
        self.with_space(target, |observer, space, process| {
            observer.frame_numbers(space, process, ranges, one_in, sink)?;
            space.close_files();
            Ok(true)
        })
    }

    fn cost(&self) -> Cost {
        let observer = &self.observer;
        let set_again = observer.pages_cleared - observer.pages_cleared_first;
        Cost {
            pages_cleared: observer.pages_cleared,
            clear_ns: Some(observer.clear_ns),
            ..self.targets.cost(observer.pages_read, set_again, observer.disturbed_ns)
        }
    }
}
