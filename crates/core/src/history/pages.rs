//! The page history of one address space.

use super::epoch::{ABSENT, BLIND, Epochs, STANDING};
use super::known::Known;
use super::reaccessed::Reaccessed;
use super::table::{Learnt, TENTH_NS, Table};
use super::to_clear::ToClear;
use super::usage::{Reuse, Usage};
use crate::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN, normalize};
use crate::bits::{TableBits, Window};
use crate::mask::{self, NO_PAGES, PageMask};
pub use crate::pages::pages_in;
use crate::pages::{mask_of, push_range};
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::ops::ControlFlow;

/// A process whose pages are looked at for the first time no later than this after it began, ns, is known from its begin on.
const LATE_NS: u64 = 120_000_000_000;

/// Pages that cannot be observed are known to be idle where the process has not run for so long, ns. After shorter rests next to
/// nothing would be known of them all the same.
const LONG_REST_NS: u64 = 10_000_000_000;

/// A set of values that a page's byte may have.
pub type Codes = [bool; 256];

/// Which pages of an address space were last accessed when. A walk is [`begin_walk`](Self::begin_walk), then for every
/// table that the source hands out [`wanted`](Self::wanted) (what to clear) and [`take`](Self::take), then
/// [`end_walk`](Self::end_walk).
///
/// Takes at most a byte a page; tables whose pages are alike take one entry.
#[derive(Debug, Clone)]
pub struct PageHistory {
    epochs: Epochs,
    tables: BTreeMap<u64, Table>,
    walks: u64,
    learnt: Learnt,
    most_level: u8,
    /// One table in so many is watched, chosen by a hash of its address; a power of two.
    one_in: u32,
    /// Of these, pages that have never been cleared may be cleared in one in so many; a power of two.
    begun_in: u32,
    /// Of these pages, those that the present walk left as they are.
    waiting: u32,
    /// Pages found accessed again by the walks that have ended.
    reaccessed: Reaccessed,
    /// How many of the pages in use were used again.
    reuse: Reuse,
    started_ns: Option<NonZeroU64>,
    rests_since_ns: Option<NonZeroU64>,
}

impl PageHistory {
    /// Nothing is known; the first walk will be at `now_ns`.
    pub fn new(now_ns: u64) -> Self {
        let learnt = Learnt::default();
        let (epochs, tables, reaccessed) = (Epochs::new(now_ns), BTreeMap::new(), Reaccessed::default());
        Self {
            epochs,
            tables,
            walks: 0,
            learnt,
            most_level: 0,
            one_in: 1,
            begun_in: 1,
            waiting: 0,
            reaccessed,
            reuse: Reuse::default(),
            started_ns: None,
            rests_since_ns: None,
        }
    }

    /// What was kept of an earlier one: epochs, the number of walks, and tables by address.
    pub fn restore(epochs: Epochs, walks: u64, tables: BTreeMap<u64, Table>) -> Self {
        Self { epochs, walks: walks.clamp(1, 1 << 62), tables, ..Self::new(0) }
    }

    /// When the watch began, ns.
    pub fn begin_ns(&self) -> u64 {
        self.epochs.begin_ns()
    }

    /// When the process began, ns, if that is known.
    pub(super) fn set_started(&mut self, started_ns: Option<u64>) {
        self.started_ns = started_ns.and_then(NonZeroU64::new);
    }

    /// When the process began, ns, where the watch began shortly after: then nothing happened to its pages before that, and
    /// pages that it has not accessed are its parent's. `None`: earlier, or not known.
    pub(super) fn started_ns(&self) -> Option<u64> {
        let started_ns = self.started_ns?.get();
        (self.begin_ns().saturating_sub(started_ns) <= LATE_NS).then_some(started_ns)
    }

    /// Since when the process has not run, at least until [`now_ns`](Self::now_ns); `None`: it has, or nobody knows.
    pub(super) fn rests_since_ns(&self) -> Option<u64> {
        self.rests_since_ns.map(NonZeroU64::get)
    }

    /// The process has not run from `since_ns` to `now_ns`: what the last walk saw holds until then. `false`, and nothing
    /// changes, where it ran after that walk began, or there was none.
    pub(super) fn rest(&mut self, since_ns: u64, now_ns: u64) -> bool {
        let holds = self.walks > 0 && self.epochs.rest(since_ns, now_ns);
        if holds {
            self.rests_since_ns = NonZeroU64::new(since_ns);
        }
        holds
    }

    /// Whether it has not run for so long that this says enough of pages that cannot be observed.
    pub(super) fn rests_long(&self) -> bool {
        self.rests_since_ns().is_some_and(|since_ns| self.now_ns().saturating_sub(since_ns) >= LONG_REST_NS)
    }

