//! What a scheme has done.

use super::ahead::AheadTotals;
use super::effect::Effect;
use serde::{Deserialize, Serialize};

crate::figures! {
    /// Counters of a scheme since it was installed.
    #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct SchemeStats {
        nr_tried: u64 = Counter Count, "Times that the action was tried on (part of) a region.";
        sz_tried: u64 = Counter Bytes,
            "Memory that the action was tried on: what passed all filters, those that look at single pages too.";
        nr_applied: u64 = Counter Count, "Ranges that the action succeeded for.";
        sz_applied: u64 = Counter Bytes,
            "Memory that the action succeeded for; for pageout, memory seen to have left.";
        sz_filtered: u64 = Counter Bytes, "Matching memory that filters kept from being tried.";
        qt_exceeds: u64 = Counter Count, "Reset intervals in which the quota was used up.";
        effective_quota: Option<u64> = Gauge Bytes,
            "Memory per reset interval that may be done at present; not given where there is no limit.";
        nr_snapshots: u64 = Counter Count, "Snapshots that the scheme has seen.";
        brake_pulled: u64 = Counter Count, "Times the emergency brake was pulled.";
        action_ns: u64 = Counter Nanoseconds, "Time that the action took.";
        major_faults: Option<u64> = Counter Count, "Major faults of the targets since the scheme began.";
        stall_us: Option<u64> = Counter Microseconds,
            "Time that some task waited for memory since the scheme began (PSI of the whole machine).";
    }
    and {
        /// What paging out has brought.
        #[serde(flatten)]
        effect: Effect;
    }
}

/// A scheme at one time: a line of `--stats`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StatsLine {
    /// ns on CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// Its index.
    pub scheme: usize,
    /// What it does.
    pub action: String,
    /// Whether nothing is done: counters tell what would be.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Its counters.
    #[serde(flatten)]
    pub stats: SchemeStats,
    /// The code of why it does nothing; `None` while it acts.
    #[serde(default)]
    pub idle_code: Option<String>,
    /// The same in a sentence.
    pub idle_reason: Option<String>,
    /// Last values of the goals, in their order.
    pub goals: Vec<Option<u64>>,
    /// What they aim at.
    pub goal_targets: Vec<u64>,
    /// Resident memory of the targets, bytes.
    pub rss: Option<u64>,
    /// Of the first scheme that makes huge pages: what was done ahead of faults; `None`: nothing is.
    #[serde(default)]
    pub ahead: Option<AheadTotals>,
}

/// What stands before the memory that an action succeeded for, or would have: `applied to`.
pub const fn applied_to(dry_run: bool) -> &'static str {
    if dry_run { "would apply to" } else { "applied to" }
}
