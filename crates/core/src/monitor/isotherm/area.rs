//! One target's memory as the algorithm sees it: ranges, probes, regions.

use super::Region;
use super::age;
use super::cell::{Cell, Counts, sum};
use super::likelihood;
use super::place::{self, Wanted};
use super::probe::{self, Probe};
use super::rounds::Rounds;
use super::scan::{self, Touched};
use super::segment::{self, Limits};
use crate::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN, total_len};
use crate::bits::Window;
use crate::snapshot::{Evidence, RegionInfo};
use crate::source::{AccessSource, Clear, SourceError};
use crate::target::TargetId;
use std::collections::BinaryHeap;

/// Log-likelihood ratio from which a region's new counts contradict its memory.
const CHANGED: f32 = 4.0;
/// The same where a region that was accessed shows no access at all any more.
const FELL_SILENT: f32 = 3.0;

/// Part of what clearing may cost that the probes that come first may take.
const FIRST_PART: f64 = 0.75;

/// Rounds follow each other in runs of so many.
pub(super) const RUN: f64 = 4.0;
/// Where a run comes in fewer intervals than this, the first one comes at once.
const SOON: f64 = 16.0;
/// Probes in a round, where runs come less often than every interval.
const ROUND_PROBES: f64 = 8.0;
/// At most so many times as many where the budget pays for more.
const MORE_PROBES: f64 = 3.0;

/// State of one target.
#[derive(Debug, Default)]
pub(super) struct Area {
    pub space: Vec<AddrRange>,
    pub regions: Vec<Region>,
    pub probes: Vec<Probe>,
    windows: Vec<Window>,
    /// Indices of the probes that `windows` was made from.
    indices: Vec<u32>,
    rounds: Rounds,
    /// Rounds that are paid for and were not drawn yet; `None` before the first interval.
    rounds_saved: Option<f64>,
    touched: Touched,
    cells: Vec<Cell>,
    /// Whether the bits of the whole target were cleared at the start of this interval.
    cleared: bool,
    pub scanning: bool,
}

impl Area {
    /// Follows new ranges: what is known inside unchanged ones stays, new ones start as a region of their own.
    pub(crate) fn set_space(&mut self, space: &[AddrRange]) {
        let mut regions: Vec<Region> = Vec::with_capacity(self.regions.len());
        let mut first = 0;
        for range in space {
            let mut at = range.start;
            while first < self.regions.len() && self.regions[first].end <= range.start {
                first += 1;
            }
            for old in self.regions[first..].iter().take_while(|r| r.start < range.end) {
                let (start, end) = (old.start.max(range.start), old.end.min(range.end));
                if start > at {
                    regions.push(Region::new(at, start));
                }
                regions.push(Region { start, end, ..*old });
                at = end;
            }
            if at < range.end {
                regions.push(Region::new(at, range.end));
            }
        }
        self.regions = regions;
        self.space = space.to_vec();
        let mut ranges = space.iter().peekable();
        self.probes.retain(|p| {
            while ranges.peek().is_some_and(|r| r.end <= p.start) {
                ranges.next();
            }
            ranges.peek().is_some_and(|r| r.start <= p.start && p.end() <= r.end)
        });
    }

    pub fn total_len(&self) -> u64 {
        total_len(&self.space)
    }

    /// Chooses the probes of the next interval; about `wanted` of them. Borders are pinned down to `resolution` bytes.
    pub fn place(&mut self, wanted: usize, resolution: u64, rng: &mut fastrand::Rng) {
        // Regions take about eight each and borders some more; what is left explores.
        let explore = wanted.saturating_sub(8 * self.regions.len()).max(wanted / 2).max(1) as u64;
        let hurry = self.probes.len() > 3 * wanted.max(8 * self.regions.len()) / 2;
        let wanted = Wanted { spacing: self.total_len() / explore, resolution, hurry, rates_only: self.scanning };
        self.probes = place::place(&self.probes, &self.regions, wanted, rng);
    }

    fn collect(&mut self, mut wanted: impl FnMut(&Probe) -> bool) {
        self.windows.clear();
        self.indices.clear();
        for (i, p) in self.probes.iter().enumerate().filter(|(_, p)| wanted(p)) {
            self.windows.push(p.window());
            self.indices.push(i as u32);
        }
    }

    /// Draws the rounds of an interval that brings `new` (or a part of one): none until a run of them is paid for. Each
    /// target draws its own moments, and many targets begin with different savings: their work spreads over the
    /// intervals.
    fn draw_rounds(&mut self, new: f64, per_aggr: u32, rng: &mut fastrand::Rng) {
        let first = || if new >= RUN / SOON { RUN } else { RUN * rng.f64() };
        let saved = self.rounds_saved.unwrap_or_else(first) + new;
        let drawn = if new > 0.0 && saved >= RUN && self.probes.iter().any(|p| p.timed) { RUN } else { 0.0 };
        self.rounds_saved = Some((saved - drawn).min(RUN));
        self.rounds = Rounds::draw(drawn as u32, per_aggr, rng);
    }

