//! A whole record in memory.

use crate::error::{ReadError, Warning};
use crate::input::{Input, read_events};
use crate::kind::Format;
use isotherm_core::event::{Event, Footprint, MonitorStats, RunInfo, TargetEnd, TargetInfo};
use isotherm_core::mapping::Mapping;
use isotherm_core::snapshot::Snapshot;
use std::collections::BTreeSet;
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

/// How much of a record to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadOptions {
    /// Most regions to hold over all snapshots (40 bytes each). Beyond, every second snapshot of each target is dropped,
    /// as often as needed; [`Warning::Thinned`] tells.
    pub max_regions: usize,
    /// Most mappings to hold over all times (64 bytes each and their names). Beyond, later changes are not kept.
    pub max_mappings: usize,
}

impl Default for LoadOptions {
    /// 16 Mi regions: 640 MiB. A record of 1000 regions at 100 ms fits whole up to 28 minutes.
    fn default() -> Self {
        Self { max_regions: 16 << 20, max_mappings: 2 << 20 }
    }
}

/// Everything in a record, in the order of time.
///
/// Memory: 40 bytes a region of each snapshot held, limited by [`LoadOptions`].
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
    /// Of so many successive snapshots of a target one is held: 1, or a power of two.
    pub thinned: u64,
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
        Self::load_with(path, LoadOptions::default())
    }

    /// Loads a record of any supported format within limits of one's own.
    pub fn load_with(path: impl AsRef<Path>, options: LoadOptions) -> Result<Self, ReadError> {
        let mut builder = Builder::new(options);
        let outcome = read_events(Input::open(path)?, None, &mut |event| {
            builder.add(event);
            Ok(())
        })?;
        let mut record = builder.finish(outcome.warnings);
        record.format = Some(outcome.format);
        Ok(record)
    }

    /// Builds a record from events, for example those of a [`Collector`](isotherm_core::event::Collector).
    pub fn from_events(events: impl IntoIterator<Item = Event>) -> Self {
        let mut builder = Builder::new(LoadOptions::default());
        events.into_iter().for_each(|e| builder.add(e));
        builder.finish(Vec::new())
    }

    /// The mappings of `target` that were in force at `time_ns`; before the first that are known, those. Empty where
    /// none are known.
    pub fn mappings_at(&self, time_ns: u64, target: u32) -> &[Mapping] {
        let of_target = || self.mappings.iter().filter(|m| m.target == target);
        let at = of_target().take_while(|m| m.time_ns <= time_ns).last().or_else(|| of_target().next());
        at.map_or(&[], |m| &m.mappings)
    }

    /// The snapshots of one target.
    pub fn snapshots_of(&self, target: u32) -> impl DoubleEndedIterator<Item = &Snapshot> {
        self.snapshots.iter().filter(move |s| s.target == target)
    }

    /// Indices of the targets that have snapshots or were named, ascending.
    pub fn target_ids(&self) -> Vec<u32> {
        let named = self.targets.iter().map(|t| t.target);
        named.chain(self.snapshots.iter().map(|s| s.target)).collect::<BTreeSet<_>>().into_iter().collect()
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

/// Collects events within limits.
#[derive(Debug)]
pub(crate) struct Builder {
    record: Record,
    options: LoadOptions,
    regions: usize,
    mappings: usize,
    dropped_mappings: u64,
    /// Snapshots seen, by target.
    seen: std::collections::HashMap<u32, u64>,
}

impl Builder {
    pub(crate) fn new(options: LoadOptions) -> Self {
        Self {
            record: Record { thinned: 1, ..Record::default() },
            options,
            regions: 0,
            mappings: 0,
            dropped_mappings: 0,
            seen: std::collections::HashMap::new(),
        }
    }

    pub(crate) fn add(&mut self, event: Event) {
        let r = &mut self.record;
        match event {
            Event::Run(run) => {
                r.run.get_or_insert(run);
            }
            // Repeated where a reader lost frames, or a record has parts.
            Event::Target(t) => {
                if r.target(t.target) != Some(&t) {
                    r.targets.push(t);
                }
            }
            Event::Mappings { time_ns, target, mappings } => {
                let last = r.mappings.iter().rev().find(|m| m.target == target);
                if last.is_some_and(|m| m.mappings == mappings) {
                    return;
                }
                if self.mappings + mappings.len() > self.options.max_mappings && last.is_some() {
                    self.dropped_mappings += 1;
                    return;
                }
                self.mappings += mappings.len();
                r.mappings.push(MappingsAt { time_ns, target, mappings });
            }
            Event::Snapshot(s) => self.add_snapshot(s),
            Event::Stats(s) => r.stats.push(s),
            Event::Footprint(f) => r.footprints.push(f),
            Event::End { time_ns, target, why } => r.ends.push(TargetEnded { time_ns, target, why }),
        }
    }

    fn add_snapshot(&mut self, snapshot: Snapshot) {
        let seen = self.seen.entry(snapshot.target).or_insert(0);
        let index = *seen;
        *seen += 1;
        if !index.is_multiple_of(self.record.thinned) {
            return;
        }
        self.regions += snapshot.regions.len();
        self.record.snapshots.push(snapshot);
        while self.regions > self.options.max_regions && self.record.snapshots.len() > self.seen.len() {
            self.thin();
        }
    }

    /// Drops every second snapshot of each target.
    fn thin(&mut self) {
        self.record.thinned *= 2;
        let mut index: std::collections::HashMap<u32, u64> = std::collections::HashMap::new();
        self.record.snapshots.retain(|s| {
            let i = index.entry(s.target).or_insert(0);
            *i += 1;
            *i % 2 == 1
        });
        self.record.snapshots.shrink_to_fit();
        self.regions = self.record.snapshots.iter().map(|s| s.regions.len()).sum();
    }

    pub(crate) fn finish(self, mut warnings: Vec<Warning>) -> Record {
        let mut record = self.record;
        // Formats that store target by target are not in the order of time.
        record.snapshots.sort_by_key(|s| s.end_ns);
        if record.thinned > 1 {
            warnings.push(Warning::Thinned { factor: record.thinned });
        }
        if self.dropped_mappings > 0 {
            warnings.push(Warning::DroppedMappings { count: self.dropped_mappings });
        }
        record.warnings = warnings;
        record
    }
}
