//! One page that a person reads first: how much memory is used, how much is idle, by what, and how far to trust it.

pub mod confidence;
pub mod cost;
pub mod estimate;
pub mod idle;
mod json;
pub mod mapping_pages;
pub mod mappings;
pub mod pages;
mod reading;
mod target;
pub mod text;
pub mod total;
pub mod working_set;

use crate::error::ViewError;
use crate::overview::{Overview, TargetOverview};
use crate::replay::Replay;
use confidence::Confidence;
use cost::Cost;
use idle::Idle;
use isotherm_core::event::RunInfo;
pub use json::write as write_json;
use mapping_pages::MappingUse;
use mappings::MappingHeat;
use pages::ResidentPages;
use reading::{Hold, Reading};
use serde::Serialize;
use std::cmp::Reverse;
use total::Total;
use working_set::WorkingSet;

/// What the kernel says about the target's size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Resident {
    /// Resident set at the end, bytes.
    pub last: u64,
    pub highest: u64,
    /// Virtual size at the end.
    pub vsz: u64,
    /// Swapped out at the end; `None` where the kernel does not tell.
    pub swap: Option<u64>,
}

/// A target's mappings, as the record tells of them.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Mappings {
    /// By name, hottest first: means over the record, drawn from regions.
    Regions(Vec<MappingHeat>),
    /// By mapping, most cold memory first: pages at the end of the record.
    Pages(Vec<MappingUse>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    pub target: TargetOverview,
    /// How it was recorded.
    pub run: Option<RunInfo>,
    /// Begin of the record, ns.
    pub base_ns: u64,
    pub working_set: WorkingSet,
    /// Idle memory at the end.
    pub idle: Idle,
    /// Present memory without a rest; `None` where only regions are known.
    pub pages: Option<ResidentPages>,
    /// Resident memory; `None` where nobody counted it.
    pub resident: Option<Resident>,
    pub mappings: Mappings,
    /// The monitor's cost over all targets; `None` where the record does not tell.
    pub cost: Option<Cost>,
    /// How far to trust it; `None` where the source does not tell how often it looked.
    pub confidence: Option<Confidence>,
}

impl Summary {
    /// What is cold for the shortest time that is listed, bytes; `None` where that is not known.
    fn coldest(&self) -> Option<u64> {
        self.idle.cold[0].bytes
    }

    fn last_resident(&self) -> Option<u64> {
        self.resident.map(|r| r.last)
    }
}

/// Of several targets at most so many are shown with all their figures.
const SHOWN: usize = 10;

/// Targets that are not shown one by one, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Rest {
    /// How many.
    pub targets: usize,
    /// Cold for the shortest time that is listed, of those of whom that is known; `None`: of none.
    pub cold: Option<u64>,
    /// Of how many it is not known.
    pub cold_unknown: usize,
    /// In their working sets (p50).
    pub working_set: u64,
    /// Resident at the end, of those of whom that is known; `None`: of none.
    pub resident: Option<u64>,
}

/// Several targets' summaries and their total.
#[derive(Debug, Clone, PartialEq)]
pub struct Summaries {
    pub targets: Vec<Summary>,
    /// All of them together.
    pub total: Total,
}

impl Summaries {
    /// The targets that hold most cold memory, that most first, and the others added up, if there are any.
    pub fn shown(&self) -> (Vec<&Summary>, Option<Rest>) {
        let mut order: Vec<&Summary> = self.targets.iter().collect();
        order.sort_by_key(|s| Reverse((s.coldest(), s.last_resident())));
        let rest = order.split_off(SHOWN.min(order.len()));
        let known = |f: fn(&Summary) -> Option<u64>| rest.iter().filter_map(|s| f(s)).reduce(|a, b| a + b);
        let rest = (!rest.is_empty()).then(|| Rest {
            targets: rest.len(),
            cold: known(Summary::coldest),
            cold_unknown: rest.iter().filter(|s| s.coldest().is_none()).count(),
            working_set: rest.iter().map(|s| s.working_set.p50).sum(),
            resident: known(Summary::last_resident),
        });
        (order, rest)
    }

    /// Targets that are not in the total, as they had ended before the end of the record.
    pub fn gone(&self) -> usize {
        self.targets.len() - self.total.targets
    }

