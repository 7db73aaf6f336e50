//! Auto-tuning of the intervals by the amount of access that is seen.
//!
//! Source of the formulas: DAMON's intervals auto-tuning (kernel 6.15+). Too little access seen: longer intervals, at
//! most doubled; too much: shorter, at most halved. The ratio of aggregation to sampling stays.

use crate::attrs::MonitorAttrs;
use crate::feedback::next_input;
use crate::snapshot::Snapshot;

/// What the tuner aims at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntervalsGoal {
    /// Wanted ratio of seen to largest possible access, in 1/10 000. DAMON recommends 400 (4 %).
    pub access_bp: u64,
    /// Aggregations between two adjustments.
    pub aggrs: u64,
    /// Shortest sampling interval, microseconds.
    pub min_sample_us: u64,
    /// Longest sampling interval, microseconds.
    pub max_sample_us: u64,
}

impl Default for IntervalsGoal {
    fn default() -> Self {
        Self { access_bp: 400, aggrs: 3, min_sample_us: 5_000, max_sample_us: 10_000_000 }
    }
}

/// Collects what was seen and says when the intervals should change.
#[derive(Debug, Clone)]
pub(crate) struct IntervalsTuner {
    goal: IntervalsGoal,
    seen: u128,
    possible: u128,
    aggrs: u64,
}

impl IntervalsTuner {
    /// A tuner that has seen nothing.
    pub const fn new(goal: IntervalsGoal) -> Self {
        Self { goal, seen: 0, possible: 0, aggrs: 0 }
    }

    /// Adds one target's snapshot of the aggregation interval that has just ended.
    pub fn add(&mut self, snapshot: &Snapshot) {
        for r in &snapshot.regions {
            self.seen += u128::from(r.len()) * u128::from(r.nr_accesses);
            self.possible += u128::from(r.len()) * u128::from(snapshot.max_nr_accesses);
        }
    }

    /// Ends an aggregation interval; the attributes to go on with, if they change.
    pub(crate) fn end_interval(&mut self, attrs: &MonitorAttrs) -> Option<MonitorAttrs> {
        self.aggrs += 1;
        if self.aggrs < self.goal.aggrs.max(1) {
            return None;
        }
        let wanted = (self.possible * u128::from(self.goal.access_bp.max(1)) / 10_000).max(1);
        let score = (self.seen * 10_000 / wanted).min(u128::from(u64::MAX)) as u64;
        *self = Self::new(self.goal);
        let tuned = tune(attrs, &self.goal, score);
        (tuned != *attrs).then_some(tuned)
    }
}

fn tune(attrs: &MonitorAttrs, goal: &IntervalsGoal, score: u64) -> MonitorAttrs {
    let mut adapt_bp = (next_input(100_000_000, score) / 10_000).clamp(1, 20_000);
    if adapt_bp <= 10_000 {
        adapt_bp = 5_000 + adapt_bp / 2;
    }
    let low = goal.min_sample_us.max(100);
    let sample_us = (attrs.sample_us * adapt_bp / 10_000).clamp(low, goal.max_sample_us.max(low));
    let aggr_us = sample_us * u64::from(attrs.max_nr_accesses());
    MonitorAttrs { sample_us, aggr_us, update_us: attrs.update_us.max(aggr_us), ..*attrs }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_access_doubles_and_too_much_halves() {
        let a = MonitorAttrs::default();
        let g = IntervalsGoal { min_sample_us: 100, ..IntervalsGoal::default() };
        assert_eq!(tune(&a, &g, 0).sample_us, 10_000);
        assert_eq!(tune(&a, &g, 0).aggr_us, 200_000);
        assert_eq!(tune(&a, &g, 10_000), a);
        assert_eq!(tune(&a, &g, 20_000).sample_us, 2_500);
        assert_eq!(tune(&a, &g, 1_000_000).sample_us, 2_500);
    }

    #[test]
    fn limits_hold() {
        let a = MonitorAttrs::default();
        let g = IntervalsGoal::default();
        assert_eq!(tune(&a, &g, 1_000_000).sample_us, 5_000);
        let slow = MonitorAttrs { sample_us: 9_000_000, aggr_us: 180_000_000, update_us: 180_000_000, ..a };
        assert_eq!(tune(&slow, &g, 0).sample_us, 10_000_000);
    }
}
