//! Draws the figures up from the state, about once a second.

use super::history::History;
use super::model::{Model, Row, Total, WorkingSetNow};
use super::state::{TargetState, Top};
use crate::heat::axis::Layout;
use crate::heat::map::{HeatMap, HeatOptions};
use crate::names;
use crate::overview::Overview;
use crate::series::distribution::Distribution;
use crate::summary::cost::Cost;
use crate::summary::idle::{Idle, watched_ns};
use crate::summary::mapping_pages::{MappingUse, mapping_uses};
use crate::summary::mappings::{MappingHeat, MappingHeatBuilder, cold_by_name};
use crate::summary::pages::{EXPLAINED_NS, PageFigures};
use isotherm_core::addr::{AddrRange, normalize};
use isotherm_core::event::RunInfo;
use isotherm_core::history::frame::{PageAges, PageFrame};
use isotherm_core::mapping::Mapping;
use isotherm_core::units::NS_PER_S;
use std::borrow::Cow;
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
        self.forget_ended();
        let Some(t) = self.current.and_then(|target| self.targets.get(&target)) else { return };
        let Some(last) = t.history.newest_first().next() else { return };
        let mut model = Model {
            title: t.overview.title(),
            position: (self.position(), self.targets.len()),
            watched_ns: t.overview.end_ns.saturating_sub(t.overview.start_ns),
            exited: t.overview.ended.is_some(),
            working_set: working_set(&t.history, self.run.as_ref()),
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
        self.selection.follow(&model.rows);
        let only = model.rows.get(self.selection.row()).filter(|_| self.selection.is_zoomed());
        model.heatmap = heatmap(t, only, rows, cols);
        model.zoomed_to = only.map(|row| row.heat.name.clone());
        self.model = Some(model);
    }

    fn total(&self) -> Option<Total> {
        let live = self.targets.values().filter(|t| !t.has_exited());
        let pages: Vec<PageAges> = live.filter_map(|t| t.history.pages().map(PageFrame::total)).collect();
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

/// What little is known of regions while pages are still to come is not the working set: at a small budget few have been
/// looked at by then.
fn working_set(history: &History, run: Option<&RunInfo>) -> Option<WorkingSetNow> {
    let knows_pages = run.is_some_and(|run| matches!(run.source.as_str(), "pagetable" | "idle"));
    let points = if knows_pages { history.page_points() } else { history.points() };
    let sizes = Distribution::of(points);
    Some(WorkingSetNow { last: points.last()?.value, p50: sizes.percentile(50.0)?, p95: sizes.percentile(95.0)? })
}

/// Where the mappings of each name are. `apart`: anonymous ones without a name go by their addresses.
fn pieces_by_name(mappings: &[Mapping], apart: bool) -> HashMap<Cow<'_, str>, Vec<AddrRange>> {
    let mut pieces: HashMap<Cow<'_, str>, Vec<AddrRange>> = HashMap::new();
    for m in mappings {
        let name = if apart { names::row(m) } else { names::full(m).into() };
        pieces.entry(name).or_default().push(m.range);
    }
    pieces.values_mut().for_each(normalize);
    pieces
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
        let mut pieces = pieces_by_name(mappings, true);
        let rates: HashMap<&str, f64> = heat.iter().map(|h| (h.name.as_str(), h.rate)).collect();
        return mapping_uses(&frame.mappings, mappings, EXPLAINED_NS)
            .into_iter()
            .map(|u| row_of_pages(u, &rates, &mut pieces))
            .collect();
    }
    let cold = newest.map(|s| cold_by_name(s, mappings, 10 * NS_PER_S)).unwrap_or_default();
    let mut pieces = pieces_by_name(mappings, false);
    let row = |heat: MappingHeat| Row {
        cold: cold.get(&heat.name).copied().unwrap_or(0),
        pieces: pieces.remove(heat.name.as_str()).unwrap_or_default(),
        heat,
    };
    heat.into_iter().map(row).collect()
}

/// Sizes are those of pages; how often they are accessed only regions tell.
fn row_of_pages(u: MappingUse, rates: &HashMap<&str, f64>, pieces: &mut HashMap<Cow<'_, str>, Vec<AddrRange>>) -> Row {
    let rate = rates.get(u.name.as_str()).copied().unwrap_or(0.0);
    let blind = u.pages.not_observable == u.pages.resident;
    let (bytes, not_observable) = if blind { (0, u.bytes) } else { (u.bytes, 0) };
    let (accessed, cold) = (u.pages.accessed, u.pages.cold);
    let pieces = pieces.remove(u.name.as_str()).unwrap_or_default();
    Row { cold, pieces, heat: MappingHeat { name: u.name, bytes, accessed, rate, not_observable, not_visited: 0 } }
}

/// `only`: the mapping that alone is shown, without what lies between its pieces.
fn heatmap(t: &TargetState, only: Option<&Row>, rows: usize, cols: usize) -> Option<HeatMap> {
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
    let layout = if only.is_some() { Layout::Everything } else { Layout::Accessed };
    let options = HeatOptions { rows, cols, time_range: None, address_range: None, layout };
    let time = (start_ns, end_ns);
    match only.filter(|row| !row.pieces.is_empty()) {
        Some(row) => HeatMap::between(&t.history.within(&row.pieces), &overview, &t.overview, &options, time).ok(),
        None => HeatMap::between(&t.history, &overview, &t.overview, &options, time).ok(),
    }
}
