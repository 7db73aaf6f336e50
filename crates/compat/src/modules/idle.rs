//! The figures of `damon_stat`, from what its kdamond sees.

use crate::held::held;
use isotherm_core::event::{Event, Subscriber, SubscriberError};
use isotherm_core::history::frame::{PageAges, sum};
use isotherm_core::history::times::AGES_NS;
use isotherm_core::snapshot::Snapshot;
use isotherm_core::target::TargetId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Least to greatest.
const PERCENTILES: usize = 101;
const MS: u64 = 1_000_000;

/// What was seen last, shared with whoever reads it.
#[derive(Debug, Clone, Default)]
pub(super) struct Idle(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    /// What each target's regions say.
    bytes_per_second: BTreeMap<TargetId, f64>,
    /// How old each target's pages are.
    ages: BTreeMap<TargetId, PageAges>,
    /// The same of all together, with shared pages counted once, where that could be reported.
    together: Option<PageAges>,
    aggr_us: u64,
}

/// What the files show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Figures {
    /// Bytes a second.
    pub(super) bandwidth: u64,
    /// For how long so many percent of the memory have been idle at most, ms.
    pub(super) percentiles: [u64; PERCENTILES],
    /// Length of an aggregation interval, us.
    pub(super) aggr_us: u64,
}

impl Idle {
    /// As of now.
    pub(super) fn figures(&self) -> Figures {
        let seen = held(&self.0);
        let ages = seen.together.clone().unwrap_or_else(|| sum(seen.ages.values()));
        Figures {
            bandwidth: seen.bytes_per_second.values().sum::<f64>() as u64,
            percentiles: percentiles(&ages),
            aggr_us: seen.aggr_us,
        }
    }
}

