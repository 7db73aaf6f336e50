//! Which pages cannot be observed because the kernel leaves their accessed bits alone: those that other processes map,
//! too, and those that wait in a per-CPU list to be put on the LRU lists (at most 31 for each CPU, but for as long as
//! nobody else there needs new pages).
//!
//! A bit that is set right after it was cleared means either that, or an access in between. Only then the kernel is
//! asked (bit 56 of `/proc/PID/pagemap`, 0.9 us a page, and kpageflags), and the answer is kept for a while:
//! [`VERDICT_LIFE`].

use super::plan;
use crate::mm::pagemap::Entry;
use isotherm_core::addr::{PAGE_SIZE, TABLE_SPAN};
use isotherm_core::mask::{self, NO_PAGES, PageMask};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// How long an answer holds before the page is tried again. A page that becomes shared (the target forks) may be taken
/// for a hot one for that long.
pub(crate) const VERDICT_LIFE: Duration = Duration::from_secs(2);
/// Pages that again and again cannot be cleared are tried ever more seldom, up to this.
const LONGEST_LIFE: Duration = Duration::from_secs(256);
/// Of a table's pages that cannot be cleared so many are tried again, and the others only where one of these can: asking
/// about a page costs as much as reading hundreds, and whole libraries are mapped by many processes for good.
const RETRIED: usize = 4;
/// Reading a further entry is cheaper than a call of its own up to this many in between.
const READ_GAP: u64 = 16;

#[derive(Debug, Clone, Copy)]
struct Verdict {
    blind: PageMask,
    exclusive: PageMask,
    /// Of those that could not be cleared, the pages that are tried again.
    retried: PageMask,
    /// How often that was: other pages each time.
    turn: usize,
    since: Instant,
    /// When pages that cannot be cleared are tried again, and how long that takes the next time.
    retry: Instant,
    life: Duration,
}

/// What was found out about pages of one address space, by table.
#[derive(Debug, Default)]
pub struct Verdicts {
    tables: HashMap<u64, Verdict>,
}

impl Verdicts {
    /// Pages of the 2 MiB span at `base` that could not be cleared when that was last tried.
    pub fn blind(&self, base: u64) -> PageMask {
        self.tables.get(&(base / TABLE_SPAN)).map_or(NO_PAGES, |v| v.blind)
    }

    /// Whether anything is known about the 2 MiB span at `base`.
    pub fn any(&self, base: u64) -> bool {
        !self.tables.is_empty() && self.tables.contains_key(&(base / TABLE_SPAN))
    }

    /// The same as [`blind`](Self::blind), after forgetting what is too old: the pages not in it are to be tried
    /// (again).
    pub(crate) fn fresh_blind(&mut self, base: u64, now: Instant) -> PageMask {
        let Some(v) = self.tables.get_mut(&(base / TABLE_SPAN)) else { return NO_PAGES };
        if now.duration_since(v.since) >= VERDICT_LIFE {
            v.since = now;
            v.exclusive = NO_PAGES;
        }
        if mask::and_not(&v.retried, &v.blind) != NO_PAGES {
            // The answer is another one now.
            (v.blind, v.retried, v.life) = (NO_PAGES, NO_PAGES, VERDICT_LIFE);
            v.retry = now + v.life;
        } else if now >= v.retry {
            v.life = (v.life * 2).min(LONGEST_LIFE);
            v.retry = now + v.life;
            v.turn += 1;
            v.retried = some_of(&v.blind, v.turn);
            v.blind = mask::and_not(&v.blind, &v.retried);
        }
        v.blind
    }

    fn exclusive(&self, base: u64) -> PageMask {
        self.tables.get(&(base / TABLE_SPAN)).map_or(NO_PAGES, |v| v.exclusive)
    }

    /// Notes pages that cannot be cleared, and pages that only the target maps.
    pub fn note(&mut self, base: u64, blind: &PageMask, exclusive: &PageMask, now: Instant) {
        if *blind == NO_PAGES && *exclusive == NO_PAGES {
            return;
        }
        let (none, life) = (NO_PAGES, VERDICT_LIFE);
        let new = Verdict { blind: none, exclusive: none, retried: none, turn: 0, since: now, retry: now + life, life };
        let v = self.tables.entry(base / TABLE_SPAN).or_insert(new);
        v.blind = mask::or(&mask::and_not(&v.blind, exclusive), blind);
        v.exclusive = mask::or(&mask::and_not(&v.exclusive, blind), exclusive);
    }

