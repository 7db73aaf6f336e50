//! Probes: windows of pages that stand for the memory around them.
//!
//! A probe is armed (its accessed bits cleared) once and stays armed until it fires, so watching cold memory costs reads
//! only. Where it stands is remembered, and so is what it saw, with exponential forgetting.

use super::cell::{Cell, Counts};
use crate::addr::{AddrRange, PAGE_SIZE};
use crate::snapshot::Evidence;
use crate::source::{Seen, Window};

/// How much of a probe's memory is left after one aggregation interval.
const KEEP: f32 = 0.75;
/// The same for "touched in the interval" where that is frequent: few observations tell enough, and change shows sooner.
const KEEP_FREQUENT: f32 = 0.25;
/// What counts as frequent: this share of the pages.
const FREQUENT: f32 = 0.2;

/// Windows of at most this many pages are narrow.
pub(super) const NARROW_PAGES: u16 = 4;

/// A window with its memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Probe {
    pub start: u64,
    pub pages: u16,
    /// Its bits must be cleared before the next look.
    pub needs_arm: bool,
    /// Observations of earlier intervals, decayed.
    pub old_aggr: Counts,
    pub old_tick: Counts,
    /// Observations of the interval that runs.
    pub aggr: Counts,
    pub tick: Counts,
    pub evidence: Evidence,
}

impl Probe {
    pub fn new(start: u64, pages: u16) -> Self {
        Self {
            start,
            pages,
            needs_arm: true,
            old_aggr: Counts::default(),
            old_tick: Counts::default(),
            aggr: Counts::default(),
            tick: Counts::default(),
            evidence: Evidence::default(),
        }
    }

    /// A probe whose window holds `addr`, aligned to its own size (so it lies inside one page table) and cut to `range`.
    pub fn at(addr: u64, pages: u16, range: AddrRange) -> Self {
        let size = u64::from(pages.next_power_of_two()) * PAGE_SIZE;
        let start = (addr & !(size - 1)).max(range.start);
        let end = ((addr & !(size - 1)) + size).min(range.end);
        Self::new(start, ((end - start) / PAGE_SIZE) as u16)
    }

    pub fn end(&self) -> u64 {
        self.start + u64::from(self.pages) * PAGE_SIZE
    }

    pub fn window(&self) -> Window {
        Window::new(self.start, self.pages)
    }

    /// What arming it may cost the monitor and its target together, in ns: a call's share, and clearing and setting again each
    /// page's bit.
    pub fn arm_price_ns(&self) -> f64 {
        1_000.0 + 400.0 * f64::from(self.pages)
    }

    /// Whether it is one of the few pages that watch a border or frequently accessed memory.
    pub fn is_narrow(&self) -> bool {
        self.pages <= NARROW_PAGES
    }

    /// Whether the look after the first sampling interval can tell anything new.
    pub fn wants_tick_look(&self) -> bool {
        !self.needs_arm && (self.old_aggr.hits > 0.0 || self.old_aggr.seen == 0.0)
    }

    /// Takes the look after the first sampling interval in.
    pub fn saw_tick(&mut self, seen: &Seen) {
        self.tick = counts(seen, self.pages);
        self.evidence.checks += u32::from(self.pages);
    }

    /// Takes the look at the end of the aggregation interval in.
    pub fn saw_aggr(&mut self, seen: &Seen) {
        self.aggr = counts(seen, self.pages);
        self.evidence.checks += u32::from(self.pages);
        self.evidence.pages = u32::from(self.pages);
        self.evidence.present = u32::from(seen.present);
        self.evidence.blind = u32::from(seen.blind);
        self.needs_arm = seen.accessed > 0 || seen.blind > 0;
    }

    /// The interval's observations become memory.
    pub fn settle(&mut self) {
        self.old_aggr.add(self.aggr);
        self.old_tick.add(self.tick);
        // What it saw now is of no use to the next interval, how many pages could be observed is.
        self.evidence.checks = 0;
        if self.aggr.seen <= 0.0 {
            // It rested.
            return;
        }
        let frequent = self.old_aggr.rate().is_some_and(|r| r >= FREQUENT);
        self.old_aggr.decay(if frequent { KEEP_FREQUENT } else { KEEP });
        self.old_tick.decay(KEEP);
        self.aggr = Counts::default();
        self.tick = Counts::default();
    }

    /// Drops the memory: what it saw before no longer holds.
    pub fn forget(&mut self) {
        self.old_aggr = Counts::default();
        self.old_tick = Counts::default();
    }
}

/// Pages below one huge leaf share one bit: they are one observation.
fn counts(seen: &Seen, pages: u16) -> Counts {
    if seen.leaf_shift > 12 && seen.present > 0 {
        let visible = if seen.blind > 0 { 0.0 } else { 1.0 };
        return Counts { hits: if seen.accessed > 0 { visible } else { 0.0 }, seen: visible };
    }
    Counts { hits: f32::from(seen.accessed), seen: f32::from(pages.saturating_sub(seen.blind)) }
}

/// Turns the probes inside `range` (sorted) into cells that tile it: each probe stands for the memory up to halfway to its
/// neighbours.
pub(super) fn cells(probes: &[Probe], range: AddrRange, out: &mut Vec<Cell>) {
    let mut start = range.start;
    for (i, p) in probes.iter().enumerate() {
        let end = match probes.get(i + 1) {
            Some(next) => {
                let middle = p.end() + (next.start.max(p.end()) - p.end()) / 2;
                (middle & !(PAGE_SIZE - 1)).max(p.end()).min(range.end)
            }
            None => range.end,
        };
        let (mut aggr, mut tick) = (p.old_aggr, p.old_tick);
        aggr.add(p.aggr);
        tick.add(p.tick);
        if end > start {
            out.push(Cell { start, end, aggr, tick, evidence: p.evidence });
            start = end;
        }
    }
    if start < range.end {
        out.push(Cell {
            start,
            end: range.end,
            aggr: Counts::default(),
            tick: Counts::default(),
            evidence: Evidence::default(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_probe_stays_in_its_range_and_in_one_table(page in 0u64..5000, lead in 0u64..600, tail in 1u64..600, pages in 1u16..=16) {
            let range = AddrRange::new(page.saturating_sub(lead) * PAGE_SIZE, (page + tail) * PAGE_SIZE);
            let p = Probe::at(page * PAGE_SIZE, pages, range);
            prop_assert!(p.pages > 0 && range.start <= p.start && p.end() <= range.end);
            prop_assert!(p.start <= page * PAGE_SIZE && page * PAGE_SIZE < p.end());
            prop_assert_eq!(p.start >> 21, (p.end() - 1) >> 21);
        }

        #[test]
        fn cells_tile_the_range(mut at in prop::collection::vec(0u64..990, 1..50)) {
            at.sort_unstable();
            at.dedup();
            let range = AddrRange::new(0, 1000 * PAGE_SIZE);
            let probes: Vec<Probe> = at.iter().map(|&p| Probe::new(p * PAGE_SIZE, 1)).collect();
            let mut out = Vec::new();
            cells(&probes, range, &mut out);
            prop_assert_eq!(out.len(), probes.len());
            prop_assert_eq!((out[0].start, out[out.len() - 1].end), (0, 1000 * PAGE_SIZE));
            prop_assert!(out.windows(2).all(|w| w[0].end == w[1].start));
            prop_assert!(probes.iter().zip(&out).all(|(p, c)| c.start <= p.start && p.end() <= c.end));
        }
    }
}
