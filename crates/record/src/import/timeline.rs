//! Start times and intervals for formats that store only when a snapshot ended.
//!
//! A snapshot starts where the one before of the same target ended. The first starts a mean interval before its end. A
//! lone snapshot is followed by a false one, `[0, 0)`, whose end tells the interval; it is dropped.

use super::ages::AgeCounter;
use super::{Notes, TargetKey, Targets, USUAL_SAMPLES, tidy};
use crate::input::Sink;
use isotherm_core::event::{Event, SubscriberError};
use isotherm_core::snapshot::{RegionInfo, Snapshot};
use std::collections::HashMap;

/// The interval that is assumed for a single snapshot that nothing follows: DAMON's default.
const USUAL_INTERVAL_NS: u64 = 100_000_000;

/// A snapshot as such formats store it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ended {
    pub(crate) key: TargetKey,
    pub(crate) end_ns: u64,
    /// Sampling interval where the format tells it.
    pub(crate) sample_us: Option<u64>,
    pub(crate) regions: Vec<RegionInfo>,
}

impl Ended {
    /// Whether it only tells the time.
    fn is_false(&self) -> bool {
        matches!(self.regions[..], [r] if r.start == 0 && r.end == 0)
    }
}

/// First pass: first and last end and the number of ends by target.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    spans: HashMap<TargetKey, (u64, u64, u64)>,
}

impl Survey {
    pub(crate) fn add(&mut self, ended: &Ended) {
        let span = self.spans.entry(ended.key).or_insert((ended.end_ns, ended.end_ns, 0));
        span.1 = ended.end_ns;
        span.2 += 1;
    }

    /// Rounded up, so that a start is rounded down as damo does.
    fn mean_interval_ns(&self, key: TargetKey) -> u64 {
        match self.spans.get(&key) {
            Some(&(first, last, n)) if n > 1 && last > first => (last - first).div_ceil(n - 1),
            _ => USUAL_INTERVAL_NS,
        }
    }
}

/// Second pass: makes whole snapshots.
#[derive(Debug)]
pub(crate) struct Timeline {
    survey: Survey,
    is_pid: bool,
    targets: Targets,
    last_end: HashMap<TargetKey, u64>,
    /// Only where the format stores no ages.
    ages: Option<AgeCounter>,
}

impl Timeline {
    pub(crate) fn new(survey: Survey, is_pid: bool) -> Self {
        Self { survey, is_pid, targets: Targets::default(), last_end: HashMap::new(), ages: None }
    }

    /// The same for a format that stores no ages: they are counted.
    pub(crate) fn counting_ages(self) -> Self {
        Self { ages: Some(AgeCounter::default()), ..self }
    }

    pub(crate) fn add(&mut self, ended: Ended, notes: &mut Notes, sink: &mut Sink<'_>) -> Result<(), SubscriberError> {
        if ended.is_false() {
            return Ok(());
        }
        let Ended { key, end_ns, sample_us, mut regions } = ended;
        let (target, info) = self.targets.number(key, self.is_pid);
        if let Some(info) = info {
            sink(Event::Target(info))?;
        }
        let mean = self.survey.mean_interval_ns(key);
        let start_ns = match self.last_end.insert(key, end_ns) {
            Some(last) if last <= end_ns => last,
            Some(_) => {
                notes.adjusted += 1;
                end_ns.saturating_sub(mean)
            }
            None => end_ns.saturating_sub(mean),
        };
        if tidy(&mut regions) {
            notes.adjusted += 1;
        }
        if let Some(ages) = &mut self.ages {
            ages.count(key.id, &mut regions);
        }
        let (sample_us, aggr_us, max_nr_accesses) = intervals(mean, sample_us, &regions);
        let pid = u32::try_from(key.id).ok().filter(|_| self.is_pid);
        sink(Event::Snapshot(Snapshot { target, pid, start_ns, end_ns, sample_us, aggr_us, max_nr_accesses, regions }))
    }
}

/// Sampling and aggregation interval (us) and the largest possible count, where only the time between snapshots is
/// known: DAMON's usual 20 samples an aggregation, more only if more were counted.
pub(crate) fn intervals(mean_ns: u64, sample_us: Option<u64>, regions: &[RegionInfo]) -> (u64, u64, u32) {
    let counted = regions.iter().map(|r| r.nr_accesses).max().unwrap_or(0);
    let aggr_us = (mean_ns / 1000).max(1);
    let by_sample = sample_us.filter(|&s| s > 0).map(|s| u32::try_from((aggr_us + s / 2) / s).unwrap_or(u32::MAX));
    let samples = by_sample.unwrap_or(USUAL_SAMPLES).max(counted).max(1);
    (sample_us.unwrap_or((aggr_us / u64::from(samples)).max(1)), aggr_us, samples)
}
