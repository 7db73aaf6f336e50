//! Reading (and clearing) everything below some ranges.
//!
//! Works in pieces of 64 tables (128 MiB of base pages), so memory stays bounded however large the target is. A piece
//! is copied, its bits are cleared, the tables in which something was cleared are copied again to find pages that
//! cannot be, and only then the sink gets it.

use super::frames::Sizes;
use super::plan::{self, Wanted};
use super::prices::TargetCpu;
use super::pte;
use super::sharing;
use super::space::{Observer, ProcessSpace, SpaceError, span_base};
use super::tally::Tally;
use super::walker::{Mapped, Record};
use crate::clock::thread_cpu_ns;
use crate::proc::Process;
use isotherm_core::addr::{AddrRange, TABLE_SPAN};
use isotherm_core::bits::TableBits;
use isotherm_core::mask::{self, NO_PAGES, PageMask};
use isotherm_core::pages::{pages_in, push_range};
use isotherm_core::source::Clear;
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
    /// Pages that were chosen to be cleared.
    chosen: PageMask,
    /// Accessed pages in the ranges that were cleared.
    pub(super) covered: PageMask,
}

impl Found {
    /// Pages present.
    pub(super) fn present_pages(&self) -> u64 {
        mask::count(&self.present) as u64
    }

    /// Accessed bits: a huge entry has one.
    pub(super) fn accessed_bits(&self) -> u64 {
        let pages = mask::count(&self.accessed) as u64;
        if self.leaf_shift > 12 { pages.min(1) } else { pages }
    }

    /// What is reported of it; `known_blind` and `covered` pages that `stuck` are not cleared.
    pub(super) fn bits(&self, known_blind: &PageMask, stuck: &PageMask) -> TableBits {
        let blind = if self.blind { self.present } else { mask::and(&self.present, known_blind) };
        TableBits {
            base: self.base,
            leaf_shift: self.leaf_shift,
            present: self.present,
            accessed: mask::and_not(&self.accessed, &blind),
            cleared: mask::and_not(&mask::and_not(&self.covered, &blind), stuck),
            blind,
        }
    }
}

impl Observer {
    /// See [`isotherm_core::source::AccessSource::scan`].
    pub fn scan(
        &mut self,
        space: &mut ProcessSpace,
        process: &Process,
        ranges: &[AddrRange],
        mut clear: Clear<'_>,
        sink: &mut dyn FnMut(&TableBits),
    ) -> Result<(), SpaceError> {
        let begin = Instant::now();
        if clear.any() && self.scan_whole(space, process, ranges, &mut clear, begin, sink)? {
            space.close_files();
            return Ok(());
        }
        let since_whole = space.whole.covers(begin);
        let (mut tally, mut single_ns) = (Tally::default(), 0);
        // Nobody else asks what it costs page by page.
        let is_metered = self.budget.prefers_cheapest();
        let mut left = Vec::new();
        let samples = clear.any() && !since_whole && space.whole.is_sample_due(begin);
        self.each_piece(space, process, ranges, |this, space, ranges| {
            let mut found = this.found(ranges);
            if clear.any() {
                let (now, began_ns) = (Instant::now(), thread_cpu_ns());
                let plan = this.plan_scan(space, process, &mut found, &mut clear, since_whole, now)?;
                if !plan.is_empty() {
                    let so_far_ns = |this: &Self| if is_metered { thread_cpu_ns() + this.disturbed_ns } else { 0 };
                    let before_ns = so_far_ns(this);
                    this.clear_planned(space, process, &plan, &mut found)?;
                    single_ns += so_far_ns(this).saturating_sub(before_ns);
                    this.verify_scan(space, process, &found, now)?;
                    this.clear_ns += thread_cpu_ns().saturating_sub(began_ns);
                }
            }
            for f in &found {
                let single = space.blind(f.base);
                let blind = if since_whole { space.uncleared(f.base) } else { single };
                let bits = f.bits(&blind, &single);
                let stuck = mask::and(if since_whole { &f.chosen } else { &f.accessed }, &single);
                tally.stuck += u64::from(mask::count(&mask::and_not(&stuck, &space.uncleared(f.base))));
                tally.present += f.present_pages();
                tally.accessed += f.accessed_bits();
                this.pages_read += if f.leaf_shift > 12 { 1 } else { f.present_pages() };
                let cleared = u64::from(mask::count(&bits.cleared));
                let cleared = if f.leaf_shift > 12 { cleared.min(1) } else { cleared };
                tally.cleared += cleared;
                tally.first += space.first_clears(f.base, cleared);
                if samples {
                    left.push((f.base, mask::and_not(&bits.accessed, &bits.cleared)));
                }
                sink(&bits);
            }
            Ok(())
        })?;
        if samples {
            // What was left set was not tried: whether it could be cleared must be asked.
            let pagemap = space.pagemap.get_or_insert_with(|| process.dir().open("pagemap").ok()).as_ref();
            let shared = sharing::estimate_shared(pagemap, &left);
            space.whole.note_sample(shared);
            tally.stuck = tally.stuck.max(shared);
        }
        self.pages_cleared += tally.cleared;
        self.pages_cleared_first += tally.first;
        if clear.any() {
            space.whole.note_walk(tally, is_metered.then_some(single_ns), begin);
            space.close_files();
        }
        Ok(())
    }

