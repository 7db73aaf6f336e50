//! The last minutes of a target, with bounded memory.

use crate::error::ViewError;
use crate::replay::{Replay, Sink};
use crate::series::{Measure, Point, working_set_of};
use isotherm_core::addr::AddrRange;
use isotherm_core::event::Event;
use isotherm_core::history::frame::{MappingPages, PageAges, PageFrame};
use isotherm_core::mapping::Mapping;
use isotherm_core::snapshot::Snapshot;
use std::collections::VecDeque;

/// Snapshots older than this are dropped.
const WINDOW_NS: u64 = 300_000_000_000;
/// Most regions held (40 bytes each); beyond, the oldest snapshots go first.
const MAX_REGIONS: usize = 150_000;
/// Most working-set sizes held; beyond, every second one is dropped.
const MAX_POINTS: usize = 20_000;

/// Most page tables held (16 bytes each); beyond, the oldest frames of pages go first.
const MAX_TABLES: usize = 300_000;

/// The recent snapshots and pages and all working-set sizes of a target.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Mappings now, as an event, so that the heatmap can replay it.
    mappings: Option<Event>,
    /// Snapshot events only.
    snapshots: VecDeque<Event>,
    regions: usize,
    /// Frames of pages only, without ages, which the heatmap does not need.
    frames: VecDeque<Event>,
    tables: usize,
    /// The last one, with ages.
    pages: Option<PageFrame>,
    points: Vec<Point>,
    page_points: Vec<Point>,
}

impl History {
    /// Takes a target's event.
    pub fn add(&mut self, event: &Event) {
        match event {
            Event::Mappings { .. } => self.mappings = Some(event.clone()),
            Event::Snapshot(s) => {
                if s.regions.is_empty() || s.regions.iter().any(|r| !r.is_unseen()) {
                    let value = Measure::WorkingSet { min_rate: 0.0 }.of(s);
                    push(&mut self.points, Point { time_ns: s.end_ns, value });
                }
                self.regions += s.regions.len();
                self.snapshots.push_back(event.clone());
                self.drop_old(s.end_ns.saturating_sub(WINDOW_NS));
            }
            Event::Pages(f) => {
                if let Some(value) = working_set_of(&f.total()) {
                    push(&mut self.page_points, Point { time_ns: f.time_ns, value });
                }
                let without_ages = |m: &MappingPages| MappingPages {
                    range: m.range,
                    ages: PageAges { idle: Vec::new(), longer: Vec::new(), ..m.ages },
                };
                let frame = PageFrame { mappings: f.mappings.iter().map(without_ages).collect(), ..f.clone() };
                self.tables += f.tables.len();
                self.frames.push_back(Event::Pages(frame));
                self.pages = Some(PageFrame { tables: Vec::new(), ..f.clone() });
                self.drop_old_pages(f.time_ns.saturating_sub(WINDOW_NS));
            }
            _ => {}
        }
    }

    fn drop_old_pages(&mut self, before_ns: u64) {
        while self.frames.len() > 1 {
            match self.frames.front() {
                Some(Event::Pages(f)) if f.time_ns < before_ns || self.tables > MAX_TABLES => {
                    self.tables -= f.tables.len();
                    self.frames.pop_front();
                }
                _ => return,
            }
        }
    }

    fn drop_old(&mut self, before_ns: u64) {
        while self.snapshots.len() > 1 {
            match self.snapshots.front() {
                Some(Event::Snapshot(s)) if s.end_ns < before_ns || self.regions > MAX_REGIONS => {
                    self.regions -= s.regions.len();
                    self.snapshots.pop_front();
                }
                _ => return,
            }
        }
    }

