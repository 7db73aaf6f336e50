//! What clearing accessed bits costs both sides, learnt from the calls, and which way is the cheapest.
//!
//! The kernel ends each range of a `process_madvise` call with a flush of the translations that processors hold. Where
//! the target runs on another processor that is an interrupt, for which the caller waits and which the target pays for,
//! too. So few wide ranges are better then, or to run in the target's processor for that time. Pages between two that are
//! to be cleared are passed over for less than what a further range costs.

use crate::source::reset::RESET_NS;
use isotherm_core::addr::{AddrRange, PAGE_SIZE, total_len};

/// On which processor the target runs while its bits are cleared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TargetCpu {
    /// It sleeps, or waits for the processor that clears.
    #[default]
    NotRunning,
    /// It would run, but the clearing thread has moved to its processor.
    Same,
    /// On another one, or on several.
    Other,
}

/// A range until it has been measured, ns, by [`TargetCpu`]: kernel 6.18, a virtual machine of two processors.
const EXPECTED_NS: [f64; 3] = [230.0, 230.0, 4000.0];
/// A page in a range until it has been measured, ns.
const EXPECTED_PAGE_NS: f64 = 37.0;
/// What a page whose bit is cleared takes beyond that, ns.
const YOUNG_EXTRA_NS: f64 = 20.0;
/// Moving to another processor and back, ns: two visits of the kernel's migration thread, and finding out where the
/// target runs.
const MOVE_NS: f64 = 60_000.0;
/// What a measurement counts beside the average before it; it may have been interrupted.
const WEIGHT: f64 = 0.25;
/// What it costs to find out whether a page is part of a large folio, ns.
const ASK_NS: f64 = 100.0;
/// Of pages that are cleared again and again the answer serves more than once.
const ANSWER_SERVES: f64 = 2.0;
/// Pages below a table.
const TABLE_PAGES: f64 = 512.0;
/// How fast a price that is not measured returns to what is expected.
const FORGET: f64 = 0.02;
/// Fewer ranges tell too little of the price of one, and so do ranges of more pages each.
const ENOUGH_RANGES: usize = 32;
const NARROW: usize = 4;
/// Fewer pages tell too little of the price of one, and so do ranges of fewer pages each.
const ENOUGH_PAGES: usize = 2048;
const WIDE: usize = 64;
/// Where ranges are joined because one is expensive, one call in so many first clears a part of them on their own, to see
/// whether it still is; and the part, one in so many.
const PROBE_EVERY: u32 = 4;
const PROBE_PART: usize = 16;

/// What both sides pay, ns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// For a further range.
    pub range: f64,
    /// For a page in it whose bit is clear.
    pub old_page: f64,
    /// For a page in it whose bit need not be cleared, but is: the processor must set it again.
    pub young_page: f64,
}

#[derive(Debug, Clone)]
pub struct Prices {
    range_ns: [f64; 3],
    page_ns: f64,
    joined: u32,
}

impl Default for Prices {
    fn default() -> Self {
        Self { range_ns: EXPECTED_NS, page_ns: EXPECTED_PAGE_NS, joined: 0 }
    }
}

impl Prices {
    /// What both sides pay if `running` processors run the target meanwhile.
    pub fn rates(&self, cpu: TargetCpu, running: usize) -> Rates {
        let ours = self.range_ns[cpu as usize];
        let (range, times) = match cpu {
            TargetCpu::NotRunning => (ours, 1.0),
            // The target waits for all of it.
            TargetCpu::Same => (2.0 * ours, 2.0),
            TargetCpu::Other => {
                (ours + (ours - self.range_ns[TargetCpu::NotRunning as usize]).max(0.0) * running as f64, 1.0)
            }
        };
        let young_page = times * (self.page_ns + YOUNG_EXTRA_NS) + RESET_NS as f64;
        Rates { range, old_page: times * self.page_ns, young_page }
    }

    /// Whether all of a table of anonymous memory, of whose folios nobody need know then, is cleared for less than `pages`
    /// of its pages in so many `runs`, where `others` have their bit set, too, and it had to be asked about `unknown` pages.
    pub(crate) fn prefers_table(&self, cpu: TargetCpu, pages: u32, runs: u32, others: u32, unknown: u32) -> bool {
        let rates = self.rates(cpu, 1);
        let [pages, runs, others, unknown] = [pages, runs, others, unknown].map(f64::from);
        let rest_ns = (TABLE_PAGES - pages) * rates.old_page + others * (rates.young_page - rates.old_page);
        rest_ns < runs * rates.range + unknown * ASK_NS / ANSWER_SERVES
    }

