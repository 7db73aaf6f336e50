//! The border to whatever can act on memory.

use crate::addr::AddrRange;
use crate::meter::LiveTarget;
use crate::scheme::action::Action;

/// A memory node that pages are moved to, with its share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destination {
    /// Node number.
    pub node: u32,
    /// Its share among the destinations; only ratios matter.
    pub weight: u32,
}

/// Work for an actuator: one action on some memory of one target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Index of the scheme that asks.
    pub scheme: usize,
    /// Whose memory.
    pub target: LiveTarget,
    /// What to do.
    pub action: Action,
    /// On what: sorted, disjoint, page aligned.
    pub ranges: Vec<AddrRange>,
    /// Where to, for migration; empty otherwise.
    pub destinations: Vec<Destination>,
}

/// What became of a [`Request`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// What had been asked for.
    pub request: Request,
    /// Ranges that the action succeeded for.
    pub nr_applied: u64,
    /// Bytes that it succeeded for.
    pub applied: u64,
    /// How long it took, ns.
    pub took_ns: u64,
    /// When it was done, ns on the clock.
    pub done_ns: u64,
    /// The first refusal: range, reason, remedy. Refusals of single ranges do not stop the others.
    pub error: Option<String>,
}

/// Acts on memory. Work may be done later and elsewhere (a thread of its own), so that sampling stays on time.
pub trait Actuator {
    /// Takes work on. Gives it back where too much is waiting already.
    fn submit(&mut self, request: Request) -> Result<(), Request>;

    /// Moves what has been finished to `out`.
    fn collect(&mut self, out: &mut Vec<Outcome>);

    /// Bytes handed over and not yet finished, of scheme `scheme`.
    fn pending(&self, scheme: usize) -> u64;

    /// Why `action` must not or cannot be done to `target` just now (no swap, a critical process, an action that the
    /// kernel lacks), with a remedy. `None`: go on. Called often; cheap.
    fn obstacle(&mut self, action: Action, target: LiveTarget) -> Option<String>;
}

/// An actuator that does nothing and says it did: for `--dry-run`.
#[derive(Debug, Default)]
pub struct DryRun {
    done: Vec<Outcome>,
}

impl Actuator for DryRun {
    fn submit(&mut self, request: Request) -> Result<(), Request> {
        let applied = crate::addr::total_len(&request.ranges);
        let nr_applied = request.ranges.len() as u64;
        self.done.push(Outcome { request, nr_applied, applied, took_ns: 0, done_ns: 0, error: None });
        Ok(())
    }

    fn collect(&mut self, out: &mut Vec<Outcome>) {
        out.append(&mut self.done);
    }

    fn pending(&self, _scheme: usize) -> u64 {
        0
    }

    fn obstacle(&mut self, _action: Action, _target: LiveTarget) -> Option<String> {
        None
    }
}
