//! An access source that keeps the page history of its targets.
//!
//! Regions and schemes clear bits between two walks, too; what they see while doing so is noted, so that no access is
//! lost to them.

use super::pages::PageHistory;
use super::pass::Pass;
use super::rest::Rests;
use crate::addr::{AddrRange, TABLE_SPAN, normalize};
use crate::bits::{TableBits, Window};
use crate::clock::Clock;
use crate::mapping::Mapping;
use crate::mask::{self, NO_PAGES, PageMask};
use crate::pages::{mask_of, push_range, push_runs};
use crate::source::{AccessSource, Clear, Cost, Refused, SourceError};
use crate::target::{Footprint, Start, TargetId, TargetInfo};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

/// What a walk of one target may clear, in ns of its price as estimated by `price_ns`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Allowance {
    /// On pages that have been cleared before.
    pub again_ns: f64,
    /// On pages that have never been cleared.
    pub first_ns: f64,
}

impl Allowance {
    /// Everything may be cleared.
    pub const UNLIMITED: Self = Self { again_ns: f64::INFINITY, first_ns: f64::INFINITY };
}

/// What clearing costs a walk and its target together, ns, as estimated beforehand: a call's share for a run of pages;
/// clearing a page (13 ms a GiB) and, where it is used again, setting its bit again. [`AccessSource::cost`] tells
/// afterwards what it was.
const RUN_NS: f64 = 500.0;
/// See above.
pub(crate) const CLEAR_NS: f64 = 50.0;
const SET_AGAIN_NS: f64 = 300.0;

/// What a slice of a walk is to cost at most, ns: whoever else has something to do meanwhile is not to be kept waiting.
pub const SLICE_NS: u64 = 4_000_000;
/// Bytes of address space that the first slice reads (where all of it is populated, that costs about so much).
const FIRST_SLICE: u64 = 16 << 30;
/// Present pages from which on another slice of a walk costs next to nothing beside the rest.
const LARGE: u64 = 1 << 18;
/// More than any process has; far from where addresses end.
const LARGEST_SLICE: u64 = 1 << 57;
/// With a sample of tables, which parts of memory are populated is asked for every so many walks.
const POPULATED_EVERY: u64 = 16;

/// How a slice of a walk went.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Slice {
    /// Whether the walk is complete.
    pub complete: bool,
    /// Price of what was cleared and had been cleared before.
    pub cleared_ns: f64,
    /// Price of what was cleared for the first time.
    pub first_ns: f64,
    /// Price of what would have been cleared but for the allowance; what was never cleared not counted.
    pub refused_ns: f64,
    /// What it has cost both sides, ns, ...
    pub spent_ns: u64,
    /// ... and of this, reading; `None`: not measured apart.
    pub reading_ns: Option<u64>,
}

/// See the module.
#[derive(Debug)]
pub struct Tracked<S> {
    source: S,
    histories: BTreeMap<TargetId, PageHistory>,
    passes: HashMap<TargetId, Pass>,
    populated: HashMap<TargetId, Vec<AddrRange>>,
    /// Of each target's last slice: bytes of address space, and the first table that its walk refused to clear.
    slices: HashMap<TargetId, (u64, Option<u64>)>,
    rests: Rests,
    shortest_age_ns: Option<u64>,
    /// Begin of the aggregation interval.
    interval_ns: u64,
    /// Whether the targets were seen to share next to no page.
    shares_little: bool,
}

impl<S: AccessSource> Tracked<S> {
    /// Tracks what `source` watches.
    pub fn new(source: S) -> Self {
        Self {
            source,
            histories: BTreeMap::new(),
            passes: HashMap::new(),
            populated: HashMap::new(),
            slices: HashMap::new(),
            rests: Rests::default(),
            shortest_age_ns: None,
            interval_ns: 0,
            shares_little: false,
        }
    }

    /// Has walks take note of which targets do not run. Not where somebody else looks at bits between them.
    pub(crate) fn notes_rests(&mut self) {
        self.rests.begin();
    }

    /// The source, to be changed.
    pub const fn source_mut(&mut self) -> &mut S {
        &mut self.source
    }

    /// The source itself.
    pub const fn source(&self) -> &S {
        &self.source
    }

    pub(super) const fn shares_little(&self) -> bool {
        self.shares_little
    }

