//! Cells from exact bits: every mapped page of a target, table by table. Rates come from probes, as elsewhere.

use super::cell::{Cell, Counts, sum};
use super::probe::Probe;
use crate::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN};
use crate::bits::TableBits;
use crate::mask;
use crate::snapshot::Evidence;

/// Cells above this number are joined in pairs, so that memory stays bounded on any target.
const MOST_CELLS: usize = 1 << 16;
/// Pages of a cell in words whose pages differ too often to be followed one by one.
const COARSE_PAGES: usize = 16;

/// Collects tables in address order into cells that tile the monitored ranges.
#[derive(Debug)]
pub(super) struct Collector<'a> {
    ranges: &'a [AddrRange],
    range: usize,
    /// All cells below this address are made.
    at: u64,
    pub cells: Vec<Cell>,
}

impl<'a> Collector<'a> {
    pub fn new(ranges: &'a [AddrRange]) -> Self {
        Self { ranges, range: 0, at: ranges.first().map_or(0, |r| r.start), cells: Vec::new() }
    }

    /// Adds a table.
    pub fn table(&mut self, bits: &TableBits) {
        if bits.leaf_shift > 12 {
            let hit = bits.accessed.iter().any(|&w| w != 0);
            let blind = bits.blind.iter().any(|&w| w != 0);
            let state = PageState { hit, blind, present: true };
            let end = bits.base + (1u64 << bits.leaf_shift);
            return self.stretch(bits.base, end, state);
        }
        for word in 0..8 {
            self.word(bits, word);
        }
    }

    fn word(&mut self, bits: &TableBits, word: usize) {
        let (present, accessed, blind) = (bits.present[word], bits.accessed[word], bits.blind[word]);
        let start = bits.base + word as u64 * 64 * PAGE_SIZE;
        let state = |i: usize| PageState {
            hit: accessed >> i & 1 == 1,
            blind: blind >> i & 1 == 1,
            present: present >> i & 1 == 1,
        };
        let changes = |w: u64| (w ^ (w >> 1)).count_ones() - u32::from(w >> 63 == 1);
        if changes(accessed) + changes(blind) <= 6 {
            let mut first = 0;
            for i in 1..=64 {
                if i == 64 || !state(i).same_cell(state(first)) {
                    let (a, b) = (start + first as u64 * PAGE_SIZE, start + i as u64 * PAGE_SIZE);
                    let some = present >> first & (u64::MAX >> (64 - (i - first)));
                    self.pages(a, b, state(first), some.count_ones());
                    first = i;
                }
            }
        } else {
            for first in (0..64).step_by(COARSE_PAGES) {
                let mask = (u64::MAX >> (64 - COARSE_PAGES)) << first;
                let count = |w: u64| (w & mask).count_ones() as f32;
                let seen = COARSE_PAGES as f32 - count(blind);
                let evidence = Evidence {
                    checks: COARSE_PAGES as u32,
                    pages: COARSE_PAGES as u32,
                    present: count(present) as u32,
                    blind: count(blind) as u32,
                };
                let a = start + first as u64 * PAGE_SIZE;
                let aggr = Counts { hits: count(accessed), seen };
                self.push(a, a + COARSE_PAGES as u64 * PAGE_SIZE, aggr, evidence);
            }
        }
    }

    fn stretch(&mut self, start: u64, end: u64, state: PageState) {
        let pages = ((end - start) / PAGE_SIZE) as u32;
        self.pages(start, end, state, if state.present { pages } else { 0 });
    }

    /// Pages that share one state, `present` of them present.
    fn pages(&mut self, start: u64, end: u64, state: PageState, present: u32) {
        let pages = ((end - start) / PAGE_SIZE) as u32;
        let n = pages as f32;
        let seen = if state.blind { 0.0 } else { n };
        let aggr = Counts { hits: if state.hit { seen } else { 0.0 }, seen };
        let blind = if state.blind { pages } else { 0 };
        self.push(start, end, aggr, Evidence { checks: pages, pages, present, blind });
    }

