//! What watching cost, and what it was allowed to.

use isotherm_core::event::{Mode, MonitorStats, RunInfo};
use serde::Serialize;

/// The monitor's cost as shares of one core, and how it observed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
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
}