    /// Whether it says of most pages when they were accessed: it was walked twice, or once and the process has rested for long.
    pub(crate) fn tells_ages(&self) -> bool {
        self.walks > 1 || self.walks > 0 && self.rests_long()
    }

    /// What is known of the last access to pages with this byte; `None`: they are not present.
    pub(super) fn known(&self, code: u8) -> Option<Known> {
        let known = Known::of(code, &self.epochs, self.started_ns())?;
        let since_ns = self.rests_since_ns().filter(|_| known != Known::Blind || self.rests_long());
        Some(since_ns.map_or(known, |since_ns| known.not_since(since_ns)))
    }

    /// When the last walk was, or was not needed since nothing had changed, ns.
    pub const fn now_ns(&self) -> u64 {
        self.epochs.now_ns()
    }

    /// Time between the last two walks, ns; 0 before the second.
    pub const fn walk_ns(&self) -> u64 {
        self.epochs.walk_ns()
    }

    /// Number of walks so far.
    pub const fn walks(&self) -> u64 {
        self.walks
    }

    /// Tables that are known.
    pub fn table_count(&self) -> usize {
        self.tables.len()
    }

    /// One table in so many is watched.
    pub const fn one_in(&self) -> u32 {
        self.one_in
    }

    /// What the last walk learnt.
    pub const fn learnt(&self) -> &Learnt {
        &self.learnt
    }

    /// What to expect of pages in use as of the last walk.
    pub(super) fn usage(&self) -> Usage {
        self.reuse.usage(self.now_ns(), self.walk_ns())
    }

    /// Pages found accessed again by the end of the last walk, by how long they had been idle.
    pub const fn reaccessed(&self) -> Reaccessed {
        self.reaccessed
    }

    /// What the bytes of pages stand for.
    pub const fn epochs(&self) -> &Epochs {
        &self.epochs
    }

    /// The tables with a page that is present, by address.
    pub fn tables(&self) -> impl Iterator<Item = (u64, &Table)> {
        self.tables.iter().map(|(&base, table)| (base, table))
    }

    /// The table at `base`.
    pub fn table(&self, base: u64) -> Option<&Table> {
        self.tables.get(&base)
    }

    /// Memory that it takes, bytes; the map's own overhead is estimated.
    pub fn memory_bytes(&self) -> usize {
        let entry = (size_of::<u64>() + size_of::<Table>()) * 3 / 2;
        size_of::<Self>() + self.tables.values().map(|t| entry + t.heap_bytes()).sum::<usize>()
    }

    /// How seldom pages that are accessed all the time may be cleared at most: one part in 2^level at each walk.
    pub(crate) fn set_most_level(&mut self, level: u8) {
        self.most_level = level;
    }

    /// Watches one table in `one_in` (a power of two) from the next walk on. What is known of others is forgotten.
    pub fn set_one_in(&mut self, one_in: u32) {
        self.one_in = one_in.max(1).next_power_of_two();
        let one_in = self.one_in;
        self.tables.retain(|&base, _| is_sampled(base, one_in));
    }

    /// Begins with one table in `begun_in` (a power of two) of those that are watched, and goes on to half of them and
    /// so on once all pages of these have been cleared. What they show holds for the others, as far as these say
    /// nothing yet: a figure for all is known early.
    pub(crate) fn set_begun_in(&mut self, begun_in: u32) {
        self.begun_in = begun_in.max(1).next_power_of_two();
    }

    /// Goes on to as many tables as can be cleared for the first time where `pages` may be, of `unresolved` in all.
    pub(crate) fn begin_more(&mut self, unresolved: u64, pages: f64) {
        while self.begun_in > 1 && unresolved as f64 / f64::from(self.begun_in / 2) <= pages {
            self.begun_in /= 2;
        }
    }

    /// See [`set_begun_in`](Self::set_begun_in); 1: all tables have begun.
    pub(crate) const fn begun_in(&self) -> u32 {
        self.begun_in
    }

    /// Whether it is the turn of the table at `base` to have pages cleared that have never been.
    pub(crate) const fn is_begun(&self, base: u64) -> bool {
        ((hash(base) >> 40) / self.one_in as u64).is_multiple_of(self.begun_in as u64)
    }

