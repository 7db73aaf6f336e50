//! The simulated page tables as an access source.

use super::clock::SimClock;
use super::cost::CostModel;
use super::memory::SharedMemory;
use super::process::Process;
use super::target::{Bits, Target, pages_of};
use isotherm_core::addr::{AddrRange, PAGE_SIZE, TABLE_PAGES, TABLE_SPAN};
use isotherm_core::bits::{TableBits, Window};
use isotherm_core::clock::Clock;
use isotherm_core::mapping::Mapping;
use isotherm_core::mask::{self, PageMask};
use isotherm_core::source::{AccessSource, Clear, Cost, SourceError, in_sample};
use isotherm_core::target::TargetId;
use isotherm_core::target::{Footprint, TargetInfo};
use std::ops::Range;

/// log2 of the pages in an address space (five levels of page tables).
const FRAME_BITS: u32 = 57 - 12;

/// Page tables of simulated processes.
///
/// All bits of populated pages are set at first, as on a real machine, where populating a page touches it. Each call
/// sees the machine as it is when the call begins, and moves the clock by the monitor's cost when it ends.
#[derive(Debug)]
pub struct SimSource {
    clock: SimClock,
    model: CostModel,
    targets: Vec<Target>,
    monitor_ns: f64,
    clear_ns: f64,
    charged_ns: u64,
    /// When the last call ended.
    called_ns: u64,
    target_ns: f64,
    pages_read: u64,
    pages_cleared: u64,
}

impl SimSource {
    /// A source that watches `processes`, in this order, and shares `clock` with whoever drives it.
    pub fn new(clock: SimClock, model: CostModel, processes: Vec<Process>) -> Self {
        let targets = processes.into_iter().map(Target::new).collect();
        Self {
            clock,
            model,
            targets,
            monitor_ns: 0.0,
            clear_ns: 0.0,
            charged_ns: 0,
            called_ns: 0,
            target_ns: 0.0,
            pages_read: 0,
            pages_cleared: 0,
        }
    }

    /// The same, with pages of the first process that leave `memory` and come back. It must be that of the process's
    /// arena.
    pub(crate) fn with_memory(mut self, memory: SharedMemory) -> Self {
        if let Some(target) = self.targets.first_mut() {
            target.memory = Some(memory);
        }
        self
    }

    /// The target, if it is alive; an exec is reported once.
    fn living(&mut self, target: TargetId) -> Result<&mut Target, SourceError> {
        let now = self.clock.now_ns();
        let Some(t) = self.targets.get_mut(target as usize) else {
            return Err(SourceError::Failed(format!("there is no target {target} on the simulated machine")));
        };
        let pid = t.process.pid;
        if now < t.process.starts_ns || now >= t.process.exits_ns {
            return Err(SourceError::Gone { target, pid });
        }
        let execs = t.process.execs_ns.partition_point(|&e| e <= now);
        if execs > t.execs_told {
            t.execs_told = execs;
            t.cleared.forget();
            return Err(SourceError::Replaced { target, pid });
        }
        Ok(t)
    }

    /// Bits were cleared that the hardware must set again: as far as an observer can tell (`cleared`), and those of
    /// them that it really had set again since they were cleared before, which is what a simulated program loses time
    /// for.
    fn lose(&mut self, target: TargetId, cleared: u64, set_again: u64) {
        self.target_ns += cleared as f64 * self.model.target_page;
        if let Some(memory) = self.targets.get(target as usize).and_then(|t| t.memory.as_ref()) {
            memory.borrow_mut().lose((set_again as f64 * self.model.target_page) as u64);
        }
    }

    /// What calling costs now.
    fn call(&self) -> f64 {
        let woken = self.clock.now_ns() != self.called_ns;
        self.model.read_call + if woken { self.model.wake_up } else { 0.0 }
    }

    /// Moves the clock by what was spent since the last call.
    fn charge(&mut self) {
        let spent = self.monitor_ns as u64;
        self.clock.advance_ns(spent - self.charged_ns);
        self.charged_ns = spent;
        self.called_ns = self.clock.now_ns();
    }

