//! How true a monitor's picture is: its snapshots against the truth about the workload.
//!
//! *Truly hot* in a snapshot's time are the ranges whose pages the workload touched at least [`HOT_TOUCHES`] times each
//! on average ([`truth::hot`](crate::workload::truth::hot)); the caller may choose another number. *Reported hot* are
//! the regions with `nr_accesses >= 1`. Only addresses of the arena count: what a process does besides its workload has
//! no truth to compare with.

pub mod by_page;

use crate::workload::truth::{Slice, hot};
use isotherm_core::addr::{AddrRange, overlap_len, total_len};
use isotherm_core::event::MonitorStats;
use isotherm_core::snapshot::Snapshot;
use serde::{Deserialize, Serialize};

/// Touches per page and aggregation interval from which a range is truly hot: one in a thousand. A generator's hot set
/// of 512 GiB cannot be touched as a whole within 100 ms by any machine; what is asked is whether the set is found.
pub const HOT_TOUCHES: f64 = 0.001;

/// One snapshot against the truth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score {
    /// End of the snapshot's aggregation interval, ns.
    pub end_ns: u64,
    /// Bytes that are truly hot.
    pub hot: u64,
    /// Bytes that are reported hot.
    pub reported: u64,
    /// Bytes that are both.
    pub common: u64,
}

impl Score {
    /// Compares `snapshot` with the truth that `slices` tell (they must cover its time). A range is truly hot from
    /// `hot_touches` touches per page on.
    pub fn new(snapshot: &Snapshot, arena: AddrRange, slices: &[Slice], hot_touches: f64) -> Self {
        let truth = hot(slices, snapshot.start_ns, snapshot.end_ns, hot_touches);
        let reported: Vec<AddrRange> = snapshot
            .regions
            .iter()
            .filter(|r| r.nr_accesses >= 1)
            .filter_map(|r| AddrRange::new(r.start, r.end).intersect(&arena))
            .collect();
        Self {
            end_ns: snapshot.end_ns,
            hot: total_len(&truth),
            reported: total_len(&reported),
            common: overlap_len(&truth, &reported),
        }
    }

    /// Share of what is reported hot that is hot. `None`: nothing is reported.
    pub fn precision(&self) -> Option<f64> {
        (self.reported > 0).then(|| self.common as f64 / self.reported as f64)
    }

    /// Share of what is hot that is reported. `None`: nothing is hot.
    pub fn recall(&self) -> Option<f64> {
        (self.hot > 0).then(|| self.common as f64 / self.hot as f64)
    }

    /// How far the reported working set is off, as a share of the true one. `None`: nothing is hot.
    pub fn wss_error(&self) -> Option<f64> {
        (self.hot > 0).then(|| self.reported.abs_diff(self.hot) as f64 / self.hot as f64)
    }

    /// Whether precision and recall both reach `least`.
    pub(crate) fn is_good(&self, least: f64) -> bool {
        self.precision().is_some_and(|p| p >= least) && self.recall().is_some_and(|r| r >= least)
    }
}

/// Precision and recall that count as good.
pub const GOOD: f64 = 0.95;
/// Snapshots in a row that must be good before a run counts as converged.
pub const HOLD: usize = 3;

/// A run's scores in a few figures.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Accuracy {
    pub intervals: usize,
    /// Mean over the second half of the run. `None`: nothing was reported in it.
    pub precision: Option<f64>,
    /// Mean over the second half of the run. `None`: nothing was hot in it.
    pub recall: Option<f64>,
    /// Mean over the second half of the run, as a share of the true working set.
    pub wss_error: Option<f64>,
    /// Aggregation intervals until precision and recall first were both [`GOOD`] for [`HOLD`] snapshots in a row; the
    /// first of these counts. `None`: never.
    pub converged_intervals: Option<usize>,
    /// The same in seconds since the run began.
    pub converged_s: Option<f64>,
}

impl Accuracy {
    /// Sums up `scores`, in order of time, of a run that began at `start_ns`.
    pub fn new(start_ns: u64, scores: &[Score]) -> Self {
        let converged = scores.windows(HOLD).position(|w| w.iter().all(|s| s.is_good(GOOD)));
        let second_half = &scores[scores.len() / 2..];
        Self {
            intervals: scores.len(),
            precision: mean(second_half.iter().filter_map(Score::precision)),
            recall: mean(second_half.iter().filter_map(Score::recall)),
            wss_error: mean(second_half.iter().filter_map(Score::wss_error)),
            converged_intervals: converged.map(|i| i + 1),
            converged_s: converged.map(|i| scores[i].end_ns.saturating_sub(start_ns) as f64 / 1e9),
        }
    }
}

