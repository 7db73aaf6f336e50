//! From the figures of smaps to regions: pure functions over plain data.

use isotherm_core::addr::{AddrRange, PAGE_SIZE};
use isotherm_core::snapshot::{Evidence, RegionInfo};

/// What smaps said about one kernel area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    pub range: AddrRange,
    /// Resident bytes.
    pub resident: u64,
    /// Resident bytes with the accessed bit set.
    pub referenced: u64,
    /// Whether accesses to it cannot be seen (hugetlb, a guest's memory).
    pub blind: bool,
    /// Whether it continues the mapping of the area before: adjacent, and the same kind and name.
    pub continues: bool,
}

/// A region and since when its access rate has stayed about the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    range: AddrRange,
    nr_accesses: u32,
    since_ns: u64,
}

/// Joins areas of one mapping if there are more than `limit`.
pub(crate) fn join_above(areas: &mut Vec<Area>, limit: usize) {
    if areas.len() <= limit {
        return;
    }
    let mut joined: Vec<Area> = Vec::new();
    for area in areas.drain(..) {
        match joined.last_mut() {
            Some(last) if area.continues && last.blind == area.blind => {
                last.range.end = area.range.end;
                last.resident += area.resident;
                last.referenced += area.referenced;
            }
            _ => joined.push(area),
        }
    }
    *areas = joined;
}

/// The share of referenced bytes on a scale up to `max`, rounded up: any access at all shows.
pub fn nr_accesses(area: &Area, max: u32) -> u32 {
    if area.resident == 0 || area.blind {
        return 0;
    }
    let referenced = u128::from(area.referenced.min(area.resident));
    (referenced * u128::from(max)).div_ceil(u128::from(area.resident)) as u32
}

/// Regions of the interval `start_ns`..`end_ns`, and what to hold for the next. `held` are those of the last.
///
/// Age follows DAMON's rule: it grows while the rate changes by no more than a tenth of the scale and neither comes to
/// nor leaves zero. It is held as a time, because the length of intervals may change.
pub fn regions(
    areas: &[Area],
    held: &mut Vec<Held>,
    max_nr_accesses: u32,
    (start_ns, end_ns): (u64, u64),
) -> Vec<RegionInfo> {
    let interval_ns = (end_ns - start_ns).max(1);
    let mut next = Vec::with_capacity(areas.len());
    let regions = areas
        .iter()
        .map(|area| {
            let nr_accesses = nr_accesses(area, max_nr_accesses);
            let before = before(held, area.range);
            let steady = before.filter(|h| {
                h.nr_accesses.abs_diff(nr_accesses) <= (max_nr_accesses / 10).max(1)
                    && (h.nr_accesses == 0) == (nr_accesses == 0)
            });
            let since_ns = steady.map_or(start_ns, |h| h.since_ns);
            next.push(Held { range: area.range, nr_accesses, since_ns });
            let age = (start_ns.saturating_sub(since_ns) + interval_ns / 2) / interval_ns;
            RegionInfo {
                start: area.range.start,
                end: area.range.end,
                nr_accesses,
                age: age.try_into().unwrap_or(u32::MAX),
                evidence: Some(evidence(area)),
                accessed: (!area.blind).then_some(area.referenced),
            }
        })
        .collect();
    *held = next;
    regions
}

/// The held region that has most in common with `range`.
fn before(held: &[Held], range: AddrRange) -> Option<Held> {
    let first = held.partition_point(|h| h.range.end <= range.start);
    held[first..]
        .iter()
        .map_while(|h| h.range.intersect(&range).map(|common| (common.len(), *h)))
        .max_by_key(|(common, _)| *common)
        .map(|(_, h)| h)
}

