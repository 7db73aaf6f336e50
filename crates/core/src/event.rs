//! What leaves a monitor: snapshots, mappings, costs, and the life of targets. Recorders and views consume these.

use crate::attrs::MonitorAttrs;
use crate::history::frame::PageFrame;
use crate::history::together_frame::TogetherFrame;
use crate::mapping::Mapping;
use crate::snapshot::Snapshot;
use crate::source::AccessSource;
use crate::target::{Footprint, TargetEnd, TargetInfo};
use serde::{Deserialize, Serialize};

/// How a run observes, as chosen by the user and in force at its start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// Source in use: `pagetable`, `idle`, `damon`, `refs`, `sim`; empty where the record was imported from elsewhere.
    pub source: String,
    /// `isotherm` or `damon`; empty where the kernel's own engine runs or the record was imported from elsewhere.
    pub algorithm: String,
    /// Attributes at the start.
    pub attrs: MonitorAttrs,
    /// CPU budget as a fraction of one core; `None`: unlimited.
    pub cpu_budget: Option<f64>,
    /// Kernel release.
    pub kernel: String,
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC in ns at the start, to turn snapshot times into wall-clock times; 0
    /// where nobody knows.
    pub realtime_offset_ns: i64,
}

/// How the monitor observes at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Some pages of each region.
    Sample,
    /// Every mapped page once per aggregation interval.
    Scan,
}

/// The monitor's own state and cost. Counters are totals since the start.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MonitorStats {
    /// When, ns of CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// CPU time of the monitor, ns.
    pub monitor_ns: u64,
    /// Estimated CPU time the targets lost to it, ns.
    pub target_ns: u64,
    /// Page observations.
    pub checks: u64,
    /// Accessed bits cleared.
    pub clears: u64,
    /// Regions at present, over all targets.
    pub nr_regions: u32,
    /// How it observes.
    pub mode: Mode,
    /// Sampling interval in force, microseconds.
    pub sample_us: u64,
    /// Aggregation interval in force, microseconds.
    pub aggr_us: u64,
    /// Sampling steps that began late by more than a sampling interval.
    pub late_samples: u64,
}

/// Everything that a record holds, in the order it happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    /// First event of a run.
    Run(RunInfo),
    /// A target was added.
    Target(TargetInfo),
    /// The target's mappings, whenever they changed.
    Mappings {
        /// When, ns of CLOCK_MONOTONIC.
        time_ns: u64,
        /// Which target.
        target: u32,
        /// All mappings, sorted.
        mappings: Vec<Mapping>,
    },
    /// The end of an aggregation interval.
    Snapshot(Snapshot),
    /// The monitor's own cost, about once a second.
    Stats(MonitorStats),
    /// Resident memory, about once a second.
    Footprint(Footprint),
    /// What the page history says of a target, about once a second.
    Pages(PageFrame),
    /// What it says of all targets together, where there are several and pages that they share can be known.
    Together(TogetherFrame),
    /// A target ended.
    End {
        /// When, ns of CLOCK_MONOTONIC.
        time_ns: u64,
        /// Which target.
        target: u32,
        /// Why.
        why: TargetEnd,
    },
}

impl Event {
    /// Which target it is of; `None`: of the run, or of all targets together.
    pub const fn target(&self) -> Option<u32> {
        match self {
            Self::Mappings { target, .. } | Self::End { target, .. } => Some(*target),
            Self::Snapshot(s) => Some(s.target),
            Self::Footprint(f) => Some(f.target),
            Self::Pages(f) => Some(f.target),
            Self::Target(t) => Some(t.target),
            Self::Run(_) | Self::Stats(_) | Self::Together(_) => None,
        }
    }

    /// Calls `f` with every text in it that somebody else has chosen.
    pub fn each_name(&mut self, mut f: impl FnMut(&mut String)) {
        match self {
            Self::Run(run) => [&mut run.source, &mut run.algorithm, &mut run.kernel].into_iter().for_each(f),
            Self::Target(target) => f(&mut target.name),
            Self::Mappings { mappings, .. } => mappings.iter_mut().for_each(|m| f(&mut m.name)),
            Self::Snapshot(_)
            | Self::Stats(_)
            | Self::Footprint(_)
            | Self::Pages(_)
            | Self::Together(_)
            | Self::End { .. } => {}
        }
    }
}

/// A step of the monitor's loop, for subscribers that want to look inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Before pages are prepared for a sampling interval.
    BeforeSample,
    /// After the pages were checked.
    AfterSample,
    /// Before the figures of an aggregation interval are drawn up.
    BeforeAggregate,
    /// After regions were merged and split.
    AfterAggregate,
    /// Before the mappings are read again.
    BeforeUpdate,
    /// After regions follow the new mappings.
    AfterUpdate,
    /// The time that a subscriber [wanted](Subscriber::wanted_ns) has come.
    Wanted,
}

/// Sees what a monitor does. No method does anything unless overridden.
pub trait Subscriber {
    /// An event, in order of time. An error stops the run (a full disk, say) and is handed to the caller.
    fn event(&mut self, event: &Event) -> Result<(), SubscriberError> {
        let _ = event;
        Ok(())
    }

    /// A step of the loop at `now_ns`.
    fn step(&mut self, step: Step, now_ns: u64) {
        let _ = (step, now_ns);
    }

    /// The same, from an engine that observes through an access source, which may be used meanwhile. Hands on to
    /// [`step`](Self::step) unless overridden.
    fn step_with(&mut self, step: Step, now_ns: u64, source: &mut dyn AccessSource) {
        let _ = source;
        self.step(step, now_ns);
    }

    /// When a [`Step::Wanted`] is wished for next, ns on the clock; asked again after each step. `None`: never.
    fn wanted_ns(&self) -> Option<u64> {
        None
    }
}

/// An error of a subscriber, passed through.
pub type SubscriberError = Box<dyn std::error::Error + Send + Sync>;

/// Collects events in memory; for tests and small tools.
#[derive(Debug, Default, Clone)]
pub struct Collector {
    /// What came, in order.
    pub events: Vec<Event>,
}

impl Collector {
    /// The snapshots among the events.
    pub fn snapshots(&self) -> impl Iterator<Item = &Snapshot> {
        self.events.iter().filter_map(|e| match e {
            Event::Snapshot(s) => Some(s),
            _ => None,
        })
    }
}

impl Subscriber for Collector {
    fn event(&mut self, event: &Event) -> Result<(), SubscriberError> {
        self.events.push(event.clone());
        Ok(())
    }
}