    /// Begins a walk of `populated` (sorted, disjoint) at `now_ns`; returns the ranges to scan.
    pub fn begin_walk(&mut self, populated: &[AddrRange], now_ns: u64) -> Vec<AddrRange> {
        if !self.epochs.has_room() {
            let mut used = [false; 256];
            self.tables.values().for_each(|t| t.mark_used(&mut used));
            let renumbered = self.epochs.join(&used);
            self.tables.values_mut().for_each(|t| t.renumber(&renumbered));
        }
        self.epochs.begin_walk(now_ns);
        self.rests_since_ns = None;
        self.walks += 1;
        (self.learnt, self.waiting) = (Learnt::default(), 0);
        if self.one_in == 1 {
            return populated.to_vec();
        }
        let mut out = Vec::new();
        for range in populated {
            let bases = (range.start / TABLE_SPAN..range.end.div_ceil(TABLE_SPAN)).map(|i| i * TABLE_SPAN);
            for base in bases.filter(|&base| is_sampled(base, self.one_in)) {
                push_range(&mut out, AddrRange::new(base.max(range.start), (base + TABLE_SPAN).min(range.end)));
            }
        }
        out
    }

    /// Of the pages that the walk finds accessed in a table, those that it should clear: of those never cleared, if it
    /// is the turn of the table.
    pub fn wanted(&self, bits: &TableBits) -> ToClear {
        let wanted = match self.tables.get(&bits.base) {
            Some(table) => table.wanted(bits, &self.epochs, self.walks.wrapping_add(hash(bits.base) >> 32)),
            // The first walk finds bits set that say nothing.
            None if self.walks == 1 => ToClear { never: bits.accessed, ..ToClear::NOTHING },
            None => ToClear { new: bits.accessed, ..ToClear::NOTHING },
        };
        ToClear { never: if self.is_begun(bits.base) { wanted.never } else { NO_PAGES }, ..wanted }
    }

    /// Takes over what the walk saw and cleared of a table, or of an entry of 1 GiB.
    pub fn take(&mut self, bits: &TableBits) -> Learnt {
        let mut sum = Learnt::default();
        // A walk's figures hold from its end on.
        let next_ds = (self.now_ns() - self.begin_ns()) / TENTH_NS + 1;
        for i in 0..1u64 << bits.leaf_shift.saturating_sub(21).min(18) {
            let bits = TableBits { base: bits.base + i * TABLE_SPAN, ..*bits };
            let table = self.tables.entry(bits.base).or_default();
            table.seen_by = self.walks as u16;
            let learnt = table.take(&bits, &mut self.epochs, self.walks == 1, self.most_level);
            if learnt.is_new() {
                table.known_from_ds = next_ds.min(u64::from(u32::MAX)) as u32;
            }
            sum.add(&learnt);
        }
        if self.is_begun(bits.base) {
            self.waiting = self.waiting.saturating_add(u32::try_from(sum.unresolved).unwrap_or(u32::MAX));
        }
        self.learnt.add(&sum);
        sum
    }

    /// The tables that the present walk has not come across.
    pub fn unseen(&self) -> Vec<u64> {
        let walk = self.walks as u16;
        self.tables.iter().filter(|(_, t)| t.seen_by != walk).map(|(&base, _)| base).collect()
    }

    /// Ends a walk, at `now_ns`: tables that it did not come across have gone.
    pub fn end_walk(&mut self, now_ns: u64) {
        self.end_walk_at_rest(now_ns, None);
    }

    /// The same of a process that has not run since `rests_since_ns`; `None`: it may just have.
    pub(super) fn end_walk_at_rest(&mut self, now_ns: u64, rests_since_ns: Option<u64>) {
        self.epochs.end_walk(now_ns, rests_since_ns);
        self.rests_since_ns = rests_since_ns.and_then(NonZeroU64::new);
        self.reaccessed.add_all(&self.epochs.take_reaccessed(), u64::from(self.one_in));
        self.reuse.note(&self.learnt);
        // Single pages that cannot be cleared keep nobody waiting.
        if u64::from(self.waiting) * 256 <= self.learnt.present {
            self.begun_in = (self.begun_in / 2).max(1);
        }
        let walk = self.walks as u16;
        self.tables.retain(|_, t| t.seen_by == walk && t.alike() != Some(ABSENT));
    }

    /// Notes that pages were found accessed, and their bits cleared, by somebody else than a walk.
    pub fn note(&mut self, base: u64, accessed: &PageMask) {
        if self.walks > 0
            && let Some(table) = self.tables.get_mut(&base)
            && table.note(accessed, &mut self.epochs)
        {
            self.rests_since_ns = None;
        }
    }

    /// The same for a window, as far as what was seen of it tells which of its pages these were.
    pub(crate) fn note_window(&mut self, window: &Window) {
        let (shift, range) = (window.seen.leaf_shift, window.range());
        if shift > 12 && window.seen.accessed > 0 {
            let leaf = range.start >> shift << shift;
            (0..1u64 << (shift - 21)).for_each(|i| self.note(leaf + i * TABLE_SPAN, &[u64::MAX; 8]));
        } else if window.seen.accessed == window.pages {
            let base = range.start / TABLE_SPAN * TABLE_SPAN;
            self.note(base, &mask_of(base, range));
        }
    }

