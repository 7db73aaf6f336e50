//! Answers that are given again for a while: what asking costs does not grow with how often somebody asks.

use super::status::NodeStatus;
use isotherm_daemon::openmetrics::Exposition;
use isotherm_daemon::service::Status;
use serde::{Serialize, Serializer};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// How long an answer is given again at least, ns.
const KEPT_NS: u64 = 1_000_000_000;
/// And for so many times as long as the work for it took: asking for one kind costs a twentieth of a core at most.
const KEPT_PER_COST: u64 = 20;

/// The last answer of one kind.
#[derive(Debug)]
pub struct LastAnswer<T> {
    /// With the time until which it is given again.
    kept: Option<(T, u64)>,
}

impl<T> Default for LastAnswer<T> {
    fn default() -> Self {
        Self { kept: None }
    }
}

impl<T: Clone> LastAnswer<T> {
    /// The answer, if it may be given again at `now_ns`.
    pub fn at(&self, now_ns: u64) -> Option<T> {
        self.kept.as_ref().filter(|(_, until_ns)| now_ns < *until_ns).map(|(answer, _)| answer.clone())
    }

    /// Keeps what was found out at `now_ns` in `cost_ns` of a processor's time.
    pub fn keep(&mut self, answer: T, now_ns: u64, cost_ns: u64) {
        let for_ns = cost_ns.saturating_mul(KEPT_PER_COST).max(KEPT_NS);
        self.kept = Some((answer, now_ns.saturating_add(for_ns)));
    }

    /// It is not true any more.
    pub fn forget(&mut self) {
        self.kept = None;
    }
}

/// A status that several requests get. Its metrics are written once, in the thread of whoever asks for them first.
#[derive(Debug, Clone)]
pub struct SharedStatus(Arc<Written>);

#[derive(Debug)]
struct Written {
    status: NodeStatus,
    metrics: OnceLock<Exposition>,
}

impl From<NodeStatus> for SharedStatus {
    fn from(status: NodeStatus) -> Self {
        Self(Arc::new(Written { status, metrics: OnceLock::new() }))
    }
}

impl Deref for SharedStatus {
    type Target = NodeStatus;

    fn deref(&self) -> &NodeStatus {
        &self.0.status
    }
}

impl Serialize for SharedStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.status.serialize(serializer)
    }
}

impl Status for SharedStatus {
    fn write_metrics(&self, out: &mut Exposition) {
        out.append(self.0.metrics.get_or_init(|| {
            let mut written = Exposition::default();
            self.0.status.write_metrics(&mut written);
            written
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn an_answer_is_given_again_for_a_second_and_for_longer_where_it_was_dear() {
        let mut last = LastAnswer::default();
        assert_eq!(last.at(0), None);
        last.keep(1, 5 * S, S / 100);
        assert_eq!((last.at(5 * S), last.at(6 * S - 1), last.at(6 * S)), (Some(1), Some(1), None));
        last.keep(2, 6 * S, S / 10);
        assert_eq!((last.at(8 * S - 1), last.at(8 * S)), (Some(2), None));
        last.forget();
        assert_eq!(last.at(7 * S), None);
    }
}