    /// Copies the tables below `ranges` piece by piece, and hands on the ranges that are not done before each piece.
    pub(super) fn each_piece(
        &mut self,
        space: &mut ProcessSpace,
        process: &Process,
        ranges: &[AddrRange],
        mut piece: impl FnMut(&mut Self, &mut ProcessSpace, &[AddrRange]) -> Result<(), SpaceError>,
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
                present: NO_PAGES,
                accessed: NO_PAGES,
                blind: false,
                chosen: NO_PAGES,
                covered: NO_PAGES,
            };
            let inside = pages_in(none.base, ranges);
            match r.mapped {
                Mapped::Nothing { .. } => none,
                Mapped::Unreadable => Found { present: inside, blind: true, ..none },
                Mapped::Leaf { shift, .. } if shift > 21 => {
                    let base = r.addr >> shift << shift;
                    Found { base, leaf_shift: shift, present: [u64::MAX; 8], blind: true, ..none }
                }
                Mapped::Leaf { shift, entry } => {
                    let accessed = if pte::is_leaf_accessed(entry) { inside } else { NO_PAGES };
                    Found { leaf_shift: shift, present: inside, accessed, ..none }
                }
                Mapped::Table => {
                    let (present, accessed) = pte::table_masks(r.table);
                    Found { present: mask::and(&present, &inside), accessed: mask::and(&accessed, &inside), ..none }
                }
            }
        };
        let populated = |f: &Found| f.present != NO_PAGES;
        self.walker().records().enumerate().map(one).filter(populated).collect()
    }

    /// Decides what to clear, table by table.
    fn plan_scan(
        &mut self,
        space: &mut ProcessSpace,
        process: &Process,
        found: &mut [Found],
        clear: &mut Clear<'_>,
        since_whole: bool,
        now: Instant,
    ) -> Result<Vec<Wanted>, SpaceError> {
        let (mut plan, mut asking, mut questions) = (Vec::new(), Vec::new(), Vec::new());
        let mut wanted_pages = 0;
        let mut found = found.iter_mut().peekable();
        for (i, record) in self.walker().records().enumerate() {
            let Some(f) = found.next_if(|f| f.record == i) else { continue };
            let base = f.base;
            let known = space.blind(base);
            let blind = if since_whole { space.uncleared(base) } else { known };
            f.chosen = clear.choose(&f.bits(&blind, &NO_PAGES));
            if f.blind {
                continue;
            }
            // What is not known to be blind any more is tried again.
            let wanted = mask::or(&f.chosen, &mask::and(&f.accessed, &known));
            let wanted = mask::and_not(&wanted, &space.fresh_blind(base, now));
            if wanted == NO_PAGES {
                continue;
            }
            let all = [u64::MAX; 8];
            if f.leaf_shift > 12 {
                plan.push(Wanted { base, pages: all, allowed: all, set: all });
                continue;
            }
            wanted_pages += mask::count(&wanted) as usize;
            let cpu = self.target_cpu(space, process, wanted_pages, now);
            let asked = plan::with_gaps(&wanted, self.prices.gap_worth_asking(cpu));
            let question = self.frames().question(&space.small, base, record.table, &asked);
            if self.prefers_table(space, f, &wanted, question.unknown(), cpu) {
                space.areas.refresh(process.dir(), now);
                if space.areas.holds_anon_table(base) {
                    // All of it at once: no folio is cut, so nobody need find out which there are.
                    plan.push(Wanted { base, pages: all, allowed: all, set: all });
                    continue;
                }
            }
            asking.push((plan.len(), record.table));
            questions.push(question);
            plan.push(Wanted { base, pages: wanted, allowed: NO_PAGES, set: f.accessed });
        }
        let answers = self
            .frames()
            .answer(&mut space.small, &questions)
            .map_err(|e| SpaceError::Failed(format!("cannot read /proc/kpageflags: {e}")))?;
        for ((at, table), Sizes { large, small }) in asking.into_iter().zip(answers) {
            let Wanted { base, pages, allowed, .. } = &mut plan[at];
            let in_large = mask::and(pages, &large);
            *pages = mask::and_not(pages, &large);
            if in_large != NO_PAGES {
                space.areas.refresh(process.dir(), now);
                *pages = mask::or(pages, &self.whole_folios(space, *base, table, &in_large, now)?);
            }
            // Small pages and holes may lie in a range; a large folio only if it is cleared as a whole, and so what may
            // be part of one.
            let (present, _) = pte::table_masks(table);
            let forbidden = mask::and_not(&mask::or(&present, &large), &mask::or(&small, pages));
            *allowed = mask::and_not(&[u64::MAX; 8], &mask::or(&forbidden, &space.areas.blind(*base)));
        }
        Ok(plan)
    }

    /// Whether all of a table should be cleared rather than its pages `wanted`, if it is of one area of anonymous memory.
    fn prefers_table(
        &self,
        space: &ProcessSpace,
        found: &Found,
        wanted: &PageMask,
        unknown: u32,
        cpu: TargetCpu,
    ) -> bool {
        let others = mask::count(&mask::and_not(&found.accessed, wanted));
        self.clears_folios
            && space.areas.may_hold_anon_table(found.base)
            && self.prices.prefers_table(cpu, mask::count(wanted), mask::runs(wanted), others, unknown)
    }

    /// Clears what was planned, and notes in `found` which accessed pages lay in the ranges.
    fn clear_planned(
        &mut self,
        space: &mut ProcessSpace,
        process: &Process,
        plan: &[Wanted],
        found: &mut [Found],
    ) -> Result<(), SpaceError> {
        let ranges = self.clear(space, process, |space, rates| {
            let mut ranges = Vec::new();
            // Neighbouring huge entries and tables share a range where no area begins between them.
            plan.iter().for_each(|wanted| wanted.cover(rates, |a| space.areas.begins_at(a), &mut ranges));
            ranges
        })?;
        for f in found {
            f.covered = mask::and(&pages_in(f.base, &ranges), &f.accessed);
        }
        Ok(())
    }

    /// Reads again where something was cleared, and finds out why a bit is still set.
    fn verify_scan(
        &mut self,
        space: &mut ProcessSpace,
        process: &Process,
        found: &[Found],
        now: Instant,
    ) -> Result<(), SpaceError> {
        let cleared: Vec<&Found> = found.iter().filter(|f| f.covered != NO_PAGES).collect();
        let mut ranges = Vec::new();
        cleared.iter().for_each(|f| push_range(&mut ranges, AddrRange::new(f.base, f.base + TABLE_SPAN)));
        self.each_piece(space, process, &ranges, |this, space, _| {
            let mut cleared = cleared.iter().peekable();
            for record in this.walker().records() {
                let base = span_base(record.addr);
                while cleared.next_if(|f| f.base < base).is_some() {}
                let Some(f) = cleared.next_if(|f| f.base == base) else { continue };
                match record.mapped {
                    Mapped::Leaf { shift: 21, entry } if pte::is_leaf_accessed(entry) => {
                        Self::judge_leaf(this.frames(), space, process, base, entry, now)
                    }
                    Mapped::Table => {
                        let (_, accessed) = pte::table_masks(record.table);
                        let still_set = mask::and(&accessed, &f.covered);
                        if still_set != NO_PAGES {
                            Self::judge(this.frames(), space, process, base, &still_set, (0, record.table), now);
                        }
                    }
                    _ => {}
                }
            }
            Ok(())
        })
    }
}
