//! What a monitor is asked to do.

use crate::attrs::MonitorAttrs;
use crate::event::Mode;
use crate::monitor::intervals::IntervalsGoal;
use crate::space::SpaceRule;

/// Which version of DAMON's rules `--algorithm damon` follows. See docs/algorithm.md for the differences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DamonRules {
    /// Mainline: region size limit that keeps at least `min_regions`, threshold doubling above `max_regions`.
    #[default]
    Mainline,
    /// The v12 patch set: no size limit, one merge pass, an age also ends when a region's borders move by more than a
    /// quarter of its size.
    V12,
}

/// Which algorithm draws the regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// Isotherm's own.
    Isotherm,
    /// DAMON's.
    Damon(DamonRules),
    /// None: there are no regions, and so no snapshots. All that is known is the page history.
    PagesOnly,
}

/// Everything that shapes a monitor.
#[derive(Debug, Clone, PartialEq)]
pub struct MonitorConfig {
    /// Intervals and region limits.
    pub attrs: MonitorAttrs,
    /// Algorithm.
    pub algorithm: Algorithm,
    /// `None`: chosen by cost.
    pub mode: Option<Mode>,
    /// Share of one core that the monitor and the target's losses together may cost. `None`: unlimited.
    pub cpu_budget: Option<f64>,
    /// Auto-tuning of the intervals by the amount of access seen.
    pub intervals_goal: Option<IntervalsGoal>,
    /// Whether the page history is kept.
    pub walks: bool,
    /// Which addresses are monitored.
    pub space: SpaceRule,
    /// Seed of every random choice.
    pub seed: u64,
    /// Kernel release, for the record.
    pub kernel: String,
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC in ns, for the record.
    pub realtime_offset_ns: i64,
}

/// What a look at a region takes at least, ns: at the probes that even a small one gets, or by DAMON's rules at one page.
const PROBES_NS: f64 = 1_600.0;
const PAGE_NS: f64 = 200.0;

impl MonitorConfig {
    /// The share of one core that keeping the least number of regions takes at the intervals that are asked for, where the
    /// targets have so many pages. A low estimate.
    pub fn least_share(&self) -> f64 {
        let (look_ns, every_us) = match self.algorithm {
            Algorithm::Isotherm => (PROBES_NS, self.attrs.aggr_us),
            Algorithm::Damon(_) => (PAGE_NS, self.attrs.sample_us),
            Algorithm::PagesOnly => return 0.0,
        };
        f64::from(self.attrs.min_regions) * look_ns / (every_us as f64 * 1e3)
    }
}

impl Default for MonitorConfig {
    fn default() -> Self {
        Self {
            attrs: MonitorAttrs::default(),
            algorithm: Algorithm::Isotherm,
            mode: None,
            cpu_budget: Some(0.01),
            intervals_goal: None,
            walks: true,
            space: SpaceRule::Mappings,
            seed: 0,
            kernel: String::new(),
            realtime_offset_ns: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_regions_take_more_than_the_usual_budget() {
        let share = |algorithm, min_regions, aggr_us| {
            let attrs = MonitorAttrs { min_regions, aggr_us, ..MonitorAttrs::default() };
            MonitorConfig { algorithm, attrs, ..MonitorConfig::default() }.least_share()
        };
        let mainline = Algorithm::Damon(DamonRules::Mainline);
        for (algorithm, few, many) in [(Algorithm::Isotherm, 500, 1_000), (mainline, 200, 1_000)] {
            assert!(share(algorithm, few, 100_000) < 0.01 && share(algorithm, many, 100_000) > 0.01);
        }
        assert!(share(Algorithm::Isotherm, 1_000, 1_000_000) < 0.01, "longer intervals pay for more");
        assert_eq!(share(Algorithm::PagesOnly, 1_000_000, 100_000), 0.0);
    }
}
