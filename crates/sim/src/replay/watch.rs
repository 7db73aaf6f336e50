//! What is counted request by request besides misses: groups, and the machine around the policy.

use crate::policy::Work;
use crate::predict::{Model, Request};
use crate::trace::Trace;
use isotherm_core::printable::printable;
use serde::Serialize;

/// What requests on behalf of a group came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GroupFigures {
    pub group: String,
    /// Requests on its behalf.
    pub requests: u64,
    /// Those for pages that were not there.
    pub misses: u64,
    /// Their share; `None` without a request.
    pub miss_ratio: Option<f64>,
    /// Misses of pages that had been there before.
    pub refaults: u64,
    /// Pages that had to leave, where the policy knows whose they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evictions: Option<u64>,
    /// Pages that are there at the end, where the policy knows whose they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident: Option<u64>,
    /// How often it was reclaimed below its `memory.low`. A sample does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low_events: Option<u64>,
}

/// Looks at every request.
#[derive(Debug)]
pub(super) struct Watch<'a> {
    trace: &'a Trace,
    /// A bit per page: it was there.
    seen: Vec<u64>,
    groups: Vec<GroupFigures>,
    model: Option<Model>,
}

impl<'a> Watch<'a> {
    /// `None`: there is nothing to look for.
    pub(super) fn new(trace: &'a Trace, model: Option<Model>) -> Option<Self> {
        if trace.groups().is_empty() && model.is_none() {
            return None;
        }
        let group = |name: &String| GroupFigures {
            group: printable(name).into_owned(),
            requests: 0,
            misses: 0,
            miss_ratio: None,
            refaults: 0,
            evictions: None,
            resident: None,
            low_events: None,
        };
        let groups = trace.groups().names().iter().map(group).collect();
        Some(Self { trace, seen: vec![0; trace.footprint().div_ceil(64) as usize], groups, model })
    }

    pub(super) fn see(&mut self, at: usize, hit: bool, work: impl FnOnce() -> Work) {
        let mut again = true;
        if !hit {
            let page = self.trace.pages()[at];
            let (word, bit) = (&mut self.seen[(page / 64) as usize], 1 << (page % 64));
            again = *word & bit != 0;
            *word |= bit;
        }
        if let Some(group) = self.groups.get_mut(usize::from(self.trace.groups().of(at))) {
            group.requests += 1;
            group.misses += u64::from(!hit);
            group.refaults += u64::from(!hit && again);
        }
        if let Some(model) = &mut self.model {
            model.request(Request { manner: self.trace.manner(at), hit, again }, work);
        }
    }

    /// What the policy itself knows of a group.
    pub(super) fn tell(&mut self, group: usize, evictions: u64, resident: u64, low_events: u64) {
        if let Some(group) = self.groups.get_mut(group) {
            group.evictions = Some(evictions);
            group.resident = Some(resident);
            group.low_events = Some(low_events);
        }
    }

    pub(super) fn finish(mut self) -> (Vec<GroupFigures>, Option<Model>) {
        for group in &mut self.groups {
            group.miss_ratio = (group.requests > 0).then(|| group.misses as f64 / group.requests as f64);
        }
        (self.groups, self.model)
    }
}
