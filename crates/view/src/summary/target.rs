//! Collects a target's summary from events.

use super::confidence::ConfidenceBuilder;
use super::idle::{Idle, watched_ns};
use super::mapping_pages::mapping_uses;
use super::mappings::MappingHeatBuilder;
use super::pages::{EXPLAINED_NS, PageFigures};
use super::working_set::WorkingSet;
use super::{Mappings, Resident, Summary};
use crate::overview::{Overview, TargetOverview};
use crate::series::{Measure, working_set_of};
use isotherm_core::event::{Event, RunInfo};
use isotherm_core::history::frame::{MappingPages, PageAges, sum};
use isotherm_core::mapping::Mapping;
use isotherm_core::snapshot::Snapshot;
use isotherm_core::target::Footprint;

/// A summary, and what a total needs beside it.
#[derive(Debug)]
pub(crate) struct TargetSummary {
    pub summary: Summary,
    /// Its pages at the end; `None` where only regions are known. They may be too young for figures of their own.
    pub ages: Option<PageAges>,
}

/// Collects a target's summary, but for what watching cost.
#[derive(Debug)]
pub(crate) struct SummaryBuilder {
    target: TargetOverview,
    run: Option<RunInfo>,
    base_ns: u64,
    /// By snapshots, and by the page history.
    sizes: (Vec<u64>, Vec<u64>),
    last: Option<Snapshot>,
    pages: Vec<MappingPages>,
    mappings_now: Vec<Mapping>,
    heat: MappingHeatBuilder,
    resident: Option<Resident>,
    confidence: ConfidenceBuilder,
}

impl SummaryBuilder {
    pub fn new(overview: &Overview, target: &TargetOverview) -> Self {
        Self {
            target: target.clone(),
            run: overview.run.clone(),
            base_ns: overview.start_ns,
            sizes: (Vec::new(), Vec::new()),
            last: None,
            pages: Vec::new(),
            mappings_now: Vec::new(),
            heat: MappingHeatBuilder::default(),
            resident: None,
            confidence: ConfidenceBuilder::default(),
        }
    }

    /// Takes an event of the target.
    pub fn add(&mut self, event: &Event) {
        match event {
            Event::Mappings { mappings, .. } => self.mappings_now.clone_from(mappings),
            Event::Snapshot(s) => {
                self.sizes.0.push(Measure::WorkingSet { min_rate: 0.0 }.of(s));
                self.heat.add(s, &self.mappings_now);
                self.confidence.add(s);
                self.last = Some(s.clone());
            }
            Event::Pages(f) => {
                self.sizes.1.extend(working_set_of(&f.total()));
                self.pages.clone_from(&f.mappings);
            }
            Event::Footprint(f) => self.resident = Some(resident(self.resident, f)),
            _ => {}
        }
    }

    /// Whether a summary can be drawn up: there was a snapshot.
    pub const fn is_enough(&self) -> bool {
        self.last.is_some()
    }

    /// The summary, but for its cost; `None`: there was no snapshot.
    pub fn finish(self) -> Option<TargetSummary> {
        let last = self.last.as_ref()?;
        let ages = sum(self.pages.iter().map(|m| &m.ages));
        let figures = PageFigures::of(std::iter::once(&ages));
        let (working_set, idle, mappings) = match &figures {
            Some(f) => (
                WorkingSet::of_pages(&self.sizes.1, f.windows()),
                f.idle(),
                Mappings::Pages(mapping_uses(&self.pages, &self.mappings_now, EXPLAINED_NS)),
            ),
            None => (
                WorkingSet::of_regions(&self.sizes.0),
                Idle::of(last, watched_ns(&self.target, last)),
                Mappings::Regions(self.heat.finish()),
            ),
        };
        let summary = Summary {
            working_set,
            idle,
            pages: figures.map(|f| f.resident()),
            mappings,
            confidence: self.confidence.finish(),
            target: self.target,
            run: self.run,
            base_ns: self.base_ns,
            resident: self.resident,
            cost: None,
        };
        Some(TargetSummary { summary, ages: (!self.pages.is_empty()).then_some(ages) })
    }
}

fn resident(before: Option<Resident>, f: &Footprint) -> Resident {
    let highest = before.map_or(f.rss, |b| b.highest.max(f.rss));
    Resident { last: f.rss, highest, vsz: f.vsz, swap: f.swap }
}
