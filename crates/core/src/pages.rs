//! Sets of pages, compact where pages lie together: a bitmap for each 2 MiB that holds any.

use crate::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN};
use crate::mask::{self, PageMask, span_mask};
use std::collections::BTreeMap;

/// A set of 4 KiB pages of one address space.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageSet {
    tables: BTreeMap<u64, PageMask>,
}

/// The pages of `range` (page aligned) that lie in the 2 MiB span at `base`.
pub fn mask_of(base: u64, range: AddrRange) -> PageMask {
    let page = |addr: u64| ((addr.clamp(base, base + TABLE_SPAN) - base) / PAGE_SIZE) as usize;
    span_mask(page(range.start), page(range.end.next_multiple_of(PAGE_SIZE)))
}

/// The pages of the table at `base` that lie in `ranges` (sorted, disjoint).
pub fn pages_in(base: u64, ranges: &[AddrRange]) -> PageMask {
    let from = ranges.partition_point(|r| r.end <= base);
    let inside = ranges[from..].iter().take_while(|r| r.start < base + TABLE_SPAN);
    inside.fold([0; 8], |sum, r| mask::or(&sum, &mask_of(base, *r)))
}

/// Appends the runs of set bits to `out`, joining a run with the last range where they touch.
pub fn push_runs(base: u64, mask: &PageMask, out: &mut Vec<AddrRange>) {
    for (i, &word) in mask.iter().enumerate() {
        let (mut rest, mut at) = (word, 0u32);
        while rest != 0 {
            let skip = rest.trailing_zeros();
            let run = (rest >> skip).trailing_ones();
            let start = base + (i as u64 * 64 + u64::from(at + skip)) * PAGE_SIZE;
            push_range(out, AddrRange::new(start, start + u64::from(run) * PAGE_SIZE));
            at += skip + run;
            rest = if at >= 64 { 0 } else { word >> at };
        }
    }
}

/// Appends a range that lies at or after the last one, joining them where they touch.
pub fn push_range(out: &mut Vec<AddrRange>, range: AddrRange) {
    match out.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => out.push(range),
    }
}

impl PageSet {
    /// The pages of `ranges`.
    pub fn of(ranges: &[AddrRange]) -> Self {
        let mut set = Self::default();
        ranges.iter().for_each(|&r| set.insert(r));
        set
    }

    /// Adds the pages of `range`.
    pub fn insert(&mut self, range: AddrRange) {
        for base in spans(range) {
            let mask = mask_of(base, range);
            let table = self.tables.entry(base).or_default();
            (0..8).for_each(|i| table[i] |= mask[i]);
        }
    }

    /// Takes the pages of `range` out; how many bytes were in.
    pub fn remove(&mut self, range: AddrRange) -> u64 {
        let keys: Vec<u64> =
            self.tables.range(range.start / TABLE_SPAN * TABLE_SPAN..range.end).map(|(&base, _)| base).collect();
        keys.into_iter().map(|base| self.remove_mask(base, &mask_of(base, range))).sum()
    }

    /// Takes pages of one 2 MiB span out; how many bytes were in.
    pub fn remove_mask(&mut self, base: u64, mask: &PageMask) -> u64 {
        let Some(table) = self.tables.get_mut(&base) else { return 0 };
        let mut pages = 0;
        for i in 0..8 {
            pages += u64::from((table[i] & mask[i]).count_ones());
            table[i] &= !mask[i];
        }
        if *table == [0; 8] {
            self.tables.remove(&base);
        }
        pages * PAGE_SIZE
    }

    /// Takes all pages of `other` out.
    pub fn subtract(&mut self, other: &Self) {
        let (few, many) = (self.tables.len(), other.tables.len());
        if few <= many {
            let bases: Vec<u64> = self.tables.keys().copied().collect();
            bases.into_iter().for_each(|base| {
                self.remove_mask(base, &other.mask(base));
            });
        } else {
            other.tables.iter().for_each(|(&base, mask)| {
                self.remove_mask(base, mask);
            });
        }
    }

    /// Adds all pages of `other`.
    pub fn unite(&mut self, other: &Self) {
        other.tables.iter().for_each(|(&base, mask)| self.insert_mask(base, mask));
    }

