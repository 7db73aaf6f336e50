//! Draws the figures up from the state, about once a second.

use super::model::{Model, Row, Total};
use super::state::{TargetState, Top};
use crate::heat::axis::Layout;
use crate::heat::map::{HeatMap, HeatOptions};
use crate::overview::Overview;
use crate::series::distribution::Distribution;
use crate::summary::cost::Cost;
use crate::summary::idle::{Idle, watched_ns};
use crate::summary::mapping_pages::{MappingUse, mapping_uses};
use crate::summary::mappings::{MappingHeat, MappingHeatBuilder, cold_by_name};
use crate::summary::pages::{EXPLAINED_NS, PageFigures};
use crate::units::NS_PER_S;
use isotherm_core::addr::AddrRange;
use isotherm_core::history::frame::{PageAges, PageFrame};
use isotherm_core::target::TargetEnd;
use std::collections::HashMap;

/// The table's figures are means over this time (or one aggregation interval, if that is longer).
const NOW_NS: u64 = NS_PER_S;
/// The time that the heatmap spans at least, ns.
const SPAN_NS: u64 = 60 * NS_PER_S;
/// Working-set sizes for the small curve.
const CURVE: usize = 60;

impl Top {
    /// Draws up the figures anew, with a heatmap of `rows` by `cols` cells; not while paused.
    pub fn refresh(&mut self, rows: usize, cols: usize) {
        if (self.paused && self.model.is_some()) || self.machine_shown().is_some() {
            return;
        }
        self.turn_to_largest();
        let Some(t) = self.targets.get(self.current) else { return };
        let Some(last) = t.history.newest_first().next() else { return };
        let sizes = Distribution::of(t.history.points());
        let mut model = Model {
            title: t.overview.title(),
            position: (self.current, self.targets.len()),
            watched_ns: t.overview.end_ns.saturating_sub(t.overview.start_ns),
            exited: t.overview.ended.is_some(),
            working_set: t.history.points().last().map_or(0, |p| p.value),
            percentiles: (sizes.percentile(50.0).unwrap_or(0), sizes.percentile(95.0).unwrap_or(0)),
            curve: t.history.points().iter().rev().take(CURVE).rev().map(|p| p.value).collect(),
            rss: t.footprint.map(|f| f.rss),
            idle: match t.history.pages().and_then(|f| PageFigures::of(std::iter::once(&f.total()))) {
                Some(figures) => figures.idle(),
                None => Idle::of(last, watched_ns(&t.overview, last)),
            },
            total: self.total(),
            cost: self.cost(),
            rows: table(t),
            heatmap: None,
            zoomed_to: None,
        };
        model.sort(self.order);
        self.selected = self.selected.min(model.rows.len().saturating_sub(1));
        model.zoomed_to = self.zoomed.then(|| model.rows.get(self.selected).map(|r| r.heat.name.clone())).flatten();
        model.heatmap = heatmap(t, model.zoomed_to.as_deref(), rows, cols);
        self.model = Some(model);
    }

    fn total(&self) -> Option<Total> {
        let live = |t: &&TargetState| !matches!(t.overview.ended, Some((_, TargetEnd::Exited)));
        let pages: Vec<PageAges> =
            self.targets.iter().filter(live).filter_map(|t| t.history.pages().map(PageFrame::total)).collect();
        if pages.len() < 2 {
            return None;
        }
        let (once, figures) = match &self.together {
            Some(f) => (true, PageFigures::of(std::iter::once(&f.ages))),
            None => (false, PageFigures::of(pages.iter())),
        };
        Some(Total { targets: pages.len(), once, figures: figures? })
    }

    pub(super) fn cost(&self) -> Option<Cost> {
        Cost::between(self.stats.front()?, self.stats.back()?, self.run.as_ref())
    }
}

fn table(t: &TargetState) -> Vec<Row> {
    let mappings = t.history.mappings();
    let mut heat =
        if t.history.pages().is_some() { MappingHeatBuilder::by_mapping() } else { MappingHeatBuilder::default() };
    let newest = t.history.newest_first().next();
    let from = newest.map_or(0, |s| s.start_ns.min(s.end_ns.saturating_sub(NOW_NS)));
    for s in t.history.newest_first().take_while(|s| s.start_ns >= from) {
        heat.add(s, mappings);
    }
    let heat = heat.finish();
    if let Some(frame) = t.history.pages() {
        let rates: HashMap<&str, f64> = heat.iter().map(|h| (h.name.as_str(), h.rate)).collect();
        return mapping_uses(&frame.mappings, mappings, EXPLAINED_NS)
            .into_iter()
            .map(|u| row_of_pages(u, &rates))
            .collect();
    }
    let cold = newest.map(|s| cold_by_name(s, mappings, 10 * NS_PER_S)).unwrap_or_default();
    heat.into_iter().map(|h| Row { cold: cold.get(&h.name).copied().unwrap_or(0), heat: h }).collect()
}

/// Sizes are those of pages; how often they are accessed only regions tell.
fn row_of_pages(u: MappingUse, rates: &HashMap<&str, f64>) -> Row {
    let rate = rates.get(u.name.as_str()).copied().unwrap_or(0.0);
    let blind = u.pages.not_observable == u.pages.resident;
    let (bytes, not_observable) = if blind { (0, u.bytes) } else { (u.bytes, 0) };
    let (accessed, cold) = (u.pages.accessed, u.pages.cold);
    Row { cold, heat: MappingHeat { name: u.name, bytes, accessed, rate, not_observable, not_visited: 0 } }
}

fn heatmap(t: &TargetState, only: Option<&str>, rows: usize, cols: usize) -> Option<HeatMap> {
    let address_range = only.and_then(|name| {
        let mut of_name = t
            .history
            .mappings()
            .iter()
            .filter(|m| crate::names::full(m) == name || crate::names::row(m) == name)
            .map(|m| m.range);
        let first = of_name.next()?;
        Some(of_name.fold(first, |all, r| AddrRange::new(all.start.min(r.start), all.end.max(r.end))))
    });
    let last = t.history.newest_first().next()?;
    let interval_ns = last.end_ns.saturating_sub(last.start_ns).max(1);
    // Columns are whole numbers of seconds (or intervals) that do not move from one drawing to the next.
    let column_ns = SPAN_NS.div_ceil(cols.max(1) as u64).next_multiple_of(NS_PER_S / 2).max(interval_ns);
    let end_ns = last.end_ns.next_multiple_of(column_ns);
    let start_ns = end_ns.saturating_sub(column_ns * cols as u64);
    let overview = Overview {
        run: None,
        targets: vec![t.overview.clone()],
        start_ns: t.overview.start_ns,
        end_ns: t.overview.end_ns,
    };
    let options = HeatOptions { rows, cols, time_range: None, address_range, layout: Layout::Accessed };
    HeatMap::between(&t.history, &overview, &t.overview, &options, (start_ns, end_ns)).ok()
}
