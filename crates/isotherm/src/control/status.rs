//! How a running instance stands, as `GET /status` tells it.

use crate::control::words;
use isotherm_core::action_log::Entry;
use isotherm_core::event::Mode;
use isotherm_core::scheme::engine::SchemeStatus as EngineStatus;
use isotherm_core::scheme::goal::Goal;
use isotherm_core::scheme::pattern::{AccessPattern, Bounds, FULL_RATE_BP};
use isotherm_core::scheme::stats::SchemeStats;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {
    pub version: String,
    pub pid: u32,
    /// Where it listens; `null`: only for metrics.
    pub socket: Option<PathBuf>,
    /// When this was drawn up, ns of CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// For how long it has run, ns.
    pub uptime_ns: u64,
    /// Whether nothing is really done.
    pub dry_run: bool,
    /// Why the last reload failed; `null`: it did not, or there was none.
    pub reload_error: Option<String>,
    /// How accesses are observed.
    pub monitor: MonitorStatus,
    /// The targets that are alive.
    pub targets: Vec<TargetStatus>,
    /// The schemes, in their order.
    pub schemes: Vec<SchemeStatus>,
    /// What was done lately, oldest first.
    pub log: Vec<Entry>,
}

/// How accesses are observed, and what it costs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct MonitorStatus {
    /// The access source; empty before it has begun.
    pub source: String,
    /// `isotherm` or `damon`; empty where the kernel's own engine runs.
    pub algorithm: String,
    /// How pages are chosen; `null` where not known.
    pub mode: Option<Mode>,
    /// Sampling interval in force, microseconds.
    pub sample_us: Option<u64>,
    /// Aggregation interval in force, microseconds.
    pub aggr_us: Option<u64>,
    /// Regions at present.
    pub nr_regions: Option<u32>,
    /// Snapshots since the start.
    pub snapshots: u64,
    /// The budget, a share of one core; `null`: none.
    pub cpu_budget: Option<f64>,
    /// CPU time of the monitor since the start, ns.
    pub monitor_ns: Option<u64>,
    /// CPU time that the targets lost to it since the start, ns.
    pub target_ns: Option<u64>,
    /// Share of one core that the monitor took, over the last minute.
    pub monitor_share: Option<f64>,
    /// Share of one core that the targets lost to it, over the last minute.
    pub target_share: Option<f64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TargetStatus {
    pub target: u32,
    /// Its process, where it is one.
    pub pid: Option<u32>,
    /// Its command line, or what else names it.
    pub name: String,
    /// Resident memory, bytes.
    pub rss: Option<u64>,
    /// Swapped out, bytes.
    pub swap: Option<u64>,
    /// In use, bytes: accessed within the last second, or seen in use in the last snapshot where only regions are
    /// known.
    pub accessed: Option<u64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SchemeStatus {
    pub scheme: usize,
    pub action: String,
    pub pattern: PatternStatus,
    /// How often it has its turn, ns; 0: at every aggregation interval.
    pub apply_ns: u64,
    /// Bytes that it may do within a reset interval, before tuning; `null`: no such limit.
    pub quota_bytes: Option<u64>,
    /// Time that it may take within a reset interval, ns; `null`: no such limit.
    pub quota_ns: Option<u64>,
    /// The reset interval, ns.
    pub quota_reset_ns: u64,
    #[serde(flatten)]
    pub stats: SchemeStats,
    /// Why it does nothing; `null` while it acts.
    pub idle_reason: Option<String>,
    /// What it is tuned for.
    pub goals: Vec<GoalStatus>,
}

/// An access pattern: closed ranges, `null` where there is no upper bound.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PatternStatus {
    /// Size, bytes.
    pub size: (u64, Option<u64>),
    /// Access rate, basis points.
    pub rate_bp: (u32, u32),
    /// Age, microseconds.
    pub age_us: (u64, Option<u64>),
    /// All of it for people.
    pub words: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GoalStatus {
    /// What is looked at.
    pub metric: String,
    /// The value wished for, in the metric's unit; for counters, the growth within the window.
    pub target: u64,
    /// The last value; `null` where not known.
    pub current: Option<u64>,
    /// 10 000 on target; less asks for more of the scheme. `null` where not known.
    pub score: Option<u64>,
    /// Over which time a counter's growth is taken, ns.
    pub window_ns: u64,
    /// Both values for people.
    pub words: String,
}

impl SchemeStatus {
    /// From the engine's view of the scheme with that index.
    pub fn new(scheme: usize, status: EngineStatus<'_>) -> Self {
        let quota = &status.scheme.quota;
        let goals = quota.goals.iter().zip(&status.goals);
        Self {
            scheme,
            action: status.scheme.action.name().to_owned(),
            pattern: PatternStatus::new(&status.scheme.pattern),
            apply_ns: status.scheme.apply_ns,
            quota_bytes: quota.bytes,
            quota_ns: quota.time_ns,
            quota_reset_ns: quota.reset_ns,
            idle_reason: status.idle.map(ToString::to_string),
            goals: goals.map(|(goal, current)| GoalStatus::new(goal, *current, quota.reset_ns)).collect(),
            stats: status.stats,
        }
    }
}

impl PatternStatus {
    fn new(pattern: &AccessPattern) -> Self {
        let open = |b: Bounds<u64>| (b.min, (b.max < u64::MAX).then_some(b.max));
        Self {
            size: open(pattern.size),
            rate_bp: (pattern.rate_bp.min, pattern.rate_bp.max.min(FULL_RATE_BP)),
            age_us: open(pattern.age_us),
            words: words::pattern(pattern),
        }
    }
}

impl GoalStatus {
    fn new(goal: &Goal, current: Option<u64>, reset_ns: u64) -> Self {
        Self {
            metric: words::metric(&goal.metric),
            target: goal.target,
            current,
            score: current.map(|value| goal.score(value)),
            window_ns: if goal.window_ns == 0 { reset_ns } else { goal.window_ns },
            words: words::goal(goal, current),
        }
    }
}
