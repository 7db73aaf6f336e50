//! Reading (and clearing) everything below some ranges.
//!
//! Works in pieces of 64 tables (128 MiB of base pages), so memory stays bounded however large the target is. A piece is copied,
//! its bits are cleared, the tables in which something was cleared are copied again to find pages that cannot be, and
//! only then the sink gets it.

use super::plan;
use super::pte::{self, PageMask};
use super::space::{Observer, Space, SpaceError, span_base};
use super::walker::{Mapped, Record, Span};
use crate::proc::Process;
use isotherm_core::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN};
use isotherm_core::source::TableBits;
use std::time::Instant;

/// One table, or one huge entry.
#[derive(Debug)]
pub(super) struct Found {
    /// Which record of the copy it comes from.
    pub(super) record: usize,
    pub(super) base: u64,
    leaf_shift: u8,
    pub(super) present: PageMask,
    pub(super) accessed: PageMask,
    /// Nothing can be said about it: unreadable, or an entry that clearing would split.
    pub(super) blind: bool,
    /// Pages whose bits are cleared.
    wanted: PageMask,
}

impl Found {
    /// Pages present.
    pub(super) fn present_pages(&self) -> u64 {
        pte::count(&self.present) as u64
    }

    /// Accessed bits: a huge entry has one.
    pub(super) fn accessed_bits(&self) -> u64 {
        let pages = pte::count(&self.accessed) as u64;
        if self.leaf_shift > 12 { pages.min(1) } else { pages }
    }

    pub(super) fn bits(&self, known_blind: &PageMask) -> TableBits {
        let blind = if self.blind { self.present } else { pte::and(&self.present, known_blind) };
        TableBits {
            base: self.base,
            leaf_shift: self.leaf_shift,
            present: self.present,
            accessed: pte::and_not(&self.accessed, &blind),
            blind,
        }
    }
}

/// What a scan found, pages.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) present: u64,
    /// Of these, found shared with other processes when they could not be cleared.
    pub(super) shared: u64,
    /// Of these, cleared page by page.
    pub(super) cleared: u64,
}

impl Observer {
    /// See [`isotherm_core::source::AccessSource::scan`].
    pub fn scan(
        &mut self,
        space: &mut Space,
        process: &Process,
        ranges: &[AddrRange],
        clear: bool,
        sink: &mut dyn FnMut(&TableBits),
    ) -> Result<(), SpaceError> {
        let begin = Instant::now();
        if clear && self.clears_whole(space, process, ranges, begin)? {
            return self.scan_whole(space, process, ranges, begin, sink);
        }
        let since_whole = !clear && space.whole.is_on();
        let mut tally = Tally::default();
        self.each_piece(space, process, ranges, |this, space, ranges| {
            let mut found = this.found(ranges);
            if clear {
                let now = Instant::now();
                let to_clear = this.plan_scan(space, process, &mut found, now)?;
                if !to_clear.is_empty() {
                    this.clear(space, process, &to_clear)?;
                    this.verify_scan(space, process, &found, now)?;
                }
            }
            for f in &found {
                let blind = if since_whole { space.uncleared(f.base) } else { space.blind(f.base) };
                let bits = f.bits(&blind);
                tally.present += f.present_pages();
                tally.shared += pte::count(&pte::and(&f.present, &space.verdicts.shared(f.base))) as u64;
                this.pages_read += if f.leaf_shift > 12 { 1 } else { f.present_pages() };
                let cleared = pte::count(&pte::and(&f.wanted, &bits.accessed)) as u64;
                let cleared = if f.leaf_shift > 12 { cleared.min(1) } else { cleared };
                this.pages_cleared += cleared;
                tally.cleared += cleared;
                sink(&bits);
            }
            Ok(())
        })?;
        if clear { self.consider_whole(space, process, ranges, &tally, begin) } else { Ok(()) }
    }

    /// Copies the tables below `ranges` piece by piece, and hands on the ranges that are not done before each piece.
    pub(super) fn each_piece(
        &mut self,
        space: &mut Space,
        process: &Process,
        ranges: &[AddrRange],
        mut piece: impl FnMut(&mut Self, &mut Space, &[AddrRange]) -> Result<(), SpaceError>,
    ) -> Result<(), SpaceError> {
        let (mut rest, mut cursor) = (ranges, 0);
        while !rest.is_empty() {
            let progress = self.copy(space, process, rest, cursor)?;
            if progress.ranges_done == 0 && progress.cursor == cursor {
                return Err(SpaceError::Failed(format!(
                    "reading the page table of pid {} does not get beyond address {cursor:#x}",
                    process.pid()
                )));
            }
            piece(self, space, rest)?;
            rest = &rest[progress.ranges_done.min(rest.len())..];
            cursor = progress.cursor;
        }
        Ok(())
    }

