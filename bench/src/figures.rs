//! The figures of one run, from a real record or from a simulation, and medians over several runs.

use crate::walks::{HistoryFigures, Walks};
use anyhow::Context;
use isotherm_core::addr::AddrRange;
use isotherm_core::event::Mode;
use isotherm_core::snapshot::Snapshot;
use isotherm_core::tuning::figures::median;
use isotherm_record::Record;
use isotherm_sim::accuracy::by_page::{self, Reported};
use isotherm_sim::accuracy::{Accuracy, Score, steady_share};
use isotherm_sim::workload::truth::Truth;
use serde::{Deserialize, Serialize};

/// What a run showed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Precision, recall, convergence.
    #[serde(flatten)]
    pub accuracy: Accuracy,
    /// Page observations a second.
    pub checks_per_second: f64,
    /// CPU time of the monitor as a share of one core.
    pub monitor_share: f64,
    /// Estimated loss of the target as a share of one core.
    pub target_share: f64,
    /// The monitor's computing, where `monitor_share` does not hold it (simulations).
    #[serde(default)]
    pub computing_share: f64,
    /// Cost of monitor and target in the second half of the run, as a share of one core.
    pub steady_share: Option<f64>,
    /// Aggregation interval at the end, us.
    pub aggr_us: u64,
    /// How it observed at the end.
    pub mode: Option<Mode>,
    /// What the page history took, if it said which pages are hot.
    #[serde(default)]
    pub history: Option<HistoryFigures>,
}

impl Figures {
    /// Joins what walks of a workload's process said with the truth about it.
    pub fn of_walks(walks: &Walks, truth: &Truth) -> Self {
        let told_until = truth.slices.last().map_or(0, |s| s.end_ns);
        let scores: Vec<Score> = walks
            .said
            .iter()
            .filter(|said| said.time.1 <= told_until)
            .map(|said| {
                let reported = Reported::new(&truth.slices, said.time.0, said.time.1);
                by_page::score(&said.hot, &reported.clear_part(&said.known), &reported, said.time)
            })
            .collect();
        Self {
            accuracy: Accuracy::new(walks.start_ns, &scores),
            checks_per_second: 0.0,
            monitor_share: walks.monitor_share,
            target_share: walks.target_share,
            computing_share: 0.0,
            steady_share: Some(walks.monitor_share + walks.target_share),
            aggr_us: walks.history.walk_ns / 1000,
            mode: None,
            history: Some(walks.history),
        }
    }

    /// Reads what `isotherm sim monitor --json` prints.
    pub fn of_simulation(json: &str) -> anyhow::Result<Self> {
        serde_json::from_str(json).context("isotherm sim monitor printed something else than expected")
    }

    /// Joins a record of a workload's process with the truth about it; a range is truly hot from `hot_touches` touches
    /// per page on.
    pub fn of_record(record: &Record, truth: &Truth, hot_touches: f64) -> anyhow::Result<Self> {
        let first = record.snapshots.first().context("the record holds no snapshot")?;
        let arena: AddrRange = truth.header.arena;
        let reported = truth.slices.last().map_or(0, |s| s.end_ns);
        // The last snapshots may be younger than the truth that is written so far.
        let scores: Vec<Score> = record
            .snapshots
            .iter()
            .filter(|s| s.end_ns <= reported)
            .map(|s| score(s, arena, truth, hot_touches))
            .collect();
        let (from, to) = (record.stats.first(), record.stats.last());
        let (from, to) = from.zip(to).context("the record holds no cost figures")?;
        let elapsed = to.time_ns.saturating_sub(from.time_ns).max(1) as f64;
        Ok(Self {
            accuracy: Accuracy::new(first.start_ns, &scores),
            checks_per_second: to.checks.saturating_sub(from.checks) as f64 / elapsed * 1e9,
            monitor_share: to.monitor_ns.saturating_sub(from.monitor_ns) as f64 / elapsed,
            target_share: to.target_ns.saturating_sub(from.target_ns) as f64 / elapsed,
            computing_share: 0.0,
            steady_share: steady_share(&record.stats),
            aggr_us: to.aggr_us,
            mode: Some(to.mode),
            history: None,
        })
    }
}

/// One snapshot against the truth; where single pages are hot, page by page.
fn score(snapshot: &Snapshot, arena: AddrRange, truth: &Truth, hot_touches: f64) -> Score {
    if !truth.is_scattered() {
        return Score::new(snapshot, arena, &truth.slices, hot_touches);
    }
    let time = (snapshot.start_ns, snapshot.end_ns);
    let reported = Reported::new(&truth.slices, time.0, time.1);
    by_page::score(&by_page::hot_by_regions(snapshot), &reported.clear_part(&[arena]), &reported, time)
}

/// The median of figures of which some may be missing, taken as worst: the median is missing if at least half of them
/// are.
pub fn median_or_worst(values: &[Option<f64>]) -> Option<f64> {
    median(values.iter().map(|v| v.unwrap_or(f64::INFINITY))).filter(|v| v.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::event::{Event, MonitorStats};
    use isotherm_core::snapshot::RegionInfo;
    use isotherm_sim::workload::truth::{Header, Slice, Touched};

    #[test]
    fn medians() {
        assert_eq!(median_or_worst(&[Some(1.0), None, Some(3.0)]), Some(3.0));
        assert_eq!(median_or_worst(&[Some(1.0), None, None]), None);
    }

    #[test]
    fn a_record_is_joined_with_the_truth_by_time() {
        let truth = Truth {
            header: Header {
                version: 1,
                pattern: "hotspot".into(),
                seed: 0,
                pid: Some(1),
                clock: "CLOCK_MONOTONIC".into(),
                arena: AddrRange::new(0, 40960),
                complete: false,
            },
            slices: vec![Slice {
                start_ns: 0,
                end_ns: 1_000,
                stage: String::new(),
                touched: vec![Touched::all(AddrRange::new(0, 8192), 1_000_000)],
            }],
        };
        let snapshot = |start_ns, end_ns, hot_end| {
            Event::Snapshot(Snapshot {
                target: 0,
                pid: Some(1),
                start_ns,
                end_ns,
                sample_us: 1,
                aggr_us: 1,
                max_nr_accesses: 1,
                regions: vec![RegionInfo {
                    start: 0,
                    end: hot_end,
                    nr_accesses: 1,
                    age: 0,
                    evidence: None,
                    accessed: None,
                }],
            })
        };
        let stats = |time_ns, spent| {
            Event::Stats(MonitorStats {
                time_ns,
                monitor_ns: spent,
                target_ns: spent / 2,
                checks: spent,
                clears: 0,
                nr_regions: 1,
                mode: Mode::Sample,
                sample_us: 1,
                aggr_us: 1,
                late_samples: 0,
            })
        };
        // The last snapshot ends after the truth: it is left out.
        let events = [
            stats(0, 0),
            snapshot(0, 500, 16384),
            snapshot(500, 1_000, 8192),
            snapshot(1_000, 1_500, 4096),
            stats(1_000, 100),
        ];
        let f = Figures::of_record(&Record::from_events(events), &truth, 0.001).unwrap();
        assert_eq!(f.accuracy.intervals, 2);
        assert_eq!((f.accuracy.precision, f.accuracy.recall), (Some(1.0), Some(1.0)));
        assert_eq!((f.monitor_share, f.target_share, f.checks_per_second), (0.1, 0.05, 1e8));
    }
}