    /// Rounds in this interval.
    pub(crate) fn nr_rounds(&self) -> usize {
        self.rounds.len()
    }

    /// Chooses who takes part in the interval's rounds, evenly over the probes whose rates are measured, and of
    /// neighbours one that has taken part before: it takes several rounds to know a rate. Clearing scattered pages of a
    /// program that runs is expensive, and all of a round share its moment, so there are few, but the more, the more
    /// `new_rounds` the interval brings.
    fn choose_for_rounds(&mut self, new_rounds: f64, rng: &mut fastrand::Rng) {
        let count = self.rounds.len();
        if count == 0 {
            return;
        }
        let timed: Vec<usize> = (0..self.probes.len()).filter(|&i| self.probes[i].timed).collect();
        let wanted = ROUND_PROBES * (new_rounds / RUN).clamp(1.0, MORE_PROBES) * count as f64;
        let groups = wanted.min(timed.len() as f64) as usize;
        let mut turn = rng.usize(0..count);
        for group in 0..groups {
            let group = &timed[group * timed.len() / groups..(group + 1) * timed.len() / groups];
            let knows = |i: &usize| self.probes[*i].old_tick.seen > 0.0;
            let first = rng.usize(0..group.len());
            let chosen = group[first..].iter().chain(&group[..first]).copied().find(knows).unwrap_or(group[first]);
            let probe = &mut self.probes[chosen];
            // Probes in a leaf share its bit: what one clears, the others of a later round would miss.
            turn = if probe.huge { (probe.start / TABLE_SPAN) as usize } else { turn + 1 };
            probe.round = Some((turn % count) as u8);
        }
    }

    /// Begins an aggregation interval: clears what has to be cleared, and chooses who takes part in which round. Of the
    /// probes that have to be armed, as many are as `allowance_ns` pays for, chosen evenly; the others rest for this
    /// interval. It brings `new_rounds` rounds, or a part of one. Returns what arming was estimated at, ns.
    pub fn begin(
        &mut self,
        target: TargetId,
        allowance_ns: f64,
        new_rounds: f64,
        per_aggr: u32,
        rng: &mut fastrand::Rng,
        source: &mut dyn AccessSource,
    ) -> Result<f64, SourceError> {
        self.draw_rounds(new_rounds, per_aggr, rng);
        self.probes.iter_mut().for_each(Probe::begin);
        if self.scanning && !self.cleared {
            // After the first time, the scan that ended the last interval has cleared everything.
            source.scan(target, &self.space, Clear::All, &mut |_| {})?;
            self.cleared = true;
        }
        // Some pin borders down and measure rates: they come first, but leave something for exploring.
        let price = |first: bool| -> f64 {
            let wanted = self.probes.iter().filter(|p| p.needs_arm && p.first == first);
            wanted.map(Probe::arm_price_ns).sum::<f64>().max(1.0)
        };
        let allowance_ns = allowance_ns.max(0.0);
        let (first_price, other_price) = (price(true), price(false));
        let first_share = (allowance_ns * FIRST_PART / first_price).min(1.0);
        let other_share = ((allowance_ns - first_share * first_price) / other_price).min(1.0);
        let mut credit = [rng.f64(), rng.f64()];
        self.choose_for_rounds(new_rounds, rng);
        self.windows.clear();
        self.indices.clear();
        let mut armed_ns = 0.0;
        for (i, p) in self.probes.iter_mut().enumerate() {
            if p.needs_arm {
                if p.round.is_some() && (p.is_fast() || self.scanning) {
                    // Its round arms it, which saves clearing its bits twice.
                    continue;
                }
                let (credit, share) =
                    if p.first { (&mut credit[0], first_share) } else { (&mut credit[1], other_share) };
                *credit += share;
                if *credit < 1.0 {
                    continue;
                }
                *credit -= 1.0;
            }
            if p.needs_arm && !self.scanning {
                self.windows.push(p.window());
                self.indices.push(i as u32);
                armed_ns += p.arm_price_ns();
            }
        }
        if !self.windows.is_empty() {
            source.arm(target, &mut self.windows)?;
        }
        for &i in &self.indices {
            self.probes[i as usize].needs_arm = false;
        }
        Ok(armed_ns)
    }