    /// What the last copy holds of the memory in `ranges`.
    pub(super) fn found(&self, ranges: &[AddrRange]) -> Vec<Found> {
        let one = |(record, r): (usize, Record<'_>)| {
            let none = Found {
                record,
                base: span_base(r.addr),
                leaf_shift: 12,
                present: pte::NO_PAGES,
                accessed: pte::NO_PAGES,
                blind: false,
                wanted: pte::NO_PAGES,
            };
            let inside = mask_of(ranges, none.base);
            match r.mapped {
                Mapped::Nothing { .. } => none,
                Mapped::Unreadable => Found { present: inside, blind: true, ..none },
                Mapped::Leaf { shift, .. } if shift > 21 => {
                    let base = r.addr >> shift << shift;
                    Found { base, leaf_shift: shift, present: [u64::MAX; 8], blind: true, ..none }
                }
                Mapped::Leaf { shift, entry } => {
                    let accessed = if pte::is_leaf_accessed(entry) { inside } else { pte::NO_PAGES };
                    Found { leaf_shift: shift, present: inside, accessed, ..none }
                }
                Mapped::Table => {
                    let (present, accessed) = pte::table_masks(r.table);
                    Found { present: pte::and(&present, &inside), accessed: pte::and(&accessed, &inside), ..none }
                }
            }
        };
        let populated = |f: &Found| f.present != pte::NO_PAGES;
        self.walker().records().enumerate().map(one).filter(populated).collect()
    }

    /// Decides what to clear, notes it in `found`, and returns the ranges.
    fn plan_scan(
        &mut self,
        space: &mut Space,
        process: &Process,
        found: &mut [Found],
        now: Instant,
    ) -> Result<Vec<AddrRange>, SpaceError> {
        let mut ranges = Vec::new();
        let mut found = found.iter_mut().peekable();
        for (i, record) in self.walker().records().enumerate() {
            let Some(f) = found.next_if(|f| f.record == i) else { continue };
            let base = f.base;
            f.wanted = if f.blind { pte::NO_PAGES } else { pte::and_not(&f.accessed, &space.fresh_blind(base, now)) };
            if f.wanted == pte::NO_PAGES {
                continue;
            }
            if f.leaf_shift > 12 {
                ranges.push(AddrRange::new(base, base + TABLE_SPAN));
                continue;
            }
            let large = self
                .frames()
                .sizes(&mut space.small, base, record.table, &f.wanted)
                .map_err(|e| SpaceError::Failed(format!("cannot read /proc/kpageflags: {e}")))?
                .large;
            let in_large = pte::and(&f.wanted, &large);
            let mut clear = pte::and_not(&f.wanted, &large);
            if in_large != pte::NO_PAGES {
                space.areas.refresh(process.dir(), now);
                let folios = self.whole_folios(space, base, record.table, &in_large, now)?;
                clear = pte::or(&clear, &folios);
            }
            // Old small pages and holes may lie in a range; a large folio only if it is cleared as a whole.
            let allowed = pte::and_not(&[u64::MAX; 8], &pte::and_not(&large, &clear));
            plan::cover(base, &clear, &allowed, |a| space.areas.begins_at(a), &mut ranges);
        }
        // Neighbouring huge entries and tables share a range where no area begins between them.
        ranges.dedup_by(|b, a| {
            let joins = a.end == b.start && !space.areas.begins_at(b.start);
            if joins {
                a.end = b.end;
            }
            joins
        });
        Ok(ranges)
    }

    /// Reads again where something was cleared, and finds out why a bit is still set.
    fn verify_scan(
        &mut self,
        space: &mut Space,
        process: &Process,
        found: &[Found],
        now: Instant,
    ) -> Result<(), SpaceError> {
        let cleared: Vec<&Found> = found.iter().filter(|f| f.wanted != pte::NO_PAGES).collect();
        let pages = |f: &Found| if f.leaf_shift > 12 { 1 } else { 512 };
        let spans: Vec<Span> = cleared.iter().map(|f| Span { start: f.base, pages: pages(f) }).collect();
        let mut at = 0;
        while at < spans.len() {
            let n = self.read(space, process, &spans[at..])?;
            for (i, f) in cleared[at..at + n].iter().enumerate() {
                let view = self.span(i);
                match view.mapped {
                    Mapped::Leaf { shift: 21, entry } if pte::is_leaf_accessed(entry) => {
                        Self::judge_leaf(self.frames(), space, process, f.base, entry, now)
                    }
                    Mapped::Table if view.entries.len() == 512 => {
                        let (_, accessed) = pte::table_masks(view.entries);
                        let still_set = pte::and(&accessed, &f.wanted);
                        if still_set != pte::NO_PAGES {
                            Self::judge(self.frames(), space, process, f.base, &still_set, (0, view.entries), now);
                        }
                    }
                    _ => {}
                }
            }
            at += n;
        }
        Ok(())
    }
}

/// Pages of the 2 MiB span at `base` that lie in `ranges` (sorted and disjoint).
fn mask_of(ranges: &[AddrRange], base: u64) -> PageMask {
    let span = AddrRange::new(base, base + TABLE_SPAN);
    let page = |a: u64| ((a - base) / PAGE_SIZE) as usize;
    let from = ranges.partition_point(|r| r.end <= base);
    ranges[from..]
        .iter()
        .map_while(|r| r.intersect(&span))
        .fold(pte::NO_PAGES, |m, r| pte::or(&m, &pte::span_mask(page(r.start), page(r.end))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn masks_hold_exactly_the_pages_in_the_ranges(list in prop::collection::vec((0u64..1600, 1u64..300), 0..12)) {
            let mut ranges: Vec<AddrRange> =
                list.iter().map(|&(p, n)| AddrRange::new(p * PAGE_SIZE, (p + n) * PAGE_SIZE)).collect();
            isotherm_core::addr::normalize(&mut ranges);
            for table in 0..4 {
                let m = mask_of(&ranges, table * TABLE_SPAN);
                for i in 0..512 {
                    let a = table * TABLE_SPAN + i as u64 * PAGE_SIZE;
                    prop_assert_eq!(pte::has(&m, i), ranges.iter().any(|r| r.contains(a)));
                }
            }
        }
    }
}
