//! What looking costs here, learnt from what it has cost: the price of a call or of clearing a page is several times as
//! high where a sleep has emptied the caches, and where the target runs on another processor, which has to be
//! interrupted.

/// A price that was measured once counts for so much of the one that is learnt, and is believed to be at most so many
/// times it.
const NEWEST: f64 = 0.5;
const MOST_AT_ONCE: f64 = 4.0;
/// Arming never costs less than this part of its estimate, nor more than so many times it.
const ARMING: std::ops::RangeInclusive<f64> = 0.5..=16.0;
/// What a round is taken to cost before the first one.
const FIRST_ROUND_NS: f64 = 100_000.0;

/// Prices for the monitor and its targets together.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Prices {
    /// A round of a target, in all: waking up twice, the calls, its windows, ns.
    pub round_ns: f64,
    /// Whether this is what one proved to cost.
    pub rounds_seen: bool,
    /// What arming costs, as a multiple of the probes' own estimate.
    pub arming: f64,
}

impl Default for Prices {
    fn default() -> Self {
        Self { round_ns: FIRST_ROUND_NS, rounds_seen: false, arming: 1.0 }
    }
}

impl Prices {
    /// So many rounds took `ns`.
    pub(crate) fn learn_rounds(&mut self, rounds: usize, ns: u64) {
        if rounds > 0 {
            self.rounds_seen = true;
            learn(&mut self.round_ns, ns as f64 / rounds as f64);
        }
    }

    /// Arming that was estimated at `estimate_ns` took `ns`.
    pub(crate) fn learn_arming(&mut self, estimate_ns: f64, ns: u64) {
        if estimate_ns > 0.0 {
            learn(&mut self.arming, ns as f64 / estimate_ns);
            self.arming = self.arming.clamp(*ARMING.start(), *ARMING.end());
        }
    }
}

fn learn(price: &mut f64, newest: f64) {
    *price += NEWEST * (newest.min(MOST_AT_ONCE * *price) - *price);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_follow_what_things_cost() {
        let mut prices = Prices::default();
        for _ in 0..20 {
            prices.learn_rounds(4, 2_000_000);
            prices.learn_arming(10_000.0, 50_000);
            prices.learn_rounds(0, 1_000_000_000);
            prices.learn_arming(0.0, 1_000_000_000);
        }
        assert!((prices.round_ns - 500_000.0).abs() < 1_000.0, "{prices:?}");
        assert!((prices.arming - 5.0).abs() < 0.01, "{prices:?}");
        // One that was disturbed counts for little.
        prices.learn_rounds(1, 1_000_000_000);
        assert!(prices.round_ns < 1_300_000.0, "{prices:?}");
        for _ in 0..100 {
            prices.learn_arming(10_000.0, 0);
        }
        assert_eq!(prices.arming, 0.5);
    }
}
