//! A kdamond for tests: keeps what it was reported, and says what it is to say.

use crate::held::held;
use crate::kdamond::{Kdamond, Observer, Starter, Stopper};
use crate::refused::Refused;
use crate::scheme::Goals;
use crate::settings::Settings;
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::event::Event;
use isotherm_core::scheme::stats::SchemeStats;
use isotherm_core::snapshot::RegionInfo;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What the kdamonds were reported, and what they say.
#[derive(Debug, Default)]
pub(crate) struct Reported {
    pub(crate) started: Mutex<Vec<Settings>>,
    pub(crate) committed: Mutex<Vec<Settings>>,
    pub(crate) goals: Mutex<Vec<Vec<Goals>>>,
    pub(crate) stats: Mutex<Vec<SchemeStats>>,
    pub(crate) running: AtomicBool,
    /// What the observer of the next one sees before it starts.
    pub(crate) events: Mutex<Vec<Event>>,
    /// Why the next one cannot start.
    pub(crate) refuse: AtomicBool,
    /// Whether what is tried is only known when the kdamond ends, as with long apply intervals.
    pub(crate) slow: AtomicBool,
    /// Whether somebody waits for that.
    pub(crate) waits: AtomicBool,
}

impl Reported {
    /// Waits for a while until `what` is so.
    pub(crate) fn wait(&self, what: impl Fn(&Self) -> bool) -> bool {
        (0..5000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            what(self)
        })
    }
}

/// Starts kdamonds that do nothing.
#[derive(Clone, Default)]
pub(crate) struct Fake(pub(crate) Arc<Reported>);

impl Fake {
    pub(crate) fn last(&self) -> Settings {
        held(&self.0.started).last().unwrap().clone()
    }
}

impl Starter for Fake {
    fn start(&self, _: &str, settings: Settings, observer: Option<Observer>) -> Result<Box<dyn Kdamond>, Refused> {
        if self.0.refuse.load(Ordering::Relaxed) {
            return Err(Refused::new("this is a test"));
        }
        held(&self.0.started).push(settings);
        self.0.running.store(true, Ordering::Relaxed);
        if let Some(observer) = observer {
            let mut observer = observer();
            held(&self.0.events).drain(..).for_each(|event| observer.event(&event).unwrap());
        }
        Ok(Box::new(self.clone()))
    }
}

impl Kdamond for Fake {
    fn is_running(&self) -> bool {
        self.0.running.load(Ordering::Relaxed)
    }

    fn tid(&self) -> i32 {
        77
    }

    fn stopper(&self) -> Stopper {
        let reported = Arc::clone(&self.0);
        Arc::new(move || reported.running.store(false, Ordering::Relaxed))
    }

    fn stop(&mut self) {
        self.0.running.store(false, Ordering::Relaxed);
    }

    fn commit(&mut self, settings: Settings) -> Result<(), Refused> {
        if self.0.refuse.load(Ordering::Relaxed) {
            return Err(Refused::new("this is a test"));
        }
        held(&self.0.committed).push(settings);
        Ok(())
    }

    fn commit_goals(&mut self, goals: Vec<Goals>) -> Result<(), Refused> {
        held(&self.0.goals).push(goals);
        Ok(())
    }

    fn stats(&mut self) -> Result<Vec<SchemeStats>, Refused> {
        if self.is_running() { Ok(held(&self.0.stats).clone()) } else { Err(Refused::new("it has ended")) }
    }

    fn tried(&mut self) -> Result<Vec<Vec<RegionInfo>>, Refused> {
        if self.0.slow.load(Ordering::Relaxed) {
            self.0.waits.store(true, Ordering::Relaxed);
            self.0.wait(|reported| !reported.running.load(Ordering::Relaxed));
            return Err(Refused::new("it has ended"));
        }
        let region =
            |start, end, nr_accesses| RegionInfo { start, end, nr_accesses, age: 3, evidence: None, accessed: None };
        Ok(vec![vec![region(4096, 8192, 20), region(8192, 20480, 0)]])
    }

    fn attrs(&mut self) -> Result<MonitorAttrs, Refused> {
        Ok(MonitorAttrs { sample_us: 10_000, aggr_us: 200_000, ..MonitorAttrs::default() })
    }
}
