//! One page that a person reads first: how much memory is used, how much is idle, by what, and how far to trust it.

pub mod confidence;
pub mod cost;
pub mod idle;
pub mod mappings;
pub mod text;

use crate::error::ViewError;
use crate::overview::{Overview, TargetOverview};
use crate::replay::Replay;
use crate::series::Measure;
use crate::series::distribution::Distribution;
use confidence::{Confidence, ConfidenceBuilder};
use cost::Cost;
use idle::Idle;
use isotherm_core::event::{Event, Footprint, MonitorStats, RunInfo};
use isotherm_core::mapping::Mapping;
use isotherm_core::snapshot::Snapshot;
use mappings::{MappingHeat, MappingHeatBuilder};
use serde::Serialize;
use std::io::Write;

/// The working set's size, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct WorkingSet {
    /// Half of the time it was at most this.
    pub p50: u64,
    /// 95 % of the time.
    pub p95: u64,
    /// 99 % of the time.
    pub p99: u64,
    /// Snapshots it is drawn from, and left out before them.
    pub snapshots: usize,
    /// Snapshots left out at the begin, while regions still adapted.
    pub skipped: usize,
}

/// What the kernel says about the target's size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Resident {
    /// Resident set at the end, bytes.
    pub last: u64,
    /// Its highest value.
    pub highest: u64,
    /// Virtual size at the end.
    pub vsz: u64,
    /// Swapped out at the end; `None` where the kernel does not tell.
    pub swap: Option<u64>,
}

/// A target's summary.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Whose it is.
    pub target: TargetOverview,
    /// How it was recorded.
    pub run: Option<RunInfo>,
    /// Begin of the record, ns.
    pub base_ns: u64,
    /// Working set.
    pub working_set: WorkingSet,
    /// Idle memory at the end.
    pub idle: Idle,
    /// Resident memory; `None` where nobody counted it.
    pub resident: Option<Resident>,
    /// Mappings by name, hottest first.
    pub mappings: Vec<MappingHeat>,
    /// The monitor's cost over all targets; `None` where the record does not tell.
    pub cost: Option<Cost>,
    /// How far to trust it; `None` where the source does not tell how often it looked.
    pub confidence: Option<Confidence>,
}

impl Summary {
    /// Reads the events once, for one target.
    pub fn read(
        events: &(impl Replay + ?Sized),
        overview: &Overview,
        target: &TargetOverview,
    ) -> Result<Self, ViewError> {
        let mut builder = SummaryBuilder::new(overview, target);
        events.replay(&mut |event| {
            builder.add(event);
            Ok(())
        })?;
        builder.finish()
    }
}

/// Collects a target's summary from events.
#[derive(Debug)]
struct SummaryBuilder {
    target: TargetOverview,
    run: Option<RunInfo>,
    base_ns: u64,
    working_sets: Vec<u64>,
    last: Option<Snapshot>,
    mappings_now: Vec<Mapping>,
    heat: MappingHeatBuilder,
    resident: Option<Resident>,
    first_stats: Option<MonitorStats>,
    cost: Option<Cost>,
    confidence: ConfidenceBuilder,
}

impl SummaryBuilder {
    fn new(overview: &Overview, target: &TargetOverview) -> Self {
        Self {
            target: target.clone(),
            run: overview.run.clone(),
            base_ns: overview.start_ns,
            working_sets: Vec::new(),
            last: None,
            mappings_now: Vec::new(),
            heat: MappingHeatBuilder::default(),
            resident: None,
            first_stats: None,
            cost: None,
            confidence: ConfidenceBuilder::default(),
        }
    }

