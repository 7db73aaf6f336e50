//! Clearing all bits of a process at once, through `/proc/PID/clear_refs`: what reaches pages that several processes
//! map.
//!
//! MADV_COLD leaves pages alone that other processes map, too, so they cannot be observed one by one. `clear_refs`
//! clears the bits in *this* process's page table whoever else maps the page; what is seen then is this process's own
//! use of it. Locked pages, and those that wait for the LRU lists, are reached as well. It has its price: all present
//! pages are walked (about 10 ms a GiB) while page faults of the process wait. So a walk over all memory of a process
//! does it
//!
//! * where the pages that need it are many (`MANY`, or `LARGE_PART` of what is present): as often as the budget pays
//!   for it, all targets in turn; where they are few, say the text of a library: every `SELDOM`, the less often the
//!   fewer they are, and not more often than a small part of the budget, divided among all targets, pays for;
//! * where that is asked for, also where it is only cheaper than clearing the used pages one by one. Not by default:
//!   see the limits;
//! * only within the [budget](super::clear_budget), and while page faults wait no longer than its bound.
//!
//! In between, the bits of such pages go back to the last time: a page may show as accessed without being cleared. Not
//! observable they are before the first time, when the last is more than `STALE` ago, and where even this does not
//! reach them.
//!
//! Limits: accesses in the milliseconds between the reading and the clearing of a page are lost; the kernel does not
//! flush translations that a CPU holds, so a page in steady use may stay unmarked for some milliseconds (up to 5 were
//! seen); hence `SHORTEST`. Under emulation, whose translation cache is far larger, whole seconds were seen, in which
//! all memory looked idle; memory in huge pages, of which a processor can hold GiB in its translation cache, may do the
//! same. Nothing that works on every kernel drops those translations from outside.

use super::clear_budget::ClearBudget;
use super::sharing::Verdicts;
use super::tally::Tally;
use isotherm_core::mask::PageMask;
use std::time::{Duration, Instant};

/// Pages that need it (8 MiB) from which on it is done as often as the budget allows.
const MANY: u64 = 2048;
/// The same for small processes, as a part of the present pages: one in so many.
const LARGE_PART: u64 = 4;
/// How often it is done for the sake of few pages: one in so many of those that are present, or, of fewer, as much less
/// often.
const SELDOM: Duration = Duration::from_secs(30);
const SMALL_PART: u64 = 64;
/// Shortest time between two scans.
const SHORTEST: Duration = Duration::from_millis(90);
/// After this time the last clearing says nothing useful about pages that nothing else clears.
const STALE: Duration = Duration::from_secs(300);
/// What clearing a page on its own costs until it has been measured, ns: one advice for it, and finding out whether it
/// is part of a large folio.
const SINGLE_NS: f64 = 600.0;
/// Fewer pages do not tell what one costs.
const ENOUGH_PAGES: u64 = 512;
/// How often it is asked how much of what walks leave set is shared; ever more seldom, where nothing was.
const SAMPLE_EVERY: Duration = Duration::from_secs(5);
const SAMPLE_SELDOM: Duration = Duration::from_secs(80);
/// After it was refused, it is not tried again for so long.
const REST: Duration = Duration::from_secs(60);

/// What is known of one process in this respect.
#[derive(Debug, Default)]
pub struct Whole {
    /// When all bits were cleared last.
    pub(super) cleared_at: Option<Instant>,
    /// Pages that even this does not clear (hugetlb memory, device memory).
    pub(super) verdicts: Verdicts,
    first_walk: Option<Instant>,
    last_walk: Option<Instant>,
    /// When it was asked how much of what walks leave set is shared.
    sampled: Option<Instant>,
    /// After how long it is asked again.
    sample_pause: Option<Duration>,
    /// Not before.
    rest_until: Option<Instant>,
    /// What the last walk found; how many pages need this is remembered for some walks.
    pub(super) tally: Tally,
    /// What clearing a page on its own costs both sides, ns.
    single_ns: Option<f64>,
}

