//! Drawing regions: neighbouring cells are joined as long as their counts do not speak against it.
//!
//! Bottom-up, in rounds: each round joins the pairs that differ least among their neighbours. Borders thus end up where
//! the observed density changes, not where a random split happened to fall.

use super::cell::{Cell, Segment};
use super::likelihood;

/// Log-likelihood ratio from which two neighbours count as different, for a single pair: odds of about 50 to 1. The
/// logarithm of the number of pairs comes on top, since among many pairs some differ by chance.
const DIFFERENT: f32 = 4.0;
/// How much of the logarithm counts: neighbours share cells, so the pairs are not independent.
const MANY_PAIRS: f32 = 0.7;
/// Shares of touched pages that differ by no more than this are taken as equal (where the access counts are, too).
const SAME_RATE: f32 = 0.3;

/// Limits that shape the result.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// No more segments than this (unless the ranges alone are more).
    pub max_segments: usize,
    /// No segment above this many bytes.
    pub size_limit: u64,
    /// Largest possible `nr_accesses`.
    pub max_nr: u32,
    /// `nr_accesses` that differ by no more than this are taken as equal.
    pub nr_threshold: u32,
}

/// Whether memory of which nothing was observed may lie in one segment with other memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blind {
    Apart,
    /// At the price of the smaller one's pages: then the few between others go before what differs in a large piece.
    Joined,
}

/// What joining two neighbours would deny; `None` if they must stay apart.
fn price(a: &Segment, b: &Segment, limits: &Limits, blind: Blind) -> Option<f32> {
    if a.end != b.start || a.end - a.start + b.end - b.start > limits.size_limit {
        return None;
    }
    if a.is_blind() != b.is_blind() {
        return (blind == Blind::Joined).then(|| a.evidence.pages.min(b.evidence.pages).max(1) as f32);
    }
    let (na, nb) = (a.nr_accesses(limits.max_nr), b.nr_accesses(limits.max_nr));
    let alike = (na == 0) == (nb == 0)
        && na.abs_diff(nb) <= limits.nr_threshold.max(1)
        && (a.aggr_rate() - b.aggr_rate()).abs() <= SAME_RATE;
    Some(if alike { 0.0 } else { likelihood::segments(a, b) })
}

/// Joins runs of cells that agree completely; linear, and most of the work on typical memory.
fn join_equal(cells: &[Cell], limits: &Limits) -> Vec<Segment> {
    let mut out: Vec<Segment> = Vec::with_capacity(64.min(cells.len()));
    for segment in cells.iter().map(Segment::from) {
        match out.last_mut() {
            Some(last)
                if last.end == segment.start
                    && last.is_blind() == segment.is_blind()
                    && segment.end - last.start <= limits.size_limit
                    && extreme(last).is_some()
                    && extreme(last) == extreme(&segment) =>
            {
                last.join(&segment);
            }
            _ => out.push(segment),
        }
    }
    out
}

/// Whether no page or every page was accessed, in both counts.
fn extreme(s: &Segment) -> Option<bool> {
    let none = s.aggr.hits <= 0.0 && s.tick.hits <= 0.0;
    let all = s.aggr.hits >= s.aggr.seen && s.tick.hits >= s.tick.seen && s.aggr.seen > 0.0;
    if none { Some(false) } else { all.then_some(true) }
}

/// One round. Returns whether anything was joined.
fn round(segments: &mut Vec<Segment>, threshold: f32, limits: &Limits, blind: Blind) -> bool {
    let price = |pair: &[Segment]| price(&pair[0], &pair[1], limits, blind).unwrap_or(f32::INFINITY);
    let prices: Vec<f32> = segments.windows(2).map(price).collect();
    let mut out: Vec<Segment> = Vec::with_capacity(segments.len());
    let mut joined_before = false;
    for (i, segment) in segments.iter().enumerate() {
        let join = i > 0 && !joined_before && {
            let p = prices[i - 1];
            let left = if i >= 2 { prices[i - 2] } else { f32::INFINITY };
            let right = prices.get(i).copied().unwrap_or(f32::INFINITY);
            p < threshold && p <= left && p <= right
        };
        match out.last_mut() {
            Some(last) if join => last.join(segment),
            _ => out.push(*segment),
        }
        joined_before = join;
    }
    let changed = out.len() < segments.len();
    *segments = out;
    changed
}

/// Segments of `cells` (sorted, disjoint). Those that only the size limit keeps apart have the access rate of all of
/// them together: it takes many rounds to know one.
pub(super) fn draw(cells: &[Cell], limits: &Limits) -> Vec<Segment> {
    let mut segments = join_equal(cells, limits);
    let first_threshold = DIFFERENT + MANY_PAIRS * (segments.len() as f32).ln().max(0.0);
    let (mut threshold, mut limits, mut blind) = (first_threshold, *limits, Blind::Apart);
    loop {
        while round(&mut segments, threshold, &limits, blind) {}
        if segments.len() <= limits.max_segments || threshold > 1e12 {
            break;
        }
        blind = Blind::Joined;
        threshold *= 2.0;
        if threshold > 1e6 {
            // Only the size limit keeps them apart; the number of regions is the harder rule.
            limits.size_limit = u64::MAX;
        }
    }
    let mut alike = segments.clone();
    limits.size_limit = u64::MAX;
    while round(&mut alike, first_threshold, &limits, Blind::Apart) {}
    let mut alike = alike.iter().peekable();
    for segment in &mut segments {
        while alike.peek().is_some_and(|a| a.end <= segment.start) {
            alike.next();
        }
        if let Some(whole) = alike.peek() {
            segment.take_rate(whole);
        }
    }
    segments
}