    /// Pages between two that are to be cleared which it may pay to ask about, since they may be passed over then.
    pub(crate) fn gap_worth_asking(&self, cpu: TargetCpu) -> usize {
        let rates = self.rates(cpu, 1);
        (rates.range / (rates.old_page + ASK_NS)) as usize
    }

    fn cost(&self, cpu: TargetCpu, ranges: &[AddrRange]) -> f64 {
        let rates = self.rates(cpu, 1);
        rates.range * ranges.len() as f64 + rates.old_page * pages(ranges) as f64
    }

    /// Whether moving to the processor of a target that runs as one thread, and clearing `fine` ranges there, costs
    /// both sides less than clearing `coarse` ones from here.
    pub(crate) fn pays_to_move(&self, fine: &[AddrRange], coarse: &[AddrRange]) -> bool {
        MOVE_NS + self.cost(TargetCpu::Same, fine) < self.cost(TargetCpu::Other, coarse)
    }

    /// Of the ranges `fine`, which are to be cleared as the `joined` ones, those that are to be cleared on their own
    /// before.
    pub fn probe<'a>(&mut self, fine: &'a [AddrRange], joined: &[AddrRange]) -> Option<&'a [AddrRange]> {
        let part = fine.len() / PROBE_PART;
        if part < ENOUGH_RANGES || joined.len() * 2 > fine.len() {
            return None;
        }
        self.joined = self.joined.wrapping_add(1);
        self.joined.is_multiple_of(PROBE_EVERY).then(|| &fine[..part])
    }

    /// Takes note that clearing `ranges` took `cpu_ns` of our time, and tells how much of that was waiting for other
    /// processors: as long as each of these was interrupted.
    pub fn learn(&mut self, cpu: TargetCpu, ranges: &[AddrRange], cpu_ns: u64) -> u64 {
        let (count, pages) = (ranges.len(), pages(ranges));
        let flushes = (cpu_ns as f64 - self.page_ns * pages as f64).max(0.0);
        let waited = (flushes - self.range_ns[TargetCpu::NotRunning as usize] * count as f64).max(0.0) as u64;
        // A call tells the price of that which makes up most of it; of a mixture, nothing.
        if count >= ENOUGH_RANGES && pages <= NARROW * count {
            for (i, price) in self.range_ns.iter_mut().enumerate() {
                let measured = i == cpu as usize;
                let (to, weight) = if measured { (flushes / count as f64, WEIGHT) } else { (EXPECTED_NS[i], FORGET) };
                *price += (to - *price) * weight;
            }
            self.page_ns += (EXPECTED_PAGE_NS - self.page_ns) * FORGET;
        } else if pages >= ENOUGH_PAGES && pages >= WIDE * count {
            let ranges_ns = self.range_ns[cpu as usize] * count as f64;
            self.page_ns += ((cpu_ns as f64 - ranges_ns).max(0.0) / pages as f64 - self.page_ns) * WEIGHT;
        }
        if cpu == TargetCpu::Other { waited } else { 0 }
    }
}