impl Whole {
    /// Whether bits go back to a clearing of all of them.
    pub fn covers(&self, now: Instant) -> bool {
        self.cleared_at.is_some_and(|t| now.duration_since(t) < STALE)
    }

    /// Pages of the 2 MiB span at `base` that were not cleared.
    pub fn blind(&self, base: u64) -> PageMask {
        self.verdicts.blind(base)
    }

    /// Drops verdicts on memory that nothing looks at any more.
    pub fn tidy(&mut self, now: Instant) {
        self.verdicts.tidy(now);
    }

    /// Takes note of a walk that began at `now` and cleared page by page for `single_ns`, if at all; `None`: not measured.
    pub(super) fn note_walk(&mut self, tally: Tally, single_ns: Option<u64>, now: Instant) {
        self.first_walk.get_or_insert(now);
        self.last_walk = Some(now);
        let stuck = tally.stuck.max(self.tally.stuck * 3 / 4);
        self.tally = Tally { stuck, ..tally };
        if let Some(single_ns) = single_ns.filter(|_| tally.cleared >= ENOUGH_PAGES) {
            self.single_ns = Some(single_ns as f64 / tally.cleared as f64);
        }
    }

    /// Whether it is time to find out how much of what walks leave set is shared.
    pub(crate) fn is_sample_due(&mut self, now: Instant) -> bool {
        let pause = self.sample_pause.unwrap_or(SAMPLE_EVERY);
        let due = self.sampled.is_none_or(|t| now.duration_since(t) >= pause);
        if due {
            self.sampled = Some(now);
        }
        due
    }

    /// Takes note of how much that was.
    pub(crate) fn note_sample(&mut self, shared: u64) {
        let pause = self.sample_pause.map_or(SAMPLE_EVERY, |pause| (pause * 2).min(SAMPLE_SELDOM));
        self.sample_pause = (shared == 0).then_some(pause);
    }

    /// It was refused: not again for a while.
    pub(super) fn refused(&mut self, now: Instant) {
        self.rest_until = Some(now + REST);
    }

