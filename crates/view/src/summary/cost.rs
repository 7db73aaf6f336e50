//! What watching cost, and what it was allowed to.

use crate::units::format_percent_exactly;
use isotherm_core::event::{Event, Mode, MonitorStats, RunInfo};
use serde::{Deserialize, Serialize};

/// The monitor's cost as shares of one core, and how it observed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// The monitor's own CPU time.
    pub monitor: f64,
    /// Estimated CPU time that the targets lost.
    pub target: f64,
    /// The user's limit for both together; `None`: unlimited, or not known.
    pub budget: Option<f64>,
    /// Page observations per second.
    pub checks_per_second: f64,
    /// How it observed at the end.
    pub mode: Mode,
    /// Sampling interval at the end, microseconds.
    pub sample_us: u64,
    /// Aggregation interval at the end, microseconds.
    pub aggr_us: u64,
    /// Regions over all targets at the end.
    pub nr_regions: u32,
    /// Sampling steps that began late.
    pub late_samples: u64,
}

impl Cost {
    /// The mean between two readings, whose counters are totals. `None` if no time has passed.
    pub fn between(first: &MonitorStats, stats: &MonitorStats, run: Option<&RunInfo>) -> Option<Self> {
        let elapsed = stats.time_ns.checked_sub(first.time_ns).filter(|&t| t > 0)? as f64;
        let per_ns = |before: u64, after: u64| after.saturating_sub(before) as f64 / elapsed;
        Some(Self {
            monitor: per_ns(first.monitor_ns, stats.monitor_ns),
            target: per_ns(first.target_ns, stats.target_ns),
            budget: run.and_then(|r| r.cpu_budget),
            checks_per_second: per_ns(first.checks, stats.checks) * 1e9,
            mode: stats.mode,
            sample_us: stats.sample_us,
            aggr_us: stats.aggr_us,
            nr_regions: stats.nr_regions,
            late_samples: stats.late_samples,
        })
    }

    /// Both together.
    pub fn total(&self) -> f64 {
        self.monitor + self.target
    }

    /// For people: `monitor 0.41 % + target 0.12 % of one core (budget 1 %)`.
    pub fn words(&self) -> String {
        let Self { monitor, target, budget, .. } = self;
        let budget = budget_words(*budget);
        format!("monitor {:.2} % + target {:.2} % of one core ({budget})", monitor * 100.0, target * 100.0)
    }

    /// Whether both together are above the budget, as precisely as [`format_percent_exactly`] shows them: what reads
    /// the same is the same.
    pub(crate) fn is_above_budget(&self) -> bool {
        let shown = format_percent_exactly;
        self.budget.is_some_and(|b| self.total() > b && shown(self.total()) != shown(b))
    }
}

/// For people: `budget 1 %`, of a share of one core.
pub fn budget_words(budget: Option<f64>) -> String {
    budget.map_or("no budget".to_owned(), |share| format!("budget {}", format_percent_exactly(share)))
}

/// Draws up the mean cost of a whole record.
#[derive(Debug)]
pub(crate) struct CostBuilder<'a> {
    run: Option<&'a RunInfo>,
    first: Option<MonitorStats>,
    cost: Option<Cost>,
}

impl<'a> CostBuilder<'a> {
    pub fn new(run: Option<&'a RunInfo>) -> Self {
        Self { run, first: None, cost: None }
    }

    pub fn add(&mut self, event: &Event) {
        if let Event::Stats(stats) = event {
            let first = self.first.get_or_insert(*stats);
            self.cost = Cost::between(first, stats, self.run).or(self.cost);
        }
    }

    /// `None` where the record does not tell.
    pub fn finish(self) -> Option<Cost> {
        self.cost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata::{run_info, stats};

    #[test]
    fn shares_of_a_core() {
        let (a, b) = (stats(1_000_000_000, 1_000_000, 0), stats(3_000_000_000, 11_000_000, 4_000_000));
        let c = Cost::between(&a, &b, Some(&run_info())).expect("time has passed");
        assert!((c.total() - 0.007).abs() < 1e-12);
        assert_eq!(c.budget, Some(0.01));
        assert_eq!(c.checks_per_second, 50_000.0);
        assert_eq!(Cost::between(&a, &a, None), None);
    }

    #[test]
    fn what_reads_like_the_budget_is_within_it() {
        let (a, b) = (stats(1_000_000_000, 0, 0), stats(2_000_000_000, 1, 0));
        let c = Cost::between(&a, &b, Some(&run_info())).expect("time has passed");
        let above = |monitor| Cost { monitor, target: 0.0, ..c }.is_above_budget();
        assert_eq!([0.0099, 0.01, 0.010_04, 0.0101, 0.0107].map(above), [false, false, false, true, true]);
        assert!(!Cost { budget: None, monitor: 9.0, ..c }.is_above_budget());
        assert_eq!(format_percent_exactly(0.0107), "1.07 %");
        assert_eq!(format_percent_exactly(0.010_04), "1 %");
    }
}
