//! Summaries for programs.

use super::confidence::Confidence;
use super::cost::Cost;
use super::idle::Idle;
use super::pages::ResidentPages;
use super::total::Shared;
use super::working_set::WorkingSet;
use super::{Mappings, Resident, Summaries};
use crate::error::ViewError;
use crate::overview::told;
use serde::Serialize;
use std::io::Write;

#[derive(Serialize)]
struct SummaryJson<'a> {
    /// Null: all targets together.
    target: Option<u32>,
    pid: Option<u32>,
    name: Option<&'a str>,
    start_ns: u64,
    end_ns: u64,
    snapshots: u64,
    source: Option<&'a str>,
    algorithm: Option<&'a str>,
    working_set: &'a WorkingSet,
    idle: &'a Idle,
    resident: Option<Resident>,
    resident_pages: Option<ResidentPages>,
    /// Targets in the total.
    #[serde(skip_serializing_if = "Option::is_none")]
    targets: Option<usize>,
    /// How often the total counts shared pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    shared: Option<Shared>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mappings: Option<&'a Mappings>,
    cost: Option<Cost>,
    #[serde(skip_serializing_if = "Option::is_none")]
    confidence: Option<Option<Confidence>>,
}

/// Writes one line of JSON per target, and one for all of them together.
pub fn write(summaries: &Summaries, out: &mut dyn Write) -> Result<(), ViewError> {
    let mut line = |json: SummaryJson<'_>| -> Result<(), ViewError> {
        serde_json::to_writer(&mut *out, &json)?;
        Ok(out.write_all(b"\n")?)
    };
    for s in &summaries.targets {
        line(SummaryJson {
            target: Some(s.target.info.target),
            pid: s.target.info.pid,
            name: Some(&s.target.info.name),
            start_ns: s.target.start_ns,
            end_ns: s.target.end_ns,
            snapshots: s.target.snapshots,
            source: s.run.as_ref().and_then(|r| told(&r.source)),
            algorithm: s.run.as_ref().and_then(|r| told(&r.algorithm)),
            working_set: &s.working_set,
            idle: &s.idle,
            resident: s.resident,
            resident_pages: s.pages,
            targets: None,
            shared: None,
            mappings: Some(&s.mappings),
            cost: s.cost,
            confidence: Some(s.confidence),
        })?;
    }
    let (t, all) = (&summaries.total, &summaries.targets);
    let run = all.first().and_then(|s| s.run.as_ref());
    line(SummaryJson {
        target: None,
        pid: None,
        name: None,
        start_ns: all.iter().map(|s| s.target.start_ns).min().unwrap_or(0),
        end_ns: all.iter().map(|s| s.target.end_ns).max().unwrap_or(0),
        snapshots: all.iter().map(|s| s.target.snapshots).sum(),
        source: run.and_then(|r| told(&r.source)),
        algorithm: run.and_then(|r| told(&r.algorithm)),
        working_set: &t.working_set,
        idle: &t.idle,
        resident: t.resident,
        resident_pages: t.pages,
        targets: Some(t.targets),
        shared: Some(t.shared),
        mappings: None,
        cost: t.cost,
        confidence: None,
    })
}
