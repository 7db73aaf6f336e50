//! Ages over newly drawn regions.

use super::Region;
use crate::snapshot::Evidence;

/// Ages closer than this (or than half of the smaller one) are taken as equal.
const CLOSE: u32 = 2;
/// A piece below this share of its region does not get a region of its own for its age.
const LEAST_SHARE: u64 = 64;

/// A part of a new region with the age that its memory has.
#[derive(Debug, Clone, Copy)]
struct AgedPart {
    start: u64,
    end: u64,
    age: u32,
}

/// Gives each new region its age from the old ones below it. A piece goes on aging where the access count changed by at
/// most `threshold` and did not begin or cease to be zero (DAMON's rule); elsewhere it starts at 0.
///
/// A region whose pieces have clearly different ages is cut at them, so that memory that has just cooled down is not
/// averaged into memory that was cold for hours, as long as no more than `max_regions` come out. Otherwise the region's
/// age is the size-weighted mean.
pub(super) fn carry_over(old: &[Region], new: Vec<Region>, threshold: u32, max_regions: usize) -> Vec<Region> {
    let mut spare = max_regions.saturating_sub(new.len());
    let mut out = Vec::with_capacity(new.len());
    let mut pieces: Vec<AgedPart> = Vec::new();
    let mut first = 0;
    for region in new {
        while first < old.len() && old[first].end <= region.start {
            first += 1;
        }
        pieces.clear();
        let mut at = region.start;
        for o in old[first..].iter().take_while(|o| o.start < region.end) {
            let (start, end) = (o.start.max(region.start), o.end.min(region.end));
            if start > at {
                push(&mut pieces, AgedPart { start: at, end: start, age: 0 }, region.len());
            }
            let goes_on = o.nr.abs_diff(region.nr) <= threshold && (o.nr == 0) == (region.nr == 0);
            push(
                &mut pieces,
                AgedPart { start, end, age: if goes_on { o.age.saturating_add(1) } else { 0 } },
                region.len(),
            );
            at = end;
        }
        if at < region.end {
            push(&mut pieces, AgedPart { start: at, end: region.end, age: 0 }, region.len());
        }
        if pieces.len() > 1 && pieces.len() - 1 <= spare {
            spare -= pieces.len() - 1;
            out.extend(pieces.iter().map(|p| part(&region, p)));
        } else {
            let age = mean_age(&pieces);
            out.push(Region { age, ..region });
        }
    }
    out
}

/// Appends a piece, or joins it to the last one if their ages are close or one of them is tiny.
fn push(pieces: &mut Vec<AgedPart>, piece: AgedPart, region_len: u64) {
    let tiny = |p: &AgedPart| (p.end - p.start) < region_len / LEAST_SHARE;
    match pieces.last_mut() {
        Some(last) if close(last.age, piece.age) || tiny(&piece) || tiny(last) => {
            last.age = mean_age(&[*last, piece]);
            last.end = piece.end;
        }
        _ => pieces.push(piece),
    }
}

fn close(a: u32, b: u32) -> bool {
    a.abs_diff(b) <= CLOSE.max(a.min(b) / 2)
}

fn mean_age(pieces: &[AgedPart]) -> u32 {
    let (mut sum, mut len) = (0u128, 0u128);
    for p in pieces {
        sum += u128::from(p.end - p.start) * u128::from(p.age);
        len += u128::from(p.end - p.start);
    }
    (sum / len.max(1)) as u32
}

/// The part of a region that a piece covers; evidence goes by size.
fn part(region: &Region, piece: &AgedPart) -> Region {
    let share = |n: u32| (u128::from(n) * u128::from(piece.end - piece.start) / u128::from(region.len().max(1))) as u32;
    let e = region.evidence;
    // At least one page stands for each part: the region's evidence speaks of all of it.
    let pages = share(e.pages).max(u32::from(e.pages > 0));
    let blind = if e.is_blind() { pages } else { share(e.blind) };
    let evidence = Evidence { checks: share(e.checks), pages, present: share(e.present), blind };
    Region { start: piece.start, end: piece.end, age: piece.age, evidence, ..*region }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn region(start: u64, end: u64, nr: u32, age: u32) -> Region {
        Region { start, end, nr, age, ..Region::default() }
    }

    #[test]
    fn pieces_that_go_on_keep_their_age() {
        let old = [region(0, 100, 0, 9), region(100, 200, 10, 4)];
        let new = vec![region(0, 50, 0, 0), region(50, 100, 10, 0), region(100, 150, 11, 0), region(150, 200, 0, 0)];
        let ages: Vec<u32> = carry_over(&old, new, 2, 10).iter().map(|r| r.age).collect();
        assert_eq!(ages, [10, 0, 5, 0]);
    }

    #[test]
    fn what_has_just_cooled_down_stays_apart_from_what_was_cold_for_long() {
        let old = [region(0, 100, 0, 40), region(100, 400, 20, 7)];
        let got = carry_over(&old, vec![region(0, 400, 0, 0)], 2, 10);
        assert_eq!(got.iter().map(|r| (r.start, r.end, r.age)).collect::<Vec<_>>(), [(0, 100, 41), (100, 400, 0)]);
        let crowded = carry_over(&old, vec![region(0, 400, 0, 0)], 2, 1);
        assert_eq!(crowded.iter().map(|r| (r.start, r.end, r.age)).collect::<Vec<_>>(), [(0, 400, 41 / 4)]);
    }

    #[test]
    fn close_ages_are_averaged() {
        let old = [region(0, 100, 0, 9), region(100, 400, 0, 7)];
        let got = carry_over(&old, vec![region(0, 400, 0, 0)], 2, 10);
        assert_eq!(got.iter().map(|r| r.age).collect::<Vec<_>>(), [(100 * 10 + 300 * 8) / 400]);
    }

    proptest! {
        #[test]
        fn regions_still_tile_the_same_memory(
            old in prop::collection::vec((1u64..50, 0u32..3, 0u32..100), 0..20),
            new in prop::collection::vec((1u64..50, 0u32..3), 1..20),
            max in 1usize..40,
        ) {
            let mut at = 0;
            let old: Vec<Region> = old.into_iter().map(|(len, nr, age)| { let s = at; at += len; region(s, at, nr, age) }).collect();
            let mut at = 0;
            let new: Vec<Region> = new.into_iter().map(|(len, nr)| { let s = at; at += len; region(s, at, nr, 0) }).collect();
            let (n, end) = (new.len(), at);
            let got = carry_over(&old, new, 0, max);
            prop_assert!(got.len() <= max.max(n));
            prop_assert_eq!((got[0].start, got[got.len() - 1].end), (0, end));
            prop_assert!(got.windows(2).all(|w| w[0].end == w[1].start && w[0].start < w[0].end));
        }
    }
}
