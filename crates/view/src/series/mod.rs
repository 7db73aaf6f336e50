//! One figure over time, working set size or number of regions, or its percentiles.

pub mod distribution;
mod moments;
mod sum;
pub mod table;

use crate::basis::Basis;
use crate::error::ViewError;
use crate::replay::{Replay, check_targets};
use isotherm_core::event::Event;
use isotherm_core::history::frame::{PageAges, bytes};
use isotherm_core::snapshot::Snapshot;
use isotherm_core::units::NS_PER_S;
pub(crate) use moments::{PageMoments, TOGETHER_NS};
use std::collections::BTreeMap;
pub(crate) use sum::SumBuilder;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Measure {
    /// Where the record tells of pages and `min_rate` is 0: memory accessed within the last second. Else bytes of
    /// regions whose access rate is above zero and at least `min_rate` (a fraction of one).
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

    /// Whether pages tell it.
    fn is_of_pages(&self) -> bool {
        *self == Self::WorkingSet { min_rate: 0.0 }
    }
}

/// The working set that pages tell: what was accessed within a second. `None` where that is not known (yet).
pub fn working_set_of(ages: &PageAges) -> Option<u64> {
    ages.accessed_within(NS_PER_S).map(|accessed| bytes(accessed.pages))
}

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
    /// What it is drawn from.
    pub basis: Basis,
    /// Snapshots left out at the begin.
    pub skipped: usize,
}

/// What to measure, of what, and from when.
#[derive(Debug, Clone, Copy)]
pub struct SeriesOptions {
    pub measure: Measure,
    /// Only this target.
    pub target: Option<u32>,
    /// Snapshots of each target to leave out at the begin, while regions still adapt. `None`: a tenth, at most 20; of
    /// pages, which are known from the begin, none.
    pub skip: Option<usize>,
}

/// A target's points while they are read.
#[derive(Default)]
struct Points {
    regions: Vec<Point>,
    pages: Vec<Point>,
}

/// Reads the series of every target; behind those of several targets comes their sum, in which shared pages count once
/// where the record tells which are.
pub fn read(events: &dyn Replay, options: &SeriesOptions) -> Result<Vec<Series>, ViewError> {
    let mut by_target: BTreeMap<u32, Points> = BTreeMap::new();
    let (mut regions, mut moments) = (SumBuilder::default(), PageMoments::default());
    let wanted = |target: u32| options.target.is_none_or(|t| t == target);
    check_targets(events, options.target, &mut |event| {
        match event {
            Event::Snapshot(s) if wanted(s.target) => {
                let point = Point { time_ns: s.end_ns, value: options.measure.of(s) };
                by_target.entry(s.target).or_default().regions.push(point);
                regions.add(s.target, point, s.aggr_us.saturating_mul(1000));
            }
            Event::Pages(f) if wanted(f.target) && options.measure.is_of_pages() => {
                if let Some(point) = moments.add(f) {
                    by_target.entry(f.target).or_default().pages.push(point);
                }
            }
            Event::Together(f) if options.target.is_none() && options.measure.is_of_pages() => moments.add_together(f),
            Event::End { target, .. } => {
                regions.end(*target);
                moments.end(*target);
            }
            _ => {}
        }
        Ok(())
    })?;
    let series = |target: Option<u32>, regions: Vec<Point>, pages: Vec<Point>| match pages.is_empty() {
        false => Series { target, points: pages, basis: Basis::Pages, skipped: 0 },
        true => Series { target, points: regions, basis: Basis::Regions, skipped: 0 },
    };
    let several = by_target.len() > 1;
    let mut all: Vec<Series> = by_target.into_iter().map(|(t, p)| series(Some(t), p.regions, p.pages)).collect();
    if several {
        all.push(series(None, regions.finish(), moments.finish()));
    }
    all.retain(|s| !s.points.is_empty());
    for series in &mut all {
        let len = series.points.len();
        let default = series.basis.skipped(len);
        // The last point stays: a table of nothing helps nobody.
        series.skipped = options.skip.unwrap_or(default).min(len - 1);
        series.points.drain(..series.skipped);
    }
    Ok(all)
}

/// At most two points a column, its least and its greatest, so that no peak is lost.
pub(crate) fn envelope(points: &[Point], columns: usize) -> impl Iterator<Item = Point> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata::{MIB, paged_record, region, small_record, snapshot, together};

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

    #[test]
    fn pages_tell_what_was_accessed_within_a_second() {
        let kib = |s: &Series| s.points.iter().map(|p| p.value / 1024).collect::<Vec<_>>();
        let measure = Measure::WorkingSet { min_rate: 0.0 };
        let o = SeriesOptions { measure, target: None, skip: None };
        let mut events = paged_record(2, 4);
        let series = read(&events, &o).expect("has snapshots");
        assert_eq!(kib(&series[0]), [5376, 6400, 5376, 6400]);
        assert_eq!((series[0].basis, series[0].skipped), (Basis::Pages, 0));
        assert_eq!(kib(&series[2]), [2 * 5376, 2 * 6400, 2 * 5376, 2 * 6400]);
        events.extend((0..4).map(|second| together(2, second)));
        assert_eq!(
            kib(&read(&events, &o).expect("has snapshots")[2]),
            [5376, 6400, 5376, 6400],
            "shared pages count once"
        );
        let rare = SeriesOptions { measure: Measure::WorkingSet { min_rate: 0.05 }, ..o };
        assert_eq!(read(&events, &rare).expect("has snapshots")[0].basis, Basis::Regions, "pages have no rate");
    }
}
