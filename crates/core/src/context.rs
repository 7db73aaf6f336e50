//! The one loop: a monitor over its targets and the schemes that act on what it sees. Commands and simulations run it
//! alike, each with its own clock.

use crate::clock::{Clock, Wake};
use crate::engine::{Engine, EngineError, Progress};
use crate::event::{Event, Step, Subscriber, SubscriberError};
use crate::scheme::engine::SchemeEngine;
use crate::source::AccessSource;

/// The longest rest while every scheme is switched off, ns: so that targets that end are noticed.
const LONGEST_REST_NS: u64 = 1_000_000_000;
/// How often work that was handed over is looked at while nothing else is done, ns.
const SETTLE_EVERY_NS: u64 = 5_000_000;

/// Sees what a context does, and may step in between.
pub trait Operator: Subscriber {
    /// After every step of the loop, and in rests whenever the time [wanted](Subscriber::wanted_ns) has come: schemes
    /// may be replaced here.
    fn between_steps(&mut self, schemes: &mut SchemeEngine, now_ns: u64) {
        let _ = (schemes, now_ns);
    }
}

/// Nobody looks on.
impl Subscriber for () {}
impl Operator for () {}

/// An engine (monitor, source, targets) with its schemes.
#[derive(Debug)]
pub struct Context<E> {
    engine: E,
    schemes: Option<SchemeEngine>,
}

impl<E: Engine> Context<E> {
    /// Only watches.
    pub const fn new(engine: E) -> Self {
        Self { engine, schemes: None }
    }

    /// Acts on what it sees, and watches only while a scheme is switched on.
    pub fn with_schemes(self, schemes: SchemeEngine) -> Self {
        Self { schemes: Some(schemes), ..self }
    }

    /// The engine.
    pub const fn engine(&mut self) -> &mut E {
        &mut self.engine
    }

    /// The schemes; `None`: it only watches.
    pub const fn schemes(&mut self) -> Option<&mut SchemeEngine> {
        self.schemes.as_mut()
    }

    /// One aggregation interval; or, while the watermarks keep every scheme off, a rest in which no page is looked at:
    /// until a watermark is due, there are other schemes, or `until_ns`.
    pub fn turn(
        &mut self,
        clock: &mut dyn Clock,
        until_ns: u64,
        operator: &mut dyn Operator,
    ) -> Result<Progress, EngineError> {
        let Some(schemes) = &mut self.schemes else { return self.engine.run_interval(clock, operator) };
        let now = clock.now_ns();
        let on = schemes.turn_gates(now);
        let mut both = Operated { schemes, operator };
        if on {
            return self.engine.run_interval(clock, &mut both);
        }
        let progress = self.engine.follow_targets(clock, &mut both)?;
        if progress != Progress::Aggregated {
            return Ok(progress);
        }
        let gate_ns = both.schemes.next_gate_ns().unwrap_or(u64::MAX);
        let until = gate_ns.min(now.saturating_add(LONGEST_REST_NS)).min(until_ns);
        loop {
            if clock.sleep_until_ns(until.min(both.operator.wanted_ns().unwrap_or(u64::MAX))) == Wake::Interrupted {
                return Ok(Progress::Interrupted);
            }
            let now = clock.now_ns();
            both.operator.between_steps(both.schemes, now);
            if now >= until || both.schemes.next_gate_ns().is_none_or(|gate| gate <= now) {
                return Ok(Progress::Aggregated);
            }
        }
    }

    /// Waits for work that was handed over, so that the last figures are whole; not longer than until `until_ns`.
    pub fn settle(&mut self, clock: &mut dyn Clock, until_ns: u64) {
        let Some(schemes) = &mut self.schemes else { return };
        loop {
            let now = clock.now_ns();
            schemes.collect(now, self.engine.page_source());
            if !schemes.has_pending() || now >= until_ns {
                return;
            }
            clock.sleep_until_ns(now.saturating_add(SETTLE_EVERY_NS).min(until_ns));
        }
    }
}

/// Schemes with their operator: one subscriber of the engine.
struct Operated<'a> {
    schemes: &'a mut SchemeEngine,
    operator: &'a mut dyn Operator,
}

