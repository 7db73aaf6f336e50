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
    /// Time that some task waited for memory since then, microseconds (PSI of the whole machine); `null` where the
    /// kernel does not tell.
    pub stall_us: Option<u64>,
    /// What paging out has brought.
    #[serde(flatten)]
    pub effect: Effect,
}

/// In what a figure is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Things.
    Count,
    /// Bytes.
    Bytes,
    /// ns; the name ends with `_ns`.
    Nanoseconds,
    /// us; the name ends with `_us`.
    Microseconds,
}

/// What a figure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Description {
    /// Its name in JSON.
    pub name: &'static str,
    /// In what it is counted.
    pub unit: Unit,
    /// Whether it can fall; others only grow.
    pub falls: bool,
    /// What it means.
    pub help: &'static str,
}

const fn counter(name: &'static str, unit: Unit, help: &'static str) -> Description {
    Description { name, unit, falls: false, help }
}

const fn gauge(name: &'static str, unit: Unit, help: &'static str) -> Description {
    Description { name, unit, falls: true, help }
}

/// Every figure of [`SchemeStats`], for help texts and the metrics endpoint.
pub const DESCRIPTIONS: &[Description] = &[
    counter("nr_tried", Unit::Count, "times that the action was tried on (part of) a region"),
    counter("sz_tried", Unit::Bytes, "memory that the action was tried on"),
    counter("nr_applied", Unit::Count, "ranges that the action succeeded for"),
    counter("sz_applied", Unit::Bytes, "memory that the action succeeded for; for pageout, memory seen to have left"),
    counter("sz_filtered", Unit::Bytes, "matching memory that filters kept from being tried"),
    counter("qt_exceeds", Unit::Count, "reset intervals in which the quota was used up"),
    gauge("effective_quota", Unit::Bytes, "memory per reset interval that may be done at present"),
    counter("nr_snapshots", Unit::Count, "snapshots that the scheme has seen"),
    counter("brake_pulled", Unit::Count, "times the emergency brake was pulled"),
    counter("action_ns", Unit::Nanoseconds, "time that the action took"),
    counter("major_faults", Unit::Count, "major faults of the targets since the scheme began"),
    counter("stall_us", Unit::Microseconds, "time that some task waited for memory since the scheme began"),
    counter("out", Unit::Bytes, "memory seen to have left"),
    counter("back_10s", Unit::Bytes, "of it, came back within 10 s"),
    counter("back_60s", Unit::Bytes, "of it, came back within 60 s"),
    gauge("saved_now", Unit::Bytes, "memory that is out at present"),
    gauge("recent_out", Unit::Bytes, "left within the last 10 s"),
    gauge("recent_back", Unit::Bytes, "of that, has come back"),
];
