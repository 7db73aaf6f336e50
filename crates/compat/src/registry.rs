//! What runs behind the files of a mount, and what was refused: for whoever asks how it stands. A file cannot say why.

use crate::held::held;
use crate::kdamond::{Kdamond, Observer, Starter, Stopper};
use crate::refused::Refused;
use crate::scheme::Goals;
use crate::settings::Settings;
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::scheme::stats::SchemeStats;
use isotherm_core::snapshot::RegionInfo;
use isotherm_linux::clock::monotonic_ns;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};

/// Refusals that are kept: the last.
const MOST_REFUSALS: usize = 64;

/// Starts kdamonds with another starter, and remembers them and what was refused. All copies are one.
#[derive(Clone)]
pub struct Registry {
    starter: Arc<dyn Starter>,
    known: Arc<Mutex<Known>>,
}

#[derive(Default)]
struct Known {
    kdamonds: Vec<Entry>,
    refusals: VecDeque<Refusal>,
}

#[derive(Clone)]
struct Entry {
    files: String,
    tid: i32,
    kdamond: Weak<Mutex<Box<dyn Kdamond>>>,
    about: Arc<Mutex<About>>,
}

/// Kept apart from the kdamond, which whoever waits for its answer holds.
struct About {
    settings: Settings,
    /// As they were last reported.
    stats: Vec<SchemeStats>,
}

/// A kdamond that runs.
#[derive(Debug, Clone)]
pub struct RunningKdamond {
    /// The files that it stands behind.
    pub files: String,
    /// Its thread's id.
    pub tid: i32,
    /// What it does, as it was last committed.
    pub settings: Settings,
    /// Counters of each scheme; of a kdamond that is busy with an answer to somebody else those of the last time.
    pub stats: Vec<SchemeStats>,
}

/// What was written and could not be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// When, ns on CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// The files that it was written to.
    pub files: String,
    /// Why, and what can be done.
    pub reason: String,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}

impl Registry {
    /// Nothing runs, and nothing was refused.
    pub fn new(starter: impl Starter + 'static) -> Self {
        Self { starter: Arc::new(starter), known: Arc::default() }
    }

    /// Kdamonds that run, in the order in which they were started.
    pub fn running(&self) -> Vec<RunningKdamond> {
        // A kdamond may take its time to answer; others can start meanwhile.
        let kdamonds = held(&self.known).kdamonds.clone();
        kdamonds.iter().filter_map(Entry::look).collect()
    }

    /// What was refused, the last at the end.
    pub fn refusals(&self) -> Vec<Refusal> {
        held(&self.known).refusals.iter().cloned().collect()
    }
}

impl Entry {
    /// `None` where it has ended.
    fn look(&self) -> Option<RunningKdamond> {
        let kdamond = self.kdamond.upgrade()?;
        // Whoever waits for a kdamond's answer, which may take long, is not waited for.
        if let Ok(mut kdamond) = kdamond.try_lock() {
            if !kdamond.is_running() {
                return None;
            }
            if let Ok(stats) = kdamond.stats() {
                held(&self.about).stats = stats;
            }
        }
        let about = held(&self.about);
        let (settings, stats) = (about.settings.clone(), about.stats.clone());
        Some(RunningKdamond { files: self.files.clone(), tid: self.tid, settings, stats })
    }
}

impl Starter for Registry {
    fn start(&self, files: &str, settings: Settings, observer: Option<Observer>) -> Result<Box<dyn Kdamond>, Refused> {
        let kdamond = self.starter.start(files, settings.clone(), observer)?;
        let tid = kdamond.tid();
        let kdamond = Arc::new(Mutex::new(kdamond));
        let about = Arc::new(Mutex::new(About { settings, stats: Vec::new() }));
        let entry =
            Entry { files: files.to_owned(), tid, kdamond: Arc::downgrade(&kdamond), about: Arc::clone(&about) };
        let mut known = held(&self.known);
        known.kdamonds.retain(|entry| entry.kdamond.strong_count() > 0);
        known.kdamonds.push(entry);
        Ok(Box::new(Registered { kdamond, about, tid }))
    }

    fn refused(&self, files: &str, refused: &Refused) {
        self.starter.refused(files, refused);
        let refusal = Refusal { time_ns: monotonic_ns(), files: files.to_owned(), reason: refused.reason.clone() };
        let mut known = held(&self.known);
        // Some programs write twice what was not taken.
        if known.refusals.back().is_some_and(|last| last.files == refusal.files && last.reason == refusal.reason) {
            known.refusals.pop_back();
        }
        if known.refusals.len() == MOST_REFUSALS {
            known.refusals.pop_front();
        }
        known.refusals.push_back(refusal);
    }
}

