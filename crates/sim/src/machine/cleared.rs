//! When the accessed bits of which pages were last cleared.

use isotherm_core::addr::TABLE_PAGES;
use isotherm_core::mask::{self, NO_PAGES, PageMask};
use std::collections::BTreeMap;
use std::ops::Range;

/// Maps page numbers to the time at which their accessed bit was last cleared; pages that never were are absent.
///
/// Tables whose pages share a time are held in runs, so it takes memory for what was looked at and not for what exists.
/// Where single pages of a table were cleared, the table has a mask for each of its times: terabytes with a hot page in
/// fifty fit.
#[derive(Debug, Clone, Default)]
pub struct Cleared {
    /// First table of a run -> end table, time in ns. Does not count for tables that are in `mixed`.
    runs: BTreeMap<u64, (u64, u64)>,
    /// Tables whose pages have several times.
    mixed: BTreeMap<u64, Vec<(Option<u64>, PageMask)>>,
}

impl Cleared {
    /// Notes that `pages` were cleared at `time_ns`.
    pub fn set(&mut self, pages: Range<u64>, time_ns: u64) {
        let mut at = pages.start;
        while at < pages.end {
            let table = at / TABLE_PAGES;
            let whole = table..pages.end / TABLE_PAGES;
            if at.is_multiple_of(TABLE_PAGES) && !whole.is_empty() {
                at = whole.end * TABLE_PAGES;
                self.set_tables(whole, time_ns);
            } else {
                let end = pages.end.min((table + 1) * TABLE_PAGES);
                let first = table * TABLE_PAGES;
                self.set_part(table, &mask::span_mask((at - first) as usize, (end - first) as usize), time_ns);
                at = end;
            }
        }
    }

    fn set_part(&mut self, table: u64, pages: &PageMask, time_ns: u64) {
        let before = self.time_of(table);
        if before == Some(time_ns) && !self.mixed.contains_key(&table) {
            return;
        }
        let layers = self.mixed.entry(table).or_insert_with(|| vec![(before, [u64::MAX; 8])]);
        layers.iter_mut().for_each(|(_, held)| *held = mask::and_not(held, pages));
        match layers.iter_mut().find(|(time, _)| *time == Some(time_ns)) {
            Some((_, held)) => *held = mask::or(held, pages),
            None => layers.push((Some(time_ns), *pages)),
        }
        layers.retain(|(_, held)| *held != NO_PAGES);
        if let [(Some(time), _)] = layers[..] {
            self.set_tables(table..table + 1, time);
        }
    }

    fn set_tables(&mut self, tables: Range<u64>, time_ns: u64) {
        while let Some((&table, _)) = self.mixed.range(tables.clone()).next() {
            self.mixed.remove(&table);
        }
        self.cut(tables.start);
        self.cut(tables.end);
        while let Some((&start, _)) = self.runs.range(tables.clone()).next() {
            self.runs.remove(&start);
        }
        let mut run = tables;
        if let Some((&start, &(end, time))) = self.runs.range(..run.start).next_back()
            && end == run.start
            && time == time_ns
        {
            run.start = start;
        }
        if let Some(&(end, time)) = self.runs.get(&run.end)
            && time == time_ns
        {
            self.runs.remove(&run.end);
            run.end = end;
        }
        self.runs.insert(run.start, (run.end, time_ns));
    }

    /// Splits the run that has `table` inside, so that one begins there.
    fn cut(&mut self, table: u64) {
        if let Some((_, run)) = self.runs.range_mut(..table).next_back()
            && run.0 > table
        {
            let (end, time) = *run;
            run.0 = table;
            self.runs.insert(table, (end, time));
        }
    }

    /// The time of a table that is not mixed.
    fn time_of(&self, table: u64) -> Option<u64> {
        self.runs.range(..=table).next_back().and_then(|(_, &(end, time))| (end > table).then_some(time))
    }

