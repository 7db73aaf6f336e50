//! Anything that watches targets and yields snapshots: our own monitor over an access source, the kernel's DAMON, or
//! the coarse `refs` fallback. Commands drive them all in the same way.

use crate::attrs::MonitorAttrs;
use crate::clock::{Clock, Wake};
use crate::event::{Event, Subscriber, SubscriberError};
use crate::source::{AccessSource, SourceError};

/// What one step of an engine came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// An aggregation interval has ended and its snapshots were handed out.
    Aggregated,
    /// The clock's sleep was interrupted: stop was asked for, or the time is over. What was seen in the interval under way
    /// is not handed out.
    Interrupted,
    /// No target is left.
    TargetsGone,
}

/// Why an engine stopped.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The source failed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A subscriber failed, for example because the disk is full.
    #[error("{0}")]
    Subscriber(SubscriberError),
}

/// Hands an event out.
pub fn emit(subscriber: &mut dyn Subscriber, event: &Event) -> Result<(), EngineError> {
    subscriber.event(event).map_err(EngineError::Subscriber)
}

/// Sleeps until `deadline_ns`, with a `turn` whenever the time has come that `subscriber` wants one at.
pub fn sleep_with_turns(
    deadline_ns: u64,
    clock: &mut dyn Clock,
    subscriber: &mut dyn Subscriber,
    mut turn: impl FnMut(&mut dyn Subscriber, u64),
) -> Wake {
    while let Some(wanted) = subscriber.wanted_ns().filter(|&wanted| wanted < deadline_ns) {
        if clock.sleep_until_ns(wanted) == Wake::Interrupted {
            return Wake::Interrupted;
        }
        turn(subscriber, clock.now_ns());
        // One that wants a time that has passed already gets its turn, but only one before the next look.
        if subscriber.wanted_ns().is_some_and(|next| next <= wanted) {
            break;
        }
    }
    clock.sleep_until_ns(deadline_ns)
}

/// Watches targets and yields one aggregation interval at a time.
pub trait Engine {
    /// Runs through one aggregation interval, handing events to `subscriber`.
    fn run_interval(&mut self, clock: &mut dyn Clock, subscriber: &mut dyn Subscriber)
    -> Result<Progress, EngineError>;

    /// How long an aggregation interval that begins now would take, as far as that is known, ns.
    fn interval_ns(&self) -> u64 {
        0
    }

    /// Follows the targets and their mappings without looking at a single page: what is done while nobody needs to know
    /// what is accessed. Does nothing where an engine cannot do one without the other.
    fn follow_targets(
        &mut self,
        clock: &mut dyn Clock,
        subscriber: &mut dyn Subscriber,
    ) -> Result<Progress, EngineError> {
        let _ = (clock, subscriber);
        Ok(Progress::Aggregated)
    }

    /// Takes other intervals and region limits, valid ones, from the end of the next aggregation interval on. What was
    /// seen is kept. False where an engine cannot change them while it runs.
    fn retune(&mut self, attrs: MonitorAttrs) -> bool {
        let _ = attrs;
        false
    }

    /// The source it observes through, if it is one that can be asked about single pages.
    fn page_source(&mut self) -> Option<&mut dyn AccessSource> {
        None
    }
}

impl<E: Engine + ?Sized> Engine for Box<E> {
    fn run_interval(
        &mut self,
        clock: &mut dyn Clock,
        subscriber: &mut dyn Subscriber,
    ) -> Result<Progress, EngineError> {
        (**self).run_interval(clock, subscriber)
    }

    fn interval_ns(&self) -> u64 {
        (**self).interval_ns()
    }

    fn follow_targets(
        &mut self,
        clock: &mut dyn Clock,
        subscriber: &mut dyn Subscriber,
    ) -> Result<Progress, EngineError> {
        (**self).follow_targets(clock, subscriber)
    }

    fn retune(&mut self, attrs: MonitorAttrs) -> bool {
        (**self).retune(attrs)
    }

    fn page_source(&mut self) -> Option<&mut dyn AccessSource> {
        (**self).page_source()
    }
}
