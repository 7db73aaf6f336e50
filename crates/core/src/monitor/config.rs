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
