//! The last minutes of a target, with bounded memory.

use crate::error::ViewError;
use crate::replay::{Replay, Sink};
use crate::series::{Measure, Point};
use isotherm_core::event::Event;
use isotherm_core::mapping::Mapping;
use isotherm_core::snapshot::Snapshot;
use std::collections::VecDeque;

/// Snapshots older than this are dropped.
const WINDOW_NS: u64 = 300_000_000_000;
/// Most regions held (40 bytes each); beyond, the oldest snapshots go first.
const MAX_REGIONS: usize = 150_000;
/// Most working-set sizes held; beyond, every second one is dropped.
const MAX_POINTS: usize = 20_000;

/// The recent snapshots and all working-set sizes of a target.
#[derive(Debug, Default)]
pub struct History {
    /// Mappings now, as an event, so that the heatmap can replay it.
    mappings: Option<Event>,
    /// Snapshot events only.
    snapshots: VecDeque<Event>,
    regions: usize,
    points: Vec<Point>,
}

impl History {
    /// Takes a target's event.
    pub fn add(&mut self, event: &Event) {
        match event {
            Event::Mappings { .. } => self.mappings = Some(event.clone()),
            Event::Snapshot(s) => {
                self.points.push(Point { time_ns: s.end_ns, value: Measure::WorkingSet { min_rate: 0.0 }.of(s) });
                if self.points.len() > MAX_POINTS {
                    let mut keep = false;
                    self.points.retain(|_| {
                        keep = !keep;
                        keep
                    });
                }
                self.regions += s.regions.len();
                self.snapshots.push_back(event.clone());
                self.drop_old(s.end_ns.saturating_sub(WINDOW_NS));
            }
            _ => {}
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
    pub fn newest_first(&self) -> impl Iterator<Item = &Snapshot> {
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

    /// Working-set sizes since the begin.
    pub fn points(&self) -> &[Point] {
        &self.points
    }
}

impl Replay for History {
    fn replay(&self, sink: &mut Sink) -> Result<(), ViewError> {
        self.mappings.iter().chain(&self.snapshots).try_for_each(sink)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata::{MIB, region, small_record, snapshot};

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
}