    /// Begins the round of `tick`, if there is one: clears its pages.
    pub(crate) fn begin_round(
        &mut self,
        target: TargetId,
        tick: u32,
        per_aggr: u32,
        rng: &mut fastrand::Rng,
        source: &mut dyn AccessSource,
    ) -> Result<(), SourceError> {
        let Some(round) = self.rounds.beginning(tick) else { return Ok(()) };
        self.windows.clear();
        self.indices.clear();
        for (i, p) in self.probes.iter_mut().enumerate().filter(|(_, p)| p.round == Some(round)) {
            self.windows.push(p.round_window(rng));
            self.indices.push(i as u32);
        }
        if self.windows.is_empty() {
            return Ok(());
        }
        source.arm(target, &mut self.windows)?;
        let left = (per_aggr - tick) as f32 / per_aggr as f32;
        for (&i, w) in self.indices.iter().zip(&self.windows) {
            self.probes[i as usize].round_began(&w.seen, left);
            if self.scanning && w.seen.accessed > 0 {
                self.touched.add(w.start);
            }
        }
        Ok(())
    }

    /// Ends the round that was begun a sampling interval before `tick`, if there is one: looks at its pages.
    pub(crate) fn end_round(
        &mut self,
        target: TargetId,
        tick: u32,
        source: &mut dyn AccessSource,
    ) -> Result<(), SourceError> {
        let Some(round) = self.rounds.ending(tick) else { return Ok(()) };
        self.windows.clear();
        self.indices.clear();
        for (i, p) in self.probes.iter().enumerate().filter(|(_, p)| p.round == Some(round)) {
            self.windows.push(p.part_window());
            self.indices.push(i as u32);
        }
        if self.windows.is_empty() {
            return Ok(());
        }
        source.look(target, &mut self.windows)?;
        for (&i, w) in self.indices.iter().zip(&self.windows) {
            self.probes[i as usize].saw_tick(&w.seen);
        }
        Ok(())
    }

    /// The first tick after `tick` at which a round begins or ends.
    pub(crate) fn next_stop(&self, tick: u32) -> Option<u32> {
        self.rounds.next_stop(tick)
    }

    /// The look at the end of the aggregation interval.
    pub(crate) fn look_aggr(&mut self, target: TargetId, source: &mut dyn AccessSource) -> Result<(), SourceError> {
        if self.scanning {
            let mut collector = scan::Collector::new(&self.space);
            self.touched.sort();
            let touched = &self.touched;
            source.scan(target, &self.space, Clear::All, &mut |bits| collector.table(&touched.complete(bits)))?;
            self.cells = scan::with_rates(&collector.finish(), &self.probes);
            self.touched.clear();
            return Ok(());
        }
        self.collect(|p| !p.needs_arm);
        if self.windows.is_empty() {
            return Ok(());
        }
        source.look(target, &mut self.windows)?;
        for (&i, w) in self.indices.iter().zip(&self.windows) {
            self.probes[i as usize].saw_aggr(&w.seen);
        }
        Ok(())
    }

    /// Draws new regions from what was seen.
    pub(crate) fn aggregate(&mut self, limits: &Limits) {
        if !self.scanning {
            self.doubt_memory();
            self.cells.clear();
            let mut rest = &self.probes[..];
            for range in &self.space {
                rest = &rest[rest.partition_point(|p| p.start < range.start)..];
                let (inside, behind) = rest.split_at(rest.partition_point(|p| p.start < range.end));
                probe::cells(inside, *range, &mut self.cells);
                rest = behind;
            }
        }
        let segments = segment::draw(&self.cells, limits);
        let regions: Vec<Region> = segments
            .iter()
            .map(|s| Region {
                start: s.start,
                end: s.end,
                nr: s.nr_accesses(limits.max_nr),
                age: 0,
                rate: s.aggr_rate(),
                evidence: s.evidence,
            })
            .collect();
        self.regions = age::carry_over(&self.regions, regions, limits.nr_threshold, limits.max_segments);
        for p in &mut self.probes {
            p.settle();
            // A scan clears everything; its probes are free to move.
            p.needs_arm |= self.scanning;
        }
    }

    /// Where a region's new counts contradict what its probes remember, the memory is dropped.
    fn doubt_memory(&mut self) {
        let mut rest = &mut self.probes[..];
        for region in &self.regions {
            let below = rest.partition_point(|p| p.start < region.start);
            let (_, tail) = rest.split_at_mut(below);
            let count = tail.partition_point(|p| p.start < region.end);
            let (mine, behind) = tail.split_at_mut(count);
            let (mut old, mut new) = (Counts::default(), Counts::default());
            for p in mine.iter() {
                old.add(p.old_aggr);
                new.add(p.aggr);
            }
            let doubt = likelihood::ratio(old, new);
            if doubt > CHANGED || (new.hits <= 0.0 && doubt > FELL_SILENT) {
                mine.iter_mut().for_each(Probe::forget);
            }
            rest = behind;
        }
    }

