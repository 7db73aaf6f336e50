//! One watched address space, and reading it with all the care that live processes need.

use super::areas::Areas;
use super::clear::{self, ClearError};
use super::clear_budget::{ClearBudget, Sharer};
use super::folios::FolioFinder;
use super::frames::Frames;
use super::prices::{Prices, Rates, TargetCpu};
use super::pte;
use super::sharing::{self, Verdicts};
use super::small_pages::SmallPages;
use super::walker::{Batch, Mapped, Progress, SpaceId, Span, SpanView, TaskLink, Walker};
use super::whole::Whole;
use crate::beside::{self, Beside, Running};
use crate::bpf::sys::BpfError;
use crate::clock::{kernel_release, thread_cpu_ns};
use crate::proc::Process;
pub(crate) use crate::source::watched::SpaceError;
use isotherm_core::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN};
use isotherm_core::mask::{self, NO_PAGES, PageMask};
use std::collections::HashSet;
use std::fs::File;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

impl From<BpfError> for SpaceError {
    fn from(e: BpfError) -> Self {
        Self::Failed(e.to_string())
    }
}

/// How often a batch is tried again when the process changes under it, and how long to wait in between.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(1);

/// For how long a target is taken to be where it was seen.
const CPU_LASTS: Duration = Duration::from_secs(5);
/// Fewer ranges, or pages, are cleared sooner than it is found out where the target runs.
const WORTH_LOOKING: usize = 16;

/// What is kept about one process.
#[derive(Debug)]
pub struct ProcessSpace {
    link: TaskLink,
    id: Option<SpaceId>,
    /// `None`: not tried yet; `Some(None)`: cannot be opened.
    pub(super) pagemap: Option<Option<File>>,
    /// Pages that cannot be cleared, as found out.
    pub verdicts: Verdicts,
    /// Pages known not to be part of a large folio.
    pub small: SmallPages,
    pub areas: Areas,
    /// Clearing all bits at once.
    pub whole: Whole,
    /// Where it was when that was looked at last.
    cpu: Option<(TargetCpu, Instant)>,
    /// Numbers of the tables in which a scan has cleared bits.
    cleared_tables: HashSet<u64>,
    /// Counts the spaces that share the budget for clearing all bits at once.
    pub(super) sharer: Option<Sharer>,
}

impl ProcessSpace {
    /// Prepares to read the memory of process `pid`.
    pub fn new(walker: &Walker, pid: u32) -> Self {
        Self {
            link: walker.attach(pid),
            id: None,
            pagemap: None,
            verdicts: Verdicts::default(),
            small: SmallPages::default(),
            areas: Areas::default(),
            whole: Whole::default(),
            cpu: None,
            cleared_tables: HashSet::new(),
            sharer: None,
        }
    }

    /// Closes the descriptors that are opened again when they are needed: of thousands of targets, one each is many.
    pub(super) fn close_files(&mut self) {
        self.pagemap = None;
        self.link.release();
    }

    /// Of the `cleared` bits of the table at `base`, those that nobody had cleared before: the processor set them when
    /// the memory was populated, and need not set them again where it is not used.
    pub(crate) fn first_clears(&mut self, base: u64, cleared: u64) -> u64 {
        if cleared > 0 && self.cleared_tables.insert(base / TABLE_SPAN) { cleared } else { 0 }
    }

    /// Whether [`blind`](Self::blind) may hold a page.
    pub(crate) fn may_be_blind(&self, base: u64) -> bool {
        self.verdicts.any(base) || self.areas.any_blind(base)
    }

    /// Pages of the 2 MiB span at `base` that cannot be observed as far as is known.
    pub fn blind(&self, base: u64) -> PageMask {
        mask::or(&self.verdicts.blind(base), &self.areas.blind(base))
    }

    /// Pages of the 2 MiB span at `base` that clearing all bits at once does not reach.
    pub(crate) fn uncleared(&self, base: u64) -> PageMask {
        mask::or(&self.whole.blind(base), &self.areas.unreachable(base))
    }

    /// Drops what is so old that nothing looks at those pages any more.
    pub fn tidy(&mut self, now: Instant) {
        self.verdicts.tidy(now);
        self.whole.tidy(now);
    }

    /// The same, leaving out what is to be tried again.
    pub(crate) fn fresh_blind(&mut self, base: u64, now: Instant) -> PageMask {
        mask::or(&self.verdicts.fresh_blind(base, now), &self.areas.blind(base))
    }

