//! A whole record in memory.

use crate::error::{ReadError, Warning};
use crate::input::Input;
use crate::kind::Format;
use crate::read_events::read_events;
use isotherm_core::event::{Event, MonitorStats, RunInfo};
use isotherm_core::history::frame::{IdlePages, MappingPages, PageFrame, TablePages, TogetherFrame};
use isotherm_core::mapping::Mapping;
use isotherm_core::snapshot::Snapshot;
use isotherm_core::target::{Footprint, TargetEnd, TargetInfo};
use std::collections::{BTreeSet, HashMap};
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
    /// Most memory for snapshots, in bytes: 40 a region and 96 a snapshot. Beyond, every second snapshot of each target
    /// is dropped, as often as needed; [`Warning::Thinned`] tells.
    pub snapshot_bytes: usize,
    /// Most memory for mappings, in bytes: 64 each and their names. Beyond, later changes are not kept;
    /// [`Warning::DroppedMappings`] tells.
    pub mapping_bytes: usize,
    /// Most memory for what the page history says of targets, in bytes. Beyond, every second frame of each target is
    /// dropped, as often as needed; [`Warning::ThinnedPages`] tells.
    pub page_bytes: usize,
}

impl Default for LoadOptions {
    /// 640 MiB, 128 MiB and 256 MiB. A record of 1000 regions at 100 ms is held whole up to 28 minutes, the pages of a
    /// process of 4 GiB for about an hour.
    fn default() -> Self {
        Self { snapshot_bytes: 640 << 20, mapping_bytes: 128 << 20, page_bytes: 256 << 20 }
    }
}

/// Most figures of each kind (costs, footprints) to hold; beyond, every second is dropped.
const MAX_FIGURES: usize = 1 << 20;
/// Most frames about all targets together to hold (about 600 bytes each); beyond, every second is dropped.
const MAX_TOGETHER: usize = 1 << 16;
/// Most targets, and ends of targets, to hold.
const MAX_TARGETS: usize = 1 << 18;

/// Everything in a record, in the order of time.
///
/// Memory is limited by [`LoadOptions`]; figures beside the snapshots take at most 200 MiB more. Views that need no
/// random access are better off with [`read_events`], which holds one snapshot at a time.
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
    /// What the page history says of each target.
    pub pages: Vec<PageFrame>,
    /// What it says of all targets together.
    pub together: Vec<TogetherFrame>,
    /// Of so many successive frames of a target's pages one is held: 1, or a power of two.
    pub thinned_pages: u64,
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
    snapshots: Thinning,
    pages: Thinning,
    mapping_bytes: usize,
    dropped_mappings: u64,
    /// Index of each target's last entry.
    last_target: HashMap<u32, usize>,
    last_mappings: HashMap<u32, usize>,
}

/// Something of a target that comes again and again.
trait OfTarget {
    fn target(&self) -> u32;
    /// Bytes of memory.
    fn cost(&self) -> usize;
}

impl OfTarget for Snapshot {
    fn target(&self) -> u32 {
        self.target
    }

    fn cost(&self) -> usize {
        96 + 40 * self.regions.len()
    }
}

impl OfTarget for PageFrame {
    fn target(&self) -> u32 {
        self.target
    }

    fn cost(&self) -> usize {
        let thresholds: usize = self.mappings.iter().map(|m| m.ages.idle.len()).sum();
        size_of::<Self>()
            + self.mappings.len() * size_of::<MappingPages>()
            + thresholds * size_of::<IdlePages>()
            + self.tables.len() * size_of::<TablePages>()
    }
}

/// Keeps a list within its share of memory.
#[derive(Debug)]
struct Thinning {
    limit: usize,
    bytes: usize,
    /// Of so many one is kept.
    factor: u64,
    /// How many came, by target.
    seen: HashMap<u32, u64>,
}

impl Thinning {
    fn new(limit: usize) -> Self {
        Self { limit, bytes: 0, factor: 1, seen: HashMap::new() }
    }

