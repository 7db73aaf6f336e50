//! Schemes on their way over a memory that the test can see through.

use crate::toy::{Toy, World};
use isotherm_core::actuator::{Actuator, DryRun, Outcome, Request};
use isotherm_core::addr::{AddrRange, PAGE_SIZE, total_len};
use isotherm_core::clock::{Clock, VirtualClock};
use isotherm_core::engine::Engine;
use isotherm_core::event::{Event, Step, Subscriber, SubscriberError};
use isotherm_core::meter::{LiveTarget, Meter, MeterError, Metric};
use isotherm_core::monitor::Monitor;
use isotherm_core::monitor::config::{Algorithm, MonitorConfig};
use isotherm_core::scheme::Scheme;
use isotherm_core::scheme::action::Action;
use isotherm_core::scheme::engine::SchemeEngine;
use isotherm_core::scheme::idle::IdleReason;
use isotherm_core::scheme::pattern::{AccessPattern, Bounds};
use isotherm_core::scheme::stats::SchemeStats;
use isotherm_core::source::AccessSource;
use std::cell::RefCell;
use std::rc::Rc;

pub const P: u64 = PAGE_SIZE;
pub const MS: u64 = 1_000_000;
pub const S: u64 = 1000 * MS;

pub fn pages(start: u64, end: u64) -> AddrRange {
    AddrRange::new(start * P, end * P)
}

/// Pages out what it is asked to, and remembers.
#[derive(Debug, Default)]
pub struct Hands {
    pub requests: Vec<(u64, Request)>,
    pub done: Vec<Outcome>,
    pub now_ns: u64,
    pub refuse: Option<String>,
    pub full: bool,
    /// Work is taken on and never finished.
    pub slow: bool,
    /// Nothing leaves memory.
    pub in_vain: bool,
    /// Why nothing that is tried succeeds.
    pub error: Option<String>,
    /// Pages that never leave memory.
    pub stuck: Option<AddrRange>,
}

pub struct ToyActuator {
    pub world: Rc<RefCell<World>>,
    pub hands: Rc<RefCell<Hands>>,
}

impl Actuator for ToyActuator {
    fn submit(&mut self, request: Request) -> Result<(), Request> {
        let mut hands = self.hands.borrow_mut();
        if hands.full {
            return Err(request);
        }
        if hands.slow {
            let now = hands.now_ns;
            hands.requests.push((now, request));
            return Ok(());
        }
        if request.action == Action::PageOut && !hands.in_vain {
            let all = request.ranges.iter().flat_map(|r| (r.start..r.end).step_by(P as usize));
            let goes = |page: &u64| !hands.stuck.is_some_and(|stuck| stuck.contains(*page));
            self.world.borrow_mut().out.extend(all.filter(goes));
        }
        let error = hands.error.clone();
        let (applied, nr_applied) = match error {
            None => (total_len(&request.ranges), request.ranges.len() as u64),
            Some(_) => (0, 0),
        };
        let done_ns = hands.now_ns;
        hands.requests.push((done_ns, request.clone()));
        hands.done.push(Outcome { request, nr_applied, applied, took_ns: 1000, done_ns, error });
        Ok(())
    }

    fn collect(&mut self, out: &mut Vec<Outcome>) {
        out.append(&mut self.hands.borrow_mut().done);
    }

    fn pending(&self, _scheme: usize) -> u64 {
        0
    }

    fn obstacle(&mut self, _action: Action, _target: LiveTarget) -> Option<String> {
        self.hands.borrow().refuse.clone()
    }
}

/// Free memory as the test says; no pressure is ever reported.
struct ToyMeter(Rc<RefCell<u64>>);

impl Meter for ToyMeter {
    fn read(&mut self, metric: &Metric, _: &[LiveTarget]) -> Result<u64, MeterError> {
        match metric {
            Metric::FreeMemRate => Ok(*self.0.borrow()),
            _ => Err(MeterError { metric: metric.to_string(), reason: "toy".into(), remedy: "none".into() }),
        }
    }
}

