//! Keeping the cost of monitoring below the share of a core that the user stated, from the first second on.
//!
//! A [`Budget`] is a token bucket: what may be spent grows with time. Who wants to spend asks for its
//! [`allowance_ns`](Budget::allowance_ns), and tells with [`spend`](Budget::spend) what it took. Several that work on
//! one source get a [`part`](Budget::part) each; a [`Bill`] tells what the source has cost since the last of them was
//! charged.

use crate::source::Cost;

/// Unspent budget is saved up for so long at most, ns.
const SAVED_NS: f64 = 30e9;
/// A start may spend what this time brings in advance, ns; paid back by the end of [`GRACE_NS`].
const ADVANCE_NS: f64 = 250e6;
/// After this time since the start, what was spent is never meant to exceed the budget of the time that has passed, ns.
const GRACE_NS: f64 = 1e9;
/// Weight of the newest interval in the smoothed load.
const NEWEST: f64 = 0.3;

/// A share of one core, as an allowance that accrues with time.
#[derive(Debug, Clone)]
pub struct Budget {
    /// `None`: unlimited.
    share: Option<f64>,
    /// What has accrued and is not spent, ns; below 0: debt. Without the advance.
    saved_ns: f64,
    start_ns: Option<u64>,
    filled_ns: u64,
    /// Spent since the load was last asked for.
    recent_ns: u64,
    asked_ns: Option<u64>,
    load: f64,
}

impl Budget {
    /// A budget of `share` of one core; `None` is unlimited.
    pub const fn new(share: Option<f64>) -> Self {
        Self { share, saved_ns: 0.0, start_ns: None, filled_ns: 0, recent_ns: 0, asked_ns: None, load: 0.0 }
    }

    /// A budget of its own of `part` (0 to 1) of this one's share, with nothing spent. Whoever hands out parts keeps
    /// the rest.
    pub fn part(&self, part: f64) -> Self {
        Self::new(self.share.map(|share| share * part))
    }

    /// The share of one core.
    pub const fn share(&self) -> Option<f64> {
        self.share
    }

    /// Another share from now on. What is saved stays.
    pub(crate) const fn set_share(&mut self, share: Option<f64>) {
        self.share = share;
    }

    /// What may be spent at `now_ns`, in ns of CPU time: below 0 where too much was; without end where there is no
    /// budget. Time counts from the first call.
    pub(crate) fn allowance_ns(&mut self, now_ns: u64) -> f64 {
        let Some(share) = self.share else { return f64::INFINITY };
        let start = *self.start_ns.get_or_insert(now_ns);
        let before = std::mem::replace(&mut self.filled_ns, now_ns);
        let passed = now_ns.saturating_sub(before.max(start)) as f64;
        self.saved_ns = (self.saved_ns + share * passed).min(share * SAVED_NS);
        let left = 1.0 - (now_ns.saturating_sub(start) as f64 / GRACE_NS).min(1.0);
        self.saved_ns + share * ADVANCE_NS * left
    }

    /// Takes what was spent out of the allowance.
    pub fn spend(&mut self, ns: u64) {
        self.saved_ns -= ns as f64;
        self.recent_ns = self.recent_ns.saturating_add(ns);
    }

    /// Tells that intervals have become `by` times as long: the same work will load that much less from now on.
    pub fn stretched(&mut self, by: f64) {
        self.load /= by;
    }

    /// The smoothed load, with what was spent since this was last asked: 1 means the budget is just used up. `None`
    /// where there is no budget, or nothing to compare with yet.
    pub fn load(&mut self, now_ns: u64) -> Option<f64> {
        let share = self.share?;
        let spent = std::mem::take(&mut self.recent_ns);
        let before = self.asked_ns.replace(now_ns);
        // What a start takes in advance is no load.
        let advance_ns = if before.is_none() { ADVANCE_NS } else { 0.0 };
        let wall = now_ns.checked_sub(before.or(self.start_ns)?).filter(|&w| w > 0)?;
        let load = spent as f64 / (share.max(1e-6) * (wall as f64 + advance_ns));
        // The very first clearing and a change of mode are bursts; one interval alone never more than doubles the load.
        let load = load.min(2.0 * self.load.max(1.0));
        self.load = if self.load == 0.0 { load } else { self.load * (1.0 - NEWEST) + load * NEWEST };
        Some(self.load)
    }
}

/// Tells those who share a source what each of them spent: whoever has used it takes what came on top.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bill {
    charged_ns: u64,
}

impl Bill {
    /// What watching has cost, monitor and targets together, since the last call; the first time, since the source was
    /// made.
    pub fn take(&mut self, cost: &Cost) -> u64 {
        let all = cost.monitor_ns + cost.target_ns;
        all.saturating_sub(std::mem::replace(&mut self.charged_ns, all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn load_is_cost_over_budget() {
        let mut b = Budget::new(Some(0.01));
        assert_eq!(b.load(0), None);
        for i in 1..40 {
            b.spend(500_000);
            b.load(i * 100_000_000);
        }
        b.spend(500_000);
        let load = b.load(4_000_000_000).unwrap();
        assert!((load - 0.5).abs() < 0.01, "{load}");
    }

    #[test]
    fn no_budget_gives_no_load_and_every_allowance() {
        let mut b = Budget::new(None);
        b.spend(1);
        assert_eq!((b.load(1), b.allowance_ns(1)), (None, f64::INFINITY));
        assert_eq!(b.part(0.5).share(), None);
    }

    #[test]
    fn savings_end_somewhere() {
        let mut b = Budget::new(Some(0.01));
        b.allowance_ns(5);
        assert_eq!(b.allowance_ns(u64::MAX / 2), 0.01 * SAVED_NS);
    }

    #[test]
    fn a_bill_charges_once() {
        let mut bill = Bill::default();
        let cost = Cost { monitor_ns: 5, target_ns: 2, ..Cost::default() };
        assert_eq!((bill.take(&cost), bill.take(&cost)), (7, 0));
        assert_eq!(bill.take(&Cost { target_ns: 3, ..cost }), 1);
    }

    proptest! {
        #[test]
        fn who_keeps_to_the_allowances_of_its_parts_keeps_to_the_budget(
            steps in prop::collection::vec((1u64..400_000_000, 0.0f64..1.5, any::<bool>()), 1..60),
            part in 0.0f64..1.0,
        ) {
            let whole = Budget::new(Some(0.01));
            let mut parts = [whole.part(part), whole.part(1.0 - part)];
            let (mut now, mut spent) = (7, 0u64);
            for (wait, greed, which) in steps {
                for p in &mut parts {
                    p.allowance_ns(now);
                }
                let budget = &mut parts[usize::from(which)];
                let ns = (budget.allowance_ns(now).max(0.0) * greed.min(1.0)) as u64;
                budget.spend(ns);
                spent += ns;
                let passed = (now - 7) as f64;
                prop_assert!(passed < GRACE_NS || spent as f64 <= 0.01 * passed + 1.0, "{} after {} ns", spent, passed);
                prop_assert!(spent as f64 <= 0.01 * (passed + ADVANCE_NS) + 1.0);
                now += wait;
            }
        }
    }
}