    /// Appends a cell, cut to the monitored ranges, after filling up to it with memory that is not populated.
    fn push(&mut self, start: u64, end: u64, aggr: Counts, evidence: Evidence) {
        self.fill_to(start);
        while let Some(range) = self.ranges.get(self.range).copied() {
            let (a, b) = (start.max(self.at), end.min(range.end));
            if a < b {
                let share = (b - a) as f32 / (end - start) as f32;
                let aggr = Counts { hits: aggr.hits * share, seen: aggr.seen * share };
                self.append(Cell { start: a, end: b, aggr, tick: Counts::default(), evidence });
                self.at = b;
            }
            if end < range.end {
                return;
            }
            self.next_range();
        }
    }

    /// Cells of nothing present from where we are up to `to`.
    fn fill_to(&mut self, to: u64) {
        while let Some(range) = self.ranges.get(self.range).copied() {
            let end = to.min(range.end);
            if end > self.at {
                let pages = (end - self.at) / PAGE_SIZE;
                let evidence =
                    Evidence { checks: 0, pages: pages.min(u64::from(u32::MAX)) as u32, present: 0, blind: 0 };
                let none = Counts { hits: 0.0, seen: pages as f32 };
                self.append(Cell { start: self.at, end, aggr: none, tick: Counts::default(), evidence });
                self.at = end;
            }
            if to < range.end {
                return;
            }
            self.next_range();
        }
    }

    fn next_range(&mut self) {
        self.range += 1;
        if let Some(r) = self.ranges.get(self.range) {
            self.at = r.start;
        }
    }

    fn append(&mut self, cell: Cell) {
        if let Some(last) = self.cells.last_mut()
            && last.end == cell.start
            && same(last.aggr, cell.aggr)
        {
            join(last, &cell);
            return;
        }
        self.cells.push(cell);
        if self.cells.len() > MOST_CELLS {
            halve(&mut self.cells);
        }
    }

    /// The cells, once every table was added.
    pub fn finish(mut self) -> Vec<Cell> {
        self.fill_to(u64::MAX);
        self.cells
    }
}

#[derive(Debug, Clone, Copy)]
struct PageState {
    hit: bool,
    blind: bool,
    present: bool,
}

impl PageState {
    fn same_cell(self, other: Self) -> bool {
        (self.hit, self.blind) == (other.hit, other.blind)
    }
}

/// Both without hits, or both full of them; never a blind one with one that was seen.
fn same(a: Counts, b: Counts) -> bool {
    if (a.seen <= 0.0) != (b.seen <= 0.0) {
        return false;
    }
    (a.hits <= 0.0 && b.hits <= 0.0) || (a.hits >= a.seen && b.hits >= b.seen)
}

fn join(a: &mut Cell, b: &Cell) {
    a.end = b.end;
    a.aggr.add(b.aggr);
    a.tick.add(b.tick);
    a.evidence = sum(&a.evidence, &b.evidence);
}

/// Joins touching cells in pairs.
fn halve(cells: &mut Vec<Cell>) {
    let mut out: Vec<Cell> = Vec::with_capacity(cells.len());
    let mut joined = true;
    for c in cells.iter() {
        match out.last_mut() {
            Some(last) if !joined && last.end == c.start => {
                join(last, c);
                joined = true;
            }
            _ => {
                out.push(*c);
                joined = false;
            }
        }
    }
    *cells = out;
}

/// Pages whose accessed bits rounds of probes cleared since the last scan: what was seen of them then is added to what
/// the next scan sees.
#[derive(Debug, Default)]
pub(super) struct Touched {
    pages: Vec<u64>,
}

impl Touched {
    /// Adds the page at `addr`.
    pub fn add(&mut self, addr: u64) {
        self.pages.push(addr);
    }

    /// Gets ready for [`complete`](Self::complete).
    pub fn sort(&mut self) {
        self.pages.sort_unstable();
    }

