//! Region boundaries as points, and the difference of two lists of points.
//!
//! Sorted, disjoint regions are the same as a sorted list of points, each telling whether the memory from it to the
//! next point is covered. Neighbours that touch share a point. Between two snapshots most points stay: a merge takes
//! one away, a split adds one.

use super::varint::{Cursor, DecodeError, put};
use super::{MAX_REGIONS, PAGE_SHIFT};
use isotherm_core::snapshot::RegionInfo;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) addr: u64,
    /// Whether a region begins here (else: one ends and none follows).
    pub(crate) covered: bool,
}

const REMOVE: u64 = 0;
const INSERT_COVERED: u64 = 1;
const INSERT_UNCOVERED: u64 = 2;
const END: u64 = 3;

/// Whether the regions can be written as points.
pub(crate) fn is_sorted_disjoint(regions: &[RegionInfo]) -> bool {
    regions.iter().all(|r| r.start < r.end) && regions.windows(2).all(|w| w[0].end <= w[1].start)
}

/// The points of sorted, disjoint regions.
pub(crate) fn of_regions(regions: &[RegionInfo]) -> Vec<Point> {
    let mut points = Vec::with_capacity(regions.len() + 2);
    for (i, region) in regions.iter().enumerate() {
        points.push(Point { addr: region.start, covered: true });
        if regions.get(i + 1).is_none_or(|next| next.start != region.end) {
            points.push(Point { addr: region.end, covered: false });
        }
    }
    points
}

/// Hands out the ranges that points cover; an error if they tell no regions.
pub(crate) fn for_each_range(points: &[Point], mut each: impl FnMut(u64, u64)) -> Result<(), DecodeError> {
    let mut begun: Option<u64> = None;
    for point in points {
        match begun {
            Some(start) => each(start, point.addr),
            None if !point.covered => return Err(DecodeError::Order),
            None => {}
        }
        begun = point.covered.then_some(point.addr);
    }
    if begun.is_some() { Err(DecodeError::Order) } else { Ok(()) }
}

/// Whether all points lie on page boundaries.
pub(crate) fn paged(points: &[Point]) -> bool {
    points.iter().all(|p| p.addr.trailing_zeros() >= PAGE_SHIFT)
}

/// Writes how `new` comes from `old`. Tokens are `kept points << 2 | operation`; an inserted point is followed by its
/// distance from the point before it in the new list, in units of `1 << shift` bytes.
pub(crate) fn encode(out: &mut Vec<u8>, old: &[Point], new: &[Point], shift: u32) {
    let (mut i, mut j, mut kept, mut last) = (0, 0, 0u64, 0u64);
    while i < old.len() || j < new.len() {
        match (old.get(i), new.get(j)) {
            (Some(a), Some(b)) if a == b => {
                kept += 1;
                last = b.addr;
                (i, j) = (i + 1, j + 1);
            }
            (Some(a), b) if b.is_none_or(|b| a.addr <= b.addr) => {
                put(out, kept << 2 | REMOVE);
                kept = 0;
                i += 1;
            }
            (_, Some(b)) => {
                put(out, kept << 2 | if b.covered { INSERT_COVERED } else { INSERT_UNCOVERED });
                put(out, (b.addr - last) >> shift);
                kept = 0;
                last = b.addr;
                j += 1;
            }
            (_, None) => unreachable!("an old point without a new one is removed above"),
        }
    }
    put(out, END);
}

/// Reads a difference to `old`. Points kept at the end are not counted in the last token.
pub(crate) fn decode(input: &mut Cursor<'_>, old: &[Point], shift: u32) -> Result<Vec<Point>, DecodeError> {
    // A few more points than before are usual.
    let mut new: Vec<Point> = Vec::with_capacity(old.len() + old.len() / 8 + 8);
    let mut old = old.iter();
    loop {
        let token = input.number()?;
        let kept = usize::try_from(token >> 2).map_err(|_| DecodeError::Number)?;
        if kept > old.len() {
            return Err(DecodeError::Reference);
        }
        new.extend(old.by_ref().take(kept));
        match token & 3 {
            REMOVE => {
                old.next().ok_or(DecodeError::Reference)?;
            }
            END => {
                new.extend(old);
                break;
            }
            insert => {
                let last = new.last().map_or(0, |p| p.addr);
                let distance = input.number()?;
                let bytes = distance.checked_mul(1 << shift).ok_or(DecodeError::Number)?;
                let addr = last.checked_add(bytes).ok_or(DecodeError::Number)?;
                new.push(Point { addr, covered: insert == INSERT_COVERED });
            }
        }
        if new.len() > 2 * MAX_REGIONS {
            return Err(DecodeError::Limit);
        }
    }
    if new.windows(2).all(|w| w[0].addr < w[1].addr) { Ok(new) } else { Err(DecodeError::Order) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn arb_points() -> impl Strategy<Value = Vec<Point>> {
        prop::collection::vec((1u64..9, 0u64..3), 0..40).prop_map(|v| {
            let mut at = 0;
            let regions: Vec<RegionInfo> = v
                .into_iter()
                .map(|(len, gap)| {
                    let start = at + gap / 2 * 4096;
                    at = start + len * 4096;
                    RegionInfo { start, end: at, nr_accesses: 0, age: 0, evidence: None, accessed: None }
                })
                .collect();
            of_regions(&regions)
        })
    }

    proptest! {
        #[test]
        fn the_difference_leads_from_old_to_new(old in arb_points(), new in arb_points()) {
            let mut out = Vec::new();
            encode(&mut out, &old, &new, 12);
            prop_assert_eq!(decode(&mut Cursor::new(&out), &old, 12), Ok(new));
        }
    }

    #[test]
    fn an_unchanged_list_takes_one_byte() {
        let points = [Point { addr: 4096, covered: true }, Point { addr: 8192, covered: false }];
        let mut out = Vec::new();
        encode(&mut out, &points, &points, 12);
        assert_eq!(out.len(), 1);
    }
}