    fn read(&mut self, target: TargetId, windows: &mut [Window], clear: bool) -> Result<(), SourceError> {
        let now = self.clock.now_ns();
        let (model, call) = (self.model.clone(), self.call());
        let t = self.living(target)?;
        let at = t.moment(now);
        let (mut monitor, mut pages_read, mut pages_cleared) = (call, 0, 0);
        let (mut bits_cleared, mut set_again) = (0, 0);
        let mut any_clear = false;
        for w in windows {
            check(w)?;
            let (seen, leaf) = t.look(w, at);
            w.seen = seen;
            monitor += model.read(u64::from(w.pages));
            pages_read += u64::from(w.pages);
            if !clear || seen.accessed == 0 {
                continue;
            }
            any_clear = true;
            let (pages, entries, young) = match leaf {
                Some(leaf) => (leaf, 1, 1),
                None => (pages_of(w.range()), u64::from(w.pages), u64::from(seen.accessed)),
            };
            set_again += young.saturating_sub(t.never_cleared(pages.clone()));
            t.cleared.set(pages, at.work_ns);
            monitor += model.clear(entries, young);
            pages_cleared += u64::from(seen.accessed);
            bits_cleared += young;
        }
        if any_clear {
            monitor += model.clear_call;
        }
        self.monitor_ns += monitor;
        self.lose(target, bits_cleared, set_again);
        self.pages_read += pages_read;
        self.pages_cleared += pages_cleared;
        self.charge();
        Ok(())
    }
}

fn check(w: &Window) -> Result<(), SourceError> {
    let range = w.range();
    let spans = range.start / TABLE_SPAN == range.end.saturating_sub(1) / TABLE_SPAN;
    if w.pages == 0 || u64::from(w.pages) > TABLE_PAGES || !range.start.is_multiple_of(PAGE_SIZE) || !spans {
        return Err(SourceError::Failed(format!(
            "the window of {} pages at {:#x} is not a run of pages inside one 2 MiB span",
            w.pages, w.start
        )));
    }
    Ok(())
}

impl AccessSource for SimSource {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn poll_targets(&mut self) -> Result<Vec<TargetInfo>, SourceError> {
        let now = self.clock.now_ns();
        let mut new = Vec::new();
        for (i, t) in self.targets.iter_mut().enumerate() {
            if !t.announced && t.process.starts_ns <= now {
                t.announced = true;
                new.push(TargetInfo { target: i as u32, pid: Some(t.process.pid), name: t.process.name.clone() });
            }
        }
        Ok(new)
    }

    fn may_gain_targets(&self) -> bool {
        self.targets.iter().any(|t| !t.announced)
    }

    fn footprint(&mut self, target: TargetId, now_ns: u64) -> Option<Footprint> {
        let t = self.targets.get(target as usize)?;
        t.moment(now_ns);
        let existing = || t.process.regions.iter().filter(|r| r.exists(now_ns));
        let vsz = existing().map(|r| r.mapping.range.len()).sum();
        let (rss, swap) = match &t.memory {
            None => (existing().flat_map(|r| &r.populated).map(AddrRange::len).sum(), 0),
            Some(memory) => (memory.borrow().rss(), memory.borrow().swapped()),
        };
        Some(Footprint { time_ns: now_ns, target, vsz, rss, swap: Some(swap) })
    }

    fn mappings(&mut self, target: TargetId, out: &mut Vec<Mapping>) -> Result<(), SourceError> {
        let now = self.clock.now_ns();
        let t = self.living(target)?;
        out.clear();
        out.extend(t.process.regions.iter().filter(|r| r.exists(now)).map(|r| r.mapping.clone()));
        Ok(())
    }

    fn arm(&mut self, target: TargetId, windows: &mut [Window]) -> Result<(), SourceError> {
        self.read(target, windows, true)
    }

    fn look(&mut self, target: TargetId, windows: &mut [Window]) -> Result<(), SourceError> {
        self.read(target, windows, false)
    }