    /// Takes note of the address space a batch was read from.
    fn check(&mut self, id: SpaceId) -> Result<(), SpaceError> {
        match self.id {
            Some(known) if known != id => Err(SpaceError::Replaced),
            _ => {
                self.id = Some(id);
                Ok(())
            }
        }
    }
}

/// The machinery that all spaces share.
#[derive(Debug)]
pub struct Observer {
    walker: Walker,
    frames: Frames,
    /// Whether the kernel clears large folios that base entries map without splitting them.
    pub(super) clears_folios: bool,
    /// What clearing all bits of processes may cost.
    pub(super) budget: ClearBudget,
    pub(super) prices: Prices,
    pub pages_read: u64,
    pub pages_cleared: u64,
    /// Of these, bits that had never been cleared before.
    pub pages_cleared_first: u64,
    /// CPU time of this thread for clearing them, ns.
    pub clear_ns: u64,
    /// What targets lost while bits were cleared, ns: interrupts, and waiting for the processor that they shared with
    /// us.
    pub disturbed_ns: u64,
}

impl Observer {
    /// `walker` must be calibrated.
    pub fn new(walker: Walker, mut frames: Frames) -> Self {
        frames.set_phys_mask(walker.layout().phys_mask);
        let clears_folios = kernel_release().is_ok_and(|r| clears_folios(&r));
        let budget = ClearBudget::new(None, Instant::now());
        Self {
            walker,
            frames,
            clears_folios,
            budget,
            prices: Prices::default(),
            pages_read: 0,
            pages_cleared: 0,
            pages_cleared_first: 0,
            clear_ns: 0,
            disturbed_ns: 0,
        }
    }

    /// Limits what may be spent on clearing all bits of processes at once to a part of a CPU budget, a share of one
    /// core.
    pub(crate) fn set_cpu_budget(&mut self, budget: Option<f64>) {
        self.budget = ClearBudget::new(budget, Instant::now());
    }

    pub(crate) fn walker(&self) -> &Walker {
        &self.walker
    }

    pub fn frames(&self) -> &Frames {
        &self.frames
    }

    /// Reads the first of `spans`, as many as fit a batch; [`span`](Self::span) then shows them.
    pub fn read(&mut self, space: &mut ProcessSpace, process: &Process, spans: &[Span]) -> Result<usize, SpaceError> {
        let n = self.attempt(space, process, |walker, link| walker.read_spans(link, spans))?;
        let unreadable = |w: &Walker| (0..n).any(|i| w.span(i).mapped == Mapped::Unreadable);
        // An entry above all known memory: memory may have been added since the start.
        if unreadable(&self.walker) && self.walker.refresh_max_phys() {
            return self.attempt(space, process, |walker, link| walker.read_spans(link, spans));
        }
        Ok(n)
    }