fn pages(ranges: &[AddrRange]) -> usize {
    (total_len(ranges) / PAGE_SIZE) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(n: u64, pages: u64) -> Vec<AddrRange> {
        (0..n).map(|i| AddrRange::new(i << 21, (i << 21) + pages * PAGE_SIZE)).collect()
    }

    #[test]
    fn many_ranges_are_worth_moving_for_and_few_are_not() {
        let p = Prices::default();
        assert!(p.pays_to_move(&ranges(1000, 1), &ranges(1000, 1)));
        assert!(!p.pays_to_move(&ranges(5, 1), &ranges(5, 1)));
        // What can be joined into whole tables is not worth it, for the target waits for every page.
        assert!(!p.pays_to_move(&ranges(64 * 51, 2), &ranges(10, 512)));
    }

    #[test]
    fn scattered_pages_take_their_table_along_where_a_range_is_expensive() {
        let p = Prices::default();
        let prefers = |cpu, pages, others| p.prefers_table(cpu, pages, pages, others, 0);
        assert!(prefers(TargetCpu::Other, 10, 0) && !prefers(TargetCpu::Other, 2, 0));
        assert!(prefers(TargetCpu::NotRunning, 80, 0) && !prefers(TargetCpu::NotRunning, 60, 0));
        assert!(p.prefers_table(TargetCpu::NotRunning, 60, 60, 0, 60), "unless it had to be asked about them");
        assert!(!prefers(TargetCpu::Other, 10, 400), "others would have to be set again");
        assert!(p.gap_worth_asking(TargetCpu::NotRunning) < 3 && p.gap_worth_asking(TargetCpu::Other) > 20);
    }

    #[test]
    fn nearly_all_of_a_table_take_the_rest_along_however_expensive_a_page_is() {
        let mut p = Prices::default();
        for _ in 0..40 {
            p.learn(TargetCpu::NotRunning, &ranges(8, 512), 8 * 512 * 500);
        }
        assert!(p.rates(TargetCpu::NotRunning, 0).old_page > 400.0);
        assert!(p.prefers_table(TargetCpu::NotRunning, 505, 7, 0, 505));
        assert!(!p.prefers_table(TargetCpu::NotRunning, 50, 50, 0, 50));
    }

    #[test]
    fn prices_follow_what_is_measured_and_return_where_nothing_is() {
        let mut p = Prices::default();
        let some = ranges(100, 1);
        for _ in 0..40 {
            p.learn(TargetCpu::Other, &some, 100 * 2037);
        }
        assert!((p.rates(TargetCpu::Other, 1).range - (2000.0 + 1770.0)).abs() < 20.0, "{p:?}");
        for _ in 0..40 {
            p.learn(TargetCpu::Same, &some, 100 * 9037);
        }
        assert!(!p.pays_to_move(&some, &some), "the target was taken elsewhere each time: {p:?}");
        for _ in 0..400 {
            p.learn(TargetCpu::Other, &some, 100 * 4037);
        }
        assert!(p.pays_to_move(&some, &some), "it is tried again some time: {p:?}");
        let before = p.rates(TargetCpu::NotRunning, 0).range;
        p.learn(TargetCpu::NotRunning, &ranges(3, 1), 1_000_000);
        p.learn(TargetCpu::NotRunning, &ranges(40, 20), 10_000_000);
        assert_eq!(p.rates(TargetCpu::NotRunning, 0).range, before, "too few to tell, or too mixed");
    }

    #[test]
    fn expensive_pages_are_not_taken_for_expensive_ranges() {
        // A machine on which everything takes three times as long: what is joined at first is not joined for long.
        let truth = |r: &[AddrRange]| (r.len() * 690 + pages(r) * 111) as u64;
        let mut p = Prices::default();
        for _ in 0..100 {
            let rates = p.rates(TargetCpu::NotRunning, 0);
            // Every 20th page of 64 tables.
            let r = if 19.0 * rates.old_page < rates.range { ranges(64, 512) } else { ranges(64 * 25, 1) };
            p.learn(TargetCpu::NotRunning, &r, truth(&r));
        }
        let rates = p.rates(TargetCpu::NotRunning, 0);
        assert!(19.0 * rates.old_page > rates.range && rates.range > 500.0, "{rates:?}");
        for _ in 0..20 {
            p.learn(TargetCpu::NotRunning, &ranges(64, 512), truth(&ranges(64, 512)));
        }
        assert!((95.0..120.0).contains(&p.rates(TargetCpu::NotRunning, 0).old_page), "{p:?}");
    }

    #[test]
    fn now_and_then_it_is_tried_whether_ranges_are_still_expensive() {
        let mut p = Prices::default();
        let (fine, joined) = (ranges(64 * 25, 1), ranges(64, 512));
        let tried = (0..8).filter_map(|_| p.probe(&fine, &joined).map(<[_]>::len)).collect::<Vec<_>>();
        assert_eq!(tried, [100, 100]);
        assert!((0..8).all(|_| p.probe(&fine, &fine).is_none() && p.probe(&fine[..300], &joined).is_none()));
    }

    #[test]
    fn waiting_for_other_processors_is_what_they_lose() {
        let mut p = Prices::default();
        assert_eq!(p.learn(TargetCpu::Other, &ranges(10, 1), 10 * 4267), 10 * 4000);
        assert_eq!(p.learn(TargetCpu::Other, &ranges(10, 1), 10 * 200), 0);
        assert_eq!(p.learn(TargetCpu::NotRunning, &ranges(10, 1), 10 * 4267), 0);
        assert!(p.rates(TargetCpu::Other, 2).range > p.rates(TargetCpu::Other, 1).range);
    }
}