    /// Bytes that are present, and bytes accessed in an interval, as far as the last interval tells.
    pub(crate) fn resident_and_hot(&self) -> (f64, f64) {
        let (mut resident, mut hot) = (0.0, 0.0);
        for r in &self.regions {
            let len = (r.end - r.start) as f64;
            let e = r.evidence;
            let present = if e.pages > 0 { f64::from(e.present) / f64::from(e.pages) } else { 1.0 };
            resident += len * present;
            hot += len * f64::from(r.rate);
        }
        (resident, hot)
    }

    /// Switches between probes and scans. Regions stay.
    pub(crate) fn set_scanning(&mut self, on: bool) {
        if self.scanning != on {
            self.scanning = on;
            self.cleared = false;
            self.probes.clear();
            self.cells.clear();
            self.touched.clear();
            self.rounds = Rounds::none();
        }
    }

    pub(crate) fn region_infos(&self, out: &mut Vec<RegionInfo>) {
        out.extend(self.regions.iter().map(|r| RegionInfo {
            start: r.start,
            end: r.end,
            nr_accesses: r.nr,
            age: r.age,
            evidence: Some(r.evidence),
            // Where nobody has looked yet, nothing is known, not even that nothing was accessed.
            accessed: (r.evidence.pages > r.evidence.blind).then(|| r.accessed()),
        }));
    }

    /// Splits regions evenly until there are `least`, or every region is a page: the largest first, of equally large ones
    /// the last.
    pub(crate) fn ensure_regions(&mut self, least: usize) {
        if self.regions.len() >= least {
            return;
        }
        let place = |(i, region): (usize, &Region)| (region.len(), region.start, i);
        let mut by_size: BinaryHeap<(u64, u64, usize)> = self.regions.iter().enumerate().map(place).collect();
        while self.regions.len() < least
            && let Some((len, start, i)) = by_size.pop()
        {
            let middle = (start + len / 2) & !(PAGE_SIZE - 1);
            if middle <= start {
                break;
            }
            let right = self.regions[i].split_off(middle);
            by_size.push(place((i, &self.regions[i])));
            by_size.push(place((self.regions.len(), &right)));
            self.regions.push(right);
        }
        self.regions.sort_unstable_by_key(|region| region.start);
    }
}

impl Region {
    /// Takes what lies from `middle` on, which is within it, with half of the evidence.
    fn split_off(&mut self, middle: u64) -> Self {
        let whole = self.evidence;
        let half = Evidence {
            checks: whole.checks / 2,
            pages: whole.pages / 2,
            present: whole.present / 2,
            blind: whole.blind / 2,
        };
        let right = Self { start: middle, evidence: half, ..*self };
        self.end = middle;
        self.evidence = Evidence {
            checks: whole.checks - half.checks,
            pages: whole.pages - half.pages,
            present: whole.present - half.present,
            blind: whole.blind - half.blind,
        };
        debug_assert_eq!(sum(&self.evidence, &half), whole);
        right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: u64 = PAGE_SIZE;

    fn area(regions: &[(u64, u64)]) -> Area {
        let region = |&(start, end): &(u64, u64)| Region {
            evidence: Evidence { pages: (end - start) as u32, ..Evidence::default() },
            ..Region::new(start * P, end * P)
        };
        Area { regions: regions.iter().map(region).collect(), ..Area::default() }
    }

    fn borders(area: &Area) -> Vec<(u64, u64)> {
        area.regions.iter().map(|r| (r.start / P, r.end / P)).collect()
    }

    #[test]
    fn the_largest_region_is_split_first_and_of_equal_ones_the_last() {
        let mut area = area(&[(0, 4), (8, 16), (16, 24), (30, 31)]);
        area.ensure_regions(5);
        assert_eq!(borders(&area), [(0, 4), (8, 16), (16, 20), (20, 24), (30, 31)]);
        area.ensure_regions(7);
        assert_eq!(borders(&area), [(0, 4), (8, 12), (12, 16), (16, 20), (20, 22), (22, 24), (30, 31)]);
        area.ensure_regions(3);
        assert_eq!(area.regions.len(), 7, "none goes");
        area.ensure_regions(1000);
        assert_eq!(area.regions.len(), 21, "all are pages");
    }

    #[test]
    fn a_million_regions_take_no_square_of_that() {
        let mut area = area(&[(0, 3 << 20)]);
        area.ensure_regions(1_000_000);
        assert_eq!(area.regions.len(), 1_000_000);
        assert!(area.regions.windows(2).all(|w| w[0].end == w[1].start));
        assert!(area.regions.iter().all(|r| (3 * P..=6 * P).contains(&r.len())), "evenly");
        assert_eq!(area.regions.iter().map(|r| u64::from(r.evidence.pages)).sum::<u64>(), 3 << 20);
    }
}
