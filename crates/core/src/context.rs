//! The one loop: a monitor over its targets and the schemes that act on what it sees. Commands and simulations run it
//! alike, each with its own clock.

use crate::clock::{Clock, Until, Wake};
use crate::engine::{Engine, EngineError, Progress};
use crate::event::{Event, Step, Subscriber, SubscriberError};
use crate::scheme::engine::SchemeEngine;
use crate::source::AccessSource;
use crate::trace::{TraceEvent, Tracer};

/// The longest rest while every scheme is switched off, ns: so that targets that end are noticed.
const LONGEST_REST_NS: u64 = 1_000_000_000;
/// How often work that was handed over is looked at while nothing else is done, ns.
const SETTLE_EVERY_NS: u64 = 5_000_000;

/// An aggregation interval that is over so soon after the time that was asked for, or within this part of itself, is seen
/// to its end: without, what it has seen would be lost.
const LATE_NS: u64 = 1_000_000_000;
const LATE_PART: u64 = 10;

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
pub struct Context<E> {
    engine: E,
    schemes: Option<SchemeEngine>,
    tracing: Tracing,
}

impl<E: std::fmt::Debug> std::fmt::Debug for Context<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { engine, schemes, tracing: _ } = self;
        f.debug_struct("Context").field("engine", engine).field("schemes", schemes).finish_non_exhaustive()
    }
}

impl<E: Engine> Context<E> {
    /// Only watches.
    pub const fn new(engine: E) -> Self {
        Self { engine, schemes: None, tracing: Tracing { tracers: Vec::new(), sample_us: None } }
    }

    /// Acts on what it sees, and does not watch while every scheme is switched off.
    pub fn with_schemes(self, schemes: SchemeEngine) -> Self {
        Self { schemes: Some(schemes), ..self }
    }

    /// Tells `tracer`, too, what happens.
    pub fn trace(&mut self, tracer: Box<dyn Tracer>) {
        self.tracing.tracers.push(tracer);
    }

    /// How long an aggregation interval that begins now would take, as far as that is known, ns.
    pub fn interval_ns(&self) -> u64 {
        self.engine.interval_ns()
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
    /// until a watermark is due, there are other schemes, or `until_ns`. An interval that would last considerably longer
    /// than `until_ns` is interrupted then.
    pub fn turn(
        &mut self,
        clock: &mut dyn Clock,
        until_ns: u64,
        operator: &mut dyn Operator,
    ) -> Result<Progress, EngineError> {
        let Self { engine, schemes, tracing } = self;
        let Some(schemes) = schemes else {
            return interval(engine, clock, until_ns, &mut Traced { tracing, subscriber: operator });
        };
        let now = clock.now_ns();
        let on = schemes.turn_gates(now);
        let mut all = Operated { schemes, operator, tracing };
        if on {
            return interval(engine, clock, until_ns, &mut all);
        }
        let progress = engine.follow_targets(clock, &mut all)?;
        if progress != Progress::Aggregated {
            return Ok(progress);
        }
        let gate_ns = all.schemes.next_gate_ns().unwrap_or(u64::MAX);
        let until = gate_ns.min(now.saturating_add(LONGEST_REST_NS)).min(until_ns);
        loop {
            if clock.sleep_until_ns(until.min(all.operator.wanted_ns().unwrap_or(u64::MAX))) == Wake::Interrupted {
                return Ok(Progress::Interrupted);
            }
            let now = clock.now_ns();
            all.operator.between_steps(all.schemes, now);
            if now >= until || all.schemes.next_gate_ns().is_none_or(|gate| gate <= now) {
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

/// One aggregation interval, to its end if that is near `until_ns`, else not beyond it.
fn interval(
    engine: &mut impl Engine,
    clock: &mut dyn Clock,
    until_ns: u64,
    subscriber: &mut dyn Subscriber,
) -> Result<Progress, EngineError> {
    let interval_ns = engine.interval_ns();
    let late_ns = LATE_NS.max(interval_ns / LATE_PART);
    let expected_ns = clock.now_ns().saturating_add(interval_ns);
    // A loaded machine stretches an interval; it must still come to an end.
    let is_near = expected_ns <= until_ns.saturating_add(late_ns);
    let end_ns = if is_near { until_ns.max(expected_ns.saturating_add(late_ns)) } else { until_ns };
    engine.run_interval(&mut Until::new(clock, end_ns), subscriber)
}

/// Those who listen to events of tracepoints.
struct Tracing {
    tracers: Vec<Box<dyn Tracer>>,
    /// The sampling interval of the last snapshot.
    sample_us: Option<u64>,
}

impl Tracing {
    fn event(&mut self, event: &Event) {
        let Event::Snapshot(snapshot) = event else { return };
        let sample_us = snapshot.sample_us;
        if self.sample_us.replace(sample_us).is_some_and(|before| before != sample_us) {
            self.tracers.trace(&TraceEvent::IntervalsTune { sample_us });
        }
        for region in &snapshot.regions {
            if !self.tracers.trace(&TraceEvent::aggregated(snapshot, region)) {
                break;
            }
        }
    }
}

/// A subscriber, and those who listen to events of tracepoints.
struct Traced<'a> {
    tracing: &'a mut Tracing,
    subscriber: &'a mut dyn Subscriber,
}

impl Subscriber for Traced<'_> {
    fn event(&mut self, event: &Event) -> Result<(), SubscriberError> {
        self.tracing.event(event);
        self.subscriber.event(event)
    }

    fn step(&mut self, step: Step, now_ns: u64) {
        self.subscriber.step(step, now_ns);
    }

    fn step_with(&mut self, step: Step, now_ns: u64, source: &mut dyn AccessSource) {
        self.subscriber.step_with(step, now_ns, source);
    }

    fn wanted_ns(&self) -> Option<u64> {
        self.subscriber.wanted_ns()
    }
}

/// Schemes with their operator, and those who listen: one subscriber of the engine.
struct Operated<'a> {
    schemes: &'a mut SchemeEngine,
    operator: &'a mut dyn Operator,
    tracing: &'a mut Tracing,
}

impl Subscriber for Operated<'_> {
    fn event(&mut self, event: &Event) -> Result<(), SubscriberError> {
        self.tracing.event(event);
        self.operator.event(event)?;
        self.schemes.event(event)
    }

    fn step(&mut self, step: Step, now_ns: u64) {
        self.schemes.step_traced(step, now_ns, None, &mut self.tracing.tracers);
        self.operator.step(step, now_ns);
        self.operator.between_steps(self.schemes, now_ns);
    }

    fn step_with(&mut self, step: Step, now_ns: u64, source: &mut dyn AccessSource) {
        // A turn that only the operator wanted is not the schemes'.
        if step != Step::Wanted || self.schemes.wanted_ns().is_some_and(|wanted| wanted <= now_ns) {
            self.schemes.step_traced(step, now_ns, Some(&mut *source), &mut self.tracing.tracers);
        }
        self.operator.step_with(step, now_ns, source);
        self.operator.between_steps(self.schemes, now_ns);
    }

    fn wanted_ns(&self) -> Option<u64> {
        self.schemes.wanted_ns().into_iter().chain(self.operator.wanted_ns()).min()
    }
}

#[cfg(test)]
mod tests;
