//! The intervals in force: those of the user, stretched so that the budget pays for them, or tuned.

use super::algorithm::{Algorithm, Stretch};
use super::budget::{Bill, Budget};
use super::intervals::{IntervalsGoal, IntervalsTuner};
use crate::attrs::MonitorAttrs;
use crate::snapshot::Snapshot;
use crate::source::Cost;

/// The least work of an interval is to leave this much of the budget for all else.
const LEAST_PART: f64 = 0.8;

/// Intervals, and the budget that they have to keep within.
#[derive(Debug)]
pub(super) struct CurrentIntervals {
    /// As the user wants them: they are never shorter.
    wanted: MonitorAttrs,
    attrs: MonitorAttrs,
    /// What the user wants instead, from the next interval on.
    retuned: Option<MonitorAttrs>,
    tuner: Option<IntervalsTuner>,
    budget: Budget,
    bill: Bill,
}

impl CurrentIntervals {
    pub fn new(wanted: MonitorAttrs, goal: Option<IntervalsGoal>, share: Option<f64>) -> Self {
        Self {
            wanted,
            attrs: wanted,
            retuned: None,
            tuner: goal.map(IntervalsTuner::new),
            budget: Budget::new(share),
            bill: Bill::default(),
        }
    }

    pub const fn attrs(&self) -> &MonitorAttrs {
        &self.attrs
    }

    pub const fn wanted(&self) -> &MonitorAttrs {
        &self.wanted
    }

    /// The user wants others from the next interval on.
    pub const fn retune(&mut self, attrs: MonitorAttrs) {
        self.retuned = Some(attrs);
    }

    /// How they are tuned from now on; `None`: not.
    pub fn tune(&mut self, goal: Option<IntervalsGoal>) {
        self.tuner = goal.map(IntervalsTuner::new);
    }

    /// What an interval has found, for the tuning.
    pub fn add(&mut self, snapshot: &Snapshot) {
        if let Some(tuner) = &mut self.tuner {
            tuner.add(snapshot);
        }
    }

    /// Another share of a core from now on.
    pub const fn set_share(&mut self, share: Option<f64>) {
        self.budget.set_share(share);
    }

    pub fn allowance_ns(&mut self, now_ns: u64) -> f64 {
        self.budget.allowance_ns(now_ns)
    }

    /// What one aggregation interval brings, ns.
    pub fn budget_ns(&self) -> f64 {
        self.budget.share().map_or(f64::INFINITY, |share| share * self.attrs.aggr_us as f64 * 1e3)
    }

    /// How long something that took `spent_ns` has to wait so that it takes only `part` of the budget, ns.
    pub fn pause_ns(&self, spent_ns: u64, part: f64) -> u64 {
        self.budget.share().map_or(0.0, |share| spent_ns as f64 / (share * part)) as u64
    }

    /// What the source has cost since the last time is somebody else's to pay, or nobody's.
    pub fn skip(&mut self, cost: &Cost) {
        self.bill.take(cost);
    }

    /// Takes what the source has cost since the last time out of the budget; tells how much that was, ns.
    pub fn pay(&mut self, cost: &Cost) -> u64 {
        let spent_ns = self.bill.take(cost);
        self.budget.spend(spent_ns);
        spent_ns
    }

    /// Many targets have come: intervals that cannot be paid for are stretched before they cost anything.
    pub fn make_room(&mut self, algorithm: &mut dyn Algorithm) {
        let by = algorithm.least_ns() / (self.budget_ns() * LEAST_PART);
        if by > 1.0 && self.tuner.is_none() {
            self.stretch(by, algorithm);
        }
    }

    /// Takes over what the user wants instead; whether there is anything.
    pub fn take_retuned(&mut self, algorithm: &mut dyn Algorithm) -> bool {
        let Some(attrs) = self.retuned.take() else { return false };
        self.wanted = attrs;
        self.budget.stretched(attrs.aggr_us as f64 / self.attrs.aggr_us as f64);
        self.set(attrs, algorithm);
        true
    }

    /// Adapts them to what was seen and what was paid.
    pub fn adapt(&mut self, now_ns: u64, algorithm: &mut dyn Algorithm) {
        if let Some(tuned) = self.tuner.as_mut().and_then(|t| t.end_interval(&self.attrs)) {
            self.set(tuned, algorithm);
        }
        let Some(load) = self.budget.load(now_ns) else { return };
        match algorithm.adapt(load, self.budget_ns(), &self.attrs) {
            Stretch::Keep => {}
            Stretch::Longer(by) => self.stretch(by, algorithm),
            // Intervals that the tuner has chosen are not shortened behind its back.
            Stretch::Shorter(_) if self.tuner.is_some() => {}
            Stretch::Shorter(by) => self.stretch(1.0 / by, algorithm),
        }
    }

    fn stretch(&mut self, by: f64, algorithm: &mut dyn Algorithm) {
        let attrs = stretched(&self.attrs, &self.wanted, by);
        self.budget.stretched(attrs.aggr_us as f64 / self.attrs.aggr_us as f64);
        self.set(attrs, algorithm);
    }

    fn set(&mut self, attrs: MonitorAttrs, algorithm: &mut dyn Algorithm) {
        algorithm.rescale_ages(self.attrs.aggr_us, attrs.aggr_us);
        self.attrs = attrs;
    }
}

/// `attrs` with intervals multiplied by `by`, never below those of `user`, at most an hour.
fn stretched(attrs: &MonitorAttrs, user: &MonitorAttrs, by: f64) -> MonitorAttrs {
    const HOUR_US: f64 = 3_600_000_000.0;
    let per_aggr = u64::from(user.max_nr_accesses());
    let longest = (HOUR_US / per_aggr as f64) as u64;
    let sample_us = ((attrs.sample_us as f64 * by) as u64).clamp(user.sample_us, longest.max(user.sample_us));
    let aggr_us = if sample_us == user.sample_us { user.aggr_us } else { sample_us * per_aggr };
    MonitorAttrs { sample_us, aggr_us, update_us: user.update_us.max(aggr_us), ..*attrs }
}
