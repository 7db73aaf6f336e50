//! How running schemes stand, as `GET /status` tells it.

use super::words;
use isotherm_core::action_log::Entry;
use isotherm_core::event::Mode;
use isotherm_core::figure::{ToValue, Value};
use isotherm_core::figures;
use isotherm_core::scheme::ahead::AheadTotals;
use isotherm_core::scheme::engine::SchemeStatus as EngineStatus;
use isotherm_core::scheme::goal::Goal;
use isotherm_core::scheme::pattern::{AccessPattern, Bounds, FULL_RATE_BP};
use isotherm_core::scheme::stats::SchemeStats;
use isotherm_daemon::instance::Instance;
use serde::{Deserialize, Serialize};

/// What an instance with schemes calls what it runs.
pub const COMMAND: &str = "schemes";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {
    /// Which Isotherm it is.
    #[serde(flatten)]
    pub instance: Instance,
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
    /// What was done ahead of faults; `null`: nothing is.
    #[serde(default)]
    pub ahead: Option<AheadTotals>,
    /// What was done lately, oldest first.
    pub log: Vec<Entry>,
}

figures! {
    /// How accesses are observed, and what it costs.
    #[derive(Debug, Clone, Default, Serialize, Deserialize)]
    pub struct MonitorStatus {
        snapshots: u64 = Counter Count as "monitor_snapshots", "Snapshots drawn up.";
        nr_regions: Option<u32> = Gauge Count as "monitor_regions", "Regions at present.";
        sample_us: Option<u64> = Gauge Microseconds as "monitor_sampling_interval", "Sampling interval in force.";
        aggr_us: Option<u64> = Gauge Microseconds as "monitor_aggregation_interval",
            "Aggregation interval in force.";
        monitor_ns: Option<u64> = Counter Nanoseconds as "monitor_cpu", "CPU time that the monitor took.";
        target_ns: Option<u64> = Counter Nanoseconds as "target_cost", "CPU time that the targets lost to it.";
        monitor_share: Option<f64> = Gauge Ratio as "monitor_cpu_last_minute",
            "Share of one core that the monitor took, over the last minute.";
        target_share: Option<f64> = Gauge Ratio as "target_cost_last_minute",
            "Share of one core that the targets lost to it, over the last minute.";
        cpu_budget: Option<f64> = Gauge Ratio as "monitor_cpu_budget",
            "Share of one core that monitoring may take, the targets' losses counted.";
    }
    and {
        /// The access source; empty before it has begun.
        source: String;
        /// `isotherm` or `damon`; empty where the kernel's own engine runs.
        algorithm: String;
        /// How pages are chosen; `null` where not known.
        mode: Option<Mode>;
    }
}

figures! {
    /// A target that is alive.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    pub struct TargetStatus {
        rss: Option<u64> = Gauge Bytes as "resident", "Resident memory of a target.";
        swap: Option<u64> = Gauge Bytes as "swapped", "Memory of a target that is swapped out.";
        accessed: Option<u64> = Gauge Bytes,
            "Memory of a target in use within the last second, or in the last snapshot where only regions are known.";
    }
    and {
        /// Its index.
        target: u32;
        /// Its process, where it is one.
        pid: Option<u32>;
        /// Its command line, or what else names it.
        name: String;
    }
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
    /// The code of why it does nothing; `null` while it acts.
    #[serde(default)]
    pub idle_code: Option<String>,
    /// The same in a sentence.
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

figures! {
    /// A goal.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    pub struct GoalStatus {
        current: Option<GoalValue> = Gauge Count, "Last value of a goal's metric.";
        target: GoalValue = Gauge Count, "Value that a goal wishes for.";
        score: Option<u64> = Gauge BasisPoints,
            "How well a goal is met: 1 (in JSON 10000) on target, less asks for more of the scheme.";
    }
    and {
        /// What is looked at.
        metric: String;
        /// Over which time a counter's growth is taken, ns.
        window_ns: u64;
        /// Both values for people.
        words: String;
    }
}

/// A value of a goal. JSON has it as the engine counts: basis points, bytes, microseconds, faults; of what grows, its growth within
/// the window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(from = "u64", into = "u64")]
pub struct GoalValue {
    counted: u64,
    /// The same in base units, for metrics; `None` of one read from JSON.
    base: Option<f64>,
}

impl GoalValue {
    /// A value of `goal`; `reset_ns` is the quota's reset interval.
    pub fn of(goal: &Goal, counted: u64, reset_ns: u64) -> Self {
        Self { counted, base: Some(goal.in_base(counted, reset_ns)) }
    }
}

impl From<u64> for GoalValue {
    fn from(counted: u64) -> Self {
        Self { counted, base: None }
    }
}

impl From<GoalValue> for u64 {
    fn from(value: GoalValue) -> Self {
        value.counted
    }
}

impl ToValue for GoalValue {
    fn to_value(&self) -> Option<Value> {
        self.base.map(Value::Real)
    }
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
            idle_code: status.idle.map(|idle| idle.code().to_owned()),
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
    /// A goal whose metric has the value `current`; `reset_ns` is the quota's reset interval.
    pub fn new(goal: &Goal, current: Option<u64>, reset_ns: u64) -> Self {
        Self {
            metric: words::metric(&goal.metric),
            target: GoalValue::of(goal, goal.target, reset_ns),
            current: current.map(|value| GoalValue::of(goal, value, reset_ns)),
            score: current.map(|value| goal.score(value)),
            window_ns: goal.span_ns(reset_ns),
            words: words::goal(goal, current),
        }
    }
}
