//! Where probes go: where uncertainty is largest.
//!
//! Each region keeps a few probes spread over it, large regions more of them; between two regions that differ, the gap
//! that holds the border is cut in four each interval, so that borders converge geometrically.

use super::Region;
use super::probe::Probe;
use crate::addr::{AddrRange, PAGE_SIZE};

/// Pages of a probe in cold memory: many pages are watched for the price of reading them.
const COLD_PAGES: u16 = 16;
/// In memory where a part of the pages is touched in an interval.
const MIXED_PAGES: u16 = 4;
/// In hot memory: each page costs a clear every interval, and one tells as much as many.
const HOT_PAGES: u16 = 1;
/// Probes that even a small region gets, as far as it has room.
const LEAST_PROBES: u64 = 8;
/// Probes at each end of a region that stay where they are.
const PINS: usize = 2;
/// One in this many crowded probes goes each interval: what they know of a border is needed again when a region's count
/// was zero by chance.
const THINNING: u32 = 8;
/// Regions of which this share of the pages is touched in an interval have their rates measured: below it,
/// `nr_accesses` is 1 whatever the rate.
const TIMED_RATE: f32 = 0.05;
/// One in this many cold probes moves each interval, so that no page is passed over for ever.
const COLD_MOVES: u32 = 16;

fn window_pages(region: &Region) -> u16 {
    match region.rate {
        // Nobody has looked yet: many places tell more than many pages, and almost all bits are still to be cleared.
        _ if region.evidence.pages == 0 => MIXED_PAGES,
        r if r >= 0.9 => HOT_PAGES,
        r if r >= 0.2 => MIXED_PAGES,
        _ => COLD_PAGES,
    }
}

/// How densely to place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    /// Distance in bytes between probes of large regions.
    pub spacing: u64,
    /// Borders known to this many bytes are known well enough.
    pub resolution: u64,
    /// There are too many probes: every crowded one goes at once.
    pub hurry: bool,
    /// Scans tell what was touched: probes of one page only, and only where rates are measured.
    pub rates_only: bool,
}

/// Chooses the probes of the next interval for `regions` (sorted, disjoint) from the present `probes` (sorted).
pub(super) fn place(probes: &[Probe], regions: &[Region], wanted: Wanted, rng: &mut fastrand::Rng) -> Vec<Probe> {
    let mut out: Vec<Probe> = Vec::with_capacity(probes.len() + 64);
    let mut rest = probes;
    let mut border_behind: Option<AddrRange> = None;
    for (i, region) in regions.iter().enumerate() {
        if wanted.rates_only && !is_timed(region) {
            continue;
        }
        let below = rest.partition_point(|p| p.start < region.start);
        rest = &rest[below..];
        let count = rest.partition_point(|p| p.start < region.end);
        let (mine, behind) = rest.split_at(count);
        rest = behind;
        let first_new = out.len();
        fill(mine, region, wanted, rng, &mut out);
        let timed = is_timed(region);
        out[first_new..].iter_mut().for_each(|p| (p.timed, p.first) = (timed, timed));
        if let Some(gap) = border_behind.take() {
            // The gap holds the border only if the probes on both sides of it have been looked at.
            let beside = first_new.saturating_sub(PINS)..(first_new + PINS).min(out.len());
            out[beside].iter_mut().for_each(|p| p.first = true);
            let first = out.get(first_new).map_or(region.end, |p| p.start);
            let border = gap.end;
            let gap = AddrRange::new(gap.start, first);
            if gap.len() > wanted.resolution && !wanted.rates_only {
                refine(gap, border, &mut out, first_new);
            }
        }
        let differs = regions.get(i + 1).is_some_and(|n| n.start == region.end && differ(region, n));
        if differs {
            let last = out[first_new..].last().map_or(region.start, Probe::end);
            border_behind = Some(AddrRange::new(last, region.end));
        }
    }
    out.retain(|p| p.pages > 0);
    out
}

/// Whether a border between two regions is worth finding exactly.
fn differ(a: &Region, b: &Region) -> bool {
    a.nr != b.nr || (a.rate - b.rate).abs() > 0.1
}

/// Whether the region's rate is to be measured.
fn is_timed(region: &Region) -> bool {
    region.nr > 0 && region.rate >= TIMED_RATE
}

/// Keeps, thins, moves and adds probes inside one region.
fn fill(mine: &[Probe], region: &Region, wanted: Wanted, rng: &mut fastrand::Rng, out: &mut Vec<Probe>) {
    let range = AddrRange::new(region.start, region.end);
    let pages = if wanted.rates_only { HOT_PAGES } else { window_pages(region) };
    let spacing = page_floor(wanted.spacing.min(range.len() / LEAST_PROBES)).max(u64::from(pages) * PAGE_SIZE);
    let half = page_floor(spacing / 2);
    let first_new = out.len();
    let last = mine.len().saturating_sub(1);
    for (i, p) in mine.iter().enumerate() {
        let before = out.get(first_new..).and_then(|v| v.last()).copied();
        let floor = before.map_or(range.start, |b| b.end());
        if p.start < floor || p.end() > range.end {
            continue;
        }
        // The outermost probes pin the borders down.
        let pins = i < PINS || i + PINS > last;
        let crowded = before.is_some_and(|b| p.start - b.end() < half);
        // One that knows a rate is not easily replaced.
        let knows = p.old_tick.seen > 0.0;
        let goes = if knows == wanted.hurry { rng.u32(0..THINNING) == 0 } else { wanted.hurry };
        if !pins && crowded && goes {
            continue;
        }
        let wrong_size = p.pages > pages && p.needs_arm;
        // One that was not looked at may as well stay: it may know a rate, which is gone where it goes for good.
        let moves = !pins && if p.needs_arm { !p.rested } else { rng.u32(0..COLD_MOVES) == 0 };
        if moves || wrong_size {
            let next = mine.get(i + 1).map_or(range.end, |n| n.start);
            let (low, high) = if moves {
                (floor.max(p.start.saturating_sub(half)), next.min(p.end() + half))
            } else {
                (p.start, p.end())
            };
            let mut moved = Probe::at(pick(low, high, rng), pages, AddrRange::new(low, high));
            moved.old_aggr = p.old_aggr;
            moved.old_tick = p.old_tick;
            moved.evidence = p.evidence;
            out.push(moved);
        } else {
            out.push(*p);
        }
    }
    fill_gaps(range, spacing, pages, first_new, rng, out);
}

