//! The memory of a target without its gaps: every observed and mapped address laid end to end.

use crate::names;
use isotherm_core::addr::{AddrRange, PAGE_SIZE, normalize};
use isotherm_core::history::frame::MappingPages;
use isotherm_core::mapping::Mapping;
use isotherm_core::pages::push_range;
use isotherm_core::snapshot::RegionInfo;

/// Sorted, disjoint address ranges and where each begins when they are laid end to end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GaplessSpace {
    ranges: Vec<AddrRange>,
    /// Offset of each range's begin.
    offsets: Vec<u64>,
    total: u64,
}

impl GaplessSpace {
    /// From ranges in any order.
    pub fn new(mut ranges: Vec<AddrRange>) -> Self {
        normalize(&mut ranges);
        let mut total = 0;
        let offsets = ranges
            .iter()
            .map(|r| {
                let at = total;
                total += r.len();
                at
            })
            .collect();
        Self { ranges, offsets, total }
    }

    /// The ranges, sorted, not touching one another.
    pub fn ranges(&self) -> &[AddrRange] {
        &self.ranges
    }

    /// Bytes in all ranges.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Bytes of the space below `addr`. So a region's share of the space is the difference at its ends.
    pub fn offset(&self, addr: u64) -> u64 {
        let i = self.ranges.partition_point(|r| r.end <= addr);
        match self.ranges.get(i) {
            Some(r) => self.offsets[i] + addr.saturating_sub(r.start),
            None => self.total,
        }
    }

    /// The address at an offset below the total.
    pub fn addr(&self, offset: u64) -> u64 {
        let i = self.offsets.partition_point(|&o| o <= offset).saturating_sub(1);
        self.ranges.get(i).map_or(0, |r| r.start + offset.saturating_sub(self.offsets[i]).min(r.len()))
    }

    /// The address of the page there: rows need not begin where a page does.
    pub fn page_addr(&self, offset: u64) -> u64 {
        self.addr(offset) / PAGE_SIZE * PAGE_SIZE
    }

    /// Address ranges that a part of the space stands for.
    pub fn addresses(&self, from: u64, to: u64) -> Vec<AddrRange> {
        let first = self.offsets.partition_point(|&o| o <= from).saturating_sub(1);
        let mut out = Vec::new();
        for (r, &at) in self.ranges.iter().zip(&self.offsets).skip(first) {
            if at >= to {
                break;
            }
            let (start, end) = (r.start + from.saturating_sub(at), r.start + (to - at).min(r.len()));
            if start < end {
                out.push(AddrRange { start, end });
            }
        }
        out
    }

    /// Gaps between the ranges: the offset at which each is folded, and its size.
    pub fn gaps(&self) -> impl Iterator<Item = (u64, u64)> {
        self.ranges
            .windows(2)
            .zip(&self.offsets[1.min(self.offsets.len())..])
            .map(|(w, &at)| (at, w[1].start - w[0].end))
    }

    /// The part that `ranges` (sorted, disjoint) have in common with this space.
    pub(crate) fn intersection(&self, ranges: &[AddrRange]) -> Self {
        let (mut i, mut j, mut out) = (0, 0, Vec::new());
        while i < self.ranges.len() && j < ranges.len() {
            out.extend(self.ranges[i].intersect(&ranges[j]));
            if self.ranges[i].end <= ranges[j].end { i += 1 } else { j += 1 }
        }
        Self::new(out)
    }
}

/// Collects what was observed and what was mapped at any time of a record.
#[derive(Debug, Default)]
pub(crate) struct SpaceBuilder {
    /// Regions.
    observed: Vec<AddrRange>,
    /// Mappings that hold pages, where these are known.
    with_pages: Vec<AddrRange>,
    mappings: Vec<Mapping>,
}

impl SpaceBuilder {
    /// Adds a snapshot's regions, sorted.
    pub(crate) fn add_regions(&mut self, regions: &[RegionInfo]) {
        add(&mut self.observed, regions.iter().map(|r| AddrRange { start: r.start, end: r.end }));
    }

    /// Adds the mappings that hold pages, sorted.
    pub(crate) fn add_pages(&mut self, mappings: &[MappingPages]) {
        add(&mut self.with_pages, mappings.iter().map(|m| m.range));
    }

    /// Adds mappings, sorted. Where they overlap with earlier ones, the newer ones count.
    pub fn add_mappings(&mut self, newer: &[Mapping]) {
        if self.mappings == newer {
            return;
        }
        let mut merged = newer.to_vec();
        for old in &self.mappings {
            let mut start = old.range.start;
            let first = newer.partition_point(|m| m.range.end <= old.range.start);
            for m in newer[first..].iter().take_while(|m| m.range.start < old.range.end) {
                if start < m.range.start {
                    merged.push(Mapping { range: AddrRange::new(start, m.range.start), ..old.clone() });
                }
                start = start.max(m.range.end);
            }
            if start < old.range.end {
                merged.push(Mapping { range: AddrRange::new(start, old.range.end), ..old.clone() });
            }
        }
        merged.sort_by_key(|m| m.range);
        self.mappings = merged;
    }

