//! What schemes are tried on, for `tried_regions`: heard from the engine, as its tracepoint `damos_before_apply` tells.

use isotherm_core::snapshot::RegionInfo;
use isotherm_core::target::TargetId;
use isotherm_core::trace::{TraceEvent, Tracer};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Listens while somebody asks; all copies are one.
#[derive(Debug, Clone, Default)]
pub(super) struct Tried(Rc<RefCell<Heard>>);

#[derive(Debug, Default)]
struct Heard {
    /// Whether anybody asks.
    wanted: bool,
    /// In the order in which they were tried.
    tried: Vec<Range>,
    /// Schemes that have had a turn since.
    done: BTreeSet<usize>,
}

/// A range that a scheme was tried on, with the figures of its region.
#[derive(Debug, Clone, Copy)]
struct Range {
    scheme: usize,
    target: TargetId,
    info: RegionInfo,
}

impl Tried {
    /// From now on everything is heard, until [`Self::take`].
    pub fn listen(&self) {
        self.0.borrow_mut().wanted = true;
    }

    /// Whether a scheme has had a turn since.
    pub fn is_done(&self, scheme: usize) -> bool {
        self.0.borrow().done.contains(&scheme)
    }

    /// What was heard, by scheme. Ranges of one region are one: `region_of` says which of a target's regions holds an
    /// address, where that is known.
    pub fn take(
        &self,
        schemes: usize,
        region_of: impl Fn(TargetId, u64) -> Option<(u64, u64)>,
    ) -> Vec<Vec<RegionInfo>> {
        let heard = self.0.take();
        let mut by_scheme: Vec<Vec<RegionInfo>> = vec![Vec::new(); schemes];
        let mut last = None;
        for Range { scheme, target, info } in heard.tried {
            // Replaced meanwhile.
            let Some(regions) = by_scheme.get_mut(scheme) else { continue };
            let region = region_of(target, info.start).map(|region| (scheme, target, region));
            match regions.last_mut() {
                Some(before) if region.is_some() && last == region && before.end <= info.start => before.end = info.end,
                _ => regions.push(info),
            }
            last = region;
        }
        by_scheme
    }
}

impl Tracer for Tried {
    fn trace(&mut self, event: &TraceEvent) -> bool {
        let mut heard = self.0.borrow_mut();
        if !heard.wanted {
            return false;
        }
        match *event {
            // Of each scheme one turn, however many one that comes more often has until all have had theirs.
            TraceEvent::BeforeApply { scheme, .. } if heard.done.contains(&(scheme as usize)) => {}
            TraceEvent::BeforeApply { scheme, target, start, end, nr_accesses, age, .. } => {
                let info = RegionInfo { start, end, nr_accesses, age, evidence: None, accessed: None };
                let Ok(target) = TargetId::try_from(target) else { return true };
                heard.tried.push(Range { scheme: scheme as usize, target, info });
            }
            TraceEvent::StatAfterApplyInterval { scheme, .. } => drop(heard.done.insert(scheme as usize)),
            _ => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn before(scheme: u32, target: u64, start: u64, end: u64) -> TraceEvent {
        TraceEvent::BeforeApply { context: 0, scheme, target, start, end, nr_accesses: 3, age: 1, nr_regions: 9 }
    }

    fn stat(scheme: u32) -> TraceEvent {
        TraceEvent::StatAfterApplyInterval {
            context: 0,
            scheme,
            nr_tried: 0,
            sz_tried: 0,
            nr_applied: 0,
            sz_applied: 0,
            sz_ops_filter_passed: 0,
            qt_exceeds: 0,
            nr_snapshots: 0,
        }
    }

    #[test]
    fn ranges_of_one_region_are_one_and_nobody_hears_what_nobody_asks_for() {
        let tried = Tried::default();
        let mut tracer = tried.clone();
        assert!(!tracer.trace(&before(0, 0, 0, 1)));
        tried.listen();
        // Pages of the region 0..100, of 100..200, and of another scheme and target.
        for (scheme, target, start, end) in
            [(0, 0, 0, 10), (0, 0, 20, 40), (0, 0, 100, 110), (1, 0, 110, 120), (1, 7, 110, 120), (5, 0, 0, 1)]
        {
            assert!(tracer.trace(&before(scheme, target, start, end)));
        }
        assert!(!tried.is_done(1));
        tracer.trace(&stat(1));
        assert!(tried.is_done(1) && !tried.is_done(0));
        // Its next turn, while another has had none.
        assert!(tracer.trace(&before(1, 0, 110, 120)));
        let found = tried.take(2, |target, at| (target == 0).then_some((at / 100 * 100, at / 100 * 100 + 100)));
        let ranges = |scheme: usize| found[scheme].iter().map(|r| (r.start, r.end)).collect::<Vec<_>>();
        assert_eq!(ranges(0), [(0, 40), (100, 110)]);
        assert_eq!(ranges(1), [(110, 120), (110, 120)]);
        assert!(!tracer.trace(&before(0, 0, 0, 1)), "it was answered");
        assert!(!tried.is_done(1));
    }
}