pub struct Run {
    pub world: Rc<RefCell<World>>,
    pub hands: Rc<RefCell<Hands>>,
    pub free_bp: Rc<RefCell<u64>>,
    pub monitor: Monitor<Toy>,
    pub clock: VirtualClock,
    pub engine: SchemeEngine,
    /// Memory that is in use from a moment on, which comes right before the schemes' turn.
    pub used: Option<(u64, AddrRange)>,
}

/// Tells the actuator what time it is, since it has no clock.
struct Timed<'a> {
    pub engine: &'a mut SchemeEngine,
    pub hands: &'a RefCell<Hands>,
    pub world: &'a RefCell<World>,
    pub used: &'a mut Option<(u64, AddrRange)>,
}

impl Subscriber for Timed<'_> {
    fn event(&mut self, event: &Event) -> Result<(), SubscriberError> {
        self.engine.event(event)
    }

    fn step_with(&mut self, step: Step, now_ns: u64, source: &mut dyn AccessSource) {
        self.hands.borrow_mut().now_ns = now_ns;
        if let Some((_, range)) = self.used.take_if(|(from, _)| step == Step::AfterAggregate && now_ns >= *from) {
            self.world.borrow_mut().hot.push(range);
        }
        self.engine.step_with(step, now_ns, source);
    }

    fn wanted_ns(&self) -> Option<u64> {
        self.engine.wanted_ns()
    }
}

impl Run {
    pub fn new(mappings: &[AddrRange], hot: &[AddrRange], schemes: Vec<Scheme>) -> Self {
        schemes.iter().for_each(|s| s.validate().expect("a sound scheme"));
        let world = World { mappings: mappings.to_vec(), hot: hot.to_vec(), ..World::default() };
        let world = Rc::new(RefCell::new(world));
        let hands = Rc::new(RefCell::new(Hands::default()));
        let free_bp = Rc::new(RefCell::new(0));
        let config = MonitorConfig { algorithm: Algorithm::Isotherm, cpu_budget: None, ..MonitorConfig::default() };
        let actuator = ToyActuator { world: world.clone(), hands: hands.clone() };
        Self {
            monitor: Monitor::new(Toy::new(&world), config),
            clock: VirtualClock::new(1),
            engine: SchemeEngine::new(schemes, Box::new(actuator), Box::new(ToyMeter(free_bp.clone()))),
            world,
            hands,
            free_bp,
            used: None,
        }
    }

    /// The same, but `schemes` only pretend to act.
    pub fn dry(mut self, schemes: Vec<Scheme>) -> Self {
        let meter = ToyMeter(self.free_bp.clone());
        self.engine = SchemeEngine::new(schemes, Box::new(DryRun::default()), Box::new(meter)).dry_run();
        self
    }

    pub fn run(&mut self, ns: u64) -> &mut Self {
        let end = self.clock.now_ns() + ns;
        while self.clock.now_ns() < end {
            let (engine, used) = (&mut self.engine, &mut self.used);
            let mut timed = Timed { engine, hands: &self.hands, world: &self.world, used };
            self.monitor.run_interval(&mut self.clock, &mut timed).expect("the toy never fails");
        }
        self
    }

    pub fn stats(&mut self) -> SchemeStats {
        self.engine.status().remove(0).stats
    }

    pub fn idle(&mut self) -> Option<IdleReason> {
        self.engine.status().remove(0).idle.cloned()
    }

    pub fn out(&self) -> u64 {
        self.world.borrow().out.len() as u64 * P
    }
}

pub fn idle_for(age_ns: u64) -> AccessPattern {
    AccessPattern {
        rate_bp: Bounds::new(0, 500),
        age_us: Bounds::new(age_ns / 1000, u64::MAX),
        ..AccessPattern::default()
    }
}

pub fn page_out() -> Scheme {
    Scheme::new(Action::PageOut, idle_for(S))
}
