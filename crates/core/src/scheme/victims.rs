//! Which pages of a target an action is for, as the page history tells: those whose last access lies far enough back.

use super::pattern::Bounds;
use crate::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN};
use crate::history::pages::{Codes, PageHistory};
use crate::history::table::Table;
use crate::mask::{self, NO_PAGES, PageMask};
use crate::pages::{push_range, push_runs};
use std::collections::BTreeMap;

const ALL_PAGES: PageMask = [u64::MAX; 8];

/// What a search came across, bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    /// Pages asked for, whether they were taken or not.
    pub matched: u64,
    /// Of these, in tables that were rejected.
    pub rejected: u64,
    /// Of these, left out.
    pub left_out: u64,
    /// Taken.
    pub taken: u64,
    /// Where there was no room for more.
    pub full_at: Option<u64>,
    /// Whether there was not enough room for a huge page.
    pub too_large: bool,
}

/// A search for pages of one target.
pub(super) struct Search<'a> {
    pub history: &'a PageHistory,
    /// Bytes of the pages that are asked for.
    pub wanted: &'a Codes,
    /// Whether nothing below a table may be taken.
    pub rejects: &'a dyn Fn(&Table) -> bool,
    /// Pages of the table at an address that are not to be taken.
    pub leaves_out: &'a dyn Fn(u64) -> PageMask,
}

impl Search<'_> {
    /// Appends the pages of `ranges` (sorted, disjoint) that are asked for, lowest addresses first, at most `room`
    /// bytes. Huge pages are taken whole or not at all.
    pub fn run(&self, ranges: &[AddrRange], room: u64, out: &mut Vec<AddrRange>) -> Found {
        let mut found = Found::default();
        self.history.each_table_in(ranges, |base, table, asked| {
            let left = room - found.taken;
            if left < PAGE_SIZE {
                found.full_at = found.full_at.or(Some(base));
                return;
            }
            let pages = mask::and(&table.pages(self.wanted), asked);
            if pages == NO_PAGES || table.huge && pages != ALL_PAGES {
                return;
            }
            found.matched += bytes(&pages);
            if (self.rejects)(table) {
                found.rejected += bytes(&pages);
                return;
            }
            let mut free = mask::and_not(&pages, &(self.leaves_out)(base));
            if table.huge && free != ALL_PAGES {
                free = NO_PAGES;
            }
            found.left_out += bytes(&pages) - bytes(&free);
            if bytes(&free) > left {
                if table.huge {
                    found.too_large = true;
                    return;
                }
                let (first, rest) = lowest(&free, (left / PAGE_SIZE) as usize);
                free = first;
                found.full_at = Some(base + rest as u64 * PAGE_SIZE);
            }
            found.taken += bytes(&free);
            push_runs(base, &free, out);
        });
        found
    }

    /// Adds to `ages` how many bytes of `ranges` could be taken, by when they were accessed last.
    pub fn ages(&self, ranges: &[AddrRange], ages: &mut BTreeMap<u64, u64>) {
        let mut pages = [0u64; 256];
        self.history.each_table_in(ranges, |base, table, asked| {
            if !(self.rejects)(table) {
                let free = mask::and_not(asked, &(self.leaves_out)(base));
                table.count_in(&free, |code, n| pages[usize::from(code)] += n);
            }
        });
        for (code, &n) in pages.iter().enumerate().filter(|(_, n)| **n > 0) {
            if let Some(by_ns) = self.history.accessed_by(code as u8) {
                *ages.entry(by_ns).or_default() += n * PAGE_SIZE;
            }
        }
    }
}

