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
    /// The mean from `start_ns` to the time of `stats`, whose counters are totals. `None` if no time has passed.
    pub fn since(start_ns: u64, stats: &MonitorStats, run: Option<&RunInfo>) -> Option<Self> {
        let elapsed = stats.time_ns.checked_sub(start_ns).filter(|&t| t > 0)? as f64;
        Some(Self {
            monitor: stats.monitor_ns as f64 / elapsed,
            target: stats.target_ns as f64 / elapsed,
            budget: run.and_then(|r| r.cpu_budget),
            checks_per_second: stats.checks as f64 / (elapsed / 1e9),
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
        let c = Cost::since(1_000_000_000, &stats(3_000_000_000, 10_000_000, 4_000_000), Some(&run_info()));
        let c = c.expect("time has passed");
        assert!((c.total() - 0.007).abs() < 1e-12);
        assert_eq!(c.budget, Some(0.01));
        assert_eq!(c.checks_per_second, 2000.0);
        assert_eq!(Cost::since(5, &stats(5, 1, 1), None), None);
    }
}
