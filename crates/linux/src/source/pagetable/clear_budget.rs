//! What clearing all bits of processes may cost: CPU time that grows with time, is saved for a while, and goes to the
//! process that has waited longest. Each is asked for when its process is walked, and some are walked far more seldom than
//! others: so whoever asks gets it where enough is left for those that have waited longer.

use std::sync::Arc;
use std::time::{Duration, Instant};

/// What it may use of the CPU budget, all targets together; the rest is for reading and for the processor's setting the
/// bits again.
const PART_OF_BUDGET: f64 = 0.3;
/// The part of that which may be used where few pages need it.
const PART_FOR_FEW: f64 = 0.2;
/// Longest time for which page faults of a process may wait.
pub(crate) const LONGEST_STALL: Duration = Duration::from_millis(30);
/// What clearing a page costs until it has been measured, ns (13 ms a GiB).
const EXPECTED_NS_PER_PAGE: f64 = 13e6 / (1u64 << 18) as f64;
/// It must cost less than this part of clearing page by page to be preferred: what it clears it also reads again.
const CLEARLY_CHEAPER: f64 = 0.7;
/// Budget that was not used is saved up for so long at most.
const SAVED: Duration = Duration::from_secs(30);
/// Who has asked neither for so long, nor for so many times as long as lay between its last two requests, is not waited for.
const PATIENCE: Duration = Duration::from_secs(10);
const PATIENT_TIMES: u32 = 3;
/// Nor is anybody who has not asked for so long. Longer than walks of a process lie apart, those of one that rests, too.
const LONGEST_PATIENCE: Duration = Duration::from_secs(900);
/// Of what can be saved, the part that is left for processes that wait, but did not ask lately.
const PART_FOR_ABSENT: f64 = 0.5;