/// The parts of `ranges` (sorted, disjoint) of a size within `size` without a present page of another age than `matching`.
pub(super) fn stretches(
    history: &PageHistory,
    matching: &Codes,
    ranges: &[AddrRange],
    size: Bounds<u64>,
) -> Vec<AddrRange> {
    let others: Codes = std::array::from_fn(|c| c > 0 && !matching[c]);
    let mut used = Vec::new();
    history.each_table_in(ranges, |base, table, asked| {
        push_runs(base, &mask::and(&table.pages(&others), asked), &mut used);
    });
    let mut used = used.into_iter().peekable();
    let mut out = Vec::new();
    for range in ranges {
        let mut at = range.start;
        while let Some(hole) = used.next_if(|u| u.end <= range.end) {
            out.push(AddrRange::new(at, hole.start));
            at = hole.end;
        }
        // What is used may go on in the next range where both touch.
        match used.peek_mut().filter(|u| u.start < range.end) {
            Some(hole) => {
                out.push(AddrRange::new(at, hole.start));
                hole.start = range.end;
            }
            None => out.push(AddrRange::new(at, range.end)),
        }
    }
    out.retain(|r| !r.is_empty() && size.contains(r.len()));
    out
}

/// `ranges` in portions of about `size` bytes (a multiple of 2 MiB); no huge page is cut in two.
pub(super) fn portions(ranges: &[AddrRange], size: u64) -> Vec<Vec<AddrRange>> {
    let mut out: Vec<Vec<AddrRange>> = Vec::new();
    let mut filled = u64::MAX;
    for range in ranges {
        let mut at = range.start;
        while at < range.end {
            if filled >= size {
                out.push(Vec::new());
                filled = 0;
            }
            let end = range.end.min((at / size + 1) * size);
            if let Some(last) = out.last_mut() {
                push_range(last, AddrRange::new(at, end));
            }
            filled += end - at;
            at = end;
        }
    }
    out
}

/// The first `count` pages of a set that holds more, and the number of the next one.
fn lowest(pages: &PageMask, count: usize) -> (PageMask, usize) {
    let next = mask::iter(pages).nth(count).unwrap_or(TABLE_SPAN as usize);
    (mask::and(pages, &mask::span_mask(0, next)), next)
}

