//! All targets together.

use super::Summary;
use super::cost::Cost;
use super::idle::Idle;
use super::pages::{PageFigures, ResidentPages};
use super::working_set::WorkingSet;
use super::{Resident, target::TargetSummary};
use crate::overview::Overview;
use crate::series::{Measure, Point, SumBuilder, working_set_of};
use crate::units::NS_PER_S;
use isotherm_core::addr::PAGE_SIZE;
use isotherm_core::event::Event;
use isotherm_core::history::frame::PageAges;
use isotherm_core::history::together_frame::TogetherFrame;
use isotherm_core::target::{Footprint, TargetEnd};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};

/// A target that ended earlier than this before the end of the record is not part of what was there at its end, ns.
const LATE_NS: u64 = 2 * NS_PER_S;

/// What was last known of all targets together counts unless it is older than this at the end of the record, ns: it is
/// found out more seldom than what is known of each.
const TOGETHER_NS: u64 = 20 * NS_PER_S;

/// How often a page counts that several targets map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shared {
    /// Once.
    CountedOnce,
    /// Once for each target.
    CountedForEachTarget,
}

/// What all targets hold at the end of the record; those that ended before are left out.
#[derive(Debug, Clone, PartialEq)]
pub struct Total {
    pub targets: usize,
    /// Working set: percentiles over time, windows at the end.
    pub working_set: WorkingSet,
    pub idle: Idle,
    /// Present memory without a rest; `None` where only regions are known.
    pub pages: Option<ResidentPages>,
    /// The sum of the targets' resident memory; each of them counts what it shares.
    pub resident: Option<Resident>,
    /// How often shared pages count, in everything but `resident`.
    pub shared: Shared,
    pub cost: Option<Cost>,
}

/// Collects what is needed for the total beside the targets' own summaries.
#[derive(Debug, Default)]
pub(super) struct TotalBuilder {
    /// Targets that are summed up.
    wanted: HashSet<u32>,
    /// Whether these are all.
    all: bool,
    pages: SumBuilder,
    regions: SumBuilder,
    together: Vec<u64>,
    last_together: Option<TogetherFrame>,
    last_pages_ns: u64,
    footprints: HashMap<u32, Footprint>,
    highest: u64,
}

impl TotalBuilder {
    /// Of the targets with these numbers.
    pub fn new(overview: &Overview, wanted: impl Iterator<Item = u32>) -> Self {
        let wanted: HashSet<u32> = wanted.collect();
        Self { all: overview.targets.len() == wanted.len(), wanted, ..Self::default() }
    }

    pub fn add(&mut self, event: &Event) {
        match event {
            Event::Snapshot(s) if self.wanted.contains(&s.target) => {
                let value = Measure::WorkingSet { min_rate: 0.0 }.of(s);
                self.regions.add(s.target, Point { time_ns: s.end_ns, value }, s.aggr_us.saturating_mul(1000));
            }
            Event::Pages(f) if self.wanted.contains(&f.target) => {
                self.last_pages_ns = f.time_ns;
                if let Some(value) = working_set_of(&f.total()) {
                    let point = Point { time_ns: f.time_ns, value };
                    self.pages.add(f.target, point, f.time_ns.saturating_sub(f.since_ns));
                }
            }
            Event::Together(f) if self.all => {
                self.together.extend(working_set_of(&f.ages));
                self.last_together = Some(f.clone());
            }
            Event::Footprint(f) if self.wanted.contains(&f.target) => {
                self.footprints.insert(f.target, *f);
                self.highest = self.highest.max(self.footprints.values().map(|f| f.rss).sum());
            }
            Event::End { target, why: TargetEnd::Exited, .. } if self.footprints.len() > 1 => {
                self.footprints.remove(target);
            }
            _ => {}
        }
    }

    /// The total. `targets` are the summaries of all that were wanted.
    pub fn finish(self, overview: &Overview, targets: &[TargetSummary]) -> Total {
        let last_ns = overview.end_ns;
        let gone = |s: &Summary| matches!(s.target.ended, Some((at, TargetEnd::Exited)) if at + LATE_NS < last_ns);
        let there: Vec<&TargetSummary> = targets.iter().filter(|t| !gone(&t.summary)).collect();
        let there = if there.is_empty() { targets.iter().collect() } else { there };

        let once = self.last_together.filter(|f| f.time_ns + TOGETHER_NS >= self.last_pages_ns);
        let ages: Vec<&PageAges> = match &once {
            Some(f) => vec![&f.ages],
            None => there.iter().filter_map(|t| t.ages.as_ref()).collect(),
        };
        // Where only regions are known, no target has pages, and none is waited for.
        let waited_for = there.iter().filter(|t| !ages.is_empty() && t.ages.is_none());
        let unknown: Vec<PageAges> = waited_for.filter_map(|t| unknown(&self.footprints, t)).collect();
        let figures = PageFigures::of(ages.into_iter().chain(&unknown));
        let (working_set, idle) = match &figures {
            Some(f) => {
                let sizes =
                    if once.is_some() && !self.together.is_empty() { self.together } else { values(self.pages) };
                (WorkingSet::of_pages(&sizes, f.windows()), f.idle())
            }
            None => (WorkingSet::of_regions(&values(self.regions)), idle(&there)),
        };
        let one = there.len() == 1;
        Total {
            targets: there.len(),
            working_set,
            idle,
            pages: figures.map(|f| f.resident()),
            resident: resident(self.footprints.values(), self.highest),
            shared: if one || once.is_some() { Shared::CountedOnce } else { Shared::CountedForEachTarget },
            cost: there.iter().find_map(|t| t.summary.cost),
        }
    }
}

/// What there is of a target that was not walked twice: pages of which nothing is known yet.
fn unknown(footprints: &HashMap<u32, Footprint>, target: &TargetSummary) -> Option<PageAges> {
    let footprint = footprints.get(&target.summary.target.info.target)?;
    Some(PageAges { resident: footprint.rss / PAGE_SIZE, ..PageAges::default() })
}

fn values(sums: SumBuilder) -> Vec<u64> {
    sums.finish().into_iter().map(|p| p.value).collect()
}

fn idle(targets: &[&TargetSummary]) -> Idle {
    let mut all = targets.iter().map(|t| t.summary.idle);
    let mut sum = all.next().unwrap_or_else(Idle::nothing);
    all.for_each(|i| sum.add(&i));
    sum
}

fn resident<'a>(footprints: impl Iterator<Item = &'a Footprint>, highest: u64) -> Option<Resident> {
    footprints.fold(None, |sum: Option<Resident>, f| {
        let before = sum.unwrap_or(Resident { last: 0, highest, vsz: 0, swap: None });
        let swap = before.swap.map_or(f.swap, |s| Some(s + f.swap.unwrap_or(0)));
        Some(Resident { last: before.last + f.rss, vsz: before.vsz + f.vsz, swap, ..before })
    })
}
