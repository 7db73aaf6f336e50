//! Records of other tools.
//!
//! All readers hand out events in the order of time, in bounded memory. What other tools store and we do not keep, and
//! the other way round, is described in `docs/format.md`.

mod ages;
pub(crate) mod binary;
pub(crate) mod csv;
pub(crate) mod json;
mod json_region;
mod json_text;
pub(crate) mod lines;
mod open;
pub(crate) mod perf_script;
pub(crate) mod timeline;

use crate::error::{Warning, Warnings};
use isotherm_core::snapshot::RegionInfo;
use isotherm_core::target::TargetInfo;
use std::collections::{HashMap, HashSet};

/// Samples in an aggregation interval where a format does not tell: DAMON's default.
pub(crate) const USUAL_SAMPLES: u32 = 20;

/// Makes regions sorted, disjoint and not empty; `true` if something had to be changed.
pub(crate) fn tidy(regions: &mut Vec<RegionInfo>) -> bool {
    let before = regions.len();
    regions.retain(|r| r.start < r.end);
    let mut changed = regions.len() != before;
    if !regions.is_sorted_by_key(|r| r.start) {
        regions.sort_by_key(|r| r.start);
        changed = true;
    }
    let mut end = 0;
    regions.retain_mut(|r| {
        if r.start < end {
            r.start = end;
            changed = true;
        }
        end = end.max(r.end);
        r.start < r.end
    });
    changed
}

/// How a format names a target. Each kdamond, and each of its contexts, counts its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TargetKey {
    /// `None`: the format does not tell.
    pub(crate) kdamond: Option<u32>,
    pub(crate) context: Option<u32>,
    /// The format's own number: an id, a pointer or a pid.
    pub(crate) id: u64,
}

impl TargetKey {
    /// Of a format that knows no kdamonds.
    pub(crate) const fn of_id(id: u64) -> Self {
        Self { kdamond: None, context: None, id }
    }

    fn words(&self) -> String {
        let mut words = format!("target_id {}", self.id);
        let mut add = |what: &str, number: Option<u32>| {
            if let Some(number) = number {
                words += &format!(" of {what} {number}");
            }
        };
        add("context", self.context.filter(|context| *context > 0));
        add("kdamond", self.kdamond);
        words
    }
}

/// Gives numbers to targets: a format's own where they fit and are free, else the next free one.
#[derive(Debug, Default)]
pub(crate) struct Targets {
    index: HashMap<TargetKey, u32>,
    used: HashSet<u32>,
    next: u32,
}

impl Targets {
    /// The target's number, and what is to be reported of it when it is seen for the first time.
    pub(crate) fn number(&mut self, key: TargetKey, is_pid: bool) -> (u32, Option<TargetInfo>) {
        if let Some(&target) = self.index.get(&key) {
            return (target, None);
        }
        let own = u32::try_from(key.id).ok().filter(|n| !is_pid && !self.used.contains(n));
        let target = own.unwrap_or_else(|| {
            while self.used.contains(&self.next) {
                self.next += 1;
            }
            self.next
        });
        self.index.insert(key, target);
        self.used.insert(target);
        let pid = u32::try_from(key.id).ok().filter(|_| is_pid);
        let name = if own.is_some() || pid.is_some() { String::new() } else { key.words() };
        (target, Some(TargetInfo { target, pid, name }))
    }
}

/// Counts what had to be changed or skipped and makes warnings of it.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) adjusted: u64,
    skipped: u64,
    first_skipped: Option<(u64, String)>,
    pub(crate) warnings: Warnings,
}

impl Notes {
    /// Line `number` was of no use.
    pub(crate) fn skip(&mut self, number: u64, why: &str) {
        self.skipped += 1;
        self.first_skipped.get_or_insert_with(|| (number, why.to_owned()));
    }

    pub(crate) fn finish(mut self) -> Vec<Warning> {
        if let Some((first, what)) = self.first_skipped {
            self.warnings.push(Warning::SkippedLines { count: self.skipped, first, what });
        }
        if self.adjusted > 0 {
            self.warnings.push(Warning::Adjusted { snapshots: self.adjusted });
        }
        self.warnings.into_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(start: u64, end: u64) -> RegionInfo {
        RegionInfo { start, end, nr_accesses: 0, age: 0, evidence: None, accessed: None }
    }

    #[test]
    fn overlaps_are_cut_and_empty_regions_dropped() {
        let mut regions = vec![region(8, 20), region(0, 10), region(3, 3), region(9, 12)];
        assert!(tidy(&mut regions));
        let ranges: Vec<_> = regions.iter().map(|r| (r.start, r.end)).collect();
        assert_eq!(ranges, [(0, 10), (10, 20)]);
        assert!(!tidy(&mut regions));
    }

    #[test]
    fn pids_and_pointers_get_small_numbers() {
        let of_id = TargetKey::of_id;
        let mut t = Targets::default();
        let info = TargetInfo { target: 0, pid: Some(4242), name: String::new() };
        assert_eq!(t.number(of_id(4242), true), (0, Some(info)));
        assert_eq!(t.number(of_id(4242), true), (0, None));
        assert_eq!(t.number(of_id(7), true).0, 1);
        let mut t = Targets::default();
        assert_eq!(t.number(of_id(1), false).0, 1);
        assert_eq!(t.number(of_id(u64::MAX - 5), false).0, 0);
        assert_eq!(t.number(of_id(0), false).0, 2);
    }

    #[test]
    fn targets_of_several_kdamonds_are_told_apart() {
        let mut t = Targets::default();
        let mut number = |kdamond, context, id| {
            let key = TargetKey { kdamond: Some(kdamond), context: Some(context), id };
            let (target, info) = t.number(key, false);
            (target, info.map(|info| info.name))
        };
        assert_eq!(number(0, 0, 0), (0, Some(String::new())));
        assert_eq!(number(1, 0, 0), (1, Some("target_id 0 of kdamond 1".into())));
        assert_eq!(number(1, 2, 0), (2, Some("target_id 0 of context 2 of kdamond 1".into())));
        assert_eq!((number(0, 0, 0), number(1, 0, 0), number(1, 2, 0)), ((0, None), (1, None), (2, None)));
    }
}
