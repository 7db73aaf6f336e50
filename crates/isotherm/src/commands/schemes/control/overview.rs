//! What the monitor's events tell of targets and costs, kept for whoever asks.

use super::status::{MonitorStatus, TargetStatus};
use isotherm_core::event::{Event, MonitorStats};
use isotherm_core::target::{TargetEnd, TargetInfo};
use isotherm_view::series::working_set_of;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Over which time costs are reported, ns.
const COST_WINDOW_NS: u64 = 60_000_000_000;

#[derive(Debug, Default)]
pub struct Overview {
    source: String,
    algorithm: String,
    cpu_budget: Option<f64>,
    targets: BTreeMap<u32, TargetStatus>,
    /// Targets whose working set pages tell.
    with_pages: BTreeSet<u32>,
    snapshots: u64,
    stats: VecDeque<MonitorStats>,
}

impl Overview {
    /// Takes an event in.
    pub fn event(&mut self, event: &Event) {
        match event {
            Event::Run(run) => {
                (self.source, self.algorithm) = (run.source.clone(), run.algorithm.clone());
                self.cpu_budget = run.cpu_budget;
            }
            Event::Target(TargetInfo { target, pid, name }) => {
                let status = TargetStatus {
                    target: *target,
                    pid: *pid,
                    name: name.clone(),
                    rss: None,
                    swap: None,
                    accessed: None,
                };
                self.targets.insert(*target, status);
            }
            Event::Snapshot(snapshot) => {
                self.snapshots += 1;
                if !self.with_pages.contains(&snapshot.target)
                    && let Some(t) = self.targets.get_mut(&snapshot.target)
                {
                    t.accessed = Some(snapshot.working_set(1));
                }
            }
            Event::Pages(frame) => {
                // What pages tell is exact; regions count until they do.
                if let Some(bytes) = working_set_of(&frame.total())
                    && let Some(t) = self.targets.get_mut(&frame.target)
                {
                    t.accessed = Some(bytes);
                    self.with_pages.insert(frame.target);
                }
            }
            Event::Stats(stats) => self.stats(*stats),
            Event::Footprint(footprint) => {
                if let Some(t) = self.targets.get_mut(&footprint.target) {
                    (t.rss, t.swap) = (Some(footprint.rss), footprint.swap);
                }
            }
            Event::End { target, why: TargetEnd::Exited, .. } => {
                self.targets.remove(target);
                self.with_pages.remove(target);
            }
            Event::End { target, why: TargetEnd::Replaced, .. } => {
                if let Some(t) = self.targets.get_mut(target) {
                    t.accessed = None;
                }
                self.with_pages.remove(target);
            }
            Event::Mappings { .. } | Event::Together(_) => {}
        }
    }

    fn stats(&mut self, stats: MonitorStats) {
        self.stats.push_back(stats);
        while self.stats.len() > 2 && self.stats[1].time_ns + COST_WINDOW_NS <= stats.time_ns {
            self.stats.pop_front();
        }
    }

    /// How accesses are observed.
    pub fn monitor(&self) -> MonitorStatus {
        let last = self.stats.back();
        let share = |spent: fn(&MonitorStats) -> u64| {
            let (first, last) = (self.stats.front()?, last?);
            let wall = last.time_ns.checked_sub(first.time_ns).filter(|&w| w > 0)?;
            Some(spent(last).saturating_sub(spent(first)) as f64 / wall as f64)
        };
        MonitorStatus {
            source: self.source.clone(),
            algorithm: self.algorithm.clone(),
            mode: last.map(|s| s.mode),
            sample_us: last.map(|s| s.sample_us),
            aggr_us: last.map(|s| s.aggr_us),
            nr_regions: last.map(|s| s.nr_regions),
            snapshots: self.snapshots,
            cpu_budget: self.cpu_budget,
            monitor_ns: last.map(|s| s.monitor_ns),
            target_ns: last.map(|s| s.target_ns),
            monitor_share: share(|s| s.monitor_ns),
            target_share: share(|s| s.target_ns),
        }
    }