    /// Whether it is worth its price at `now`, whoever pays, if `present` pages are to be walked.
    pub(super) fn is_wanted(&self, present: u64, budget: &ClearBudget, now: Instant) -> bool {
        let (Some(first), Some(last)) = (self.first_walk, self.last_walk) else { return false };
        let interval = now.duration_since(last);
        if interval < SHORTEST || self.rest_until.is_some_and(|t| now < t) {
            return false;
        }
        let Tally { accessed, stuck, .. } = self.tally;
        let many = stuck >= MANY || stuck > 0 && stuck * LARGE_PART >= present;
        let times = (present / (stuck * SMALL_PART).max(1)).clamp(1, 1000) as u32;
        let pause = (SELDOM * times).max(budget.pause_for_few(present));
        let few = stuck > 0 && now.duration_since(self.cleared_at.unwrap_or(first)) >= pause;
        let single_ns = accessed as f64 * self.single_ns.unwrap_or(SINGLE_NS);
        let cheaper = budget.prefers_cheapest() && budget.saves(present, single_ns);
        many || few || cheaper
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A process that was walked every `interval`, for the last time `interval` before `now`.
    fn walked(tally: Tally, interval: Duration, now: Instant) -> Whole {
        let mut w = Whole::default();
        w.note_walk(tally, None, now - 10 * interval);
        w.note_walk(tally, None, now - interval);
        w
    }

    #[test]
    fn many_pages_that_need_it_are_reason_enough_and_few_seldom() {
        let now = Instant::now() + 1000 * SECOND;
        let budget = ClearBudget::new(None, now);
        let tally = |present, stuck| Tally { present, stuck, ..Tally::default() };
        let wanted = |tally: Tally, interval| walked(tally, interval, now).is_wanted(tally.present, &budget, now);
        assert!(wanted(tally(1 << 18, MANY), SECOND));
        assert!(wanted(tally(400, 100), SECOND), "a quarter of a small process");
        assert!(!wanted(tally(1 << 18, 0), 100 * SECOND) && !wanted(tally(1 << 18, 1000), SECOND));
        assert!(wanted(tally(1 << 16, 1000), 3 * SECOND), "for the first time after 30 s");
        assert!(!wanted(tally(1 << 18, 1000), 3 * SECOND) && wanted(tally(1 << 18, 1000), 12 * SECOND), "of 1 GiB");
        assert!(!wanted(tally(1 << 18, MANY), SHORTEST / 2));
        let mut w = walked(tally(1 << 16, 1000), 3 * SECOND, now);
        w.cleared_at = Some(now - SELDOM / 2);
        assert!(!w.is_wanted(w.tally.present, &budget, now) && w.is_wanted(w.tally.present, &budget, now + SELDOM / 2));
        w.rest_until = Some(now + REST);
        assert!(!w.is_wanted(w.tally.present, &budget, now + SELDOM / 2));
        assert!(!Whole::default().is_wanted(1, &budget, now));
    }

    #[test]
    fn the_text_that_a_walk_over_hot_pages_found_is_little_of_a_large_process() {
        let now = Instant::now() + 1000 * SECOND;
        let budget = ClearBudget::new(None, now);
        let w = walked(Tally { present: 1000, stuck: 900, ..Tally::default() }, SECOND, now);
        assert!(w.is_wanted(1000, &budget, now) && !w.is_wanted(1 << 16, &budget, now));
    }

    #[test]
    fn all_at_once_is_taken_where_it_is_cheaper_only_if_asked_for() {
        let now = Instant::now() + 1000 * SECOND;
        let mut budget = ClearBudget::new(None, now);
        let tally = |accessed| Tally { present: 100_000, accessed, ..Tally::default() };
        let wanted = |budget: &ClearBudget, tally: Tally, interval| {
            walked(tally, interval, now).is_wanted(tally.present, budget, now)
        };
        assert!(!wanted(&budget, tally(30_000), SECOND), "it does not flush translations");
        budget.prefer_cheapest();
        assert!(wanted(&budget, tally(30_000), SECOND / 4) && !wanted(&budget, tally(1000), SECOND));
        // Dear single pages: their target runs on another processor.
        let mut w = walked(tally(2000), SECOND, now);
        assert!(!w.is_wanted(w.tally.present, &budget, now));
        w.note_walk(Tally { cleared: 2000, ..tally(2000) }, Some(2000 * 8000), now - SECOND);
        assert!(w.is_wanted(w.tally.present, &budget, now));
    }

    #[test]
    fn what_is_not_shared_is_asked_about_ever_more_seldom() {
        let (mut w, begin) = (Whole::default(), Instant::now());
        let mut asked = Vec::new();
        for second in 0..400 {
            if w.is_sample_due(begin + SECOND * second) {
                asked.push(second);
                w.note_sample(0);
            }
        }
        assert_eq!(asked, [0, 5, 15, 35, 75, 155, 235, 315, 395]);
        w.note_sample(1000);
        assert!(w.is_sample_due(begin + SECOND * 400), "shared by now");
    }

    #[test]
    fn the_need_is_remembered_for_some_walks_and_old_clearings_are_forgotten() {
        let now = Instant::now();
        let mut w = Whole::default();
        w.note_walk(Tally { stuck: 2048, present: 1 << 20, ..Tally::default() }, None, now);
        w.note_walk(Tally::default(), None, now);
        assert_eq!(w.tally.stuck, 1536);
        assert!(!w.covers(now));
        w.cleared_at = Some(now);
        assert!(w.covers(now + STALE / 2) && !w.covers(now + STALE));
    }
}
