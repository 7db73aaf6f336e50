//! What misses cost: a machine around a replacement policy, so that throughput and pressure are predicted, not misses
//! alone.
//!
//! Tasks take the requests of a trace in order, each the next one as soon as it is done with its last. A request is
//! some work; a miss is besides that a fault, a page that must be free (`reclaimer`: freed in the background ahead of
//! need, or by the task itself), and, unless it is the first touch of anonymous memory, reading the page back. How long
//! tasks wait for memory is counted as the kernel counts pressure (`pressure`).
//!
//! What it leaves out: tasks and reclaim do not take processors from each other, processor caches do not cool down,
//! locks do not contend, and swap is never full (packed memory that does not fit is: [`Machine::resident`] says so).

mod model;
mod pressure;
mod reclaimer;
mod spec;

#[cfg(test)]
mod tests;

pub use model::{Model, Outcome, Request};
pub use spec::{Machine, Room};

use serde::Serialize;

/// What a machine makes of a policy at a size.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    pub name: &'static str,
    /// Even with everything packed, the pages do not fit; nothing else is predicted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub out_of_memory: bool,
    /// What it comes to.
    #[serde(flatten)]
    pub outcome: Option<Outcome>,
}