    /// `bits` with the pages that are known to have been accessed.
    pub fn complete(&self, bits: &TableBits) -> TableBits {
        let end = bits.base + TABLE_SPAN.max(1 << bits.leaf_shift);
        let first = self.pages.partition_point(|&p| p < bits.base);
        let mut all = *bits;
        for &page in self.pages[first..].iter().take_while(|&&p| p < end) {
            if bits.leaf_shift > 12 {
                all.accessed = mask::and_not(&bits.present, &bits.blind);
            } else {
                mask::put(&mut all.accessed, ((page - bits.base) / PAGE_SIZE) as usize);
            }
        }
        all.accessed = mask::and_not(&mask::and(&all.accessed, &bits.present), &bits.blind);
        all
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.pages.clear();
    }
}

/// Gives each of `cells` (sorted) the rates that `probes` (sorted) measured in it. A cell with several probes is cut
/// halfway between them, so that memory that is all touched, but not equally often, can become two regions.
pub(super) fn with_rates(cells: &[Cell], probes: &[Probe]) -> Vec<Cell> {
    let mut out = Vec::with_capacity(cells.len() + probes.len());
    let mut rest = probes;
    for cell in cells {
        rest = &rest[rest.partition_point(|p| p.start < cell.start)..];
        let (inside, behind) = rest.split_at(rest.partition_point(|p| p.start < cell.end));
        rest = behind;
        let mut start = cell.start;
        for (i, p) in inside.iter().enumerate() {
            let end = match inside.get(i + 1) {
                Some(next) => (p.end() + (next.start - p.end()) / 2) & !(PAGE_SIZE - 1),
                None => cell.end,
            };
            let mut part = if inside.len() > 1 { cell.part(start, end) } else { *cell };
            if part.aggr.seen > 0.0 {
                part.tick = p.old_tick;
                part.tick.add(p.tick);
            }
            out.push(part);
            start = end;
        }
        if inside.is_empty() {
            out.push(*cell);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::TABLE_SPAN;
    use proptest::prelude::*;

    fn table(base: u64, accessed: [u64; 8]) -> TableBits {
        TableBits { base, leaf_shift: 12, present: [u64::MAX; 8], accessed, cleared: accessed, blind: [0; 8] }
    }

    #[test]
    fn runs_become_cells_and_holes_are_idle() {
        let ranges = [AddrRange::new(0, 3 * TABLE_SPAN)];
        let mut c = Collector::new(&ranges);
        let mut accessed = [0; 8];
        accessed[1] = 0xff0;
        c.table(&table(TABLE_SPAN, accessed));
        let cells = c.finish();
        let got: Vec<_> = cells.iter().map(|c| (c.start / PAGE_SIZE, c.end / PAGE_SIZE, c.aggr.hits)).collect();
        assert_eq!(got, [(0, 580, 0.0), (580, 588, 8.0), (588, 1536, 0.0)]);
        assert_eq!(cells[0].evidence.present, 68);
    }

    #[test]
    fn a_huge_leaf_is_one_cell() {
        let ranges = [AddrRange::new(0, 2 * TABLE_SPAN)];
        let mut c = Collector::new(&ranges);
        c.table(&TableBits { leaf_shift: 21, ..table(TABLE_SPAN, [u64::MAX; 8]) });
        let got: Vec<_> = c.finish().iter().map(|c| (c.start, c.aggr.hits)).collect();
        assert_eq!(got, [(0, 0.0), (TABLE_SPAN, 512.0)]);
    }

    #[test]
    fn rates_cut_cells_halfway_between_probes() {
        let whole = Counts { hits: 100.0, seen: 100.0 };
        let evidence = Evidence { checks: 100, pages: 100, present: 100, blind: 0 };
        let cell = Cell { start: 0, end: 100 * PAGE_SIZE, aggr: whole, tick: Counts::default(), evidence };
        let cold = Cell { start: cell.end, end: 2 * cell.end, aggr: Counts { hits: 0.0, seen: 100.0 }, ..cell };
        let probe = |page: u64, hits| {
            let mut p = Probe::new(page * PAGE_SIZE, 1);
            p.old_tick = Counts { hits, seen: 4.0 };
            p
        };
        let got = with_rates(&[cell, cold], &[probe(9, 4.0), probe(30, 1.0)]);
        let got: Vec<_> = got.iter().map(|c| (c.end / PAGE_SIZE, c.tick.hits, c.aggr.hits, c.evidence.pages)).collect();
        assert_eq!(got, [(20, 4.0, 20.0, 20), (100, 1.0, 80.0, 80), (200, 0.0, 0.0, 100)]);
    }

    #[test]
    fn what_a_round_cleared_is_not_lost() {
        let mut touched = Touched::default();
        [TABLE_SPAN + 70 * PAGE_SIZE, 3, TABLE_SPAN + PAGE_SIZE].into_iter().for_each(|p| touched.add(p));
        touched.sort();
        let mut bits = table(TABLE_SPAN, [0; 8]);
        bits.blind[0] = 2;
        assert_eq!(touched.complete(&bits).accessed, [0, 1 << 6, 0, 0, 0, 0, 0, 0]);
        bits.blind = [0; 8];
        assert_eq!(touched.complete(&TableBits { leaf_shift: 21, ..bits }).accessed, [u64::MAX; 8]);
        assert_eq!(touched.complete(&table(2 * TABLE_SPAN, [0; 8])).accessed, [0; 8]);
    }

    proptest! {
        #[test]
        fn cells_tile_the_ranges_and_keep_every_hit(
            tables in prop::collection::vec((0u64..3, prop::array::uniform8(any::<u64>()), prop::array::uniform8(any::<u64>())), 1..6),
            cut in 0u64..400,
        ) {
            let mut base = 0;
            let tables: Vec<TableBits> = tables.into_iter().map(|(gap, a, b)| {
                base += (gap + 1) * TABLE_SPAN;
                let mut t = table(base, a);
                for i in 0..8 {
                    t.blind[i] = b[i] & b[(i + 1) % 8] & !a[i];
                }
                t
            }).collect();
            let ranges = [AddrRange::new(TABLE_SPAN + cut * PAGE_SIZE, base / 2 + PAGE_SIZE * 2), AddrRange::new(base / 2 + PAGE_SIZE * 9, base + TABLE_SPAN)];
            prop_assume!(ranges.iter().all(|r| !r.is_empty()) && ranges[0].start < ranges[0].end && ranges[0].start.is_multiple_of(PAGE_SIZE));
            // As a source does: bits outside the ranges are masked off.
            let tables: Vec<TableBits> = tables.into_iter().map(|mut t| {
                for i in 0..512u64 {
                    let inside = ranges.iter().any(|r| r.contains(t.base + i * PAGE_SIZE));
                    if !inside {
                        for w in [&mut t.present, &mut t.accessed, &mut t.blind] {
                            w[(i / 64) as usize] &= !(1 << (i % 64));
                        }
                    }
                }
                t
            }).collect();
            let mut c = Collector::new(&ranges);
            for t in &tables {
                c.table(t);
            }
            let cells = c.finish();
            let mut covered: Vec<AddrRange> = cells.iter().map(|c| AddrRange::new(c.start, c.end)).collect();
            prop_assert!(crate::addr::is_sorted_disjoint(&covered));
            crate::addr::normalize(&mut covered);
            prop_assert_eq!(covered, ranges.to_vec());
            let hits: f32 = cells.iter().map(|c| c.aggr.hits).sum();
            let wanted: u32 = tables.iter().flat_map(|t| t.accessed).map(u64::count_ones).sum();
            prop_assert!((hits - wanted as f32).abs() <= wanted as f32 * 0.02 + 32.0, "{} {}", hits, wanted);
        }
    }
}