    fn add(&mut self, event: &Event) {
        let id = self.target.info.target;
        match event {
            Event::Mappings { target, mappings, .. } if *target == id => self.mappings_now.clone_from(mappings),
            Event::Snapshot(s) if s.target == id => {
                self.working_sets.push(Measure::WorkingSet { min_rate: 0.0 }.of(s));
                self.heat.add(s, &self.mappings_now);
                self.confidence.add(s);
                self.last = Some(s.clone());
            }
            Event::Footprint(f) if f.target == id => self.resident = Some(resident(self.resident, f)),
            Event::Stats(stats) => {
                let first = self.first_stats.get_or_insert(*stats);
                self.cost = Cost::between(first, stats, self.run.as_ref()).or(self.cost);
            }
            _ => {}
        }
    }

    fn finish(self) -> Result<Summary, ViewError> {
        let Some(last) = &self.last else { return Err(ViewError::NoSnapshot) };
        let skipped = crate::series::default_skip(self.working_sets.len());
        let sizes = Distribution::new(self.working_sets[skipped..].iter().copied());
        let at = |percent| sizes.percentile(percent).unwrap_or(0);
        let working_set = WorkingSet {
            p50: at(50.0),
            p95: at(95.0),
            p99: at(99.0),
            snapshots: self.working_sets.len() - skipped,
            skipped,
        };
        Ok(Summary {
            idle: Idle::of(last, last.end_ns.saturating_sub(self.target.start_ns)),
            mappings: self.heat.finish(),
            confidence: self.confidence.finish(),
            target: self.target,
            run: self.run,
            base_ns: self.base_ns,
            working_set,
            resident: self.resident,
            cost: self.cost,
        })
    }
}

fn resident(before: Option<Resident>, f: &Footprint) -> Resident {
    let highest = before.map_or(f.rss, |b| b.highest.max(f.rss));
    Resident { last: f.rss, highest, vsz: f.vsz, swap: f.swap }
}

#[derive(Serialize)]
struct SummaryJson<'a> {
    target: u32,
    pid: Option<u32>,
    name: &'a str,
    start_ns: u64,
    end_ns: u64,
    snapshots: u64,
    source: Option<&'a str>,
    algorithm: Option<&'a str>,
    working_set: &'a WorkingSet,
    idle: &'a Idle,
    resident: Option<Resident>,
    mappings: &'a [MappingHeat],
    cost: Option<Cost>,
    confidence: Option<Confidence>,
}

/// Writes one line of JSON per target.
pub fn write_json(summaries: &[Summary], out: &mut dyn Write) -> Result<(), ViewError> {
    for s in summaries {
        let json = SummaryJson {
            target: s.target.info.target,
            pid: s.target.info.pid,
            name: &s.target.info.name,
            start_ns: s.target.start_ns,
            end_ns: s.target.end_ns,
            snapshots: s.target.snapshots,
            source: s.run.as_ref().map(|r| r.source.as_str()),
            algorithm: s.run.as_ref().map(|r| r.algorithm.as_str()),
            working_set: &s.working_set,
            idle: &s.idle,
            resident: s.resident,
            mappings: &s.mappings,
            cost: s.cost,
            confidence: s.confidence,
        };
        serde_json::to_writer(&mut *out, &json)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata::{MIB, small_record};

    #[test]
    fn json_holds_the_figures() {
        let events = small_record(20);
        let overview = Overview::read(&events).expect("has snapshots");
        let summary = Summary::read(&events, &overview, &overview.targets[0]).expect("has snapshots");
        let mut out = Vec::new();
        write_json(&[summary], &mut out).expect("writes to memory");
        let v: serde_json::Value = serde_json::from_slice(&out).expect("one line of JSON");
        assert_eq!(v["working_set"]["p50"], 4 * MIB);
        assert_eq!(v["working_set"]["p99"], 8 * MIB);
        assert_eq!(v["resident"]["highest"], 77 * MIB);
        assert_eq!(v["idle"]["cold"][0]["for_ns"], 10_000_000_000u64);
        assert!(v["idle"]["cold"][0]["bytes"].is_null(), "2 s cannot tell");
        assert_eq!(v["mappings"][0]["name"], "[heap]");
        assert_eq!(v["cost"]["budget"], 0.01);
    }
}