    /// Of pages that are still set after they were cleared, those that cannot be cleared. `clearable` is asked about
    /// those not asked about lately. What it does not vouch for counts as not observable, for it must not pass for hot
    /// by mistake.
    pub fn judge(
        &mut self,
        base: u64,
        still_set: &PageMask,
        now: Instant,
        clearable: impl FnOnce(&PageMask) -> PageMask,
    ) -> PageMask {
        let unknown = mask::and_not(still_set, &mask::or(&self.exclusive(base), &self.blind(base)));
        if unknown != NO_PAGES {
            let clearable = clearable(&unknown);
            self.note(base, &mask::and_not(&unknown, &clearable), &clearable, now);
        }
        mask::and(still_set, &self.blind(base))
    }

    /// Drops verdicts that are so old that nothing looks at those pages any more.
    pub fn tidy(&mut self, now: Instant) {
        self.tables.retain(|_, v| now.duration_since(v.since) < 2 * LONGEST_LIFE);
    }
}

/// [`RETRIED`] of `pages`, spread over them; which depends on `turn`.
fn some_of(pages: &PageMask, turn: usize) -> PageMask {
    let step = (mask::count(pages) as usize).div_ceil(RETRIED).max(1);
    let mut some = NO_PAGES;
    mask::iter(pages).skip(turn % step).step_by(step).for_each(|page| mask::put(&mut some, page));
    some
}

/// Tables at which [`estimate_shared`] looks, and pages of each.
const SAMPLED_TABLES: usize = 32;
const SAMPLED_PAGES: usize = 2;

/// About how many of `pages` (by table) other processes map, too, from a sample of them; 0 where the kernel does not
/// tell.
pub(crate) fn estimate_shared(pagemap: Option<&File>, pages: &[(u64, PageMask)]) -> u64 {
    let Some(pagemap) = pagemap else { return 0 };
    let pages: Vec<_> = pages.iter().filter(|(_, pages)| *pages != NO_PAGES).collect();
    // Each table stands for as many pages as it has, however few of them are looked at.
    let (mut looked_at, mut shared) = (0.0, 0.0);
    for (base, pages) in pages.iter().step_by(pages.len().div_ceil(SAMPLED_TABLES).max(1)) {
        let mut some = NO_PAGES;
        mask::iter(pages).take(SAMPLED_PAGES).for_each(|page| mask::put(&mut some, page));
        if let Ok(exclusive) = exclusive_pages(pagemap, *base, &some) {
            let weight = f64::from(mask::count(pages));
            looked_at += weight;
            shared +=
                weight * f64::from(mask::count(&mask::and_not(&some, &exclusive))) / f64::from(mask::count(&some));
        }
    }
    let all: f64 = pages.iter().map(|(_, pages)| f64::from(mask::count(pages))).sum();
    if looked_at > 0.0 { (all * shared / looked_at).round() as u64 } else { 0 }
}