    pub(super) const fn set_shares_little(&mut self, shares_little: bool) {
        self.shares_little = shares_little;
    }

    /// The shortest age that somebody has asked about, ns.
    pub(crate) const fn shortest_age_ns(&self) -> Option<u64> {
        self.shortest_age_ns
    }

    /// A target's history to be changed, begun at `now_ns` where there is none.
    pub fn history_mut(&mut self, target: TargetId, now_ns: u64) -> &mut PageHistory {
        self.histories.entry(target).or_insert_with(|| PageHistory::new(now_ns))
    }

    /// The targets of which there is a history.
    pub fn histories(&self) -> impl Iterator<Item = (TargetId, &PageHistory)> {
        self.histories.iter().map(|(&target, history)| (target, history))
    }

    /// Since when a target has certainly not run, ns; `None` where it may have since the last call.
    pub(crate) fn rests_since(&mut self, target: TargetId, clock: &dyn Clock) -> Option<u64> {
        self.rests.look(&mut self.source, target, clock)
    }

    /// Whether what the last walk of a target saw holds until now, since it has not run: then no other is needed.
    pub(crate) fn rest(&mut self, target: TargetId, clock: &dyn Clock) -> bool {
        let Some(since_ns) = self.rests_since(target, clock) else { return false };
        self.histories.get_mut(&target).is_some_and(|history| history.rest(since_ns, clock.now_ns()))
    }

    /// Walks on through the page tables of a target, whose mappings are `mapped` (sorted, disjoint), for a slice. `allowance`:
    /// what it may clear; `None`: it only reads.
    pub fn walk(
        &mut self,
        target: TargetId,
        mapped: &[AddrRange],
        allowance: Option<Allowance>,
        clock: &mut dyn Clock,
    ) -> Result<Slice, SourceError> {
        let now_ns = clock.now_ns();
        let before = self.source.cost();
        if !self.passes.contains_key(&target) {
            let ranges = self.begin_pass(target, mapped, now_ns);
            let ranges = self.fate(target, ranges)?;
            let (slice, refused) = self.slices.get(&target).copied().unwrap_or((FIRST_SLICE, None));
            let mut pass = Pass::new(ranges, slice);
            // Who went without comes first. That takes a slice more: little for a large process; and what the source
            // can only clear as a whole, it clears in walks of one slice.
            let learnt = self.histories.get(&target).map(|h| *h.learnt()).unwrap_or_default();
            if let Some(refused) = refused.filter(|_| learnt.blind == 0 && learnt.present >= LARGE) {
                pass.begin_at(refused);
            }
            self.passes.insert(target, pass);
        }
        let ranges = self.passes.get_mut(&target).map(Pass::take_slice).unwrap_or_default();
        let history = self.histories.entry(target).or_insert_with(|| PageHistory::new(now_ns));
        // Which parts of large memory are populated was asked for at a price of its own.
        let before_ns = if history.one_in() == 1 { before.monitor_ns } else { self.source.cost().monitor_ns };
        let history = RefCell::new(history);
        let (mut slice, mut refused) = (Slice::default(), None);
        let mut left = allowance.unwrap_or(Allowance { again_ns: 0.0, first_ns: 0.0 });
        let mut choose = |bits: &TableBits| {
            let wanted = history.borrow().wanted(bits);
            let (mut chosen, mut again) = (NO_PAGES, mask::or(&wanted.again, &wanted.new));
            // What was never cleared may be idle, and then is never set again; so may what came since the last walk.
            for (first, others) in [(wanted.first(), wanted.again), (wanted.never, again)] {
                let price = price_ns(&first, bits.leaf_shift, 0.0);
                if price > 0.0 && price <= left.first_ns {
                    (chosen, again) = (first, others);
                    left.first_ns -= price;
                    slice.first_ns += price;
                    break;
                }
            }
            let price = price_ns(&again, bits.leaf_shift, SET_AGAIN_NS);
            if price <= left.again_ns {
                chosen = mask::or(&chosen, &again);
                left.again_ns -= price;
                slice.cleared_ns += price;
            } else {
                slice.refused_ns += price;
                refused.get_or_insert(bits.base);
            }
            chosen
        };
        let clear = if allowance.is_some() { Clear::Chosen(&mut choose) } else { Clear::Nothing };
        let scanned = self.source.scan(target, &ranges, clear, &mut |bits| {
            history.borrow_mut().take(bits);
        });
        let mut after = self.source.cost();
        if let Some(pass) = self.passes.get_mut(&target) {
            slice.complete = pass.is_done();
            // Large reservations cost little, where they are not populated.
            pass.slice = match after.monitor_ns - before_ns {
                ns if ns > SLICE_NS => (pass.slice / 2).max(TABLE_SPAN),
                ns if ns < SLICE_NS / 4 => (pass.slice * 4).min(LARGEST_SLICE),
                _ => pass.slice,
            };
            pass.refused = pass.refused.or(refused);
            self.slices.insert(target, (pass.slice, pass.refused));
        }
        if scanned.is_ok() && slice.complete {
            let rests_since_ns = self.rests.look(&mut self.source, target, clock);
            history.into_inner().end_walk_at_rest(clock.now_ns(), rests_since_ns);
            self.passes.remove(&target);
            after = self.source.cost();
        }
        slice.spent_ns = after.spent_ns() - before.spent_ns();
        let reading_ns = after.reading_ns().zip(before.reading_ns());
        slice.reading_ns = reading_ns.map(|(after, before)| after.saturating_sub(before));
        self.fate(target, scanned)?;
        Ok(slice)
    }