    /// Pages that are not mapped any more are forgotten. `mapped`: sorted, disjoint.
    pub(crate) fn keep_mapped(&mut self, mapped: &[AddrRange]) {
        self.tables.retain(|&base, table| {
            let mapped = pages_in(base, mapped);
            table.keep(&mapped);
            mapped != NO_PAGES
        });
    }

    /// The moment by which pages with this byte had certainly been accessed last, ns on the source's clock; `u64::MAX`
    /// where their bit is set, so that it may have been until now. `None`: not present, or cannot be observed.
    pub(crate) fn accessed_by(&self, code: u8) -> Option<u64> {
        let standing = code & STANDING != 0;
        Epochs::is_epoch(code).then(|| if standing { u64::MAX } else { self.epochs.of(code).by_ns })
    }

    /// For each byte, whether `wanted` holds for [what](Self::accessed_by) is known of its pages' last access.
    pub fn codes(&self, wanted: impl Fn(u64) -> bool) -> Codes {
        std::array::from_fn(|c| self.accessed_by(c as u8).is_some_and(&wanted))
    }

    /// For each byte, whether its pages have certainly been idle since `limit_ns` (on the source's clock).
    pub fn idle_codes(&self, limit_ns: u64) -> Codes {
        self.codes(|by_ns| by_ns <= limit_ns)
    }

    /// For each byte, whether a walk after `since_ns` has found its pages accessed, or they have been in constant use
    /// until then.
    pub(crate) fn accessed_codes(&self, since_ns: u64) -> [bool; 256] {
        if self.rests_since_ns().is_some_and(|rests_since_ns| rests_since_ns <= since_ns) {
            return [false; 256];
        }
        let accessed = |c: u8| {
            let known = Epochs::is_epoch(c) && c != STANDING | Epochs::BEFORE;
            let epoch = self.epochs.of(c);
            // What was never cleared has said nothing yet.
            known && (c & STANDING != 0 || epoch.by_ns > since_ns && epoch.after_ns.is_some())
        };
        std::array::from_fn(|c| accessed(c as u8))
    }

    /// Bytes of `ranges` that are present, and of these, that cannot be observed.
    pub fn present_bytes(&self, ranges: &[AddrRange]) -> (u64, u64) {
        let blind: [bool; 256] = std::array::from_fn(|c| c == usize::from(BLIND));
        let present: [bool; 256] = std::array::from_fn(|c| c != usize::from(ABSENT));
        let (mut all, mut unseen) = (0, 0);
        self.each_table_in(ranges, |_, table, asked| {
            all += u64::from(mask::count(&mask::and(&table.pages(&present), asked)));
            unseen += u64::from(mask::count(&mask::and(&table.pages(&blind), asked)));
        });
        (all * PAGE_SIZE, unseen * PAGE_SIZE)
    }

    /// Calls `f` for each known table that `ranges` (sorted, disjoint) reach, with the pages that lie in them.
    pub fn each_table_in(&self, ranges: &[AddrRange], mut f: impl FnMut(u64, &Table, &PageMask)) {
        let _: ControlFlow<()> = self.try_each_table_in(ranges, 0, |base, table, pages| {
            f(base, table, pages);
            ControlFlow::Continue(())
        });
    }

    /// The same for those at the address `from` or above, until `f` breaks.
    pub fn try_each_table_in<B>(
        &self,
        ranges: &[AddrRange],
        from: u64,
        mut f: impl FnMut(u64, &Table, &PageMask) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let mut spans: Vec<AddrRange> = ranges
            .iter()
            .map(|r| AddrRange::new(r.start / TABLE_SPAN * TABLE_SPAN, r.end.next_multiple_of(TABLE_SPAN)))
            .collect();
        normalize(&mut spans);
        for span in spans.iter().filter(|span| from < span.end) {
            for (&base, table) in self.tables.range(span.start.max(from)..span.end) {
                f(base, table, &pages_in(base, ranges))?;
            }
        }
        ControlFlow::Continue(())
    }
}

/// Spreads addresses evenly (Fibonacci hashing: the multiplier is 2^64 divided by the golden ratio).
const fn hash(base: u64) -> u64 {
    (base / TABLE_SPAN).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Whether the table at `base` is one of those watched.
const fn is_sampled(base: u64, one_in: u32) -> bool {
    (hash(base) >> 40).is_multiple_of(one_in as u64)
}