    /// Adds pages of one 2 MiB span.
    pub fn insert_mask(&mut self, base: u64, mask: &PageMask) {
        if *mask != [0; 8] {
            let table = self.tables.entry(base).or_default();
            (0..8).for_each(|i| table[i] |= mask[i]);
        }
    }

    /// The pages of the span at `base` that are in.
    pub fn mask(&self, base: u64) -> PageMask {
        self.tables.get(&base).copied().unwrap_or_default()
    }

    /// Bytes in the set.
    pub fn len(&self) -> u64 {
        self.tables.values().flatten().map(|w| u64::from(w.count_ones())).sum::<u64>() * PAGE_SIZE
    }

    /// Whether no page is in.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// The pages as ranges: sorted, disjoint, as long as can be.
    pub fn ranges(&self) -> Vec<AddrRange> {
        let mut out = Vec::new();
        self.tables.iter().for_each(|(&base, mask)| push_runs(base, mask, &mut out));
        out
    }

    /// Takes out all pages that do not lie in `ranges` (sorted, disjoint).
    pub fn keep(&mut self, ranges: &[AddrRange]) {
        self.tables.retain(|&base, mask| {
            *mask = mask::and(mask, &pages_in(base, ranges));
            *mask != [0; 8]
        });
    }

    /// Memory that it takes, bytes; the map's own overhead is estimated.
    pub fn memory_bytes(&self) -> usize {
        self.tables.len() * size_of::<(u64, PageMask)>() * 3 / 2
    }

    /// All pages out.
    pub fn clear(&mut self) {
        self.tables.clear();
    }
}

fn spans(range: AddrRange) -> impl Iterator<Item = u64> {
    (range.start / TABLE_SPAN..range.end.div_ceil(TABLE_SPAN)).map(|i| i * TABLE_SPAN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::{is_sorted_disjoint, normalize, total_len};
    use proptest::prelude::*;

    fn arb_ranges() -> impl Strategy<Value = Vec<AddrRange>> {
        prop::collection::vec((0u64..2000, 1u64..700), 1..20)
            .prop_map(|v| v.into_iter().map(|(s, l)| AddrRange::new(s * PAGE_SIZE, (s + l) * PAGE_SIZE)).collect())
    }

    proptest! {
        #[test]
        fn a_mask_holds_exactly_the_pages_in_the_ranges(mut ranges in arb_ranges()) {
            normalize(&mut ranges);
            for table in 0..4 {
                let m = pages_in(table * TABLE_SPAN, &ranges);
                for i in 0..512 {
                    let a = table * TABLE_SPAN + i as u64 * PAGE_SIZE;
                    prop_assert_eq!(mask::has(&m, i), ranges.iter().any(|r| r.contains(a)));
                }
            }
        }

        #[test]
        fn a_set_is_what_went_in_without_what_went_out(put in arb_ranges(), take in arb_ranges()) {
            let mut expected = put.clone();
            normalize(&mut expected);
            let mut set = PageSet::of(&put);
            prop_assert_eq!(set.ranges(), expected.clone());
            prop_assert_eq!(set.len(), total_len(&expected));
            let mut kept = set.clone();
            let mut inside = take.clone();
            normalize(&mut inside);
            kept.keep(&inside);
            let mut outside = set.clone();
            outside.subtract(&PageSet::of(&take));
            prop_assert_eq!(kept.len() + outside.len(), set.len());
            outside.subtract(&kept);
            prop_assert_eq!(kept.len() + outside.len(), set.len());
            outside.unite(&kept);
            prop_assert_eq!(&outside, &set);
            let before = set.len();
            let mut subtracted = set.clone();
            subtracted.subtract(&PageSet::of(&take));
            let out: u64 = take.iter().map(|&r| set.remove(r)).sum();
            prop_assert_eq!(&subtracted, &set);
            prop_assert_eq!(set.len(), before - out);
            prop_assert!(is_sorted_disjoint(&set.ranges()));
            for page in (0..2700).map(|p| p * PAGE_SIZE) {
                let inside = put.iter().any(|r| r.contains(page)) && !take.iter().any(|r| r.contains(page));
                prop_assert_eq!(set.ranges().iter().any(|r| r.contains(page)), inside);
            }
        }
    }
}