    /// Goes through `pages` in runs that share a time; `None`: never cleared.
    pub fn for_each(&self, pages: Range<u64>, mut visit: impl FnMut(Range<u64>, Option<u64>)) {
        let tables = pages.start / TABLE_PAGES..pages.end.div_ceil(TABLE_PAGES);
        let mut at = pages.start;
        for (&table, layers) in self.mixed.range(tables) {
            let first = table * TABLE_PAGES;
            self.for_each_alike(at..first.max(at), &mut visit);
            at = at.max(first);
            let end = pages.end.min(first + TABLE_PAGES);
            while at < end {
                let here = at - first;
                let layer = layers.iter().find(|(_, held)| mask::has(held, here as usize));
                let Some((time, held)) = layer else { break };
                let run = at..end.min(first + run_end(held, here));
                at = run.end;
                visit(run, *time);
            }
        }
        self.for_each_alike(at..pages.end, &mut visit);
    }

    /// The same for pages of tables that are not mixed.
    fn for_each_alike(&self, pages: Range<u64>, visit: &mut impl FnMut(Range<u64>, Option<u64>)) {
        if pages.is_empty() {
            return;
        }
        let mut at = pages.start;
        let table = at / TABLE_PAGES;
        let before = self.runs.range(..=table).next_back().map_or(table, |(&start, _)| start);
        for (&start, &(end, time)) in self.runs.range(before..pages.end.div_ceil(TABLE_PAGES)) {
            let (start, end) = (start * TABLE_PAGES, end * TABLE_PAGES);
            if end <= at {
                continue;
            }
            if start > at {
                visit(at..start, None);
                at = start;
            }
            let end = end.min(pages.end);
            visit(at..end, Some(time));
            at = end;
        }
        if at < pages.end {
            visit(at..pages.end, None);
        }
    }

    pub fn forget(&mut self) {
        self.runs.clear();
        self.mixed.clear();
    }

    /// Number of entries held.
    pub fn len(&self) -> usize {
        self.runs.len() + self.mixed.len()
    }

    /// Whether nothing was ever cleared.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.mixed.is_empty()
    }
}

/// The end of the run of pages in `held` that page `first` lies in.
fn run_end(held: &PageMask, first: u64) -> u64 {
    let mut at = first;
    while at < TABLE_PAGES {
        let (word, bit) = (held[at as usize / 64], at % 64);
        let ones = u64::from((word >> bit).trailing_ones()).min(64 - bit);
        at += ones;
        if ones == 0 || bit + ones < 64 {
            break;
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Pages at and around the borders of a few tables.
    fn arb_page() -> impl Strategy<Value = u64> {
        (0u64..4, prop_oneof![0u64..6, 60u64..70, 506u64..512]).prop_map(|(table, page)| table * TABLE_PAGES + page)
    }

    proptest! {
        #[test]
        fn agrees_with_a_time_per_page(
            ops in prop::collection::vec((arb_page(), prop_oneof![0u64..20, 480u64..1100], 0u64..4), 0..40),
            q in (arb_page(), 0u64..1500),
        ) {
            let (mut cleared, mut plain) = (Cleared::default(), vec![None; 4000]);
            for (start, len, time) in ops {
                cleared.set(start..start + len, time);
                plain[start as usize..(start + len) as usize].fill(Some(time));
            }
            let mut reported = Vec::new();
            let asked = q.0..q.0 + q.1;
            cleared.for_each(asked.clone(), |pages, time| {
                assert!(!pages.is_empty() && pages.start == asked.start + reported.len() as u64);
                reported.extend(pages.map(|_| time));
            });
            prop_assert_eq!(&reported[..], &plain[asked.start as usize..asked.end as usize]);
        }
    }

    #[test]
    fn neighbours_of_the_same_time_are_one_run() {
        let mut c = Cleared::default();
        c.set(0..10, 1);
        c.set(20..512, 1);
        c.set(512..4096, 1);
        c.set(10..20, 1);
        assert_eq!(c.len(), 1);
        c.set(5..6, 2);
        c.set(50..51, 2);
        assert_eq!(c.len(), 2);
        c.set(0..512, 3);
        assert_eq!(c.len(), 2);
    }
}
