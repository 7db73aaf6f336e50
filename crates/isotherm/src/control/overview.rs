//! What the monitor's events tell of targets and costs, kept for whoever asks.

use super::status::{MonitorStatus, TargetStatus};
use isotherm_core::event::{Event, MonitorStats, TargetEnd, TargetInfo};
use std::collections::{BTreeMap, VecDeque};

/// Over which time costs are told, ns.
const COST_WINDOW_NS: u64 = 60_000_000_000;

/// Follows a run.
#[derive(Debug, Default)]
pub struct Overview {
    source: String,
    algorithm: String,
    cpu_budget: Option<f64>,
    targets: BTreeMap<u32, TargetStatus>,
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
                if let Some(t) = self.targets.get_mut(&snapshot.target) {
                    t.accessed = Some(snapshot.working_set(1));
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
            }
            Event::End { target, why: TargetEnd::Replaced, .. } => {
                if let Some(t) = self.targets.get_mut(target) {
                    t.accessed = None;
                }
            }
            Event::Mappings { .. } => {}
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
    use isotherm_core::event::{Footprint, Mode};

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
}