    /// The ranges that a new walk is to read.
    fn begin_pass(
        &mut self,
        target: TargetId,
        mapped: &[AddrRange],
        now_ns: u64,
    ) -> Result<Vec<AddrRange>, SourceError> {
        let history = self.histories.entry(target).or_insert_with(|| PageHistory::new(now_ns));
        history.set_started(self.source.start(target).map(|start| start.time_ns));
        if history.one_in() == 1 {
            return Ok(history.begin_walk(mapped, now_ns));
        }
        let populated = self.populated.entry(target).or_default();
        if populated.is_empty() || history.walks().is_multiple_of(POPULATED_EVERY) {
            self.source.populated(target, mapped, populated)?;
        }
        Ok(history.begin_walk(populated, now_ns))
    }

    /// An aggregation interval begins: windows are armed and looked at in it.
    pub(crate) const fn begin_interval(&mut self, now_ns: u64) {
        self.interval_ns = now_ns;
    }

    /// Adds to `windows` the pages that a walk found accessed since the aggregation interval began, for it has cleared
    /// their bits.
    fn add_walked(&self, target: TargetId, windows: &mut [Window]) {
        let Some(history) = self.histories.get(&target).filter(|h| h.now_ns() > self.interval_ns) else { return };
        let accessed = history.accessed_codes(self.interval_ns);
        for window in windows.iter_mut().filter(|w| w.seen.accessed < w.seen.present) {
            let base = window.start / TABLE_SPAN * TABLE_SPAN;
            let Some(table) = history.table(base) else { continue };
            let pages = mask::and(&table.pages(&accessed), &mask_of(base, window.range()));
            let most = window.seen.present.saturating_sub(window.seen.blind);
            window.seen.accessed = window.seen.accessed.max((mask::count(&pages) as u16).min(most));
        }
    }

    /// Forgets a target that has ended or runs another program.
    fn fate<T>(&mut self, target: TargetId, result: Result<T, SourceError>) -> Result<T, SourceError> {
        if matches!(result, Err(SourceError::Gone { .. } | SourceError::Replaced { .. })) {
            self.histories.remove(&target);
            self.passes.remove(&target);
            self.populated.remove(&target);
            self.slices.remove(&target);
            self.rests.forget(target);
        }
        result
    }

    /// Looks, page by page, at what `windows` are about to clear: those of several pages tell how many were accessed,
    /// not which.
    fn look_first(&mut self, target: TargetId, windows: &[Window]) -> Result<(), SourceError> {
        let Some(history) = self.histories.get_mut(&target) else { return Ok(()) };
        let mut ranges: Vec<AddrRange> = windows.iter().filter(|w| w.pages > 1).map(Window::range).collect();
        if ranges.is_empty() {
            return Ok(());
        }
        normalize(&mut ranges);
        self.source.scan(target, &ranges, Clear::Nothing, &mut |bits| history.note(bits.base, &bits.accessed))
    }
}