#[cfg(test)]
mod tests {
    use super::super::cell::Counts;
    use super::*;
    use crate::snapshot::Evidence;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits { max_segments: 100, size_limit: u64::MAX, max_nr: 20, nr_threshold: 1 };

    fn cell(start: u64, end: u64, hits: f32, seen: f32) -> Cell {
        let counts = Counts { hits, seen };
        Cell { start, end, aggr: counts, tick: counts, evidence: Default::default() }
    }

    #[test]
    fn a_hot_island_in_cold_memory_is_found() {
        let cells: Vec<Cell> =
            (0..1000).map(|i| cell(i, i + 1, if (500..503).contains(&i) { 15.0 } else { 0.0 }, 16.0)).collect();
        let bounds: Vec<_> = draw(&cells, &LIMITS).iter().map(|s| (s.start, s.end)).collect();
        assert_eq!(bounds, [(0, 500), (500, 503), (503, 1000)]);
    }

    #[test]
    fn a_sparse_area_is_one_region() {
        // Every eighth cell of the second half has one hit of 16: 0.8 % density.
        let cells: Vec<Cell> =
            (0..800).map(|i| cell(i, i + 1, if i >= 400 && i % 8 == 4 { 1.0 } else { 0.0 }, 16.0)).collect();
        let segments = draw(&cells, &LIMITS);
        assert_eq!(segments.len(), 2, "{segments:?}");
        assert!(segments[1].start.abs_diff(400) <= 40, "{}", segments[1].start);
        assert_eq!((segments[0].nr_accesses(20), segments[1].nr_accesses(20)), (0, 1));
    }

    #[test]
    fn parts_of_a_large_segment_share_its_rate_and_keep_what_was_touched() {
        // Alternating ticks: 25 % in all, too few in each part to know it.
        let cells: Vec<Cell> = (0..64)
            .map(|i| {
                let mut cell = cell(i, i + 1, if i < 48 { 16.0 } else { 0.0 }, 16.0);
                cell.tick = Counts { hits: if i % 4 == 0 { 2.0 } else { 0.0 }, seen: if i < 48 { 2.0 } else { 0.0 } };
                cell
            })
            .collect();
        let segments = draw(&cells, &Limits { size_limit: 4, ..LIMITS });
        assert!(segments.len() >= 16 && segments.iter().all(|s| s.end - s.start <= 4), "{segments:?}");
        for s in segments {
            assert_eq!(s.nr_accesses(20), if s.end <= 48 { 5 } else { 0 }, "{s:?}");
        }
    }

    /// A hot quarter of a large piece, then `pairs` of pages that cannot be observed and pages that are not accessed.
    fn with_blind_pages(pairs: u64) -> Vec<Cell> {
        let pages = |start: u64, pages: u64, hot: bool, blind: u64| {
            let seen = (pages - blind) as f32;
            let counts = Counts { hits: if hot { seen } else { 0.0 }, seen };
            let evidence =
                Evidence { checks: pages as u32, pages: pages as u32, present: pages as u32, blind: blind as u32 };
            Cell { start, end: start + pages, aggr: counts, tick: counts, evidence }
        };
        let arena = [pages(0, 4_000, false, 0), pages(4_000, 4_000, true, 0), pages(8_000, 8_000, false, 0)];
        let text =
            (0..pairs).flat_map(|i| [pages(16_000 + i * 40, 39, false, 39), pages(16_039 + i * 40, 1, false, 0)]);
        arena.into_iter().chain(text).collect()
    }

    #[test]
    fn pages_that_cannot_be_observed_do_not_hide_what_differs() {
        let bounds = |pairs, limits: &Limits| {
            let segments = draw(&with_blind_pages(pairs), limits);
            (segments.len(), segments.iter().map(|s| s.end).take_while(|end| *end <= 16_000).collect::<Vec<_>>())
        };
        assert_eq!(bounds(40, &LIMITS), (83, vec![4_000, 8_000, 16_000]), "they stay apart where there is room");
        let (count, borders) = bounds(60, &LIMITS);
        assert!(count <= 100 && borders[..2] == [4_000, 8_000], "{count} {borders:?}");
        let (count, borders) = bounds(400, &Limits { max_segments: 10, ..LIMITS });
        assert!(count <= 10 && borders[..2] == [4_000, 8_000], "{count} {borders:?}");
    }

    proptest! {
        #[test]
        fn segments_tile_the_cells_and_keep_their_counts(
            list in prop::collection::vec((0u64..2, 1u64..5, 0u32..17), 1..200),
            max_segments in 1usize..50,
        ) {
            let mut at = 0;
            let mut gaps = 1;
            let cells: Vec<Cell> = list.iter().map(|&(gap, len, hits)| {
                if gap > 0 && at > 0 { gaps += 1; }
                let s = at + gap;
                at = s + len;
                cell(s, at, hits.min(16) as f32, 16.0)
            }).collect();
            let segments = draw(&cells, &Limits { max_segments, ..LIMITS });
            prop_assert!(segments.len() <= max_segments.max(gaps));
            let len: u64 = segments.iter().map(|s| s.end - s.start).sum();
            prop_assert_eq!(len, cells.iter().map(|c| c.end - c.start).sum::<u64>());
            prop_assert!(segments.windows(2).all(|w| w[0].end <= w[1].start));
            let hits: f32 = segments.iter().map(|s| s.aggr.hits).sum();
            prop_assert!((hits - cells.iter().map(|c| c.aggr.hits).sum::<f32>()).abs() < 0.5);
        }
    }
}
