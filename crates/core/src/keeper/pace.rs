//! How often to walk, and how much to evict.

use super::address_space::Walked;

/// Share of pages in memory that a walk is to find used. With more, busy pages cannot be distinguished from busier
/// ones; with fewer, walks say nothing new.
const USED_WISH: f64 = 0.3;
/// What a walk's result may change the time to the next by.
const STEP: f64 = 1.5;
/// Of the room below the limit, a quarter more is made than was asked for, so that eviction works in batches.
const BATCH: u64 = 4;
/// Least room below a limit: what the kernel charges ahead on a few processors, and some.
const LEAST_ROOM: u64 = 1 << 20;

/// The time from one walk to the next.
#[derive(Debug, Clone)]
pub(crate) struct WalkPace {
    interval_ns: f64,
    least_ns: u64,
    most_ns: u64,
    budget: Option<f64>,
    /// What walks cost, a moving average.
    cost_ns: f64,
}

impl WalkPace {
    /// Begins with `begin_ns`, and stays between the other two. `budget` is the share of a core that walks may cost.
    pub fn new(begin_ns: u64, least_ns: u64, most_ns: u64, budget: Option<f64>) -> Self {
        let most_ns = most_ns.max(least_ns);
        Self { interval_ns: begin_ns.clamp(least_ns, most_ns) as f64, least_ns, most_ns, budget, cost_ns: 0.0 }
    }

    /// A walk found this, and has cost so much (what its target loses included).
    pub fn learn(&mut self, walked: &Walked, cost_ns: u64) {
        let cost = cost_ns as f64;
        self.cost_ns = if self.cost_ns == 0.0 { cost } else { (self.cost_ns + cost) / 2.0 };
        if walked.present > 0 {
            // Pages that came or came back were used as well, but between walks as short as can be nothing else may be
            // new.
            let used = walked.used as f64 / walked.present as f64;
            self.interval_ns *= (USED_WISH / used.max(0.001)).clamp(1.0 / STEP, STEP);
        }
        self.interval_ns = self.interval_ns.clamp(self.least_ns as f64, self.most_ns as f64);
    }

    /// The time to the next walk: longer than wished for where the budget wants it.
    pub fn interval_ns(&self) -> u64 {
        self.interval_ns.max(self.affordable_ns()) as u64
    }

    /// The longest time that is wished for.
    pub(crate) const fn most_ns(&self) -> u64 {
        self.most_ns
    }

    /// The shortest time that the budget allows.
    pub(crate) fn affordable_ns(&self) -> f64 {
        self.budget.map_or(0.0, |budget| self.cost_ns / budget)
    }

    /// Whether the budget makes walks rarer than they should be.
    pub(crate) fn is_short_of_budget(&self) -> bool {
        self.affordable_ns() > self.interval_ns
    }
}

/// A limit and the room that is kept below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watermarks {
    /// Bytes that must not be reached.
    pub limit: u64,
    /// Bytes at which eviction begins.
    pub high: u64,
    /// Bytes at which it ends.
    pub low: u64,
}

impl Watermarks {
    /// Keeps `headroom` (a share of the limit) free.
    pub fn new(limit: u64, headroom: f64) -> Self {
        let room = ((limit as f64 * headroom) as u64).max(LEAST_ROOM).min(limit / 2);
        let high = limit - room;
        Self { limit, high, low: high - (room / BATCH).min(high) }
    }

    /// Bytes to evict with so many in use.
    pub fn need(&self, used: u64) -> u64 {
        if used > self.high { used - self.low } else { 0 }
    }

    /// When to look again, ns: before the room is half used up at the rate (bytes a second) at which memory is filled
    /// now.
    pub(crate) fn look_again_ns(&self, used: u64, rate: f64) -> u64 {
        const SHORTEST: f64 = 2e6;
        const LONGEST: f64 = 100e6;
        let to_go = (self.high.saturating_sub(used) + (self.limit - self.high) / 4) as f64;
        (to_go / rate.max(1.0) * 1e9).clamp(SHORTEST, LONGEST) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn found(used: u64) -> Walked {
        Walked { present: 1000, used, ..Walked::default() }
    }

    #[test]
    fn the_interval_settles_where_enough_of_the_pages_is_found_used() {
        let mut pace = WalkPace::new(1000 * MS, 50 * MS, 60_000 * MS, None);
        for _ in 0..100 {
            // Each page is used every 2 s on average.
            let share = 1.0 - (-(pace.interval_ns() as f64) / 2e9).exp();
            pace.learn(&found((share * 1000.0) as u64), MS);
        }
        let seconds = pace.interval_ns() as f64 / 1e9;
        assert!((0.65..0.78).contains(&seconds), "{seconds}");
        (0..100).for_each(|_| pace.learn(&found(0), MS));
        assert_eq!(pace.interval_ns(), 60_000 * MS);
        (0..100).for_each(|_| pace.learn(&found(1000), MS));
        assert_eq!(pace.interval_ns(), 50 * MS);
    }

    #[test]
    fn the_budget_wins() {
        let mut pace = WalkPace::new(100 * MS, 10 * MS, 1000 * MS, Some(0.01));
        (0..20).for_each(|_| pace.learn(&found(900), 10 * MS));
        assert_eq!(pace.interval_ns(), 1000 * MS);
        assert!(pace.is_short_of_budget());
    }

    #[test]
    fn eviction_begins_in_time_and_ends_below() {
        let m = Watermarks::new(1 << 30, 0.02);
        assert!(m.low < m.high && m.high < m.limit);
        assert_eq!(m.need(m.high), 0);
        assert_eq!(m.need(m.high + 1), m.high + 1 - m.low);
        assert_eq!(m.look_again_ns(0, 0.0), 100 * MS);
        assert_eq!(m.look_again_ns(m.limit, 1e12), 2 * MS);
        let tiny = Watermarks::new(1 << 20, 0.02);
        assert!(tiny.low <= tiny.high && tiny.high >= 1 << 19);
        assert_eq!(Watermarks::new(0, 0.5), Watermarks { limit: 0, high: 0, low: 0 });
    }
}