    fn add<T: OfTarget>(&mut self, list: &mut Vec<T>, entry: T) {
        let seen = self.seen.entry(entry.target()).or_insert(0);
        let index = *seen;
        *seen += 1;
        if !index.is_multiple_of(self.factor) {
            return;
        }
        self.bytes += entry.cost();
        list.push(entry);
        // One of each target is kept in any case.
        while self.bytes > self.limit && list.len() > self.seen.len() {
            halve(list, T::target);
            self.factor *= 2;
            self.bytes = list.iter().map(T::cost).sum();
        }
    }
}

/// Drops every second entry of each target.
fn halve<T>(list: &mut Vec<T>, target: impl Fn(&T) -> u32) {
    let mut index: HashMap<u32, u64> = HashMap::new();
    list.retain(|entry| {
        let i = index.entry(target(entry)).or_insert(0);
        *i += 1;
        *i % 2 == 1
    });
    list.shrink_to_fit();
}

impl Builder {
    pub(crate) fn new(options: LoadOptions) -> Self {
        Self {
            record: Record::default(),
            snapshots: Thinning::new(options.snapshot_bytes),
            pages: Thinning::new(options.page_bytes),
            options,
            mapping_bytes: 0,
            dropped_mappings: 0,
            last_target: HashMap::new(),
            last_mappings: HashMap::new(),
        }
    }

    pub(crate) fn add(&mut self, event: Event) {
        let r = &mut self.record;
        match event {
            Event::Run(run) => {
                r.run.get_or_insert(run);
            }
            Event::Pages(f) => self.pages.add(&mut r.pages, f),
            Event::Together(f) => {
                r.together.push(f);
                if r.together.len() > MAX_TOGETHER {
                    halve(&mut r.together, |_| 0);
                }
            }
            Event::Target(t) => {
                // Repeated where a reader lost frames, or a record has parts.
                let known = self.last_target.get(&t.target).is_some_and(|&i| r.targets[i] == t);
                if !known && r.targets.len() < MAX_TARGETS {
                    self.last_target.insert(t.target, r.targets.len());
                    r.targets.push(t);
                }
            }
            Event::Mappings { time_ns, target, mappings } => self.add_mappings(time_ns, target, mappings),
            Event::Snapshot(s) => self.snapshots.add(&mut r.snapshots, s),
            Event::Stats(s) => {
                r.stats.push(s);
                if r.stats.len() > MAX_FIGURES {
                    halve(&mut r.stats, |_| 0);
                }
            }
            Event::Footprint(f) => {
                r.footprints.push(f);
                if r.footprints.len() > MAX_FIGURES {
                    halve(&mut r.footprints, |f| f.target);
                }
            }
            Event::End { time_ns, target, why } => {
                if r.ends.len() < MAX_TARGETS {
                    r.ends.push(TargetEnded { time_ns, target, why });
                }
            }
        }
    }

    fn add_mappings(&mut self, time_ns: u64, target: u32, mappings: Vec<Mapping>) {
        let last = self.last_mappings.get(&target).map(|&i| &self.record.mappings[i]);
        if last.is_some_and(|m| m.mappings == mappings) {
            return;
        }
        let bytes: usize = mappings.iter().map(|m| 64 + m.name.len()).sum::<usize>() + 48;
        if self.mapping_bytes + bytes > self.options.mapping_bytes {
            self.dropped_mappings += 1;
            return;
        }
        self.mapping_bytes += bytes;
        self.last_mappings.insert(target, self.record.mappings.len());
        self.record.mappings.push(MappingsAt { time_ns, target, mappings });
    }