/// The price of clearing `pages` of a table of which each costs `set_again_ns` more, ns.
fn price_ns(pages: &PageMask, leaf_shift: u8, set_again_ns: f64) -> f64 {
    if *pages == NO_PAGES {
        return 0.0;
    }
    if leaf_shift > 12 {
        return RUN_NS + CLEAR_NS + set_again_ns;
    }
    let carried = |w: usize| if w == 0 { 0 } else { pages[w - 1] >> 63 };
    let runs: u32 = (0..8).map(|w| (pages[w] & !(pages[w] << 1 | carried(w))).count_ones()).sum();
    f64::from(runs) * RUN_NS + f64::from(mask::count(pages)) * (CLEAR_NS + set_again_ns)
}

impl<S: AccessSource> AccessSource for Tracked<S> {
    fn name(&self) -> &'static str {
        self.source.name()
    }

    fn poll_targets(&mut self) -> Result<Vec<TargetInfo>, SourceError> {
        self.source.poll_targets()
    }

    fn may_gain_targets(&self) -> bool {
        self.source.may_gain_targets()
    }

    fn refused(&self) -> Refused {
        self.source.refused()
    }

    fn start(&mut self, target: TargetId) -> Option<Start> {
        self.source.start(target)
    }

    fn cpu_ns(&mut self, target: TargetId) -> Option<u64> {
        self.source.cpu_ns(target)
    }

    fn footprint(&mut self, target: TargetId, now_ns: u64) -> Option<Footprint> {
        self.source.footprint(target, now_ns)
    }

    fn mappings(&mut self, target: TargetId, out: &mut Vec<Mapping>) -> Result<(), SourceError> {
        let result = self.source.mappings(target, out);
        self.fate(target, result)
    }

    fn populated(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        out: &mut Vec<AddrRange>,
    ) -> Result<(), SourceError> {
        self.source.populated(target, ranges, out)
    }

    fn arm(&mut self, target: TargetId, windows: &mut [Window]) -> Result<(), SourceError> {
        self.look_first(target, windows)?;
        let result = self.source.arm(target, windows);
        if let Some(history) = self.histories.get_mut(&target).filter(|_| result.is_ok()) {
            windows.iter().for_each(|w| history.note_window(w));
        }
        self.fate(target, result)
    }

    fn look(&mut self, target: TargetId, windows: &mut [Window]) -> Result<(), SourceError> {
        self.source.look(target, windows)?;
        self.add_walked(target, windows);
        Ok(())
    }

    fn scan(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        clear: Clear<'_>,
        sink: &mut dyn FnMut(&TableBits),
    ) -> Result<(), SourceError> {
        let mut history = self.histories.get_mut(&target).filter(|_| clear.any());
        let result = self.source.scan(target, ranges, clear, &mut |bits| {
            if let Some(history) = &mut history {
                history.note(bits.base, &bits.cleared);
            }
            sink(bits);
        });
        self.fate(target, result)
    }

    fn frames(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        one_in: u32,
        sink: &mut dyn FnMut(u64, u64),
    ) -> Result<bool, SourceError> {
        let result = self.source.frames(target, ranges, one_in, sink);
        self.fate(target, result)
    }

    fn cost(&self) -> Cost {
        self.source.cost()
    }

    fn page_history(&self, target: TargetId) -> Option<&PageHistory> {
        self.histories.get(&target)
    }

    fn continue_history(&mut self, target: TargetId, history: PageHistory) {
        self.histories.entry(target).or_insert(history);
    }

    fn ask_age(&mut self, age_ns: u64) {
        self.shortest_age_ns = Some(self.shortest_age_ns.map_or(age_ns, |known| known.min(age_ns)));
    }
}

/// The pages of `ranges` in which no access can be seen at the moment: of what has been idle, what really still is.
/// Scans without clearing a bit.
pub(crate) fn still_idle(
    source: &mut dyn AccessSource,
    target: TargetId,
    idle: &[AddrRange],
    out: &mut Vec<AddrRange>,
) -> Result<(), SourceError> {
    source.scan(target, idle, Clear::Nothing, &mut |bits| {
        let free = mask::and_not(&mask::and_not(&bits.present, &bits.accessed), &bits.blind);
        if bits.leaf_shift > 12 {
            // Huge pages go whole or stay.
            if free == [u64::MAX; 8] {
                push_range(out, AddrRange::new(bits.base, bits.base + (1 << bits.leaf_shift)));
            }
        } else {
            push_runs(bits.base, &free, out);
        }
    })
}