impl Subscriber for Idle {
    fn event(&mut self, event: &Event) -> Result<(), SubscriberError> {
        let mut seen = held(&self.0);
        match event {
            Event::Run(_) => *seen = Seen::default(),
            Event::Snapshot(snapshot) => {
                seen.aggr_us = snapshot.aggr_us;
                seen.bytes_per_second.insert(snapshot.target, bandwidth(snapshot));
            }
            Event::Pages(frame) => {
                seen.ages.insert(frame.target, frame.total());
            }
            Event::Together(frame) => seen.together = Some(frame.ages.clone()),
            Event::End { target, .. } => {
                seen.bytes_per_second.remove(target);
                seen.ages.remove(target);
                if seen.ages.is_empty() {
                    seen.together = None;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Bytes a second, were each access that was seen one to all of the region.
fn bandwidth(snapshot: &Snapshot) -> f64 {
    let most = snapshot.max_nr_accesses;
    let seconds = snapshot.aggr_us as f64 / 1e6;
    let accesses = |rate: f64| rate * f64::from(most);
    let bytes: f64 = snapshot.regions.iter().map(|r| r.len() as f64 * accesses(r.access_rate(most))).sum();
    if seconds > 0.0 { bytes / seconds } else { 0.0 }
}

/// Idle times by share of the memory that can be observed, in the steps of the page history: of a time between two
/// steps it says the lower.
fn percentiles(ages: &PageAges) -> [u64; PERCENTILES] {
    let seen = ages.resident.saturating_sub(ages.unobservable);
    std::array::from_fn(|percent| {
        // The page that so many percent are not older than.
        let rank = (seen.saturating_sub(1)) * percent as u64 / 100;
        let older = |idle: u64| seen.saturating_sub(idle) <= rank;
        let steps = ages.idle.iter().zip(AGES_NS);
        steps.take_while(|(idle, _)| idle.pages > 0 && older(idle.pages)).last().map_or(0, |(_, age_ns)| age_ns / MS)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::addr::AddrRange;
    use isotherm_core::history::frame::{IdlePages, MappingPages, PageFrame};
    use isotherm_core::history::together_frame::TogetherFrame;
    use isotherm_core::snapshot::RegionInfo;
    use isotherm_core::target::TargetEnd;
    use proptest::prelude::*;

    fn ages(resident: u64, idle: &[u64]) -> PageAges {
        let idle = idle.iter().map(|&pages| IdlePages { pages, least: pages, most: pages, unresolved: 0 }).collect();
        PageAges { resident, unobservable: 0, idle, ..PageAges::default() }
    }

    fn frame(target: u32, ages: PageAges) -> Event {
        let mappings = vec![MappingPages { range: AddrRange::new(0, 1 << 30), ages }];
        Event::Pages(PageFrame {
            time_ns: 1,
            since_ns: 0,
            begin_ns: 0,
            walk_ns: 1,
            target,
            one_in: 1,
            mappings,
            tables: Vec::new(),
            reaccessed: None,
            forked: false,
        })
    }

    #[test]
    fn each_percent_of_memory_has_its_idle_time() {
        // Of 100 pages 70 were not used for 1 s, 40 for 2 s, 10 for 5 s.
        let p = percentiles(&ages(100, &[70, 40, 10, 0]));
        assert_eq!((p[0], p[29], p[32], p[62], p[92], p[100]), (0, 0, 1000, 2000, 5000, 5000));
        assert_eq!(p.iter().filter(|&&ms| ms >= 2000).count(), 40);
        assert_eq!(percentiles(&PageAges::default()), [0; 101], "nothing is watched");
        assert_eq!(percentiles(&ages(5, &[])), [0; 101], "not watched for a second");
        assert_eq!(percentiles(&ages(5, &[5])), [1000; 101], "all of it");
    }

    #[test]
    fn what_cannot_be_observed_is_neither_idle_nor_used() {
        let p = percentiles(&PageAges { unobservable: 900, ..ages(1000, &[50]) });
        assert_eq!(p.iter().filter(|&&ms| ms > 0).count(), 50);
    }

    #[test]
    fn targets_add_up_until_they_end_and_shared_memory_counts_once() {
        let idle = Idle::default();
        let mut seen = idle.clone();
        seen.event(&frame(0, ages(100, &[100]))).unwrap();
        seen.event(&frame(1, ages(100, &[0]))).unwrap();
        assert_eq!(idle.figures().percentiles.iter().filter(|&&ms| ms > 0).count(), 50);
        let together = TogetherFrame { time_ns: 1, targets: 2, one_in: 1, ages: ages(100, &[25]), owned: Vec::new() };
        seen.event(&Event::Together(together)).unwrap();
        assert_eq!(idle.figures().percentiles.iter().filter(|&&ms| ms > 0).count(), 25);
        for target in [0, 1] {
            seen.event(&Event::End { time_ns: 2, target, why: TargetEnd::Exited }).unwrap();
        }
        assert_eq!(idle.figures().percentiles, [0; 101]);
    }

    #[test]
    fn bandwidth_is_bytes_times_accesses_a_second() {
        let idle = Idle::default();
        let region =
            |nr_accesses| RegionInfo { start: 0, end: 1 << 20, nr_accesses, age: 0, evidence: None, accessed: None };
        let snapshot = Snapshot {
            target: 0,
            pid: Some(1),
            start_ns: 0,
            end_ns: 1,
            sample_us: 5000,
            aggr_us: 100_000,
            max_nr_accesses: 20,
            regions: vec![region(20), region(0)],
        };
        idle.clone().event(&Event::Snapshot(snapshot)).unwrap();
        let figures = idle.figures();
        assert_eq!((figures.bandwidth, figures.aggr_us), (200 << 20, 100_000));
    }

    proptest! {
        #[test]
        fn they_rise_and_agree_with_the_totals(resident in 1_u64..100_000, idle in prop::collection::vec(0_u64..100_000, 0..16)) {
            let mut idle: Vec<u64> = idle.into_iter().map(|pages| pages.min(resident)).collect();
            idle.sort_unstable_by(|a, b| b.cmp(a));
            let p = percentiles(&ages(resident, &idle));
            prop_assert!(p.is_sorted());
            for (&pages, age_ns) in idle.iter().zip(AGES_NS) {
                let share = p.iter().filter(|&&ms| ms >= age_ns / MS).count() as f64 / 101.0;
                prop_assert!((share - pages as f64 / resident as f64).abs() < 0.021, "{share} {pages} {resident}");
            }
        }
    }
}