fn evidence(area: &Area) -> Evidence {
    let count = |bytes: u64| u32::try_from(bytes / PAGE_SIZE).unwrap_or(u32::MAX);
    let pages = count(area.range.len());
    if area.blind {
        return Evidence { checks: 0, pages, present: 0, blind: pages };
    }
    let present = count(area.resident);
    Evidence { checks: present, pages, present, blind: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: u64 = PAGE_SIZE;

    fn area(start: u64, pages: u64, resident: u64, referenced: u64) -> Area {
        Area {
            range: AddrRange::new(start * PAGE, (start + pages) * PAGE),
            resident: resident * PAGE,
            referenced: referenced * PAGE,
            blind: false,
            continues: false,
        }
    }

    #[test]
    fn the_share_is_of_resident_bytes_and_rounded_up() {
        assert_eq!(nr_accesses(&area(0, 1000, 100, 1), 20), 1);
        assert_eq!(nr_accesses(&area(0, 1000, 100, 50), 20), 10);
        assert_eq!(nr_accesses(&area(0, 1000, 100, 100), 20), 20);
        assert_eq!(nr_accesses(&area(0, 1000, 100, 200), 20), 20);
        assert_eq!(nr_accesses(&area(0, 1000, 0, 0), 20), 0);
        assert_eq!(nr_accesses(&Area { blind: true, ..area(0, 10, 10, 10) }, 20), 0);
    }

    #[test]
    fn ages_follow_addresses_and_survive_longer_intervals() {
        let mut held = Vec::new();
        let ages = |areas: &[Area], held: &mut Vec<Held>, times| {
            regions(areas, held, 20, times).iter().map(|r| r.age).collect::<Vec<_>>()
        };
        let cold = area(100, 10, 10, 0);
        assert_eq!(ages(&[area(0, 10, 10, 10), cold], &mut held, (0, 100)), [0, 0]);
        assert_eq!(ages(&[area(0, 10, 10, 9), cold], &mut held, (100, 200)), [1, 1]);
        // The first grows at its end, a new one appears between them.
        let grown = [area(0, 14, 14, 14), area(50, 1, 1, 1), cold];
        assert_eq!(ages(&grown, &mut held, (200, 300)), [2, 0, 2]);
        // Intervals twice as long: 300 ns of age are 1.5 of them, rounded up.
        assert_eq!(ages(&grown, &mut held, (300, 500)), [2, 1, 2]);
        // A single access to what was cold begins a new life.
        let touched = [grown[0], grown[1], area(100, 10, 10, 1)];
        assert_eq!(ages(&touched, &mut held, (500, 700)), [3, 2, 0]);
    }

    #[test]
    fn what_cannot_be_seen_is_told_as_blind() {
        let areas = [Area { blind: true, ..area(0, 8, 8, 0) }, area(8, 8, 0, 0)];
        let regions = regions(&areas, &mut Vec::new(), 20, (0, 1));
        assert!(regions[0].is_blind());
        assert!(!regions[1].is_blind());
        assert_eq!(regions[1].evidence.unwrap().present, 0);
    }

    #[test]
    fn areas_of_one_mapping_are_joined_only_when_there_are_too_many() {
        let mut areas = vec![area(0, 2, 2, 1), Area { continues: true, ..area(2, 2, 1, 1) }, area(9, 1, 1, 0)];
        let all = areas.clone();
        join_above(&mut areas, 3);
        assert_eq!(areas, all);
        join_above(&mut areas, 2);
        assert_eq!(areas, [area(0, 4, 3, 2), area(9, 1, 1, 0)]);
    }

    proptest! {
        #[test]
        fn regions_keep_ranges_and_scale(
            list in prop::collection::vec((0u64..9, 1u64..99, 0u64..99, 0u64..99), 0..30),
            max in 1u32..200,
        ) {
            let mut at = 0;
            let areas: Vec<Area> = list.iter().map(|&(gap, pages, resident, referenced)| {
                let a = area(at + gap, pages, resident.min(pages), referenced);
                at += gap + pages;
                a
            }).collect();
            let mut held = Vec::new();
            for (i, want_age) in [(0u64, 0), (1, 1), (2, 2)] {
                let regions = regions(&areas, &mut held, max, (i * 10, i * 10 + 10));
                prop_assert_eq!(regions.len(), areas.len());
                for (r, a) in regions.iter().zip(&areas) {
                    prop_assert_eq!((r.start, r.end, r.age), (a.range.start, a.range.end, want_age));
                    prop_assert!(r.nr_accesses <= max);
                    prop_assert_eq!(r.nr_accesses > 0, a.resident > 0 && a.referenced > 0);
                }
            }
        }
    }
}
