//! One figure per snapshot, working set size or number of regions, over time or as percentiles.

pub mod distribution;
pub mod table;

use crate::error::ViewError;
use crate::replay::{Replay, for_each_snapshot};
use isotherm_core::snapshot::Snapshot;

/// What is measured of each snapshot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Measure {
    /// Bytes of regions whose access rate is above zero and at least `min_rate` (a fraction of one).
    WorkingSet {
        /// Lowest rate that counts.
        min_rate: f64,
    },
    /// Number of regions.
    Regions,
}

impl Measure {
    /// What it is called in headings.
    pub fn title(&self) -> &'static str {
        match self {
            Self::WorkingSet { .. } => "Working set size",
            Self::Regions => "Number of regions",
        }
    }

    /// The figure for one snapshot.
    pub fn of(&self, s: &Snapshot) -> u64 {
        match self {
            // Rounding must not lift a threshold of 5 % (1 of 20) to 2 of 20.
            Self::WorkingSet { min_rate } => s.working_set((min_rate * s.max_nr_accesses as f64 - 1e-9).ceil() as u32),
            Self::Regions => s.regions.len() as u64,
        }
    }
}

/// One measured point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Point {
    /// End of the aggregation interval, ns.
    pub time_ns: u64,
    /// Bytes or regions.
    pub value: u64,
}

/// A target's figures over time.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The target; `None`: the sum over all.
    pub target: Option<u32>,
    /// Points by time; never empty.
    pub points: Vec<Point>,
    /// Snapshots left out at the begin.
    pub skipped: usize,
}

/// What to measure, of what, and from when.
#[derive(Debug, Clone, Copy)]
pub struct SeriesOptions {
    /// The figure.
    pub measure: Measure,
    /// Only this target.
    pub target: Option<u32>,
    /// Snapshots of each target to leave out at the begin, while regions still adapt. `None`: a tenth, at most 20.
    pub skip: Option<usize>,
}

/// Reads the series of every target; behind those of several targets comes their sum.
pub fn read(events: &dyn Replay, options: &SeriesOptions) -> Result<Vec<Series>, ViewError> {
    let mut all: Vec<Series> = Vec::new();
    let mut sum = SumBuilder::default();
    for_each_snapshot(events, options.target, &mut |s| {
        let value = options.measure.of(s);
        let at = all.iter().position(|x| x.target == Some(s.target)).unwrap_or_else(|| {
            all.push(Series { target: Some(s.target), points: Vec::new(), skipped: 0 });
            all.len() - 1
        });
        all[at].points.push(Point { time_ns: s.end_ns, value });
        sum.add(s, value);
        Ok(())
    })?;
    all.sort_by_key(|s| s.target);
    if all.len() > 1 {
        all.push(Series { target: None, points: sum.finish(), skipped: 0 });
    }
    for series in &mut all {
        let len = series.points.len();
        // The last point stays: a table of nothing helps nobody.
        series.skipped = options.skip.unwrap_or(default_skip(len)).min(len - 1);
        series.points.drain(..series.skipped);
    }
    Ok(all)
}

/// How many of `len` snapshots to leave out at the begin, while regions still adapt: a tenth, at most 20 (damo's figure).
pub fn default_skip(len: usize) -> usize {
    (len / 10).min(20)
}

/// At most two points a column, its least and its greatest, so that no peak is lost.
pub fn envelope(points: &[Point], columns: usize) -> impl Iterator<Item = Point> {
    let per_column = points.len().div_ceil(columns.max(1)).max(1);
    points.chunks(per_column).flat_map(|chunk| {
        let least = chunk.iter().enumerate().min_by_key(|(_, p)| p.value);
        let greatest = chunk.iter().enumerate().max_by_key(|(_, p)| p.value);
        let (Some(a), Some(b)) = (least, greatest) else { return Vec::new() };
        match a.0.cmp(&b.0) {
            std::cmp::Ordering::Less => vec![*a.1, *b.1],
            std::cmp::Ordering::Equal => vec![*a.1],
            std::cmp::Ordering::Greater => vec![*b.1, *a.1],
        }
    })
}

/// Adds up the figures of snapshots that end together.
#[derive(Default)]
struct SumBuilder {
    points: Vec<Point>,
    /// Targets already in the last point.
    members: Vec<u32>,
}

impl SumBuilder {
    fn add(&mut self, s: &Snapshot, value: u64) {
        let half_interval_ns = s.aggr_us * 500;
        match self.points.last_mut() {
            Some(p) if s.end_ns.abs_diff(p.time_ns) < half_interval_ns && !self.members.contains(&s.target) => {
                p.value += value;
            }
            _ => {
                self.members.clear();
                self.points.push(Point { time_ns: s.end_ns, value });
            }
        }
        self.members.push(s.target);
    }

    fn finish(self) -> Vec<Point> {
        self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata::{MIB, region, small_record, snapshot};
    use isotherm_core::event::Event;

    fn options(measure: Measure) -> SeriesOptions {
        SeriesOptions { measure, target: None, skip: Some(0) }
    }

    #[test]
    fn working_set_of_a_small_record() {
        let series = read(&small_record(4), &options(Measure::WorkingSet { min_rate: 0.0 })).expect("has snapshots");
        let values: Vec<u64> = series[0].points.iter().map(|p| p.value / MIB).collect();
        assert_eq!(values, [4, 6, 4, 8]);
        let rare = read(&small_record(4), &options(Measure::WorkingSet { min_rate: 0.06 })).expect("has snapshots");
        assert_eq!(rare[0].points.iter().map(|p| p.value / MIB).collect::<Vec<_>>(), [4, 4, 4, 6]);
        let at_5_percent = read(&small_record(4), &options(Measure::WorkingSet { min_rate: 0.05 })).expect("same");
        assert_eq!(at_5_percent[0].points, series[0].points);
    }

    #[test]
    fn several_targets_add_up() {
        let mut events = Vec::new();
        for i in 0..3 {
            events.push(Event::Snapshot(snapshot(0, i, vec![region(0, MIB, 1, 0)])));
            events.push(Event::Snapshot(snapshot(1, i, vec![region(0, 2 * MIB, i as u32, 0)])));
        }
        let series = read(&events, &options(Measure::WorkingSet { min_rate: 0.0 })).expect("has snapshots");
        assert_eq!(series.iter().map(|s| s.target).collect::<Vec<_>>(), [Some(0), Some(1), None]);
        assert_eq!(series[2].points.iter().map(|p| p.value / MIB).collect::<Vec<_>>(), [1, 3, 3]);
    }

    #[test]
    fn skipping_leaves_at_least_one() {
        let read_skip = |skip| {
            let o = SeriesOptions { measure: Measure::Regions, target: None, skip };
            read(&small_record(30), &o).map(|s| (s[0].skipped, s[0].points.len())).ok()
        };
        assert_eq!(read_skip(None), Some((3, 27)));
        assert_eq!(read_skip(Some(0)), Some((0, 30)));
        assert_eq!(read_skip(Some(1000)), Some((29, 1)));
    }

    #[test]
    fn peaks_survive() {
        let points: Vec<Point> =
            (0..10_000).map(|i| Point { time_ns: i, value: if i == 7777 { 99 } else { i % 3 + 1 } }).collect();
        let thin: Vec<Point> = envelope(&points, 100).collect();
        assert!(thin.len() <= 200);
        assert!(thin.is_sorted_by_key(|p| p.time_ns));
        assert!(thin.iter().any(|p| p.value == 99));
    }
}