    /// Window `i` of the last [`read`](Self::read).
    pub fn span(&self, i: usize) -> SpanView<'_> {
        self.walker.span(i)
    }

    /// Copies tables; the walker's records then show them.
    pub fn copy(
        &mut self,
        space: &mut ProcessSpace,
        process: &Process,
        ranges: &[AddrRange],
        cursor: u64,
    ) -> Result<Progress, SpaceError> {
        let done = self.attempt(space, process, |walker, link| walker.copy_tables(link, ranges, cursor))?;
        let unreadable = |w: &Walker| w.records().any(|r| r.mapped == Mapped::Unreadable);
        if unreadable(&self.walker) && self.walker.refresh_max_phys() {
            return self.attempt(space, process, |walker, link| walker.copy_tables(link, ranges, cursor));
        }
        Ok(done)
    }

    fn attempt<T>(
        &mut self,
        space: &mut ProcessSpace,
        process: &Process,
        mut run: impl FnMut(&mut Walker, &TaskLink) -> Result<(T, Batch), BpfError>,
    ) -> Result<T, SpaceError> {
        for _ in 0..ATTEMPTS {
            let (value, batch) = run(&mut self.walker, &space.link)?;
            // Asked after the read: what was read is this process's, not that of a later one with the same pid.
            if !process.is_alive() {
                return Err(SpaceError::Gone);
            }
            if let Batch::Done(id) = batch {
                space.check(id)?;
                return Ok(value);
            }
            // Either another thread of the process still has the address space, or it is in the middle of exec or exit.
            std::thread::sleep(PAUSE);
        }
        // Tearing down a big address space takes long, and only then the process counts as exited.
        Err(SpaceError::Gone)
    }

    /// Where a target is likely to be found while `pages` of its bits are cleared; of a few that is not asked.
    pub fn target_cpu(&self, space: &mut ProcessSpace, process: &Process, pages: usize, now: Instant) -> TargetCpu {
        if let Some((cpu, _)) = space.cpu.filter(|(_, since)| now.duration_since(*since) < CPU_LASTS) {
            return cpu;
        }
        if pages < WORTH_LOOKING {
            return TargetCpu::NotRunning;
        }
        let cpu = match Running::of(process.dir(), WORTH_LOOKING) {
            Running::None(_) => TargetCpu::NotRunning,
            // We move there if that pays.
            Running::One(_) => TargetCpu::Same,
            Running::Several(_) => TargetCpu::Other,
        };
        space.cpu = Some((cpu, now));
        cpu
    }

    /// What clearing costs while the target does not run elsewhere.
    pub fn rates(&self) -> Rates {
        self.prices.rates(TargetCpu::NotRunning, 0)
    }

    /// Clears the accessed bits in the ranges that `plan` finds best at given rates, in the way that costs both sides
    /// least; places that the kernel refuses become blind. Returns the ranges.
    pub fn clear(
        &mut self,
        space: &mut ProcessSpace,
        process: &Process,
        plan: impl Fn(&ProcessSpace, Rates) -> Vec<AddrRange>,
    ) -> Result<Vec<AddrRange>, SpaceError> {
        let fine = plan(space, self.rates());
        let mut coarse = None;
        let (mut cpu, mut processors, mut moved) = (TargetCpu::Other, 1, None);
        if fine.len() >= WORTH_LOOKING {
            let running = Running::of(process.dir(), fine.len());
            match running {
                Running::None(_) => cpu = TargetCpu::NotRunning,
                // It waits for us to leave.
                Running::One(processor) if beside::here() == processor => cpu = TargetCpu::Same,
                Running::One(_) | Running::Several(_) => {
                    // We are on one of them.
                    let others = std::thread::available_parallelism().map_or(1, |n| n.get().saturating_sub(1).max(1));
                    processors = if let Running::Several(n) = running { n.min(others) } else { 1 };
                    let joined = plan(space, self.prices.rates(TargetCpu::Other, processors));
                    if let Running::One(processor) = running
                        && self.prices.pays_to_move(&fine, &joined)
                    {
                        moved = Beside::move_to(processor);
                    }
                    if moved.is_some() { cpu = TargetCpu::Same } else { coarse = Some(joined) }
                }
            }
        }
        if let Some(joined) = &coarse
            && let Some(some) = self.prices.probe(&fine, joined)
        {
            self.clear_at(space, process, some, cpu, processors)?;
        }
        let ranges = coarse.unwrap_or(fine);
        let result = self.clear_at(space, process, &ranges, cpu, processors);
        drop(moved);
        result.map(|()| ranges)
    }

    /// Clears `ranges`, and counts what that costs.
    fn clear_at(
        &mut self,
        space: &mut ProcessSpace,
        process: &Process,
        ranges: &[AddrRange],
        cpu: TargetCpu,
        processors: usize,
    ) -> Result<(), SpaceError> {
        let begin = thread_cpu_ns();
        let result = self.clear_ranges(space, process, ranges);
        let spent = thread_cpu_ns().saturating_sub(begin);
        let interrupted = self.prices.learn(cpu, ranges, spent);
        self.disturbed_ns += if cpu == TargetCpu::Same { spent } else { interrupted * processors as u64 };
        result
    }

    fn clear_ranges(
        &self,
        space: &mut ProcessSpace,
        process: &Process,
        ranges: &[AddrRange],
    ) -> Result<(), SpaceError> {
        let mut refused = Vec::new();
        let note = |range| {
            refused.push(range);
            range
        };
        clear::clear(process.pidfd().as_fd(), ranges, note).map_err(|e| clear_error(process, e))?;
        if refused.is_empty() {
            return Ok(());
        }
        // A refused range may reach over several areas of which one is to blame: try them one by one.
        space.areas.expire();
        space.areas.refresh(process.dir(), Instant::now());
        let parts: Vec<AddrRange> = refused.iter().flat_map(|&r| space.areas.parts(r)).collect();
        clear::clear(process.pidfd().as_fd(), &parts, |range| space.areas.refuse(range))
            .map_err(|e| clear_error(process, e))
    }

    /// Finds out which of the pages `still_set` after clearing cannot be cleared, and remembers it. `entries` are those
    /// of the last read, the first of them for page number `first`.
    pub fn judge(
        frames: &Frames,
        space: &mut ProcessSpace,
        process: &Process,
        base: u64,
        still_set: &PageMask,
        (first, entries): (usize, &[u64]),
        now: Instant,
    ) {
        let pagemap = space.pagemap.get_or_insert_with(|| process.dir().open("pagemap").ok()).as_ref();
        space.verdicts.judge(base, still_set, now, |asked| {
            let exclusive = pagemap.and_then(|f| sharing::exclusive_pages(f, base, asked).ok()).unwrap_or(NO_PAGES);
            // Flags of scattered frames cost more: only where they can make a difference.
            frames.on_lru(first, entries, &exclusive).unwrap_or(NO_PAGES)
        });
    }

    /// [`judge`](Self::judge) for a huge entry of 2 MiB: the verdict on its first page holds for all.
    pub(crate) fn judge_leaf(
        frames: &Frames,
        space: &mut ProcessSpace,
        process: &Process,
        base: u64,
        entry: u64,
        now: Instant,
    ) {
        let all = mask::span_mask(0, 512);
        Self::judge(frames, space, process, base, &mask::span_mask(0, 1), (0, &[pte::leaf_as_first_page(entry)]), now);
        if mask::has(&space.verdicts.blind(base), 0) {
            space.verdicts.note(base, &all, &NO_PAGES, now);
        } else {
            space.verdicts.note(base, &NO_PAGES, &all, now);
        }
    }

    /// Ranges that clear the pages `wanted` of the whole table at `base`, all of them in large folios: such a folio is
    /// cleared if the table maps all of it inside one area; otherwise, and on older kernels always, clearing would
    /// split it, and its pages become blind. Returns the pages to clear.
    pub(crate) fn whole_folios(
        &self,
        space: &mut ProcessSpace,
        base: u64,
        table: &[u64],
        wanted: &PageMask,
        now: Instant,
    ) -> Result<PageMask, SpaceError> {
        let mut finder = FolioFinder::new(&self.frames, table);
        let (mut clear, mut blind) = (NO_PAGES, NO_PAGES);
        for page in mask::iter(wanted) {
            if mask::has(&clear, page) || mask::has(&blind, page) {
                continue;
            }
            let folio =
                finder.around(page).map_err(|e| SpaceError::Failed(format!("cannot read /proc/kpageflags: {e}")))?;
            match folio {
                // Split, or replaced by a small page, since the table was read.
                None => mask::put(&mut clear, page),
                Some(f) => {
                    let range =
                        AddrRange::new(base + f.pages.start as u64 * PAGE_SIZE, base + f.pages.end as u64 * PAGE_SIZE);
                    let inside = space.areas.around(range.start).is_some_and(|a| range.end <= a.end);
                    let into = if self.clears_folios && f.whole && inside { &mut clear } else { &mut blind };
                    *into = mask::or(into, &mask::span_mask(f.pages.start, f.pages.end));
                }
            }
        }
        space.verdicts.note(base, &blind, &NO_PAGES, now);
        Ok(clear)
    }
}

