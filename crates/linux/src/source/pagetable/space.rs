//! One watched address space, and reading it with all the care that live processes need.

use super::areas::Areas;
use super::clear::{self, ClearError};
use super::frames::{Frames, SmallPages};
use super::pte::{self, PageMask};
use super::sharing::{self, Verdicts};
use super::walker::{Batch, Mapped, Progress, SpaceId, Span, SpanView, TaskLink, Walker};
use super::whole::{Purse, Whole};
use crate::bpf::sys::BpfError;
use crate::clock::kernel_release;
use crate::proc::Process;
pub use crate::source::watched::SpaceError;
use isotherm_core::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN};
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

/// What is kept about one process.
#[derive(Debug)]
pub struct Space {
    link: TaskLink,
    id: Option<SpaceId>,
    /// `None`: not tried yet; `Some(None)`: cannot be opened.
    pagemap: Option<Option<File>>,
    /// Pages that cannot be cleared, as found out.
    pub verdicts: Verdicts,
    /// Pages known not to be part of a large folio.
    pub small: SmallPages,
    /// The kernel's areas.
    pub areas: Areas,
    /// Whether all bits are cleared at once.
    pub whole: Whole,
}

impl Space {
    /// Prepares to read the memory of process `pid`.
    pub fn new(walker: &Walker, pid: u32) -> Result<Self, BpfError> {
        Ok(Self {
            link: walker.attach(pid)?,
            id: None,
            pagemap: None,
            verdicts: Verdicts::default(),
            small: SmallPages::default(),
            areas: Areas::default(),
            whole: Whole::default(),
        })
    }

    /// Whether [`blind`](Self::blind) may hold a page.
    pub fn may_be_blind(&self, base: u64) -> bool {
        self.verdicts.any(base) || self.areas.any_blind(base)
    }

    /// Pages of the 2 MiB span at `base` that cannot be observed as far as is known.
    pub fn blind(&self, base: u64) -> PageMask {
        pte::or(&self.verdicts.blind(base), &self.areas.blind(base))
    }

    /// Pages of the 2 MiB span at `base` that clearing all bits at once does not reach.
    pub fn uncleared(&self, base: u64) -> PageMask {
        pte::or(&self.whole.blind(base), &self.areas.unreachable(base))
    }

    /// Drops what is so old that nothing looks at those pages any more.
    pub fn tidy(&mut self, now: Instant) {
        self.verdicts.tidy(now);
        self.whole.tidy(now);
    }

    /// The process's pagemap; `None` where it cannot be opened.
    pub fn pagemap(&mut self, process: &Process) -> Option<&File> {
        self.pagemap.get_or_insert_with(|| process.dir().open("pagemap").ok()).as_ref()
    }

    /// The same, leaving out what is to be tried again.
    pub fn fresh_blind(&mut self, base: u64, now: Instant) -> PageMask {
        pte::or(&self.verdicts.fresh_blind(base, now), &self.areas.blind(base))
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
    clears_folios: bool,
    /// What clearing all bits of processes may cost.
    pub(super) purse: Purse,
    pub(super) buf: Vec<u8>,
    /// Bits read.
    pub pages_read: u64,
    /// Bits cleared.
    pub pages_cleared: u64,
}

impl Observer {
    /// `walker` must be calibrated.
    pub fn new(walker: Walker, mut frames: Frames) -> Self {
        frames.set_phys_mask(walker.layout().phys_mask);
        let clears_folios = kernel_release().is_ok_and(|r| clears_folios(&r));
        let purse = Purse::new(None, Instant::now());
        Self { walker, frames, clears_folios, purse, buf: Vec::new(), pages_read: 0, pages_cleared: 0 }
    }

    /// Limits what may be spent on clearing all bits of processes at once to a part of a CPU budget, a share of one core.
    pub fn set_cpu_budget(&mut self, budget: Option<f64>) {
        self.purse = Purse::new(budget, Instant::now());
    }

    /// The programs.
    pub fn walker(&self) -> &Walker {
        &self.walker
    }

    /// Frame flags.
    pub fn frames(&self) -> &Frames {
        &self.frames
    }

