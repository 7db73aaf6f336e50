//! Scanning and clearing all memory of a process at once; [`whole`](super::whole) says when, why and with which limits.

use super::pte;
use super::scan::Found;
use super::space::{Observer, ProcessSpace, SpaceError};
use super::tally::Tally;
use super::walker::Mapped;
use crate::clock::thread_cpu_ns;
use crate::proc::Process;
use crate::proc::statm::Statm;
use isotherm_core::addr::{AddrRange, PAGE_SIZE, total_len};
use isotherm_core::bits::TableBits;
use isotherm_core::mask::{self, NO_PAGES};
use isotherm_core::source::Clear;
use std::time::Instant;

/// Of what a process has resident, at least so much must lie in the ranges that are scanned: the kernel's count is not exact.
const ALL: f64 = 0.95;

impl Observer {
    /// Whether a scan of `ranges` that is to clear is to be a [`scan_whole`](Self::scan_whole): then, how many pages the process has
    /// resident.
    fn whole_is_due(
        &mut self,
        space: &mut ProcessSpace,
        process: &Process,
        ranges: &[AddrRange],
        now: Instant,
    ) -> Result<Option<u64>, SpaceError> {
        space.sharer.get_or_insert_with(|| self.budget.sharer());
        // The last walk may have been one over hot pages only, of which much is the text of shared libraries: what it
        // found needs the more to be measured against all that is resident. Asking for that costs more than this.
        if !space.whole.is_wanted(space.whole.tally.present, &self.budget, now) {
            return Ok(None);
        }
        let resident = Self::resident(process);
        let is_due = space.whole.is_wanted(resident, &self.budget, now)
            && total_len(ranges) / PAGE_SIZE >= (resident as f64 * ALL) as u64
            && self.leaves_nothing_out(space, process, ranges)?
            && self.budget.grants(process.pid(), resident, now);
        Ok(is_due.then_some(resident))
    }

    /// Whether a scan of `ranges` reads all page tables: nobody would see the accesses to the pages of others, whose
    /// bits would be cleared all the same.
    fn leaves_nothing_out(
        &mut self,
        space: &mut ProcessSpace,
        process: &Process,
        ranges: &[AddrRange],
    ) -> Result<bool, SpaceError> {
        let (besides, mut populated) = (space.areas.cleared_besides(ranges), Vec::new());
        if !besides.is_empty() {
            self.populated(space, process, &besides, &mut populated)?;
        }
        Ok(populated.is_empty())
    }

    /// Pages that a process has resident, those of hugetlb aside, which `clear_refs` does not reach; very many if that cannot
    /// be read.
    fn resident(process: &Process) -> u64 {
        Statm::read(process.dir()).map_or(u64::MAX, |statm| statm.resident())
    }

    /// Scans and clears all memory of a process; `false`, with nothing done, if that is not due, if `ranges` are not all of it, or if it is
    /// refused.
    pub(super) fn scan_whole(
        &mut self,
        space: &mut ProcessSpace,
        process: &Process,
        ranges: &[AddrRange],
        clear: &mut Clear<'_>,
        now: Instant,
        sink: &mut dyn FnMut(&TableBits),
    ) -> Result<bool, SpaceError> {
        let Some(resident) = self.whole_is_due(space, process, ranges, now)? else { return Ok(false) };
        // Kept until all has been cleared: whoever takes it may take its time. The bound on stalls bounds it, too.
        let mut all: Vec<Found> = Vec::new();
        self.each_piece(space, process, ranges, |this, _, ranges| {
            all.append(&mut this.found(ranges));
            Ok(())
        })?;
        let mut tally = Tally { present: all.iter().map(Found::present_pages).sum(), ..Tally::default() };
        if (tally.present as f64) < ALL * resident as f64 {
            return Ok(false);
        }
        let begin = thread_cpu_ns();
        let cleared = process.clear_refs();
        let spent_ns = thread_cpu_ns().saturating_sub(begin);
        self.budget.spend(tally.present, spent_ns);
        self.clear_ns += spent_ns;
        match cleared {
            Ok(()) => {}
            Err(e) if e.is_gone() => return Err(SpaceError::Gone),
            // Not allowed, say: then shared pages stay what they were.
            Err(_) => {
                space.whole.refused(now);
                return Ok(false);
            }
        }
        self.verify_whole(space, process, ranges, now)?;
        space.whole.cleared_at = Some(now);
        for f in &mut all {
            let uncleared = space.uncleared(f.base);
            let chosen = clear.choose(&f.bits(&uncleared, &NO_PAGES));
            tally.stuck += u64::from(mask::count(&mask::and(&chosen, &space.blind(f.base))));
            tally.accessed += f.accessed_bits();
            tally.first += space.first_clears(f.base, f.accessed_bits());
            f.covered = f.accessed;
            sink(&f.bits(&uncleared, &NO_PAGES));
        }
        self.pages_read += tally.present;
        self.pages_cleared += tally.accessed;
        self.pages_cleared_first += tally.first;
        space.whole.note_walk(tally, None, now);
        Ok(true)
    }

    /// Reads again, and finds out which of the pages that are still set cannot be cleared even so.
    fn verify_whole(
        &mut self,
        space: &mut ProcessSpace,
        process: &Process,
        ranges: &[AddrRange],
        now: Instant,
    ) -> Result<(), SpaceError> {
        self.each_piece(space, process, ranges, |this, space, ranges| {
            let found = this.found(ranges);
            let mut found = found.iter().peekable();
            for (i, record) in this.walker().records().enumerate() {
                let Some(f) = found.next_if(|f| f.record == i) else { continue };
                if f.blind {
                    continue;
                }
                let verdicts = &mut space.whole.verdicts;
                let before = verdicts.fresh_blind(f.base, now);
                verdicts.note(f.base, &NO_PAGES, &mask::and_not(&before, &f.accessed), now);
                if f.accessed == NO_PAGES {
                    continue;
                }
                let frames = this.frames();
                if let Mapped::Leaf { entry, .. } = record.mapped {
                    let first = [pte::leaf_as_first_page(entry)];
                    let one = mask::span_mask(0, 1);
                    let clearable = frames.clearable(0, &first, &one).is_ok_and(|m| mask::has(&m, 0));
                    verdicts.judge(f.base, &f.accessed, now, |asked| if clearable { *asked } else { NO_PAGES });
                } else {
                    verdicts.judge(f.base, &f.accessed, now, |asked| {
                        frames.clearable(0, record.table, asked).unwrap_or(NO_PAGES)
                    });
                }
            }
            Ok(())
        })
    }
}