impl Subscriber for Operated<'_> {
    fn event(&mut self, event: &Event) -> Result<(), SubscriberError> {
        self.operator.event(event)?;
        self.schemes.event(event)
    }

    fn step(&mut self, step: Step, now_ns: u64) {
        self.schemes.step(step, now_ns);
        self.operator.step(step, now_ns);
        self.operator.between_steps(self.schemes, now_ns);
    }

    fn step_with(&mut self, step: Step, now_ns: u64, source: &mut dyn AccessSource) {
        // A turn that only the operator wanted is not the schemes'.
        if step != Step::Wanted || self.schemes.wanted_ns().is_some_and(|wanted| wanted <= now_ns) {
            self.schemes.step_with(step, now_ns, source);
        }
        self.operator.step_with(step, now_ns, source);
        self.operator.between_steps(self.schemes, now_ns);
    }

    fn wanted_ns(&self) -> Option<u64> {
        self.schemes.wanted_ns().into_iter().chain(self.operator.wanted_ns()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actuator::DryRun;
    use crate::clock::VirtualClock;
    use crate::meter::{LiveTarget, Meter, MeterError, Metric};
    use crate::scheme::Scheme;
    use crate::scheme::action::Action;
    use crate::scheme::pattern::AccessPattern;
    use crate::scheme::watermark::{WatermarkMetric, Watermarks};
    use std::cell::Cell;
    use std::rc::Rc;

    /// Counts what is asked of it; an interval takes 100 ms.
    #[derive(Debug, Default)]
    struct Counting {
        intervals: u32,
        follows: u32,
    }

    impl Engine for Counting {
        fn run_interval(
            &mut self,
            clock: &mut dyn Clock,
            subscriber: &mut dyn Subscriber,
        ) -> Result<Progress, EngineError> {
            self.intervals += 1;
            clock.sleep_until_ns(clock.now_ns() + 100_000_000);
            subscriber.step(Step::AfterAggregate, clock.now_ns());
            Ok(Progress::Aggregated)
        }

        fn follow_targets(&mut self, _: &mut dyn Clock, _: &mut dyn Subscriber) -> Result<Progress, EngineError> {
            self.follows += 1;
            Ok(Progress::Aggregated)
        }
    }

    #[derive(Clone)]
    struct Free(Rc<Cell<u64>>);

    impl Meter for Free {
        fn read(&mut self, metric: &Metric, _: &[LiveTarget]) -> Result<u64, MeterError> {
            match metric {
                Metric::FreeMemRate => Ok(self.0.get()),
                _ => Err(MeterError { metric: metric.to_string(), reason: "none".into(), remedy: "none".into() }),
            }
        }
    }

    /// Wants to be asked every 200 ms, and removes the watermarks at a moment.
    #[derive(Default)]
    struct Removing {
        at_ns: u64,
        next_ns: u64,
        times: Vec<u64>,
    }

    impl Subscriber for Removing {
        fn wanted_ns(&self) -> Option<u64> {
            Some(self.next_ns)
        }
    }

    impl Operator for Removing {
        fn between_steps(&mut self, schemes: &mut SchemeEngine, now_ns: u64) {
            self.times.push(now_ns);
            self.next_ns = now_ns + 200_000_000;
            if now_ns >= self.at_ns {
                schemes.commit(vec![Scheme::new(Action::Stat, AccessPattern::default())]);
            }
        }
    }

    fn context(free: &Free) -> Context<Counting> {
        let mut scheme = Scheme::new(Action::Stat, AccessPattern::default());
        scheme.watermarks = Some(Watermarks {
            metric: WatermarkMetric::FreeMemRate,
            interval_us: 5_000_000,
            high_bp: 5000,
            mid_bp: 4000,
            low_bp: 1000,
        });
        let schemes = SchemeEngine::new(vec![scheme], Box::new(DryRun::default()), Box::new(free.clone()));
        Context::new(Counting::default()).with_schemes(schemes)
    }

    #[test]
    fn nothing_is_watched_while_the_watermarks_keep_every_scheme_off() {
        let free = Free(Rc::new(Cell::new(9000)));
        let (mut context, mut clock) = (context(&free), VirtualClock::new(0));
        for second in 1..=4 {
            context.turn(&mut clock, u64::MAX, &mut ()).unwrap();
            assert_eq!(clock.now_ns(), second * 1_000_000_000, "targets are followed once a second");
        }
        context.turn(&mut clock, 4_200_000_000, &mut ()).unwrap();
        assert_eq!(clock.now_ns(), 4_200_000_000, "not beyond the end that was asked for");
        assert_eq!((context.engine().intervals, context.engine().follows), (0, 5));
        free.0.set(3000);
        context.turn(&mut clock, u64::MAX, &mut ()).unwrap();
        assert_eq!(
            (clock.now_ns(), context.engine().intervals),
            (5_000_000_000, 0),
            "the metric is read when it is due"
        );
        context.turn(&mut clock, u64::MAX, &mut ()).unwrap();
        assert_eq!((clock.now_ns(), context.engine().intervals), (5_100_000_000, 1));
    }

    #[test]
    fn a_rest_ends_when_the_operator_replaces_the_schemes() {
        let free = Free(Rc::new(Cell::new(9000)));
        let (mut context, mut clock) = (context(&free), VirtualClock::new(0));
        let mut operator = Removing { at_ns: 600_000_000, next_ns: 200_000_000, times: Vec::new() };
        context.turn(&mut clock, u64::MAX, &mut operator).unwrap();
        assert_eq!(operator.times, [200_000_000, 400_000_000, 600_000_000]);
        context.turn(&mut clock, u64::MAX, &mut operator).unwrap();
        assert_eq!((clock.now_ns(), context.engine().intervals), (700_000_000, 1), "the new scheme has no watermarks");
    }

    #[test]
    fn without_schemes_every_interval_is_watched() {
        let (mut context, mut clock) = (Context::new(Counting::default()), VirtualClock::new(0));
        context.turn(&mut clock, u64::MAX, &mut ()).unwrap();
        assert_eq!(context.engine().intervals, 1);
        context.settle(&mut clock, u64::MAX);
        assert!(context.schemes().is_none());
    }
}
