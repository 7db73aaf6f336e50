//! The targets of a monitor, and which of their memory it monitors.

use crate::addr::{AddrRange, total_len};
use crate::attrs::MonitorAttrs;
use crate::mapping::Mapping;
use crate::source::{AccessSource, SourceError};
use crate::space::{GivenSpace, Lasting, SpaceRule, close_narrow_holes, monitored_ranges};
use crate::target::{Footprint, TargetEnd, TargetId, TargetInfo};
use std::collections::BTreeMap;

/// Less than one part in this many resident: mapped memory is taken to be a reservation.
const SPARSE: u64 = 2;
/// Unpopulated stretches below this many bytes stay in, so that they do not cost a region each.
const LEAST_HOLE: u64 = 64 << 20;

/// A target.
#[derive(Debug)]
pub(super) struct Target {
    pub info: TargetInfo,
    pub mappings: Vec<Mapping>,
    /// What of them is monitored.
    pub space: Vec<AddrRange>,
    /// Its memory when that was handed out last; `None`: it was not yet.
    pub footprint: Option<Footprint>,
    /// CPU time that it had spent when its mappings were read last, ns; `None`: not known.
    pub followed_cpu_ns: Option<u64>,
}

/// The targets that are there.
#[derive(Debug, Default)]
pub(super) struct Targets {
    /// By id.
    list: Vec<Target>,
    /// Of targets that are monitored, and of some that are yet to come.
    given: BTreeMap<TargetId, GivenSpace>,
}

impl Targets {
    pub fn all(&self) -> &[Target] {
        &self.list
    }

    pub fn all_mut(&mut self) -> &mut [Target] {
        &mut self.list
    }

    pub fn ids(&self) -> Vec<TargetId> {
        self.list.iter().map(|t| t.info.target).collect()
    }

    /// Those whose mappings are not known, and the others, beginning after `last`.
    pub fn in_turn(&self, last: TargetId) -> (Vec<TargetId>, Vec<TargetId>) {
        let (mut known, new): (Vec<&Target>, Vec<&Target>) = self.list.iter().partition(|t| !t.mappings.is_empty());
        let next = known.partition_point(|t| t.info.target <= last);
        known.rotate_left(next);
        let ids = |list: Vec<&Target>| list.iter().map(|t| t.info.target).collect();
        (ids(new), ids(known))
    }

    fn find(&self, id: TargetId) -> Result<usize, usize> {
        self.list.binary_search_by_key(&id, |t| t.info.target)
    }

    pub fn get_mut(&mut self, id: TargetId) -> Option<&mut Target> {
        self.find(id).ok().map(|i| &mut self.list[i])
    }

    /// Takes a new one in, of which nothing is monitored yet.
    pub fn add(&mut self, info: TargetInfo) {
        let (Ok(at) | Err(at)) = self.find(info.target);
        self.list.insert(
            at,
            Target { info, mappings: Vec::new(), space: Vec::new(), footprint: None, followed_cpu_ns: None },
        );
    }

    /// Takes one out, or forgets the address space that it had.
    pub fn end(&mut self, id: TargetId, why: TargetEnd) {
        let found = self.find(id);
        if why == TargetEnd::Exited {
            self.given.remove(&id);
            found.map(|at| self.list.remove(at)).ok();
        } else if let Ok(at) = found {
            self.list[at].mappings.clear();
            self.list[at].space.clear();
            (self.list[at].footprint, self.list[at].followed_cpu_ns) = (None, None);
        }
    }

    /// These ranges of a target are monitored from its next update on; `None`: what its mappings say.
    pub fn give_space(&mut self, id: TargetId, space: Option<(Vec<AddrRange>, Lasting)>) {
        match space {
            None => drop(self.given.remove(&id)),
            Some((ranges, lasting)) => {
                self.given.insert(id, GivenSpace { ranges, lasting, until_ns: None });
            }
        }
    }

    /// The ranges of a target to monitor. Where little of what is mapped is resident (reserved heaps), the parts that were
    /// never populated are left out.
    pub fn space<S: AccessSource>(
        &mut self,
        source: &mut S,
        (id, mappings): (TargetId, &[Mapping]),
        rule: SpaceRule,
        attrs: &MonitorAttrs,
        now_ns: u64,
    ) -> Result<Vec<AddrRange>, SourceError> {
        if let Some(given) = self.given.get_mut(&id) {
            match given.at(now_ns, attrs.update_us) {
                Some(ranges) => return Ok(ranges),
                None => drop(self.given.remove(&id)),
            }
        }
        // Half of the regions stay free to adapt inside the ranges.
        let max_ranges = (attrs.max_regions / 2).max(1) as usize;
        let mapped = monitored_ranges(mappings, rule, max_ranges);
        let mapped_len = total_len(&mapped);
        let sparse = source.footprint(id, now_ns).is_some_and(|f| f.rss < mapped_len / SPARSE);
        if !sparse || rule != SpaceRule::Mappings {
            return Ok(mapped);
        }
        let mut populated = Vec::new();
        source.populated(id, &mapped, &mut populated)?;
        close_narrow_holes(&mut populated, &mapped, LEAST_HOLE, max_ranges);
        Ok(populated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_targets_are_followed_first_and_the_others_in_turn() {
        let mut targets = Targets::default();
        for target in [3, 1, 2, 5] {
            targets.add(TargetInfo { target, pid: None, name: String::new() });
        }
        assert_eq!(targets.in_turn(0), (vec![1, 2, 3, 5], vec![]));
        for target in [1, 3, 5] {
            targets.get_mut(target).unwrap().mappings = vec![Mapping::anon(0, 4096)];
        }
        assert_eq!(targets.in_turn(1), (vec![2], vec![3, 5, 1]));
        assert_eq!(targets.in_turn(5), (vec![2], vec![1, 3, 5]));
        targets.end(3, TargetEnd::Exited);
        targets.end(5, TargetEnd::Replaced);
        targets.end(4, TargetEnd::Exited);
        assert_eq!(targets.in_turn(3), (vec![2, 5], vec![1]));
    }
}
