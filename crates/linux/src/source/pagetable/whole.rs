//! Clearing all bits of a process at once, through `/proc/PID/clear_refs`: for processes that share much of their memory.
//!
//! MADV_COLD leaves pages alone that other processes map, too, so they cannot be observed one by one. `clear_refs` clears the bits
//! in *this* process's page table whoever else maps the page; what is seen then is this process's own use of it. It has its
//! price: all present pages are walked (about 10 ms a GiB) while page faults of the process wait. So it is used only
//!
//! * for scans of all memory, for it would take accesses away from whoever watches the rest;
//! * while at least `ENTER` of the present pages are shared (it ends below `LEAVE`), or, where that is asked for, while it costs
//!   less than clearing the used pages one by one;
//! * while it costs no more than `PART_OF_BUDGET` of the CPU budget, and page faults wait no longer than `LONGEST_STALL`.
//!
//! Where one of these does not hold, shared pages count as not observable. Limits: accesses in the milliseconds between the
//! reading and the clearing of a page are lost; the kernel does not flush translations that a CPU holds, so a page in
//! steady use may stay unmarked for some milliseconds (up to 5 were seen); hence `SHORTEST`. Under emulation, whose translation
//! cache is far larger, whole seconds were seen.

use super::pte::{self, PageMask};
use super::scan::{Found, Tally};
use super::sharing::{self, Verdicts};
use super::space::{Observer, Space, SpaceError};
use super::walker::Mapped;
use crate::clock::thread_cpu_ns;
use crate::proc::Process;
use crate::proc::status::Status;
use isotherm_core::addr::{AddrRange, PAGE_SIZE};
use isotherm_core::source::TableBits;
use std::time::{Duration, Instant};

/// Share of the present pages that must be shared to begin. A program's own text, which two processes of it share, is no reason: the
/// rest of its memory is seen more exactly without.
const ENTER: f64 = 0.25;
/// Share of them below which it ends.
const LEAVE: f64 = 0.15;
/// What it may use of the CPU budget, all targets together; the rest is for reading and for the processor's setting the bits again.
const PART_OF_BUDGET: f64 = 0.5;
/// Longest time for which page faults may wait.
const LONGEST_STALL: Duration = Duration::from_millis(30);
/// Shortest time between two scans.
const SHORTEST: Duration = Duration::from_millis(90);
/// What clearing a page costs until it has been measured, ns (13 ms a GiB).
const EXPECTED_NS_PER_PAGE: f64 = 13e6 / (1u64 << 18) as f64;
/// What clearing a page on its own costs, ns: one advice for it, and finding out whether it is part of a large folio.
const SINGLE_NS: f64 = 600.0;
/// Of what a process has resident, at least so much must lie in the ranges that are scanned.
const ALL: f64 = 0.95;
/// How often it is looked whether memory is still shared.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// At how many tables, and how many pages of each, it is looked then.
const SAMPLED_TABLES: usize = 64;
const SAMPLED_PAGES: usize = 4;
/// After it has ended, for whatever reason, it does not begin again for so long.
const REST: Duration = Duration::from_secs(30);
/// Budget that was not used is saved up for so long at most.
const SAVED: Duration = Duration::from_secs(30);

/// What is known of one process in this respect.
#[derive(Debug, Default)]
pub struct Whole {
    /// Whether the last scan cleared all bits.
    on: bool,
    /// Pages that even this does not clear (the zero page, hugetlb memory, device memory).
    verdicts: Verdicts,
    last_scan: Option<Instant>,
    looked: Option<Instant>,
    /// Not before.
    rest_until: Option<Instant>,
}

impl Whole {
    /// Whether what is read now goes back to a clearing of all bits.
    pub const fn is_on(&self) -> bool {
        self.on
    }

    /// Pages of the 2 MiB span at `base` that were not cleared.
    pub fn blind(&self, base: u64) -> PageMask {
        self.verdicts.blind(base)
    }

    /// Drops verdicts on memory that nothing looks at any more.
    pub fn tidy(&mut self, now: Instant) {
        self.verdicts.tidy(now);
    }

    fn end(&mut self, now: Instant) {
        self.on = false;
        self.verdicts = Verdicts::default();
        self.rest_until = Some(now + REST);
    }

    fn may_begin(&self, now: Instant) -> bool {
        !self.on && self.rest_until.is_none_or(|t| now >= t)
    }
}

/// CPU time that may be spent: it grows with time, and is saved for a while.
#[derive(Debug)]
pub struct Purse {
    /// Share of a core; `None`: unlimited.
    share: Option<f64>,
    saved_ns: f64,
    filled: Instant,
    ns_per_page: f64,
    /// Whether to use it wherever it is cheaper, not only for shared memory.
    thrifty: bool,
}

impl Purse {
    /// A purse for a CPU budget of `budget` of one core.
    pub fn new(budget: Option<f64>, now: Instant) -> Self {
        let share = budget.map(|b| b * PART_OF_BUDGET);
        Self { share, saved_ns: 0.0, filled: now, ns_per_page: EXPECTED_NS_PER_PAGE, thrifty: false }
    }

