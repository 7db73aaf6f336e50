//! A whole record in memory.

use crate::error::{ReadError, Warning};
use crate::input::Input;
use crate::kind::Format;
use crate::read_events::read_events;
use isotherm_core::event::{Event, MonitorStats, RunInfo};
use isotherm_core::history::frame::PageFrame;
use isotherm_core::history::together_frame::TogetherFrame;
use isotherm_core::mapping::Mapping;
use isotherm_core::snapshot::Snapshot;
use isotherm_core::target::{Footprint, TargetEnd, TargetInfo};
use std::path::Path;

/// A target's mappings from a time on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappingsAt {
    /// Since when, ns of CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// Which target.
    pub target: u32,
    /// All mappings, sorted.
    pub mappings: Vec<Mapping>,
}

/// The end of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TargetEnded {
    /// When, ns of CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// Which target.
    pub target: u32,
    /// Why.
    pub why: TargetEnd,
}

/// Everything in a record, in the order of time.
///
/// It needs memory for all of it. What goes through a record once does better with [`read_events`], which holds one
/// snapshot at a time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Record {
    /// The format it was in; `None` if it never was in a file.
    pub format: Option<Format>,
    /// How the run observed; `None` where the format does not tell.
    pub run: Option<RunInfo>,
    /// Targets in the order they came. A target that executed another program appears again under the same index.
    pub targets: Vec<TargetInfo>,
    /// Mappings, whenever they changed.
    pub mappings: Vec<MappingsAt>,
    /// Snapshots of all targets.
    pub snapshots: Vec<Snapshot>,
    /// What the page history says of each target.
    pub pages: Vec<PageFrame>,
    /// What it says of all targets together.
    pub together: Vec<TogetherFrame>,
    /// The monitor's cost.
    pub stats: Vec<MonitorStats>,
    /// Resident memory.
    pub footprints: Vec<Footprint>,
    /// Ends of targets.
    pub ends: Vec<TargetEnded>,
    /// What was noticed on reading.
    pub warnings: Vec<Warning>,
}

impl Record {
    /// Loads a record of any supported format.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ReadError> {
        let mut record = Self::default();
        let outcome = read_events(Input::open(path)?, None, &mut |event| {
            record.add(event);
            Ok(())
        })?;
        (record.format, record.warnings) = (Some(outcome.format), outcome.warnings);
        Ok(record)
    }

    /// Builds a record from events, for example those of a [`Collector`](isotherm_core::event::Collector).
    pub fn from_events(events: impl IntoIterator<Item = Event>) -> Self {
        let mut record = Self::default();
        events.into_iter().for_each(|event| record.add(event));
        record
    }

    /// What is known of a target; the last where it was replaced.
    pub fn target(&self, target: u32) -> Option<&TargetInfo> {
        self.targets.iter().rev().find(|t| t.target == target)
    }

    /// Begin of the first and end of the last snapshot, ns of CLOCK_MONOTONIC.
    pub fn time_span(&self) -> Option<(u64, u64)> {
        let start = self.snapshots.iter().map(|s| s.start_ns).min()?;
        let end = self.snapshots.iter().map(|s| s.end_ns).max()?;
        Some((start, end))
    }
}

impl Record {
    fn add(&mut self, event: Event) {
        match event {
            Event::Run(run) => {
                self.run.get_or_insert(run);
            }
            Event::Pages(f) => self.pages.push(f),
            Event::Together(f) => self.together.push(f),
            // Repeated where a reader lost frames, or a record has parts.
            Event::Target(t) if self.target(t.target) == Some(&t) => {}
            Event::Target(t) => self.targets.push(t),
            Event::Mappings { time_ns, target, mappings } => {
                let last = self.mappings.iter().rev().find(|m| m.target == target);
                if last.is_none_or(|m| m.mappings != mappings) {
                    self.mappings.push(MappingsAt { time_ns, target, mappings });
                }
            }
            Event::Snapshot(s) => self.snapshots.push(s),
            Event::Stats(s) => self.stats.push(s),
            Event::Footprint(f) => self.footprints.push(f),
            Event::End { time_ns, target, why } => self.ends.push(TargetEnded { time_ns, target, why }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_kept_where_they_change() {
        let at = |time_ns, start| Event::Mappings { time_ns, target: 0, mappings: vec![Mapping::anon(start, 1 << 20)] };
        let record = Record::from_events([at(100, 0), at(150, 0), at(200, 4096)]);
        let kept: Vec<_> = record.mappings.iter().map(|m| (m.time_ns, m.mappings[0].range.start)).collect();
        assert_eq!(kept, [(100, 0), (200, 4096)]);
    }
}
