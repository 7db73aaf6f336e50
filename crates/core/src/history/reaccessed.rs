//! How much memory was accessed again after having been idle for how long: what reclaiming it would have brought back.
//!
//! The rate of such accesses is what far memory is tuned by (a promotion rate: Lagar-Cavilla et al., "Software-Defined Far
//! Memory in Warehouse-Scale Computers", ASPLOS 2019).

use super::times::IDLE_NS;
use serde::{Deserialize, Serialize};

/// Pages found accessed again since the watch began, by how long they had certainly been idle before.
///
/// A page counts each time. Pages whose bit is left set, since they are in constant use, do not; nor do new ones, and those
/// that nobody knows to have been idle.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reaccessed {
    /// Those idle for at least one of [`IDLE_NS`], and for less than the next.
    by_idle: [u64; IDLE_NS.len()],
}

impl Reaccessed {
    /// Adds pages that had been idle for so long.
    pub(crate) fn add(&mut self, idle_ns: u64, pages: u64) {
        let at = IDLE_NS.partition_point(|&limit| limit <= idle_ns) - 1;
        self.by_idle[at] += pages;
    }

    /// Adds others, each of which stands for `scale` pages.
    pub fn add_all(&mut self, other: &Self, scale: u64) {
        self.by_idle.iter_mut().zip(other.by_idle).for_each(|(sum, pages)| *sum += pages * scale);
    }

    /// What has come since `before`, an earlier value of the same counters; all of it where they began anew.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let grown = self.by_idle.iter().zip(before.by_idle).all(|(now, before)| *now >= before);
        let less = if grown { before.by_idle } else { [0; IDLE_NS.len()] };
        Self { by_idle: std::array::from_fn(|i| self.by_idle[i] - less[i]) }
    }

    /// Pages that had been idle for at least each of [`IDLE_NS`].
    pub fn pages(&self) -> [u64; IDLE_NS.len()] {
        let mut sums = self.by_idle;
        for i in (0..sums.len() - 1).rev() {
            sums[i] += sums[i + 1];
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::{AddrRange, TABLE_SPAN};
    use crate::bits::TableBits;
    use crate::history::pages::PageHistory;
    use crate::mask::{self, NO_PAGES, PageMask};
    use proptest::prelude::*;

    const S: u64 = 1_000_000_000;
    const BEGIN: u64 = 1000 * S;

    /// A walk that clears all it wants to, and what was never cleared.
    fn walk(history: &mut PageHistory, now_ns: u64, accessed: &PageMask) {
        history.begin_walk(&[AddrRange::new(0, TABLE_SPAN)], now_ns);
        let mut bits = TableBits { present: [u64::MAX; 8], accessed: *accessed, ..TableBits::empty(0) };
        bits.cleared = history.wanted(&bits).all();
        history.take(&bits);
        history.end_walk(now_ns);
    }

    fn pages(which: &[usize]) -> PageMask {
        let mut mask = NO_PAGES;
        which.iter().for_each(|&i| mask::put(&mut mask, i));
        mask
    }

    #[test]
    fn idle_times_are_those_that_are_certain() {
        let mut history = PageHistory::new(BEGIN);
        walk(&mut history, BEGIN, &pages(&[1]));
        for second in 1..=40 {
            let accessed = match second {
                5 => pages(&[2, 3]),
                // Seen idle last at second 39; page 2 was accessed by 5, page 7 before the watch began.
                40 => pages(&[2, 7]),
                _ => NO_PAGES,
            };
            walk(&mut history, BEGIN + second * S, &accessed);
        }
        let found = history.reaccessed();
        // At second 5 two, seen idle at 4, which is as long as the watch; at 40 two that were idle for 34 and 39 s.
        let mut truth = [0; 16];
        for idle_s in [4, 4, 34, 39] {
            truth.iter_mut().zip(IDLE_NS).filter(|(_, limit)| *limit <= idle_s * S).for_each(|(sum, _)| *sum += 1);
        }
        assert_eq!(found.pages(), truth);
        assert_eq!(found.pages()[..7], [4, 4, 4, 2, 2, 2, 0]);
        let before = found;
        walk(&mut history, BEGIN + 41 * S, &pages(&[9]));
        assert_eq!(history.reaccessed().since(&before).pages()[5], 1);
        assert_eq!(Reaccessed::default().since(&before), Reaccessed::default(), "another process's counters");
    }

    #[test]
    fn an_access_that_somebody_else_saw_counts_once() {
        let mut history = PageHistory::new(BEGIN);
        for second in 0..=20 {
            walk(&mut history, BEGIN + second * S, &NO_PAGES);
        }
        history.note(0, &pages(&[4]));
        walk(&mut history, BEGIN + 21 * S, &pages(&[4]));
        assert_eq!(history.reaccessed().pages()[..6], [1, 1, 1, 1, 1, 0]);
    }

    #[test]
    fn a_sample_of_tables_counts_for_all() {
        let mut history = PageHistory::new(BEGIN);
        history.set_one_in(4);
        for second in 0..=3 {
            // The table at 0 is in every sample.
            walk(&mut history, BEGIN + second * S, if second == 3 { &[u64::MAX; 8] } else { &NO_PAGES });
        }
        assert_eq!(history.reaccessed().pages()[..4], [2048, 2048, 2048, 0]);
    }

    proptest! {
        /// Against a model that remembers at which walks each page was found accessed.
        #[test]
        fn it_is_what_a_plain_model_says(accesses in prop::collection::vec(prop::collection::vec(0usize..512, 0..20), 2..40)) {
            let mut history = PageHistory::new(BEGIN);
            let mut last = [0u64; 512];
            let mut truth = [0u64; 16];
            walk(&mut history, BEGIN, &NO_PAGES);
            for (second, accessed) in (1u64..).zip(&accesses) {
                let mut each = accessed.clone();
                each.sort_unstable();
                each.dedup();
                // A page in constant use is left set by walks whose turn it is not; here no page is for so long.
                each.retain(|&page| last[page] == 0 || last[page] + 1 < second);
                for &page in &each {
                    let idle_ns = (second - 1 - last[page]) * S;
                    truth.iter_mut().zip(IDLE_NS).filter(|(_, limit)| *limit <= idle_ns).for_each(|(sum, _)| *sum += 1);
                    last[page] = second;
                }
                walk(&mut history, BEGIN + second * S, &pages(&each));
            }
            prop_assert_eq!(history.reaccessed().pages(), truth);
        }
    }
}