/// Which of the pages `asked` in the span at `base` only the pagemap's process maps.
pub(crate) fn exclusive_pages(pagemap: &File, base: u64, asked: &PageMask) -> io::Result<PageMask> {
    let mut exclusive = NO_PAGES;
    let pages: Vec<u64> = mask::iter(asked).map(|i| i as u64).collect();
    let mut buf = [0u8; 4096];
    for run in plan::runs(&pages, READ_GAP, 512) {
        let (first, last) = (run[0], run[run.len() - 1]);
        let bytes = &mut buf[..((last - first + 1) * 8) as usize];
        pagemap.read_exact_at(bytes, (base / PAGE_SIZE + first) * 8)?;
        for &page in run {
            let at = ((page - first) * 8) as usize;
            let entry = Entry(u64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i])));
            // A page that has gone meanwhile is nobody's; the next look will show it as not present.
            if entry.is_exclusive() || !entry.is_present() {
                mask::put(&mut exclusive, page as usize);
            }
        }
    }
    Ok(exclusive)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mm::pagemap::{EXCLUSIVE, PRESENT};

    /// A pagemap in which page i of the first table is present, and exclusive where `exclusive(i)`.
    fn pagemap(exclusive: impl Fn(usize) -> bool) -> File {
        let f = tempfile::tempfile().unwrap();
        let entries: Vec<u8> =
            (0..512).flat_map(|i| (PRESENT | if exclusive(i) { EXCLUSIVE } else { 0 }).to_le_bytes()).collect();
        f.write_all_at(&entries, 0).unwrap();
        f
    }

    #[test]
    fn shared_pages_are_blind_and_hot_ones_are_not() {
        let f = pagemap(|i| i % 2 == 0);
        let mut v = Verdicts::default();
        let now = Instant::now();
        let all = [u64::MAX; 8];
        let odd = [0xaaaa_aaaa_aaaa_aaaa; 8];
        assert_eq!(v.judge(0, &all, now, |asked| exclusive_pages(&f, 0, asked).unwrap()), odd);
        assert_eq!(v.blind(0), odd);
        // Answers are kept.
        assert_eq!(v.judge(0, &all, now, |_| unreachable!()), odd);
        assert_eq!(v.fresh_blind(0, now), odd);
        // A few are tried again later, ever more seldom where the answer is the same.
        let later = now + VERDICT_LIFE;
        let others = v.fresh_blind(0, later);
        assert_eq!(mask::count(&mask::and_not(&odd, &others)) as usize, RETRIED);
        assert_eq!(v.judge(0, &all, later, |asked| exclusive_pages(&f, 0, asked).unwrap()), odd);
        assert_eq!(v.fresh_blind(0, later + VERDICT_LIFE), odd);
        assert_ne!(v.fresh_blind(0, later + 2 * VERDICT_LIFE), odd);
    }

    #[test]
    fn all_are_tried_again_once_one_can_be_cleared() {
        let shared = pagemap(|i| i % 2 == 0);
        let mut v = Verdicts::default();
        let mut now = Instant::now();
        let all = [u64::MAX; 8];
        v.judge(0, &all, now, |asked| exclusive_pages(&shared, 0, asked).unwrap());
        now += VERDICT_LIFE;
        // Those that are tried were cleared, or are only in use now.
        v.fresh_blind(0, now);
        let tried = v.judge(0, &all, now, |asked| *asked);
        assert_eq!(mask::count(&tried) as usize, 256 - RETRIED);
        assert_eq!(v.fresh_blind(0, now), NO_PAGES);
        assert_eq!(v.judge(0, &all, now, |asked| exclusive_pages(&pagemap(|_| true), 0, asked).unwrap()), NO_PAGES);
    }

    #[test]
    fn a_few_shared_pages_do_not_stand_for_many_of_the_targets_own() {
        let f = pagemap(|i| i >= 10);
        f.write_all_at(&(0..512).flat_map(|_| (PRESENT | EXCLUSIVE).to_le_bytes()).collect::<Vec<u8>>(), 4096).unwrap();
        let few = mask::span_mask(0, 10);
        assert_eq!(estimate_shared(Some(&f), &[(0, few), (TABLE_SPAN, [u64::MAX; 8])]), 10);
        assert_eq!(estimate_shared(Some(&f), &[]), 0);
        assert_eq!(estimate_shared(None, &[(0, few)]), 0);
    }

    #[test]
    fn without_an_answer_pages_are_not_called_hot() {
        let mut v = Verdicts::default();
        let one = [4, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(v.judge(TABLE_SPAN, &one, Instant::now(), |_| NO_PAGES), one);
    }

    #[test]
    fn a_later_verdict_replaces_an_earlier_one() {
        let mut v = Verdicts::default();
        let now = Instant::now();
        let one = [1, 0, 0, 0, 0, 0, 0, 0];
        v.note(0, &one, &NO_PAGES, now);
        v.note(0, &NO_PAGES, &one, now);
        assert_eq!(v.blind(0), NO_PAGES);
        v.tidy(now + 2 * LONGEST_LIFE);
        assert!(v.tables.is_empty());
    }
}
