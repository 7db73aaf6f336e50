//! Probes: windows of pages that stand for the memory around them.
//!
//! A probe is armed (its accessed bits cleared) once and stays armed until it fires, so watching cold memory costs
//! reads only. In memory that is accessed often, it also takes part in one of the [rounds](super::rounds) of each
//! interval, which measure rates. Where it stands is remembered, and so is what it saw, with exponential forgetting.

use super::cell::{Cell, Counts};
use crate::addr::{AddrRange, PAGE_SIZE};
use crate::bits::{Seen, Window};
use crate::snapshot::Evidence;

/// How much of a probe's memory is left after one aggregation interval.
const KEEP: f32 = 0.75;
/// The same for "touched in the interval" where that is frequent: few observations tell enough, and change shows
/// sooner.
const KEEP_FREQUENT: f32 = 0.25;
/// What counts as frequent: this share of the pages.
const FREQUENT: f32 = 0.2;
/// The same for rates: all probes of a round share its moment, so it takes many rounds to average a periodic program
/// out.
const KEEP_RATE: f32 = 0.93;
/// Pages that are found accessed after one sampling interval this often are certain to be within a few of them.
const FAST: f32 = 0.5;

/// A window with its memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Probe {
    pub start: u64,
    pub pages: u16,
    /// Its bits must be cleared before the next look.
    pub needs_arm: bool,
    /// Whether its memory is accessed so often that the rate is to be measured.
    pub timed: bool,
    /// Whether it watches a border or often accessed memory: these are armed first.
    pub first: bool,
    /// The round of this interval that it takes part in.
    pub round: Option<u8>,
    /// What of its window that round watches: the first page and how many.
    part: (u16, u16),
    /// Of what the round watches, pages that were accessed before it began.
    early: u16,
    /// Share of this interval since it was armed, if that was in this interval.
    watched: f32,
    /// Nobody looked at it in the last interval.
    pub rested: bool,
    /// Its pages lie below a leaf whose one bit other probes may share.
    pub huge: bool,
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
            timed: false,
            first: false,
            round: None,
            part: (0, pages),
            early: 0,
            watched: 1.0,
            rested: false,
            huge: false,
            old_aggr: Counts::default(),
            old_tick: Counts::default(),
            aggr: Counts::default(),
            tick: Counts::default(),
            evidence: Evidence::default(),
        }
    }

    /// A probe whose window holds `addr`, aligned to its own size (so it lies inside one page table) and cut to
    /// `range`.
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

    /// What arming it may cost the monitor and its target together in an interval, in ns: a call's share, and clearing
    /// and setting again each page's bit.
    pub(crate) fn arm_price_ns(&self) -> f64 {
        1_000.0 + 400.0 * f64::from(self.pages)
    }

    /// Whether it may as well be armed only when its round begins, which saves clearing its bits twice.
    pub(crate) fn is_fast(&self) -> bool {
        self.timed && self.old_tick.rate().is_some_and(|r| r >= FAST)
    }

    /// Begins an interval, before which it has not been seen since the last one ended.
    pub fn begin(&mut self) {
        self.round = None;
        self.early = 0;
        self.watched = 1.0;
    }

    /// What its round watches: one page, so that the others keep what they say of the whole interval.
    pub(crate) fn round_window(&mut self, rng: &mut fastrand::Rng) -> Window {
        self.part = (rng.u16(0..self.pages), 1);
        self.part_window()
    }

    pub(crate) fn part_window(&self) -> Window {
        Window::new(self.start + u64::from(self.part.0) * PAGE_SIZE, self.part.1)
    }

    /// Its round has begun, with `left` (0 to 1) of the interval ahead, and cleared what was seen.
    pub(crate) fn round_began(&mut self, seen: &Seen, left: f32) {
        if !self.needs_arm {
            self.early = seen.accessed;
        } else if self.part.1 == self.pages {
            self.needs_arm = false;
            self.watched = left;
        }
    }

    /// Takes the look at the end of its round in.
    pub(crate) fn saw_tick(&mut self, seen: &Seen) {
        self.tick = counts(seen, self.part.1);
        self.evidence.checks += u32::from(self.part.1);
        if seen.accessed > 0 {
            // The look at the end of the interval will see that, too.
            self.early = 0;
        }
    }

    /// Takes the look at the end of the aggregation interval in.
    pub(crate) fn saw_aggr(&mut self, seen: &Seen) {
        self.aggr = counts(seen, self.pages);
        self.aggr.hits = (self.aggr.hits + f32::from(self.early)).min(self.aggr.seen);
        // Armed in the middle of the interval: having seen nothing says that much less.
        self.aggr.seen = self.aggr.hits + (self.aggr.seen - self.aggr.hits) * self.watched;
        self.evidence.checks += u32::from(self.pages);
        self.evidence.pages = u32::from(self.pages);
        self.evidence.present = u32::from(seen.present);
        self.evidence.blind = u32::from(seen.blind);
        self.needs_arm = seen.accessed > 0 || seen.blind > 0;
        self.huge = seen.leaf_shift > 12;
    }

    /// The interval's observations become memory.
    pub fn settle(&mut self) {
        // What it saw now is of no use to the next interval, how many pages could be observed is.
        self.evidence.checks = 0;
        self.rested = self.tick.seen <= 0.0 && self.aggr.seen <= 0.0;
        if self.tick.seen > 0.0 {
            self.old_tick.add(std::mem::take(&mut self.tick));
            self.old_tick.decay(KEEP_RATE);
        }
        // Otherwise it rested.
        if self.aggr.seen > 0.0 {
            self.old_aggr.add(std::mem::take(&mut self.aggr));
            let frequent = self.old_aggr.rate().is_some_and(|r| r >= FREQUENT);
            self.old_aggr.decay(if frequent { KEEP_FREQUENT } else { KEEP });
        }
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

/// Turns the probes inside `range` (sorted) into cells that tile it: each probe stands for the memory up to halfway to
/// its neighbours.
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