    fn fill(&mut self, now: Instant) {
        let Some(share) = self.share else { return };
        let since = now.saturating_duration_since(std::mem::replace(&mut self.filled, now));
        let most = share * SAVED.as_nanos() as f64;
        self.saved_ns = (self.saved_ns + share * since.as_nanos() as f64).min(most);
    }

    fn expected_ns(&self, pages: u64) -> f64 {
        pages as f64 * self.ns_per_page
    }

    /// Whether a process of so many pages may be cleared at all, every `interval`.
    fn affords(&self, pages: u64, interval: Duration) -> bool {
        let price = self.expected_ns(pages);
        price <= LONGEST_STALL.as_nanos() as f64
            && self.share.is_none_or(|share| price <= share * interval.as_nanos() as f64)
    }

    /// Whether clearing all of so many pages is asked for because it costs less than clearing `single` of them one by one.
    fn saves(&self, pages: u64, single: u64) -> bool {
        self.thrifty && self.expected_ns(pages) < single as f64 * SINGLE_NS
    }

    /// Whether there is enough in it now.
    fn holds(&self, pages: u64) -> bool {
        let price = self.expected_ns(pages);
        price <= LONGEST_STALL.as_nanos() as f64 && self.share.is_none_or(|_| price <= self.saved_ns)
    }

    fn spend(&mut self, pages: u64, spent_ns: u64) {
        let ns = spent_ns as f64;
        self.saved_ns -= ns;
        if pages > 0 {
            // One measurement may have been interrupted: it counts a quarter.
            self.ns_per_page += (ns / pages as f64 - self.ns_per_page) / 4.0;
        }
    }
}

impl Observer {
    /// Clears all bits of a process at once also where that is only cheaper: for whoever scans all of it, and seldom.
    pub(super) fn be_thrifty(&mut self) {
        self.purse.thrifty = true;
    }

    /// To be asked before a scan that is to clear: whether it is to be a [`scan_whole`](Self::scan_whole).
    pub(super) fn clears_whole(
        &mut self,
        space: &mut Space,
        process: &Process,
        ranges: &[AddrRange],
        now: Instant,
    ) -> Result<bool, SpaceError> {
        self.purse.fill(now);
        if !space.whole.on {
            return Ok(false);
        }
        let mut present = 0;
        self.each_piece(space, process, ranges, |this, _, ranges| {
            present += this.found(ranges).iter().map(Found::present_pages).sum::<u64>();
            Ok(())
        })?;
        if !self.is_all(process, present) {
            // Somebody looks at a part in between; it is the next scan of all that counts.
            return Ok(false);
        }
        if !self.purse.holds(present) {
            space.whole.end(now);
            return Ok(false);
        }
        Ok(true)
    }

    /// Scans and clears all memory of a process.
    pub(super) fn scan_whole(
        &mut self,
        space: &mut Space,
        process: &Process,
        ranges: &[AddrRange],
        now: Instant,
        sink: &mut dyn FnMut(&TableBits),
    ) -> Result<(), SpaceError> {
        let (mut present, mut accessed, mut tables) = (0, 0, Vec::new());
        self.each_piece(space, process, ranges, |this, space, ranges| {
            for f in this.found(ranges) {
                let bits = f.bits(&space.uncleared(f.base));
                present += f.present_pages();
                this.pages_cleared += f.accessed_bits();
                accessed += f.accessed_bits();
                this.pages_read += f.present_pages();
                tables.push((f.base, f.present));
                sink(&bits);
            }
            Ok(())
        })?;
        space.whole.last_scan = Some(now);
        if space.whole.looked.is_none_or(|t| now.duration_since(t) >= LOOK_EVERY) {
            space.whole.looked = Some(now);
            if !self.purse.saves(present, accessed) && shared_share(space, process, &tables) < LEAVE {
                space.whole.end(now);
            }
        }
        // Also the last time: until the next scan its bits count.
        self.clear_whole(space, process, ranges, present, now)
    }

    /// After a scan that cleared page by page and found what `tally` holds: begins to clear all at once where that is worth it.
    pub(super) fn consider_whole(
        &mut self,
        space: &mut Space,
        process: &Process,
        ranges: &[AddrRange],
        tally: &Tally,
        now: Instant,
    ) -> Result<(), SpaceError> {
        let shared = tally.shared > 0 && tally.shared as f64 >= ENTER * tally.present as f64;
        if !space.whole.may_begin(now) || !(shared || self.purse.saves(tally.present, tally.cleared)) {
            return Ok(());
        }
        if !self.is_all(process, tally.present) {
            return Ok(());
        }
        let Some(interval) = space.whole.last_scan.replace(now).map(|t| now.duration_since(t)) else { return Ok(()) };
        if interval < SHORTEST || !self.purse.affords(tally.present, interval) || !self.purse.holds(tally.present) {
            return Ok(());
        }
        space.whole.on = true;
        space.whole.looked = Some(now);
        self.clear_whole(space, process, ranges, tally.present, now)
    }

