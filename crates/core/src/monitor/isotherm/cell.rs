//! Cells: neighbouring stretches of memory with what was counted in each, and segments made of them.

use crate::snapshot::Evidence;

/// Page observations, decayed sums included, hence fractions.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Counts {
    /// Observations that found the page accessed.
    pub hits: f32,
    /// All observations. A page that is not present counts as observed and not accessed; one that cannot be observed
    /// does not count.
    pub seen: f32,
}

impl Counts {
    pub fn rate(self) -> Option<f32> {
        (self.seen > 0.0).then(|| self.hits / self.seen)
    }

    pub fn add(&mut self, other: Self) {
        self.hits += other.hits;
        self.seen += other.seen;
    }

    pub(crate) fn decay(&mut self, by: f32) {
        self.hits *= by;
        self.seen *= by;
    }
}

/// A stretch of memory and what was counted in it. Cells of a range tile it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cell {
    pub start: u64,
    pub end: u64,
    /// Accessed within the aggregation interval.
    pub aggr: Counts,
    /// Accessed within one sampling interval, as far as a round watched it.
    pub tick: Counts,
    pub evidence: Evidence,
}

impl Cell {
    /// The part of it from `start` to `end`, with its share of what was counted.
    pub fn part(&self, start: u64, end: u64) -> Self {
        let share = (end - start) as f64 / (self.end - self.start).max(1) as f64;
        let counts = |c: Counts| Counts { hits: c.hits * share as f32, seen: c.seen * share as f32 };
        let pages = |n: u32| (f64::from(n) * share).round() as u32;
        let e = self.evidence;
        let evidence = Evidence {
            checks: pages(e.checks),
            pages: pages(e.pages),
            present: pages(e.present),
            blind: pages(e.blind),
        };
        Self { start, end, aggr: counts(self.aggr), tick: counts(self.tick), evidence }
    }
}

/// Neighbouring cells that are taken to be accessed alike.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Segment {
    pub start: u64,
    pub end: u64,
    pub aggr: Counts,
    pub tick: Counts,
    pub evidence: Evidence,
    /// Bytes of the cells with observations, and the same weighted with their rates: probes stand closer together
    /// near borders, so plain counts would favour what lies there.
    aggr_bytes: f32,
    aggr_hot_bytes: f32,
    tick_bytes: f32,
    tick_hot_bytes: f32,
    /// The same weighted with how many rounds each cell's rate goes back to.
    tick_round_bytes: f32,
}

/// A region of this share of touched pages counts as accessed, below it as idle.
const LEAST_RATE: f32 = 1.0 / 1024.0;
/// Below this share, a single hit may be a stray among much that was not looked at; it takes more of them.
const SPARSE_RATE: f32 = 1.0 / 64.0;
/// How many.
const SPARSE_HITS: f32 = 2.5;
/// Rounds that each probe must have taken part in, or the rate at which a single one is enough: a hit in one of four
/// rounds says as little of a rate as none does.
const LEAST_ROUNDS: f32 = 2.0;
const PLAIN_RATE: f32 = 0.5;
/// What it takes in any case: the four rounds of a run, a little faded.
const LEAST_SEEN: f32 = 3.5;

impl From<&Cell> for Segment {
    fn from(c: &Cell) -> Self {
        let len = (c.end - c.start) as f32;
        let weigh = |counts: Counts| counts.rate().map_or((0.0, 0.0), |r| (len, len * r));
        let (aggr_bytes, aggr_hot_bytes) = weigh(c.aggr);
        let (tick_bytes, tick_hot_bytes) = weigh(c.tick);
        Self {
            start: c.start,
            end: c.end,
            aggr: c.aggr,
            tick: c.tick,
            evidence: c.evidence,
            aggr_bytes,
            aggr_hot_bytes,
            tick_bytes,
            tick_hot_bytes,
            tick_round_bytes: tick_bytes * c.tick.seen,
        }
    }
}

impl Segment {
    /// Takes `next`, the following neighbour, in.
    pub fn join(&mut self, next: &Self) {
        self.end = next.end;
        self.aggr.add(next.aggr);
        self.tick.add(next.tick);
        self.evidence = sum(&self.evidence, &next.evidence);
        self.aggr_bytes += next.aggr_bytes;
        self.aggr_hot_bytes += next.aggr_hot_bytes;
        self.tick_bytes += next.tick_bytes;
        self.tick_hot_bytes += next.tick_hot_bytes;
        self.tick_round_bytes += next.tick_round_bytes;
    }

    /// Takes over what rounds found of `whole`, which it is a part of.
    pub(crate) fn take_rate(&mut self, whole: &Self) {
        self.tick = whole.tick;
        self.tick_bytes = whole.tick_bytes;
        self.tick_hot_bytes = whole.tick_hot_bytes;
        self.tick_round_bytes = whole.tick_round_bytes;
    }

    /// Share of the pages that were accessed within the aggregation interval.
    pub(crate) fn aggr_rate(&self) -> f32 {
        if self.aggr_bytes > 0.0 { self.aggr_hot_bytes / self.aggr_bytes } else { 0.0 }
    }

    /// `nr_accesses`: the probability that a page is found accessed after one sampling interval, times `max`. At least
    /// 1 where anything worth a mention was touched in the aggregation interval: "rarely" is not "never".
    pub fn nr_accesses(&self, max: u32) -> u32 {
        let aggr = self.aggr_rate();
        let accessed = aggr >= SPARSE_RATE || (aggr >= LEAST_RATE && self.aggr.hits >= SPARSE_HITS);
        if !accessed {
            return 0;
        }
        // Until enough rounds have watched, all that is known is that it was accessed at least once.
        let tick = if self.tick_bytes > 0.0 { self.tick_hot_bytes / self.tick_bytes } else { 0.0 };
        let plain = tick >= PLAIN_RATE || self.tick_round_bytes >= LEAST_ROUNDS * self.tick_bytes;
        let tick = if plain && self.tick.seen >= LEAST_SEEN { tick } else { 0.0 };
        let nr = (tick.min(aggr) * max as f32).round() as u32;
        nr.clamp(1, max)
    }

    /// Whether nothing in it could be observed.
    pub fn is_blind(&self) -> bool {
        self.aggr.seen <= 0.0 && self.evidence.blind > 0
    }
}

pub(super) fn sum(a: &Evidence, b: &Evidence) -> Evidence {
    Evidence {
        checks: a.checks.saturating_add(b.checks),
        pages: a.pages.saturating_add(b.pages),
        present: a.present.saturating_add(b.present),
        blind: a.blind.saturating_add(b.blind),
    }
}