    /// The targets that are alive.
    pub fn targets(&self) -> Vec<TargetStatus> {
        self.targets.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::addr::AddrRange;
    use isotherm_core::event::Mode;
    use isotherm_core::history::frame::{IdlePages, MappingPages, PageAges, PageFrame};
    use isotherm_core::snapshot::{RegionInfo, Snapshot};
    use isotherm_core::target::Footprint;

    fn stats(second: u64, monitor_ms: u64) -> Event {
        Event::Stats(MonitorStats {
            time_ns: second * 1_000_000_000,
            monitor_ns: monitor_ms * 1_000_000,
            target_ns: 0,
            checks: 0,
            clears: 0,
            nr_regions: 3,
            mode: Mode::Scan,
            sample_us: 5,
            aggr_us: 100,
            late_samples: 0,
        })
    }

    #[test]
    fn costs_are_those_of_the_last_minute() {
        let mut o = Overview::default();
        assert!(o.monitor().monitor_share.is_none(), "nothing is known yet");
        for (second, ms) in [(0, 0), (1, 900), (61, 1500), (121, 2100)] {
            o.event(&stats(second, ms));
        }
        assert_eq!(o.monitor().monitor_share, Some(0.01));
        assert_eq!(o.monitor().monitor_ns, Some(2_100_000_000));
    }

    #[test]
    fn targets_come_and_go() {
        let mut o = Overview::default();
        o.event(&Event::Target(TargetInfo { target: 3, pid: Some(42), name: "x".into() }));
        assert_eq!(o.targets()[0].rss, None);
        o.event(&Event::Footprint(Footprint { time_ns: 0, target: 3, vsz: 9, rss: 7, swap: Some(1) }));
        assert_eq!((o.targets()[0].rss, o.targets()[0].swap), (Some(7), Some(1)));
        o.event(&Event::End { time_ns: 0, target: 3, why: TargetEnd::Replaced });
        assert_eq!(o.targets().len(), 1);
        o.event(&Event::End { time_ns: 0, target: 3, why: TargetEnd::Exited });
        assert!(o.targets().is_empty());
    }

    #[test]
    fn pages_tell_what_is_in_use_as_soon_as_they_can() {
        let mut o = Overview::default();
        o.event(&Event::Target(TargetInfo { target: 0, pid: None, name: "x".into() }));
        let region = RegionInfo { start: 0, end: 8192, nr_accesses: 1, age: 0, evidence: None, accessed: None };
        let snapshot = Event::Snapshot(Snapshot {
            target: 0,
            pid: None,
            start_ns: 0,
            end_ns: 1,
            sample_us: 1,
            aggr_us: 1,
            max_nr_accesses: 1,
            regions: vec![region],
        });
        o.event(&snapshot);
        assert_eq!(o.targets()[0].accessed, Some(8192));
        let idle = IdlePages { pages: 90, least: 90, most: 90, unresolved: 0 };
        let ages = PageAges { resident: 100, unobservable: 0, idle: vec![idle], ..PageAges::default() };
        o.event(&Event::Pages(PageFrame {
            time_ns: 1,
            since_ns: 0,
            begin_ns: 0,
            walk_ns: 1,
            target: 0,
            one_in: 1,
            mappings: vec![MappingPages { range: AddrRange::new(0, 1 << 20), ages }],
            tables: Vec::new(),
            reaccessed: None,
            forked: false,
        }));
        o.event(&snapshot);
        assert_eq!(o.targets()[0].accessed, Some(10 * 4096), "regions do not overrule pages");
        o.event(&Event::End { time_ns: 0, target: 0, why: TargetEnd::Replaced });
        o.event(&snapshot);
        assert_eq!(o.targets()[0].accessed, Some(8192), "nothing is known of the new program's pages");
    }
}