/// The page that `addr` is in.
fn page_floor(addr: u64) -> u64 {
    addr & !(PAGE_SIZE - 1)
}

/// A random page in `[low, high)`.
fn pick(low: u64, high: u64, rng: &mut fastrand::Rng) -> u64 {
    rng.u64(low / PAGE_SIZE..(high / PAGE_SIZE).max(low / PAGE_SIZE + 1)) * PAGE_SIZE
}

/// Adds probes to every gap wider than one and a half spacings, evenly with a random shift.
fn fill_gaps(
    range: AddrRange,
    spacing: u64,
    pages: u16,
    first_new: usize,
    rng: &mut fastrand::Rng,
    out: &mut Vec<Probe>,
) {
    let old: Vec<Probe> = out.drain(first_new..).collect();
    let mut at = range.start;
    let mut ends = old.iter().map(|p| Some(*p)).collect::<Vec<_>>();
    ends.push(None);
    for next in ends {
        let end = next.map_or(range.end, |p| p.start);
        let gap = end.saturating_sub(at);
        let edge = next.is_none() || at == range.start;
        let wanted = if edge { spacing } else { spacing + spacing / 2 };
        if gap >= wanted || (old.is_empty() && gap > 0) {
            let n = (gap / spacing.max(1)).clamp(1, 1 << 20);
            let stride = page_floor(gap / n);
            for k in 0..n {
                let low = at + k * stride;
                let high = if k + 1 == n { end } else { low + stride };
                if high > low {
                    out.push(Probe::at(pick(low, high, rng), pages, AddrRange::new(low, high)));
                }
            }
        }
        if let Some(p) = next {
            at = p.end();
            out.push(p);
        }
    }
}

/// Adds up to three probes to the gap around a border, at the border and halfway to the probes on both sides. They go
/// in before the probes from `insert_at` on.
fn refine(gap: AddrRange, border: u64, out: &mut Vec<Probe>, insert_at: usize) {
    let pages = gap.len() / PAGE_SIZE;
    if pages == 0 {
        return;
    }
    let size = (pages / 8).clamp(1, u64::from(MIXED_PAGES)) as u16;
    let low = gap.start + (border - gap.start) / 2;
    let high = border + (gap.end.max(border) - border) / 2;
    let mut added: Vec<Probe> = Vec::with_capacity(3);
    let mut floor = gap.start;
    for at in [low, border, high] {
        let at = page_floor(at);
        if at >= gap.end || at < floor {
            continue;
        }
        let mut p = Probe::at(at, size, AddrRange::new(floor, gap.end));
        p.first = true;
        floor = p.end();
        added.push(p);
    }
    out.splice(insert_at..insert_at, added);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn probes_are_sorted_disjoint_and_inside_regions(
            list in prop::collection::vec((0u64..3, 1u64..4000, 0u32..3), 1..30),
            spacing_pages in 1u64..5000,
            rounds in 1usize..6,
            seed: u64,
        ) {
            let mut at = 10;
            let regions: Vec<Region> = list.iter().map(|&(gap, len, heat)| {
                let start = at + gap;
                at = start + len;
                Region { start: start * PAGE_SIZE, end: at * PAGE_SIZE, nr: heat, rate: heat as f32 / 2.0, ..Region::default() }
            }).collect();
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut probes = Vec::new();
            for round in 0..rounds {
                let spacing = spacing_pages * PAGE_SIZE + 12_345;
                let wanted = Wanted { spacing, resolution: rng.u64(0..100_000), hurry: rng.bool(), rates_only: false };
                probes = place(&probes, &regions, wanted, &mut rng);
                for p in &mut probes {
                    p.needs_arm = rng.bool();
                }
                prop_assert!(probes.windows(2).all(|w| w[0].end() <= w[1].start), "round {}: {:?}", round, probes);
                for p in &probes {
                    prop_assert!(p.pages >= 1 && p.start.is_multiple_of(PAGE_SIZE));
                    prop_assert!(regions.iter().any(|r| r.start <= p.start && p.start < r.end));
                    prop_assert_eq!(p.start >> 21, (p.end() - 1) >> 21);
                }
                for r in &regions {
                    prop_assert!(probes.iter().any(|p| p.start < r.end && p.end() > r.start), "no probe in {:?}", r);
                }
            }
        }
    }
}