    pub(crate) fn finish(self, mut warnings: Vec<Warning>) -> Record {
        let mut record = self.record;
        (record.thinned, record.thinned_pages) = (self.snapshots.factor, self.pages.factor);
        if record.thinned > 1 {
            warnings.push(Warning::Thinned { factor: record.thinned });
        }
        if record.thinned_pages > 1 {
            warnings.push(Warning::ThinnedPages { factor: record.thinned_pages });
        }
        if self.dropped_mappings > 0 {
            warnings.push(Warning::DroppedMappings { count: self.dropped_mappings });
        }
        record.warnings = warnings;
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::snapshot::RegionInfo;

    fn snapshot(target: u32, i: u64, regions: u64) -> Event {
        let region = |j| RegionInfo {
            start: j * 8192,
            end: j * 8192 + 4096,
            nr_accesses: 1,
            age: 0,
            evidence: None,
            accessed: None,
        };
        Event::Snapshot(Snapshot {
            target,
            pid: None,
            start_ns: i * 100,
            end_ns: i * 100 + 100,
            sample_us: 5000,
            aggr_us: 100_000,
            max_nr_accesses: 20,
            regions: (0..regions).map(region).collect(),
        })
    }

    #[test]
    fn a_long_record_is_thinned_evenly() {
        let options = LoadOptions { snapshot_bytes: 100_000, ..LoadOptions::default() };
        let mut builder = Builder::new(options);
        for i in 0..1000 {
            builder.add(snapshot(0, i, 20));
            builder.add(snapshot(7, i, 5));
        }
        let record = builder.finish(Vec::new());
        assert!(record.thinned.is_power_of_two() && record.thinned >= 8, "{}", record.thinned);
        assert_eq!(record.warnings, [Warning::Thinned { factor: record.thinned }]);
        for target in record.target_ids() {
            let starts: Vec<u64> = record.snapshots_of(target).map(|s| s.start_ns / 100).collect();
            let expected: Vec<u64> = (0..1000).step_by(record.thinned as usize).collect();
            assert_eq!(starts, expected, "target {target}");
        }
        assert!(record.snapshots.iter().map(OfTarget::cost).sum::<usize>() <= 100_000);
    }

    #[test]
    fn pages_are_thinned_on_their_own() {
        let mut builder = Builder::new(LoadOptions { page_bytes: 50_000, ..LoadOptions::default() });
        for i in 0..100 {
            let tables = (0..64).map(|n| TablePages { base: n << 21, present: 512, accessed: 1 }).collect();
            builder.add(snapshot(0, i, 20));
            builder.add(Event::Pages(PageFrame {
                time_ns: i * 100 + 100,
                since_ns: i * 100,
                begin_ns: 0,
                walk_ns: 10,
                target: 0,
                one_in: 1,
                mappings: Vec::new(),
                tables,
            }));
        }
        let record = builder.finish(Vec::new());
        assert_eq!((record.snapshots.len(), record.thinned, record.thinned_pages), (100, 1, 4));
        assert_eq!(record.warnings, [Warning::ThinnedPages { factor: 4 }]);
        assert_eq!(record.pages.iter().map(|f| f.since_ns).take(3).collect::<Vec<_>>(), [0, 400, 800]);
    }

    #[test]
    fn a_huge_snapshot_is_kept() {
        let options = LoadOptions { snapshot_bytes: 10, ..LoadOptions::default() };
        let mut builder = Builder::new(options);
        builder.add(snapshot(0, 0, 100));
        builder.add(snapshot(1, 0, 100));
        assert_eq!(builder.finish(Vec::new()).snapshots.len(), 2);
    }

    #[test]
    fn mappings_are_those_in_force() {
        let at = |time_ns, start| Event::Mappings { time_ns, target: 0, mappings: vec![Mapping::anon(start, 1 << 20)] };
        let record = Record::from_events([at(100, 0), at(150, 0), at(200, 4096)]);
        assert_eq!(record.mappings.len(), 2, "repetitions are not kept");
        let start = |t| record.mappings_at(t, 0)[0].range.start;
        assert_eq!((start(0), start(100), start(199), start(200)), (0, 0, 0, 4096));
        assert!(record.mappings_at(100, 1).is_empty());
    }
}