/// Before 6.10, MADV_COLD splits each large folio that base entries map, even if it is covered as a whole.
fn clears_folios(release: &str) -> bool {
    let mut numbers = release.split(['.', '-']).map_while(|n| n.parse::<u32>().ok());
    matches!((numbers.next(), numbers.next()), (Some(major), Some(minor)) if (major, minor) >= (6, 10))
}

fn clear_error(process: &Process, error: ClearError) -> SpaceError {
    match error {
        ClearError::Gone => SpaceError::Gone,
        ClearError::Failed(_) if !process.is_alive() => SpaceError::Gone,
        ClearError::Failed(e) => {
            let remedy = match e.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => "; needs CAP_SYS_NICE and CAP_SYS_PTRACE (run as root)",
                Some(libc::ENOSYS) => "; needs Linux 5.10 with CONFIG_ADVISE_SYSCALLS=y",
                _ => "",
            };
            let pid = process.pid();
            SpaceError::Failed(format!(
                "cannot clear accessed bits of pid {pid} with process_madvise(MADV_COLD): {e}{remedy}"
            ))
        }
    }
}

/// The 2 MiB-aligned start of the span around `addr`.
pub(crate) const fn span_base(addr: u64) -> u64 {
    addr / TABLE_SPAN * TABLE_SPAN
}

/// Index of the page at `addr` in its table.
pub(crate) const fn page_index(addr: u64) -> usize {
    (addr % TABLE_SPAN / PAGE_SIZE) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_clear_large_folios() {
        for (release, want) in [("6.10.0", true), ("6.18.44-fc-v595", true), ("7.0-rc1", true), ("6.9.12-amd64", false)]
        {
            assert_eq!(clears_folios(release), want, "{release}");
        }
        assert!(!clears_folios("5.10.0-46-amd64") && !clears_folios("strange") && !clears_folios("6"));
    }
}