    /// Forgets everything: the target has become another program.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// The snapshots held, newest first.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = &Snapshot> {
        self.snapshots.iter().rev().filter_map(|e| match e {
            Event::Snapshot(s) => Some(s),
            _ => None,
        })
    }

    /// The mappings now; empty where none are known.
    pub fn mappings(&self) -> &[Mapping] {
        match &self.mappings {
            Some(Event::Mappings { mappings, .. }) => mappings,
            _ => &[],
        }
    }

    /// Working-set sizes since the begin: those that pages tell, if any. None of when nothing was seen.
    pub fn points(&self) -> &[Point] {
        if self.page_points.is_empty() { &self.points } else { &self.page_points }
    }

    /// Those that pages tell.
    pub fn page_points(&self) -> &[Point] {
        &self.page_points
    }

    /// The same, of what is mapped within `ranges` only.
    pub fn within(&self, ranges: &[AddrRange]) -> Within<'_> {
        let is_in = |m: &&Mapping| ranges.iter().any(|r| r.start <= m.range.start && m.range.end <= r.end);
        let mappings = self.mappings.as_ref().map(|event| match event {
            Event::Mappings { time_ns, target, mappings } => Event::Mappings {
                time_ns: *time_ns,
                target: *target,
                mappings: mappings.iter().filter(is_in).cloned().collect(),
            },
            other => other.clone(),
        });
        Within { history: self, mappings }
    }

    /// What is known of its pages, without tables; `None` where only regions are.
    pub fn pages(&self) -> Option<&PageFrame> {
        self.pages.as_ref()
    }
}

/// Adds a point; of too many every second one goes.
fn push(points: &mut Vec<Point>, point: Point) {
    points.push(point);
    if points.len() > MAX_POINTS {
        let mut keep = false;
        points.retain(|_| {
            keep = !keep;
            keep
        });
    }
}

impl History {
    fn replay_with(&self, mappings: Option<&Event>, sink: &mut Sink) -> Result<(), ViewError> {
        mappings.into_iter().chain(&self.snapshots).chain(&self.frames).try_for_each(sink)
    }
}

impl Replay for History {
    fn replay(&self, sink: &mut Sink) -> Result<(), ViewError> {
        self.replay_with(self.mappings.as_ref(), sink)
    }
}

/// A history as if only some of the mappings were there: a heatmap shows nothing that is not mapped.
#[derive(Debug)]
pub(crate) struct Within<'a> {
    history: &'a History,
    mappings: Option<Event>,
}

impl Replay for Within<'_> {
    fn replay(&self, sink: &mut Sink) -> Result<(), ViewError> {
        self.history.replay_with(self.mappings.as_ref(), sink)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata::{MIB, page_frame, region, small_record, snapshot};
    use isotherm_core::history::frame::TablePages;

    #[test]
    fn memory_is_bounded() {
        let mut h = History::default();
        let regions: Vec<_> = (0..1000).map(|i| region(i * MIB, (i + 1) * MIB, 1, 0)).collect();
        for i in 0..1000 {
            h.add(&Event::Snapshot(snapshot(0, i, regions.clone())));
        }
        assert_eq!(h.newest_first().count(), MAX_REGIONS / 1000);
        assert_eq!(h.points().len(), 1000);
    }

    #[test]
    fn old_snapshots_go() {
        let mut h = History::default();
        small_record(10).iter().for_each(|e| h.add(e));
        assert_eq!(h.newest_first().count(), 10);
        h.add(&Event::Snapshot(snapshot(0, 3005, vec![])));
        assert_eq!(h.newest_first().count(), 6, "what ended within the last 300 s");
        assert_eq!(h.mappings().len(), 4);
    }

    #[test]
    fn frames_of_pages_are_bounded_too() {
        let mut h = History::default();
        let mut frame = page_frame(0, 0);
        frame.tables = (0..10_000).map(|i| TablePages { base: i << 21, present: 512, accessed: 1 }).collect();
        for second in 0..100 {
            frame.time_ns = second * 1_000_000_000;
            h.add(&Event::Pages(frame.clone()));
        }
        assert_eq!(h.frames.len(), MAX_TABLES / 10_000);
        assert_eq!(h.points().len(), 100);
        assert!(h.pages().is_some_and(|f| f.tables.is_empty() && f.total().resident == 83 * 256));
    }
}
