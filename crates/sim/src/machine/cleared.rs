//! When the accessed bits of which pages were last cleared.

use std::collections::BTreeMap;
use std::ops::Range;

/// Maps page numbers to the time at which their accessed bit was last cleared; pages that never were are absent.
///
/// Holds one entry per run of pages with the same time, so it takes memory for what was looked at and not for what
/// exists.
#[derive(Debug, Clone, Default)]
pub struct Cleared {
    /// First page of a run -> end page, time in ns.
    runs: BTreeMap<u64, (u64, u64)>,
}

impl Cleared {
    /// Notes that `pages` were cleared at `time_ns`.
    pub fn set(&mut self, pages: Range<u64>, time_ns: u64) {
        if pages.is_empty() {
            return;
        }
        self.cut(pages.start);
        self.cut(pages.end);
        while let Some((&start, _)) = self.runs.range(pages.clone()).next() {
            self.runs.remove(&start);
        }
        let mut run = pages;
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

    /// Splits the run that has `page` inside, so that one begins there.
    fn cut(&mut self, page: u64) {
        if let Some((_, run)) = self.runs.range_mut(..page).next_back()
            && run.0 > page
        {
            let (end, time) = *run;
            run.0 = page;
            self.runs.insert(page, (end, time));
        }
    }

    /// Goes through `pages` in runs that share a time; `None`: never cleared.
    pub fn for_each(&self, pages: Range<u64>, mut visit: impl FnMut(Range<u64>, Option<u64>)) {
        if pages.is_empty() {
            return;
        }
        let mut at = pages.start;
        let before = self.runs.range(..=at).next_back().map(|(&start, _)| start).unwrap_or(at);
        for (&start, &(end, time)) in self.runs.range(before..pages.end) {
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

    /// Forgets everything.
    pub fn forget(&mut self) {
        self.runs.clear();
    }

    /// Number of runs held.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether nothing was ever cleared.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_time_per_page(ops in prop::collection::vec((0u64..60, 0u64..20, 0u64..4), 0..40), q in (0u64..70, 0u64..30)) {
            let (mut cleared, mut plain) = (Cleared::default(), vec![None; 100]);
            for (start, len, time) in ops {
                cleared.set(start..start + len, time);
                plain[start as usize..(start + len) as usize].fill(Some(time));
            }
            let mut told = Vec::new();
            let asked = q.0..q.0 + q.1;
            cleared.for_each(asked.clone(), |pages, time| {
                assert!(!pages.is_empty());
                told.extend(pages.map(|_| time));
            });
            prop_assert_eq!(&told[..], &plain[asked.start as usize..asked.end as usize]);
        }
    }

    #[test]
    fn neighbours_of_the_same_time_are_one_run() {
        let mut c = Cleared::default();
        c.set(0..10, 1);
        c.set(20..30, 1);
        c.set(10..20, 1);
        assert_eq!(c.len(), 1);
        c.set(5..6, 2);
        assert_eq!(c.len(), 3);
    }
}
