//! What a scheme has done: declared once, with unit and meaning.

use super::effect::Effect;
use serde::{Deserialize, Serialize};

/// Counters of a scheme since it was installed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SchemeStats {
    /// Times that the action was tried on (part of) a region.
    pub nr_tried: u64,
    /// Bytes that it was tried on: those that passed all filters, those that look at single pages too.
    pub sz_tried: u64,
    /// Ranges that the action succeeded for.
    pub nr_applied: u64,
    /// Bytes that it succeeded for; for `pageout`, bytes seen to have left memory.
    pub sz_applied: u64,
    /// Bytes of matching memory that filters kept from being tried.
    pub sz_filtered: u64,
    /// Reset intervals in which the quota was used up.
    pub qt_exceeds: u64,
    /// Bytes per reset interval that may be done at present; `null`: no limit.
    pub effective_quota: Option<u64>,
    /// Snapshots that the scheme has seen.
    pub nr_snapshots: u64,
    /// Times the emergency brake was pulled.
    pub brake_pulled: u64,
    /// Time that the action took, ns.
    pub action_ns: u64,
    /// Major faults of the targets since the scheme was installed; `null` where nobody counts them.
    pub major_faults: Option<u64>,
    /// Time that some task waited for memory since then, microseconds (PSI of the whole machine); `null` where the kernel
    /// does not tell.
    pub stall_us: Option<u64>,
    /// What paging out has brought.
    #[serde(flatten)]
    pub effect: Effect,
}

/// Name, unit and meaning of each counter, for help texts and the metrics endpoint.
pub const DESCRIPTIONS: &[(&str, &str, &str)] = &[
    ("nr_tried", "", "times that the action was tried on (part of) a region"),
    ("sz_tried", "bytes", "memory that the action was tried on"),
    ("nr_applied", "", "ranges that the action succeeded for"),
    ("sz_applied", "bytes", "memory that the action succeeded for; for pageout, memory seen to have left"),
    ("sz_filtered", "bytes", "matching memory that filters kept from being tried"),
    ("qt_exceeds", "", "reset intervals in which the quota was used up"),
    ("effective_quota", "bytes", "memory per reset interval that may be done at present"),
    ("nr_snapshots", "", "snapshots that the scheme has seen"),
    ("brake_pulled", "", "times the emergency brake was pulled"),
    ("action_ns", "nanoseconds", "time that the action took"),
    ("major_faults", "", "major faults of the targets since the scheme began"),
    ("stall_us", "microseconds", "time that some task waited for memory since the scheme began"),
    ("out", "bytes", "memory seen to have left"),
    ("back_10s", "bytes", "of it, came back within 10 s"),
    ("back_60s", "bytes", "of it, came back within 60 s"),
    ("saved_now", "bytes", "memory that is out at present"),
    ("recent_out", "bytes", "left within the last 10 s"),
    ("recent_back", "bytes", "of that, has come back"),
];