    /// Reads the first of `spans`, as many as fit a batch; [`span`](Self::span) then shows them.
    pub fn read(&mut self, space: &mut Space, process: &Process, spans: &[Span]) -> Result<usize, SpaceError> {
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
        space: &mut Space,
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
        space: &mut Space,
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

    /// Clears the accessed bits in `ranges`; places that the kernel refuses become blind.
    pub fn clear(&mut self, space: &mut Space, process: &Process, ranges: &[AddrRange]) -> Result<(), SpaceError> {
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

    /// Finds out which of the pages `still_set` after clearing cannot be cleared, and remembers it. `entries` are those of the last
    /// read, the first of them for page number `first`.
    pub fn judge(
        frames: &Frames,
        space: &mut Space,
        process: &Process,
        base: u64,
        still_set: &PageMask,
        (first, entries): (usize, &[u64]),
        now: Instant,
    ) {
        let pagemap = space.pagemap.get_or_insert_with(|| process.dir().open("pagemap").ok()).as_ref();
        let mut shared = pte::NO_PAGES;
        space.verdicts.judge(base, still_set, now, |asked| {
            let exclusive = pagemap.and_then(|f| sharing::exclusive_pages(f, base, asked).ok());
            let on_lru = frames.on_lru(first, entries, asked).unwrap_or(pte::NO_PAGES);
            let clearable = pte::and(&exclusive.unwrap_or(pte::NO_PAGES), &on_lru);
            shared = exclusive.map_or(pte::NO_PAGES, |e| pte::and_not(&pte::and(asked, &on_lru), &e));
            clearable
        });
        space.verdicts.note_shared(base, &shared);
    }

    /// [`judge`](Self::judge) for a huge entry of 2 MiB: the verdict on its first page holds for all.
    pub fn judge_leaf(frames: &Frames, space: &mut Space, process: &Process, base: u64, entry: u64, now: Instant) {
        let all = pte::span_mask(0, 512);
        Self::judge(frames, space, process, base, &pte::span_mask(0, 1), (0, &[pte::leaf_as_first_page(entry)]), now);
        if pte::has(&space.verdicts.blind(base), 0) {
            space.verdicts.note(base, &all, &pte::NO_PAGES, now);
            if pte::has(&space.verdicts.shared(base), 0) {
                space.verdicts.note_shared(base, &all);
            }
        } else {
            space.verdicts.note(base, &pte::NO_PAGES, &all, now);
        }
    }

    /// Ranges that clear the pages `wanted` of the whole table at `base`, all of them in large folios: such a folio is
    /// cleared if the table maps all of it inside one area; otherwise, and on older kernels always, clearing would split it,
    /// and its pages become blind. Returns the pages to clear.
    pub fn whole_folios(
        &self,
        space: &mut Space,
        base: u64,
        table: &[u64],
        wanted: &PageMask,
        now: Instant,
    ) -> Result<PageMask, SpaceError> {
        let mut finder = self.frames.folios(table);
        let (mut clear, mut blind) = (pte::NO_PAGES, pte::NO_PAGES);
        for page in pte::iter(wanted) {
            if pte::has(&clear, page) || pte::has(&blind, page) {
                continue;
            }
            let folio =
                finder.around(page).map_err(|e| SpaceError::Failed(format!("cannot read /proc/kpageflags: {e}")))?;
            match folio {
                // Split, or replaced by a small page, since the table was read.
                None => pte::put(&mut clear, page),
                Some(f) => {
                    let range =
                        AddrRange::new(base + f.pages.start as u64 * PAGE_SIZE, base + f.pages.end as u64 * PAGE_SIZE);
                    let inside = space.areas.around(range.start).is_some_and(|a| range.end <= a.end);
                    let into = if self.clears_folios && f.whole && inside { &mut clear } else { &mut blind };
                    *into = pte::or(into, &pte::span_mask(f.pages.start, f.pages.end));
                }
            }
        }
        space.verdicts.note(base, &blind, &pte::NO_PAGES, now);
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
pub const fn span_base(addr: u64) -> u64 {
    addr / TABLE_SPAN * TABLE_SPAN
}

/// Index of the page at `addr` in its table.
pub const fn page_index(addr: u64) -> usize {
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