    /// The observed part of the mappings (all that was observed, if no mappings are known), inside `limit` if given,
    /// and the mappings for their names. Where pages are known, only they were observed.
    pub fn finish(self, limit: Option<AddrRange>) -> (GaplessSpace, Vec<Mapping>) {
        let mut space = GaplessSpace::new(if self.with_pages.is_empty() { self.observed } else { self.with_pages });
        if !self.mappings.is_empty() {
            let mut mapped: Vec<AddrRange> = self.mappings.iter().map(|m| m.range).collect();
            normalize(&mut mapped);
            space = space.intersection(&mapped);
        }
        if let Some(limit) = limit {
            space = space.intersection(&[limit]);
        }
        (space, self.mappings)
    }
}

/// Adds ranges, sorted, to those that were there before.
fn add(observed: &mut Vec<AddrRange>, ranges: impl Iterator<Item = AddrRange>) {
    let mut runs: Vec<AddrRange> = Vec::new();
    ranges.filter(|r| r.start < r.end).for_each(|r| push_range(&mut runs, r));
    runs.retain(|run| {
        let i = observed.partition_point(|r| r.end <= run.start);
        !observed.get(i).is_some_and(|r| r.start <= run.start && run.end <= r.end)
    });
    if !runs.is_empty() {
        observed.append(&mut runs);
        normalize(observed);
    }
}

/// A part of the space that one name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedPart {
    pub from: u64,
    /// Offset after the last.
    pub to: u64,
    /// Name in full; empty where nothing is known.
    pub name: String,
}

/// Names along the space: neighbours of the same name are joined.
pub(crate) fn named_parts(space: &GaplessSpace, mappings: &[Mapping]) -> Vec<NamedPart> {
    let mut parts: Vec<NamedPart> = Vec::new();
    for m in mappings {
        let (from, to) = (space.offset(m.range.start), space.offset(m.range.end));
        if from == to {
            continue;
        }
        let name = names::full(m);
        match parts.last_mut() {
            Some(last) if last.name == name && last.to == from => last.to = to,
            _ => parts.push(NamedPart { from, to, name: name.to_owned() }),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata::{mapping, region};
    use isotherm_core::mapping::MappingKind;
    use proptest::prelude::*;

    fn r(start: u64, end: u64) -> AddrRange {
        AddrRange::new(start, end)
    }

    #[test]
    fn offsets_skip_gaps() {
        let s = GaplessSpace::new(vec![r(100, 200), r(1000, 1050)]);
        assert_eq!(s.total(), 150);
        assert_eq!(
            [0, 100, 150, 200, 500, 1000, 1049, 1050, 9999].map(|a| s.offset(a)),
            [0, 0, 50, 100, 100, 100, 149, 150, 150]
        );
        assert_eq!([0, 99, 100, 149].map(|o| s.addr(o)), [100, 199, 1000, 1049]);
        assert_eq!(s.addresses(50, 120), [r(150, 200), r(1000, 1020)]);
        assert_eq!(s.gaps().collect::<Vec<_>>(), [(100, 800)]);
        assert_eq!(GaplessSpace::new(vec![]).gaps().count(), 0);
    }

    #[test]
    fn observed_and_mapped() {
        let mut b = SpaceBuilder::default();
        b.add_regions(&[region(0, 100, 0, 0), region(100, 1000, 0, 0)]);
        b.add_regions(&[region(0, 500, 0, 0)]);
        b.add_mappings(&[mapping(50, 150, MappingKind::Anon, "a"), mapping(800, 1200, MappingKind::Anon, "b")]);
        b.add_mappings(&[mapping(100, 200, MappingKind::Anon, "c")]);
        let (space, mappings) = b.finish(None);
        assert_eq!(space.ranges(), [r(50, 200), r(800, 1000)]);
        let parts = named_parts(&space, &mappings);
        let parts: Vec<_> = parts.iter().map(|p| (p.from, p.to, p.name.as_str())).collect();
        assert_eq!(parts, [(0, 50, "a"), (50, 150, "c"), (150, 350, "b")]);
    }

    proptest! {
        #[test]
        fn offset_and_addr_are_inverse(pairs in prop::collection::vec((0u64..5000, 1u64..300), 1..12), pick in 0u64..100_000) {
            let s = GaplessSpace::new(pairs.iter().map(|&(a, l)| r(a, a + l)).collect());
            let offset = pick % s.total();
            let addr = s.addr(offset);
            prop_assert!(s.ranges().iter().any(|x| x.contains(addr)));
            prop_assert_eq!(s.offset(addr), offset);
            let parts = s.addresses(offset / 2, offset);
            prop_assert_eq!(parts.iter().map(AddrRange::len).sum::<u64>(), offset - offset / 2);
        }
    }
}
