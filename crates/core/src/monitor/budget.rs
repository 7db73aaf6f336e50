//! Keeping the cost of monitoring below the share of a core that the user stated.

use crate::source::Cost;

/// Compares what was spent with what may be spent.
#[derive(Debug, Clone)]
pub struct Budget {
    share: Option<f64>,
    last_spent_ns: u64,
    last_time_ns: Option<u64>,
    load: f64,
}

/// Weight of the newest interval in the smoothed load.
const NEWEST: f64 = 0.3;

impl Budget {
    /// A budget of `share` of one core; `None` is unlimited.
    pub fn new(share: Option<f64>) -> Self {
        Self { share, last_spent_ns: 0, last_time_ns: None, load: 0.0 }
    }

    /// The share of one core.
    pub fn share(&self) -> Option<f64> {
        self.share
    }

    /// Tells that intervals have become `by` times as long: the same work will load that much less from now on.
    pub fn stretched(&mut self, by: f64) {
        self.load /= by;
    }

    /// Adds what was spent up to `now_ns` and returns the smoothed load: 1 means the budget is just used up. `None` where
    /// there is no budget, or nothing to compare with yet.
    pub fn load(&mut self, cost: &Cost, now_ns: u64) -> Option<f64> {
        let share = self.share?;
        let spent = cost.monitor_ns + cost.target_ns;
        let spent_now = spent.saturating_sub(std::mem::replace(&mut self.last_spent_ns, spent));
        let since = self.last_time_ns.replace(now_ns);
        let wall = now_ns.checked_sub(since?).filter(|&w| w > 0)?;
        let load = spent_now as f64 / (share.max(1e-6) * wall as f64);
        // The very first clearing and a change of mode are bursts; one interval alone never more than doubles the load.
        let load = load.min(2.0 * self.load.max(1.0));
        self.load = if self.load == 0.0 { load } else { self.load * (1.0 - NEWEST) + load * NEWEST };
        Some(self.load)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(ns: u64) -> Cost {
        Cost { monitor_ns: ns, ..Cost::default() }
    }

    #[test]
    fn load_is_cost_over_budget() {
        let mut b = Budget::new(Some(0.01));
        assert_eq!(b.load(&spent(5), 0), None);
        for i in 1..40 {
            b.load(&spent(5 + i * 500_000), i * 100_000_000);
        }
        let load = b.load(&spent(5 + 40 * 500_000), 4_000_000_000).unwrap();
        assert!((load - 0.5).abs() < 0.01, "{load}");
    }

    #[test]
    fn no_budget_gives_no_load() {
        assert_eq!(Budget::new(None).load(&spent(1), 1), None);
    }
}
