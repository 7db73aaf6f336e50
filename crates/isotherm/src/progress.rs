//! A status line on stderr while something long runs, and the figures for its closing words.

use crate::stderr::is_quiet;
use isotherm_core::event::{Event, MonitorStats, RunInfo, Subscriber, SubscriberError};
use isotherm_core::snapshot::Snapshot;
use isotherm_core::target::TargetEnd;
use isotherm_core::units::{format_size, format_time};
use isotherm_view::series::working_set_of;
use isotherm_view::summary::cost::{Cost, budget_words};
use std::collections::BTreeMap;
use std::io::IsTerminal;

/// How often the line is drawn anew, ns of event time.
const EVERY_NS: u64 = 500_000_000;

#[derive(Debug, Default)]
pub struct Progress {
    terminal: bool,
    drawn: bool,
    start_ns: Option<u64>,
    now_ns: u64,
    next_ns: u64,
    snapshots: u64,
    /// Memory in use, by target, and whether pages tell it.
    working_sets: BTreeMap<u32, (u64, bool)>,
    /// All targets together, where pages that they share are known.
    together: Option<u64>,
    rss: BTreeMap<u32, u64>,
    first_stats: Option<MonitorStats>,
    stats: Option<MonitorStats>,
    run: Option<RunInfo>,
    note: String,
}

impl Progress {
    /// Draws only if stderr is a terminal, and nothing where `--quiet` was given.
    pub fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal() && !is_quiet(), ..Self::default() }
    }

    /// What else is to stand in the line from now on.
    pub fn note(&mut self, text: String) {
        self.note = text;
    }

    pub const fn snapshots(&self) -> u64 {
        self.snapshots
    }

    /// Time covered, ns.
    pub fn elapsed_ns(&self) -> u64 {
        self.start_ns.map_or(0, |s| self.now_ns.saturating_sub(s))
    }

    /// What watching has cost so far; `None`: too short to tell.
    pub fn cost(&self) -> Option<Cost> {
        Cost::between(&self.first_stats?, &self.stats?, self.run.as_ref())
    }

    /// The same for people.
    pub fn cost_words(&self) -> String {
        self.cost().map_or_else(|| format!("too short to tell ({})", self.budget_words()), |cost| cost.words())
    }

    /// What it may cost, for people.
    pub fn budget_words(&self) -> String {
        budget_words(self.run.as_ref().and_then(|run| run.cpu_budget))
    }

    fn draw(&mut self) {
        let working_set = self.together.unwrap_or_else(|| self.working_sets.values().map(|w| w.0).sum());
        let rss: u64 = self.rss.values().sum();
        let rss = if self.rss.is_empty() { String::new() } else { format!(" of {} resident", format_size(rss)) };
        let snapshots = if self.snapshots > 0 { format!("{} snapshots", self.snapshots) } else { String::new() };
        let cost = self.cost().map(|cost| format!("cost {:.2} % of one core", cost.total() * 100.0));
        crate::stderr::status_line(&[
            &format_time(self.elapsed_ns()),
            &format!("accessed now {}{rss}", format_size(working_set)),
            &self.note,
            &cost.unwrap_or_default(),
            &snapshots,
        ]);
        self.drawn = true;
    }

    /// Takes the line away.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            crate::stderr::clear_status();
        }
    }

    fn snapshot(&mut self, s: &Snapshot) {
        self.snapshots += 1;
        // Statistics may come before what they are about has been seen, and targets' intervals in any order.
        let (start_ns, end_ns) = match self.start_ns {
            Some(start_ns) if self.snapshots > 1 => (start_ns.min(s.start_ns), self.now_ns.max(s.end_ns)),
            _ => (s.start_ns, s.end_ns),
        };
        self.start_ns = Some(start_ns);
        let known = self.working_sets.entry(s.target).or_default();
        if !known.1 {
            known.0 = s.working_set(1);
        }
        self.now(end_ns);
    }

    fn now(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        if self.terminal && now_ns >= self.next_ns {
            self.next_ns = now_ns + EVERY_NS;
            self.draw();
        }
    }
}

impl Subscriber for Progress {
    fn event(&mut self, event: &Event) -> Result<(), SubscriberError> {
        match event {
            Event::Run(run) => self.run = Some(run.clone()),
            Event::Snapshot(s) => self.snapshot(s),
            Event::Stats(s) => {
                self.first_stats.get_or_insert(*s);
                self.stats = Some(*s);
                // Without regions there are no snapshots.
                if self.snapshots == 0 {
                    self.start_ns.get_or_insert(s.time_ns);
                    self.now(s.time_ns);
                }
            }
            Event::Footprint(f) => {
                self.rss.insert(f.target, f.rss);
            }
            Event::End { target, why, .. } => {
                self.working_sets.remove(target);
                // It is reported anew where several targets are left.
                self.together = None;
                if *why == TargetEnd::Exited {
                    self.rss.remove(target);
                }
            }
            Event::Pages(f) => {
                if let Some(bytes) = working_set_of(&f.total()) {
                    self.working_sets.insert(f.target, (bytes, true));
                }
            }
            Event::Together(f) => self.together = working_set_of(&f.ages),
            Event::Target(_) | Event::Mappings { .. } => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::event::Mode;

    #[test]
    fn time_counts_from_the_begin_of_the_first_snapshot() {
        const SECOND: u64 = 1_000_000_000;
        let stats = |time_ns| {
            Event::Stats(MonitorStats {
                time_ns,
                monitor_ns: 0,
                target_ns: 0,
                checks: 0,
                clears: 0,
                mode: Mode::Sample,
                sample_us: 1_000_000,
                aggr_us: 1_000_000,
                nr_regions: 1,
                late_samples: 0,
            })
        };
        let snapshot = |target, start_ns: u64| {
            Event::Snapshot(Snapshot {
                target,
                pid: None,
                start_ns,
                end_ns: start_ns + SECOND,
                sample_us: 1_000_000,
                aggr_us: 1_000_000,
                max_nr_accesses: 1,
                regions: Vec::new(),
            })
        };
        let mut progress = Progress::default();
        let mut take = |event: Event| {
            progress.event(&event).unwrap();
            progress.elapsed_ns()
        };
        assert_eq!(take(stats(11 * SECOND)), 0);
        assert_eq!(take(snapshot(0, 10 * SECOND)), SECOND);
        assert_eq!(take(stats(11 * SECOND)), SECOND);
        // Another target that was seen first, but whose snapshot comes second.
        assert_eq!(take(snapshot(1, 9 * SECOND + SECOND / 2)), SECOND + SECOND / 2);
        assert_eq!(take(snapshot(0, 11 * SECOND)), 2 * SECOND + SECOND / 2);
    }
}