fn bytes(pages: &PageMask) -> u64 {
    u64::from(mask::count(pages)) * PAGE_SIZE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bits::TableBits;
    use proptest::prelude::*;

    const S: u64 = 1_000_000_000;
    const TABLES: u64 = 3;

    /// Pages are accessed in second `ages[i % n]`, or not present where that is 0; table 1 may be a huge page.
    fn history(ages: &[u64], huge: bool) -> PageHistory {
        let mut history = PageHistory::new(S);
        for now in 1..=10 {
            history.begin_walk(&[AddrRange::new(0, TABLES * TABLE_SPAN)], now * S);
            for table in 0..TABLES {
                let mut bits = TableBits::empty(table * TABLE_SPAN);
                let at = |i: u64| ages[((table * 512 + i) % ages.len() as u64) as usize];
                if huge && table == 1 {
                    (bits.leaf_shift, bits.present) = (21, ALL_PAGES);
                    bits.accessed = if now == ages[0] { ALL_PAGES } else { NO_PAGES };
                } else {
                    (0..512).filter(|&i| at(i) > 0).for_each(|i| mask::put(&mut bits.present, i as usize));
                    (0..512).filter(|&i| at(i) == now).for_each(|i| mask::put(&mut bits.accessed, i as usize));
                }
                bits.cleared = bits.accessed;
                history.take(&bits);
            }
            history.end_walk(now * S);
        }
        history
    }

    fn ranges() -> impl Strategy<Value = Vec<AddrRange>> {
        prop::collection::vec((0u64..1500, 1u64..900), 1..4).prop_map(|list| {
            let page = |p: u64| p.min(TABLES * 512) * PAGE_SIZE;
            let mut out = list.into_iter().map(|(s, l)| AddrRange::new(page(s), page(s + l))).collect();
            crate::addr::normalize(&mut out);
            out
        })
    }

    proptest! {
        #[test]
        fn what_is_found_is_what_a_plain_list_of_pages_says(
            ages in prop::collection::vec(0u64..=10, 1..40),
            huge: bool,
            ranges in ranges(),
            out in prop::collection::vec(0u64..1536, 0..5),
            room in prop_oneof![Just(u64::MAX), 0u64..8 << 20],
            by in 1u64..=10,
            size in 1u64..60,
        ) {
            let history = history(&ages, huge);
            let wanted = history.idle_codes(by * S);
            let left_out = |base: u64| {
                let mut pages = NO_PAGES;
                out.iter().filter(|&&p| p / 512 * TABLE_SPAN == base).for_each(|&p| mask::put(&mut pages, p as usize % 512));
                pages
            };
            let search = Search { history: &history, wanted: &wanted, rejects: &|_| false, leaves_out: &left_out };
            // Of each page: present, and idle since then.
            let is_huge = |p: u64| huge && p / 512 == 1;
            let age = |p: u64| if is_huge(p) { ages[0] } else { ages[(p % ages.len() as u64) as usize] };
            let idle = |p: u64| (is_huge(p) || age(p) > 0) && age(p).max(1) <= by;
            let inside = |p: u64| ranges.iter().any(|r| r.contains(p * PAGE_SIZE));
            let whole = (512..1024).all(|p| inside(p) && idle(p)) && !out.iter().any(|p| p / 512 == 1);
            let expected: Vec<u64> = (0..TABLES * 512)
                .filter(|&p| inside(p) && idle(p) && !out.contains(&p) && (!is_huge(p) || whole))
                .collect();
            let mut found = Vec::new();
            let reported = search.run(&ranges, room, &mut found);
            let pages: Vec<u64> = found.iter().flat_map(|r| r.start / PAGE_SIZE..r.end / PAGE_SIZE).collect();
            prop_assert_eq!(reported.taken, pages.len() as u64 * PAGE_SIZE);
            prop_assert!(reported.taken <= room);
            if reported.full_at.is_none() && !reported.too_large {
                prop_assert_eq!(&pages, &expected);
            } else {
                let small: Vec<u64> = expected.iter().copied().filter(|&p| !is_huge(p) || pages.contains(&p)).collect();
                prop_assert_eq!(&pages[..], &small[..pages.len()], "the lowest come first");
                prop_assert!(reported.full_at.is_none_or(|at| pages.iter().all(|p| p * PAGE_SIZE < at)));
            }
            let mut by_age = BTreeMap::new();
            search.ages(&ranges, &mut by_age);
            let old: u64 = by_age.range(..=by * S).map(|(_, bytes)| bytes).sum();
            let old_pages = (0..TABLES * 512).filter(|&p| inside(p) && idle(p) && !out.contains(&p)).count() as u64;
            prop_assert_eq!(old, old_pages * PAGE_SIZE);

            let least = size * PAGE_SIZE;
            let used = |p: u64| (is_huge(p) || age(p) > 0) && !idle(p);
            let stretches = stretches(&history, &wanted, &ranges, Bounds::new(least, u64::MAX));
            prop_assert!(stretches.iter().all(|r| r.len() >= least));
            for p in 0..TABLES * 512 {
                let range = ranges.iter().find(|r| r.contains(p * PAGE_SIZE));
                let long = range.is_some_and(|range| {
                    let (first, end) = (range.start / PAGE_SIZE, range.end / PAGE_SIZE);
                    let down = (first..=p).rev().take_while(|&q| !used(q)).count() as u64;
                    let up = (p..end).take_while(|&q| !used(q)).count() as u64;
                    !used(p) && down + up > size
                });
                prop_assert_eq!(stretches.iter().any(|r| r.contains(p * PAGE_SIZE)), long, "page {}", p);
            }
        }

        #[test]
        fn portions_are_all_there_is(ranges in ranges()) {
            let parts = portions(&ranges, TABLE_SPAN);
            let mut joined = Vec::new();
            parts.iter().flatten().for_each(|&r| push_range(&mut joined, r));
            prop_assert_eq!(joined, ranges);
            for part in &parts {
                let bytes = crate::addr::total_len(part);
                prop_assert!(0 < bytes && bytes < 2 * TABLE_SPAN);
            }
        }
    }
}