    /// Reads the events, for some targets: once, but twice where more is told of a target after it has exited, which no
    /// recorder here does.
    pub fn read(
        events: &(impl Replay + ?Sized),
        overview: &Overview,
        targets: &[&TargetOverview],
    ) -> Result<Self, ViewError> {
        let reading = Reading::of(events, overview, targets, Hold::Summaries)?;
        match reading.lacks_something() {
            true => Reading::of(events, overview, targets, Hold::Everything)?.finish(overview),
            false => reading.finish(overview),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata::{MIB, paged_record, small_record, together};
    use isotherm_core::event::Event;

    fn json(events: &Vec<Event>) -> Vec<serde_json::Value> {
        let overview = Overview::read(events).expect("has snapshots");
        let all = overview.select(None).expect("all");
        let summaries = Summaries::read(events, &overview, &all).expect("has snapshots");
        let mut out = Vec::new();
        write_json(&summaries, &mut out).expect("writes to memory");
        let text = String::from_utf8(out).expect("is text");
        text.lines().map(|l| serde_json::from_str(l).expect("a line of JSON")).collect()
    }

    #[test]
    fn json_holds_the_figures() {
        let events = small_record(20);
        let v = &json(&events)[0];
        assert_eq!(v["working_set"]["p50"], 4 * MIB);
        assert_eq!(v["working_set"]["p99"], 8 * MIB);
        assert_eq!(v["resident"]["highest"], 77 * MIB);
        assert_eq!(v["idle"]["cold"][0]["for_ns"], 10_000_000_000u64);
        assert!(v["idle"]["cold"][0]["bytes"].is_null(), "2 s cannot tell");
        assert_eq!(v["mappings"][0]["name"], "[heap]");
        assert_eq!(v["cost"]["budget"], 0.01);
    }

    #[test]
    fn json_of_pages_tells_windows_cold_memory_and_the_total() {
        let mut events = paged_record(2, 12);
        let lines = json(&events);
        assert_eq!(lines.len(), 3);
        let (one, total) = (&lines[0], &lines[2]);
        let kib = |v: &serde_json::Value| v.as_u64().map(|b| b / 1024);
        assert_eq!(kib(&one["working_set"]["p50"]), Some(5 * 1024 + 256));
        assert_eq!(one["working_set"]["basis"], "pages");
        let windows = one["working_set"]["windows"].as_array().expect("a list");
        let within: Vec<_> = windows.iter().map(|w| (w["within_ns"].as_u64(), kib(&w["bytes"]))).collect();
        let s = |s: u64| Some(s * 1_000_000_000);
        assert_eq!(within, [(s(1), Some(6400)), (s(10), Some(6400)), (s(60), None), (s(300), None)]);
        let cold: Vec<_> = one["idle"]["cold"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|c| (c["for_ns"].as_u64(), kib(&c["bytes"])))
            .collect();
        assert_eq!(cold, [(s(10), Some(77_568)), (s(60), None), (s(300), None), (s(1800), None)]);
        let p = &one["resident_pages"];
        let parts = ["accessed", "cold", "not_resolved", "not_observable"].map(|k| p[k].as_u64().unwrap_or(0));
        assert_eq!(Some(parts.iter().sum()), p["resident"].as_u64());
        assert_eq!(one["mappings"][0]["name"], "7f0000000000-7f0004000000");
        assert_eq!(one["mappings"][0]["bytes"], 64 * MIB);
        assert!(total["target"].is_null() && total["shared"] == "counted_for_each_target", "{total}");
        assert_eq!(kib(&total["idle"]["cold"][0]["bytes"]), Some(2 * 77_568));
        assert_eq!(total["resident_pages"]["resident"], 2 * 83 * MIB);

        events.extend((0..12).map(|second| together(2, second)));
        let total = &json(&events)[2];
        assert_eq!(total["shared"], "counted_once");
        assert_eq!(total["resident_pages"]["resident"], 83 * MIB);
        assert_eq!(kib(&total["working_set"]["p50"]), Some(5 * 1024 + 256));
    }

    #[test]
    fn what_another_tool_did_not_record_is_null() {
        let mut events = small_record(20);
        for event in &mut events {
            if let Event::Run(run) = event {
                (run.source, run.algorithm) = (String::new(), String::new());
            }
        }
        for line in json(&events) {
            assert!(line["source"].is_null() && line["algorithm"].is_null(), "{line}");
        }
        assert_eq!(json(&small_record(20))[0]["source"], "sim");
    }

    #[test]
    fn one_target_has_a_total_too() {
        let lines = json(&small_record(20));
        assert_eq!(lines.len(), 2);
        assert!(lines[1]["target"].is_null());
        assert_eq!(lines[1]["working_set"]["p50"], 4 * MIB);
        assert_eq!(lines[1]["idle"]["not_observable"], lines[0]["idle"]["not_observable"]);
        assert_eq!(lines[1]["cost"], lines[0]["cost"]);
    }
}