    /// Whether `present` pages are all that a process has, or nearly.
    fn is_all(&mut self, process: &Process, present: u64) -> bool {
        let status = Status::read(process.dir(), &mut self.buf).unwrap_or_default();
        let resident = status.vm_rss.unwrap_or(u64::MAX).saturating_add(status.hugetlb.unwrap_or(0));
        present as f64 >= ALL * (resident / PAGE_SIZE) as f64
    }

    fn clear_whole(
        &mut self,
        space: &mut Space,
        process: &Process,
        ranges: &[AddrRange],
        present: u64,
        now: Instant,
    ) -> Result<(), SpaceError> {
        let begin = thread_cpu_ns();
        let cleared = process.clear_refs();
        self.purse.spend(present, thread_cpu_ns().saturating_sub(begin));
        match cleared {
            Ok(()) => self.verify_whole(space, process, ranges, now),
            Err(e) if e.is_gone() => Err(SpaceError::Gone),
            // Not allowed, say: then shared pages stay what they were, not observable.
            Err(_) => {
                space.whole.end(now);
                Ok(())
            }
        }
    }

    /// Reads again, and finds out which of the pages that are still set cannot be cleared even so.
    fn verify_whole(
        &mut self,
        space: &mut Space,
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
                verdicts.note(f.base, &pte::NO_PAGES, &pte::and_not(&before, &f.accessed), now);
                if f.accessed == pte::NO_PAGES {
                    continue;
                }
                let frames = this.frames();
                if let Mapped::Leaf { entry, .. } = record.mapped {
                    let first = [pte::leaf_as_first_page(entry)];
                    let one = pte::span_mask(0, 1);
                    let clearable = frames.clearable(0, &first, &one).is_ok_and(|m| pte::has(&m, 0));
                    verdicts.judge(f.base, &f.accessed, now, |asked| if clearable { *asked } else { pte::NO_PAGES });
                } else {
                    verdicts.judge(f.base, &f.accessed, now, |asked| {
                        frames.clearable(0, record.table, asked).unwrap_or(pte::NO_PAGES)
                    });
                }
            }
            Ok(())
        })
    }
}

/// The share of pages that other processes map, too, among some of the pages in `tables`; 0 where the kernel does not tell.
fn shared_share(space: &mut Space, process: &Process, tables: &[(u64, PageMask)]) -> f64 {
    let Some(pagemap) = space.pagemap(process) else { return 0.0 };
    let (mut asked, mut shared) = (0u32, 0u32);
    for (base, present) in tables.iter().step_by(tables.len().div_ceil(SAMPLED_TABLES).max(1)) {
        let count = pte::count(present) as usize;
        let mut some = pte::NO_PAGES;
        for page in pte::iter(present).step_by(count.div_ceil(SAMPLED_PAGES).max(1)) {
            pte::put(&mut some, page);
        }
        if let Ok(exclusive) = sharing::exclusive_pages(pagemap, *base, &some) {
            asked += pte::count(&some);
            shared += pte::count(&pte::and_not(&some, &exclusive));
        }
    }
    f64::from(shared) / f64::from(asked.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 18;

    #[test]
    fn a_purse_never_gives_more_than_its_share() {
        let begin = Instant::now();
        let mut p = Purse::new(Some(0.02), begin);
        assert!(!p.holds(GIB), "nothing has been saved yet");
        let (mut now, mut spent) = (begin, Duration::ZERO);
        for _ in 0..1000 {
            now += Duration::from_millis(100);
            p.fill(now);
            if p.holds(GIB) {
                p.spend(GIB, 13_000_000);
                spent += Duration::from_millis(13);
            }
        }
        let share = spent.as_secs_f64() / 100.0;
        assert!((0.0098..=0.01).contains(&share), "half of the budget: {share}");
        // After a long pause only so much is saved.
        p.fill(now + Duration::from_secs(86_400));
        assert!(p.saved_ns <= 0.01 * SAVED.as_nanos() as f64 + 1.0);
    }

    #[test]
    fn the_price_is_learnt_and_long_stalls_are_refused() {
        let now = Instant::now();
        let mut p = Purse::new(None, now);
        let second = Duration::from_secs(1);
        assert!(p.affords(2 * GIB, second) && !p.affords(3 * GIB, second), "13 ms a GiB, 30 ms at most");
        for _ in 0..50 {
            p.spend(GIB, 40_000_000);
        }
        assert!(!p.affords(GIB, second) && !p.holds(GIB));
        let p = Purse::new(Some(0.02), now);
        assert!(p.affords(GIB, 2 * second) && !p.affords(GIB, second), "13 ms are more than half of 2 % of a second");
    }

    #[test]
    fn all_at_once_is_cheaper_where_many_pages_are_used() {
        let mut p = Purse::new(None, Instant::now());
        assert!(!p.saves(1000, 1000), "only if asked for");
        p.thrifty = true;
        assert!(p.saves(1000, 300) && !p.saves(1000, 10));
    }

    #[test]
    fn after_an_end_there_is_a_rest() {
        let now = Instant::now();
        let mut w = Whole { on: true, ..Whole::default() };
        assert!(!w.may_begin(now));
        w.end(now);
        assert!(!w.is_on() && !w.may_begin(now + REST / 2) && w.may_begin(now + REST));
    }
}