/// Held by each process that a [`ClearBudget`] is for.
#[derive(Debug)]
pub(crate) struct Sharer(#[expect(dead_code, reason = "it is counted")] Arc<()>);

/// A process that waits for its turn.
#[derive(Debug)]
struct Waiting {
    who: u32,
    /// What clearing it is expected to cost, ns.
    price: f64,
    asked: Instant,
    /// Time between its last two requests; `None`: it has asked once.
    every: Option<Duration>,
}

impl Waiting {
    fn is_waited_for(&self, now: Instant) -> bool {
        let patience = self.every.map(|every| every.saturating_mul(PATIENT_TIMES).max(PATIENCE));
        now.duration_since(self.asked) <= patience.unwrap_or(LONGEST_PATIENCE).min(LONGEST_PATIENCE)
    }
}

/// CPU time for `clear_refs`.
#[derive(Debug)]
pub(crate) struct ClearBudget {
    /// Share of a core; `None`: unlimited.
    share: Option<f64>,
    saved_ns: f64,
    filled: Instant,
    ns_per_page: f64,
    /// Whether to use it wherever it is cheaper.
    prefer_cheapest: bool,
    /// Each [`Sharer`] holds it, too.
    sharers: Arc<()>,
    /// Who has waited longest comes first.
    waiting: Vec<Waiting>,
}

impl ClearBudget {
    /// A part of a CPU budget of `budget` of one core.
    pub fn new(budget: Option<f64>, now: Instant) -> Self {
        Self {
            share: budget.map(|b| b * PART_OF_BUDGET),
            saved_ns: 0.0,
            filled: now,
            ns_per_page: EXPECTED_NS_PER_PAGE,
            prefer_cheapest: false,
            sharers: Arc::default(),
            waiting: Vec::new(),
        }
    }

    /// Clears all bits of a process at once also where that is only cheaper: for whoever scans all of it, and seldom.
    pub fn prefer_cheapest(&mut self) {
        self.prefer_cheapest = true;
    }

    /// Whether it is to be used wherever it is cheaper.
    pub(crate) fn prefers_cheapest(&self) -> bool {
        self.prefer_cheapest
    }

    fn expected_ns(&self, pages: u64) -> f64 {
        pages as f64 * self.ns_per_page
    }

    /// Whether clearing all of so many pages costs clearly less than `single_ns`.
    pub fn saves(&self, pages: u64, single_ns: f64) -> bool {
        self.expected_ns(pages) < CLEARLY_CHEAPER * single_ns
    }

    /// Takes a process in, until what it gets is dropped.
    pub(crate) fn sharer(&self) -> Sharer {
        Sharer(self.sharers.clone())
    }

    /// How long a process with so many pages waits at least between two times where few of them need it: all sharers
    /// have as much.
    pub(crate) fn pause_for_few(&self, pages: u64) -> Duration {
        let sharers = (Arc::strong_count(&self.sharers) - 1).max(1);
        let seconds = |share: f64| self.expected_ns(pages) * sharers as f64 / (share * PART_FOR_FEW) / 1e9;
        self.share.map_or(Duration::ZERO, |share| Duration::try_from_secs_f64(seconds(share)).unwrap_or(Duration::MAX))
    }

    /// Whether process `who` may have its pages cleared now. If not, it waits for its turn, as long as it keeps asking.
    pub(crate) fn grants(&mut self, who: u32, pages: u64, now: Instant) -> bool {
        let price = self.expected_ns(pages);
        if price > LONGEST_STALL.as_nanos() as f64 {
            return false;
        }
        let Some(share) = self.share else { return true };
        let since = now.saturating_duration_since(std::mem::replace(&mut self.filled, now));
        let most = share * SAVED.as_nanos() as f64;
        self.saved_ns = (self.saved_ns + share * since.as_nanos() as f64).min(most);
        if price > most {
            return false;
        }
        self.waiting.retain(|w| w.who == who || w.is_waited_for(now));
        let place = match self.waiting.iter().position(|w| w.who == who) {
            Some(place) => {
                let w = &mut self.waiting[place];
                (w.price, w.every, w.asked) = (price, Some(now.duration_since(w.asked)), now);
                place
            }
            None => {
                self.waiting.push(Waiting { who, price, asked: now, every: None });
                self.waiting.len() - 1
            }
        };
        // For those before it that may ask again any moment enough must be left; for the others, a part of what can be
        // saved: they find it when they come.
        let (mut needed, mut for_absent) = (price, 0.0);
        for before in &self.waiting[..place] {
            let is_absent = now.duration_since(before.asked) > PATIENCE;
            *(if is_absent { &mut for_absent } else { &mut needed }) += before.price;
        }
        // No more can be saved than there is room for.
        let with_absent = (needed + for_absent.min(most * PART_FOR_ABSENT)).min(most);
        let granted = self.saved_ns >= needed.max(with_absent);
        if granted {
            self.waiting.remove(place);
        }
        granted
    }

    /// Takes note of what clearing so many pages has cost.
    pub fn spend(&mut self, pages: u64, spent_ns: u64) {
        let ns = spent_ns as f64;
        self.saved_ns -= ns;
        if pages > 0 {
            // One measurement may have been interrupted: it counts a quarter.
            self.ns_per_page += (ns / pages as f64 - self.ns_per_page) / 4.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 18;

    #[test]
    fn never_more_than_the_share_is_given() {
        let begin = Instant::now();
        let mut b = ClearBudget::new(Some(0.02), begin);
        assert!(!b.grants(1, GIB, begin), "nothing has been saved yet");
        let (mut now, mut spent) = (begin, Duration::ZERO);
        for _ in 0..1000 {
            now += Duration::from_millis(100);
            if b.grants(1, GIB, now) {
                b.spend(GIB, 13_000_000);
                spent += Duration::from_millis(13);
            }
        }
        let share = spent.as_secs_f64() / 100.0;
        assert!((0.0058..=0.006).contains(&share), "its part of the budget: {share}");
        // After a long pause only so much is saved.
        b.grants(1, 10 * GIB, now + Duration::from_secs(86_400));
        assert!(b.saved_ns <= 0.006 * SAVED.as_nanos() as f64 + 1.0);
    }

    #[test]
    fn the_price_is_learnt_and_long_stalls_are_refused() {
        let now = Instant::now();
        let mut b = ClearBudget::new(None, now);
        assert!(b.grants(1, 2 * GIB, now) && !b.grants(1, 3 * GIB, now), "13 ms a GiB, 30 ms at most");
        assert!(b.saves(GIB, 20e6) && !b.saves(GIB, 15e6));
        for _ in 0..50 {
            b.spend(GIB, 40_000_000);
        }
        assert!(!b.grants(1, GIB, now));
    }

    #[test]
    fn for_few_pages_many_processes_wait_longer() {
        let budget = ClearBudget::new(Some(0.01), Instant::now());
        let mut sharers = vec![budget.sharer()];
        let alone = budget.pause_for_few(GIB).as_secs_f64();
        assert!((21.0..22.0).contains(&alone), "13 ms of a fifth of 3 ms a second");
        sharers.resize_with(150, || budget.sharer());
        assert!((budget.pause_for_few(GIB).as_secs_f64() / alone - 150.0).abs() < 1e-6);
        drop(sharers);
        assert!((budget.pause_for_few(GIB).as_secs_f64() - alone).abs() < 1e-6);
        assert_eq!(ClearBudget::new(None, Instant::now()).pause_for_few(GIB), Duration::ZERO);
        assert_eq!(ClearBudget::new(Some(0.0), Instant::now()).pause_for_few(GIB), Duration::MAX);
    }

    #[test]
    fn all_get_their_turn() {
        let mut now = Instant::now();
        let mut b = ClearBudget::new(Some(0.01), now);
        let mut granted = [0; 9];
        // Each costs 6.5 ms, and 3 ms a second are saved. Number 0 asks first in each round.
        for _ in 0..180 {
            now += Duration::from_secs(1);
            for (who, times) in granted.iter_mut().enumerate() {
                if b.grants(who as u32, GIB / 2, now) {
                    b.spend(GIB / 2, 6_500_000);
                    *times += 1;
                }
            }
        }
        assert!(granted.iter().all(|&n| (8..=11).contains(&n)), "{granted:?}");
        // Who is gone is not waited for, and who never could be paid does not wait.
        assert!(!b.grants(99, GIB / 2, now));
        now += Duration::from_secs(11);
        assert!(b.grants(0, GIB / 2, now));
        let mut poor = ClearBudget::new(Some(1e-4), now);
        assert!(!poor.grants(1, GIB, now) && !poor.grants(2, 1, now));
        assert!(poor.grants(2, 1, now + Duration::from_secs(1)));
    }

    #[test]
    fn who_asks_seldom_gets_a_turn_and_keeps_nobody_waiting() {
        // Each costs 6.5 ms, and 3 ms a second are saved, 90 ms at most. Some ask at other times than the others, every so
        // many seconds, and others every second.
        for (seldom, every, often) in [(9, 15, 0), (40, 15, 0), (9, 120, 4), (100, 300, 4), (2, 300, 1)] {
            let (mut now, seconds) = (Instant::now(), 40 * every);
            let mut b = ClearBudget::new(Some(0.01), now);
            let mut granted = vec![0u32; seldom + often];
            for second in 0..seconds {
                now += Duration::from_secs(1);
                for (who, times) in granted.iter_mut().enumerate() {
                    let is_due = who >= seldom || second % every == who * every / seldom;
                    if is_due && b.grants(who as u32, GIB / 2, now) {
                        b.spend(GIB / 2, 6_500_000);
                        *times += 1;
                    }
                }
            }
            let paid = seconds as f64 * 3.0 / 6.5;
            let (few, many) = granted.split_at(seldom);
            // With the first of two requests it joins those that wait.
            let fair = (paid / granted.len() as f64).min(20.0).floor();
            assert!(few.iter().all(|&n| f64::from(n) >= fair), "{seldom} every {every} s: {granted:?}");
            let (least, most) = (many.iter().min(), many.iter().max());
            assert!(least.zip(most).is_none_or(|(least, most)| *most * 4 <= *least * 5), "{many:?}");
            let all = f64::from(granted.iter().sum::<u32>());
            assert!((0.95..=1.0).contains(&(all / paid)), "nothing is left unused: {all} of {paid}");
        }
    }
}
