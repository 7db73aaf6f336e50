//! What was done lately, for people who ask.

use crate::actuator::Outcome;
use crate::scheme::action::Action;
use crate::target::TargetId;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

const MOST: usize = 256;

/// One piece of work, as it went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// When it was done, ns on the clock.
    pub time_ns: u64,
    /// Index of the scheme.
    pub scheme: usize,
    /// What was done.
    pub action: Action,
    /// To whom.
    pub target: TargetId,
    /// Their process.
    pub pid: Option<u32>,
    /// Bytes asked for.
    pub asked: u64,
    /// Bytes that it succeeded for.
    pub applied: u64,
    /// How long it took, ns.
    pub took_ns: u64,
    /// The first refusal.
    pub error: Option<String>,
}

/// The last entries, oldest first.
#[derive(Debug, Clone, Default)]
pub struct ActionLog {
    entries: VecDeque<Entry>,
}

impl ActionLog {
    /// Adds what became of a piece of work.
    pub fn add(&mut self, outcome: &Outcome) {
        if self.entries.len() == MOST {
            self.entries.pop_front();
        }
        let request = &outcome.request;
        self.entries.push_back(Entry {
            time_ns: outcome.done_ns,
            scheme: request.scheme,
            action: request.action,
            target: request.target.target,
            pid: request.target.pid,
            asked: crate::addr::total_len(&request.ranges),
            applied: outcome.applied,
            took_ns: outcome.took_ns,
            error: outcome.error.clone(),
        });
    }

    /// The entries, oldest first.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }
}