/// A kdamond as its owner has it.
struct Registered {
    kdamond: Arc<Mutex<Box<dyn Kdamond>>>,
    about: Arc<Mutex<About>>,
    tid: i32,
}

impl Kdamond for Registered {
    fn is_running(&self) -> bool {
        held(&self.kdamond).is_running()
    }

    fn tid(&self) -> i32 {
        self.tid
    }

    fn stopper(&self) -> Stopper {
        held(&self.kdamond).stopper()
    }

    fn stop(&mut self) {
        held(&self.kdamond).stop();
    }

    fn commit(&mut self, settings: Settings) -> Result<(), Refused> {
        held(&self.kdamond).commit(settings.clone())?;
        held(&self.about).settings = settings;
        Ok(())
    }

    fn commit_goals(&mut self, goals: Vec<Goals>) -> Result<(), Refused> {
        held(&self.kdamond).commit_goals(goals.clone())?;
        held(&self.about).settings.goals = goals;
        Ok(())
    }

    fn stats(&mut self) -> Result<Vec<SchemeStats>, Refused> {
        held(&self.kdamond).stats()
    }

    fn tried(&mut self) -> Result<Vec<Vec<RegionInfo>>, Refused> {
        held(&self.kdamond).tried()
    }

    fn attrs(&mut self) -> Result<MonitorAttrs, Refused> {
        held(&self.kdamond).attrs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use crate::settings::KdamondTargets;
    use isotherm_core::monitor::config::Algorithm;
    use std::sync::atomic::Ordering;

    fn settings(aggr_us: u64) -> Settings {
        Settings {
            attrs: MonitorAttrs { aggr_us, ..MonitorAttrs::default() },
            algorithm: Algorithm::Isotherm,
            intervals_goal: None,
            watched: KdamondTargets::All,
            schemes: Vec::new(),
            goals: Vec::new(),
        }
    }

    #[test]
    fn what_runs_is_told_with_its_latest_stats_and_settings() {
        let fake = Fake::default();
        let registry = Registry::new(fake.clone());
        assert!(registry.running().is_empty());
        let mut kdamond = registry.start("kdamonds/3", settings(100_000), None).unwrap();
        let stats = SchemeStats { nr_tried: 5, ..SchemeStats::default() };
        *fake.0.stats.lock().unwrap() = vec![stats.clone()];
        kdamond.commit(settings(200_000)).unwrap();
        let running = registry.clone().running();
        assert_eq!((running[0].files.as_str(), running[0].tid, running.len()), ("kdamonds/3", 77, 1));
        assert_eq!((&running[0].stats[0], running[0].settings.attrs.aggr_us), (&stats, 200_000));

        fake.0.refuse.store(true, Ordering::Relaxed);
        kdamond.commit(settings(300_000)).unwrap_err();
        assert_eq!(registry.running()[0].settings.attrs.aggr_us, 200_000, "a refused commit changes nothing");

        kdamond.stop();
        assert!(registry.running().is_empty(), "it has ended");
        drop(kdamond);
        fake.0.refuse.store(false, Ordering::Relaxed);
        let _next = registry.start("kdamonds/3", settings(100_000), None).unwrap();
        assert_eq!(held(&registry.known).kdamonds.len(), 1, "nothing is kept of it");
    }

    #[test]
    fn whoever_waits_for_a_kdamond_is_not_waited_for() {
        let registry = Registry::new(Fake::default());
        let _kdamond = registry.start("x", settings(100_000), None).unwrap();
        let entry = held(&registry.known).kdamonds[0].kdamond.upgrade().unwrap();
        let _busy = held(&entry);
        assert_eq!(registry.running().len(), 1);
    }

    #[test]
    fn the_last_refusals_are_kept() {
        let registry = Registry::new(Fake::default());
        for number in 0..MOST_REFUSALS + 3 {
            registry.refused("kdamonds/0", &Refused::new(number));
            registry.refused("kdamonds/0", &Refused::new(number));
        }
        let refusals = registry.refusals();
        assert_eq!(refusals.len(), MOST_REFUSALS);
        assert_eq!((refusals[0].reason.as_str(), refusals[0].files.as_str()), ("3", "kdamonds/0"));
        assert!(refusals.is_sorted_by_key(|refusal| refusal.time_ns));
    }
}