    fn scan(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        mut clear: Clear<'_>,
        sink: &mut dyn FnMut(&TableBits),
    ) -> Result<(), SourceError> {
        let now = self.clock.now_ns();
        let (model, call) = (self.model.clone(), self.call());
        let t = self.living(target)?;
        let moment = t.moment(now);
        let (mut monitor, mut clearing, mut set_again) = (call, 0.0, 0);
        let (mut pages_read, mut pages_cleared) = (0u64, 0u64);
        let mut to_clear: Vec<Range<u64>> = Vec::new();
        let mut hand_out = |table: &mut TableBits, asked: &mut Vec<Range<u64>>| {
            let entries = if table.leaf_shift == 12 { TABLE_PAGES } else { 1 };
            monitor += model.read_page * entries as f64;
            pages_read += entries;
            table.cleared = clear.choose(table);
            if table.leaf_shift > 12 && table.cleared != mask::NO_PAGES {
                table.cleared = table.accessed;
            }
            if table.present != mask::NO_PAGES {
                sink(table);
            }
            let cleared = u64::from(mask::count(&table.cleared));
            if cleared > 0 {
                let young = cleared.min(entries);
                if table.cleared != table.accessed {
                    // Neighbours that stay set must not be reached over.
                    let first = table.base / PAGE_SIZE;
                    *asked = runs(&table.cleared).map(|run| first + run.start..first + run.end).collect();
                    clearing +=
                        asked.iter().map(|run| model.clear(run.end - run.start, run.end - run.start)).sum::<f64>();
                } else {
                    clearing += model.clear(entries, young);
                }
                let never: u64 = asked.iter().map(|piece| t.never_cleared(piece.clone())).sum();
                set_again += young.saturating_sub(never);
                pages_cleared += cleared;
                for piece in asked.drain(..) {
                    match to_clear.last_mut() {
                        Some(last) if last.end == piece.start => last.end = piece.end,
                        _ => to_clear.push(piece),
                    }
                }
            }
            asked.clear();
        };
        // Populated runs come in address order; those of one table are gathered before it is handed out.
        let mut gathered: Option<TableBits> = None;
        let mut asked: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            t.process.for_each_populated(pages_of(*range), now, |region, run| {
                let mut at = run.start;
                while at < run.end {
                    let first = at / TABLE_PAGES * TABLE_PAGES;
                    let piece = at..run.end.min(first + TABLE_PAGES);
                    at = piece.end;
                    let leaf = t.huge_leaf(first, now);
                    let same = gathered.is_some_and(|table| table.base == first * PAGE_SIZE);
                    if !same && let Some(mut table) = gathered.take() {
                        hand_out(&mut table, &mut asked);
                    }
                    let leaf_shift = if leaf.is_some() { 21 } else { 12 };
                    let table =
                        gathered.get_or_insert_with(|| TableBits { leaf_shift, ..TableBits::empty(first * PAGE_SIZE) });
                    // A huge leaf has one bit: clearing it clears it for all of its pages.
                    asked.push(leaf.clone().unwrap_or(piece.clone()));
                    let mut bits = Bits { present: table.present, accessed: table.accessed, blind: table.blind };
                    t.read_run(region, piece, leaf, first, moment.work_ns, &mut bits);
                    (table.present, table.accessed, table.blind) = (bits.present, bits.accessed, bits.blind);
                }
            });
        }
        if let Some(mut table) = gathered {
            hand_out(&mut table, &mut asked);
        }
        if !to_clear.is_empty() {
            clearing += model.clear_call;
        }
        for pages in to_clear {
            t.cleared.set(pages, moment.work_ns);
        }
        self.clear_ns += clearing;
        self.monitor_ns += monitor + clearing;
        // What nobody had cleared before was set when memory was populated, and need not be set again.
        self.lose(target, set_again, set_again);
        self.pages_read += pages_read;
        self.pages_cleared += pages_cleared;
        self.charge();
        Ok(())
    }

    fn frames(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        one_in: u32,
        sink: &mut dyn FnMut(u64, u64),
    ) -> Result<bool, SourceError> {
        // No two simulated processes share memory, so a page's frame may be named after its place.
        let own = u64::from(target) << FRAME_BITS;
        self.scan(target, ranges, Clear::Nothing, &mut |table| {
            let first = table.base / PAGE_SIZE;
            for page in mask::iter(&table.present).map(|i| first + i as u64) {
                if in_sample(own | page, one_in) {
                    sink(page * PAGE_SIZE, own | page);
                }
            }
        })?;
        Ok(true)
    }

    fn cost(&self) -> Cost {
        Cost {
            monitor_ns: self.monitor_ns as u64,
            clear_ns: Some(self.clear_ns as u64),
            target_ns: self.target_ns as u64,
            pages_read: self.pages_read,
            pages_cleared: self.pages_cleared,
        }
    }
}

/// The runs of pages in a mask.
fn runs(pages: &PageMask) -> impl Iterator<Item = Range<u64>> {
    let mut ranges = Vec::new();
    isotherm_core::pages::push_runs(0, pages, &mut ranges);
    ranges.into_iter().map(pages_of)
}