/// What watching costs, monitor and target together, as a share of one core in the second half of a run, when what a
/// start takes (the first clearing of everything, say) is over. `None`: `stats` (in order of time) do not reach over
/// it.
pub fn steady_share(stats: &[MonitorStats]) -> Option<f64> {
    let (first, last) = (stats.first()?, stats.last()?);
    let middle = first.time_ns + (last.time_ns - first.time_ns) / 2;
    let from = stats.iter().find(|s| s.time_ns >= middle)?;
    let elapsed = last.time_ns - from.time_ns;
    let spent = |s: &MonitorStats| s.monitor_ns + s.target_ns;
    (elapsed > 0).then(|| spent(last).saturating_sub(spent(from)) as f64 / elapsed as f64)
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0u32);
    for v in values {
        sum += v;
        count += 1;
    }
    (count > 0).then(|| sum / f64::from(count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::truth::Touched;
    use isotherm_core::addr::PAGE_SIZE;
    use isotherm_core::event::Mode;
    use isotherm_core::snapshot::RegionInfo;

    fn snapshot(hot_pages: std::ops::Range<u64>) -> Snapshot {
        let region = |pages: std::ops::Range<u64>, nr_accesses| RegionInfo {
            start: pages.start * PAGE_SIZE,
            end: pages.end * PAGE_SIZE,
            nr_accesses,
            age: 0,
            evidence: None,
            accessed: None,
        };
        Snapshot {
            target: 0,
            pid: None,
            start_ns: 0,
            end_ns: 100,
            sample_us: 5000,
            aggr_us: 100_000,
            max_nr_accesses: 20,
            regions: vec![region(0..hot_pages.start, 0), region(hot_pages.clone(), 1), region(hot_pages.end..200, 0)],
        }
    }

    fn slices() -> Vec<Slice> {
        let touched = vec![Touched::all(AddrRange::new(10 * PAGE_SIZE, 20 * PAGE_SIZE), 100)];
        vec![Slice { start_ns: 0, end_ns: 100, stage: String::new(), touched }]
    }

    #[test]
    fn a_shifted_report_is_half_right() {
        let arena = AddrRange::new(0, 100 * PAGE_SIZE);
        let s = Score::new(&snapshot(15..25), arena, &slices(), 0.001);
        assert_eq!((s.precision(), s.recall(), s.wss_error()), (Some(0.5), Some(0.5), Some(0.0)));
        let s = Score::new(&snapshot(10..30), arena, &slices(), 0.001);
        assert_eq!((s.precision(), s.recall(), s.wss_error()), (Some(0.5), Some(1.0), Some(1.0)));
    }

    #[test]
    fn only_the_arena_counts() {
        let arena = AddrRange::new(0, 18 * PAGE_SIZE);
        let s = Score::new(&snapshot(10..190), arena, &slices(), 0.001);
        assert_eq!(s.reported, 8 * PAGE_SIZE);
    }

    #[test]
    fn nothing_reported_has_no_precision() {
        let s = Score { end_ns: 0, hot: 10, reported: 0, common: 0 };
        assert_eq!((s.precision(), s.recall(), s.is_good(0.5)), (None, Some(0.0), false));
    }

    #[test]
    fn an_expensive_start_is_not_steady() {
        let stats = |time_ns, monitor_ns| MonitorStats {
            time_ns,
            monitor_ns,
            target_ns: 0,
            checks: 0,
            clears: 0,
            nr_regions: 0,
            mode: Mode::Scan,
            sample_us: 1,
            aggr_us: 1,
            late_samples: 0,
        };
        let run = [stats(0, 0), stats(10, 10), stats(500, 100), stats(600, 101), stats(1000, 105)];
        assert_eq!(steady_share(&run), Some(0.01));
        assert_eq!(steady_share(&run[..1]), None);
        assert_eq!(steady_share(&[]), None);
    }

    #[test]
    fn convergence_must_hold() {
        let (good, bad) = ((10, 10, 10), (10, 20, 10));
        let scores: Vec<Score> = [bad, good, good, bad, good, good, good, bad]
            .iter()
            .enumerate()
            .map(|(i, &(hot, reported, common))| Score {
                end_ns: (i as u64 + 1) * 1_000_000_000,
                hot,
                reported,
                common,
            })
            .collect();
        let a = Accuracy::new(0, &scores);
        assert_eq!((a.converged_intervals, a.converged_s), (Some(5), Some(5.0)));
        assert_eq!(a.precision, Some((3.0 + 0.5) / 4.0));
        assert_eq!(Accuracy::new(0, &scores[..6]).converged_intervals, None);
        assert_eq!(Accuracy::new(0, &[]).precision, None);
    }
}
