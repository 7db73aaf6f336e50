//! What schemes know of a target.

use super::filter::Subject;
use crate::addr::AddrRange;
use crate::mapping::{Mapping, MappingKind};
use crate::meter::LiveTarget;
use crate::snapshot::Snapshot;

/// A target with its mappings and its latest snapshot.
#[derive(Debug)]
pub(super) struct TargetView {
    pub live: LiveTarget,
    pub cgroup: Option<String>,
    pub mappings: Vec<Mapping>,
    pub snapshot: Option<Snapshot>,
}

impl TargetView {
    /// What filters look at.
    pub fn subject(&self) -> Subject<'_> {
        Subject { target: self.live.target, cgroup: self.cgroup.as_deref(), mappings: &self.mappings }
    }

    /// All that is mapped: sorted, disjoint; `None`: not known yet.
    pub fn known_ranges(&self) -> Option<Vec<AddrRange>> {
        (!self.mappings.is_empty()).then(|| self.mappings.iter().map(|m| m.range).collect())
    }

    /// All that is mapped and can be acted on.
    pub fn mapped(&self) -> Vec<AddrRange> {
        self.mappings.iter().filter(|m| m.kind != MappingKind::Special).map(|m| m.range).collect()
    }
}
