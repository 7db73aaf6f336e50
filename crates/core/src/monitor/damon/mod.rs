//! `--algorithm damon`: DAMON's region-based sampling to the letter. The rules and their source are in
//! docs/algorithm.md; [`DamonRules`] switches between mainline's and the v12 patch set's.

mod merge;
mod region;
mod split;

use crate::addr::{AddrRange, PAGE_SIZE};
use crate::attrs::MonitorAttrs;
use crate::bits::Window;
use crate::event::Mode;
use crate::monitor::algorithm::{Algorithm, Stretch, rescaled_age};
use crate::monitor::config::DamonRules;
use crate::snapshot::{Evidence, RegionInfo};
use crate::source::{AccessSource, SourceError};
use crate::target::TargetId;
use region::Region;
use std::collections::BTreeMap;

/// Regions of a target, with the windows of the sampling interval that runs.
#[derive(Debug, Default)]
struct Target {
    regions: Vec<Region>,
    windows: Vec<Window>,
    evidence: Vec<Evidence>,
}

/// DAMON's algorithm over any access source.
#[derive(Debug)]
pub(crate) struct Damon {
    rules: DamonRules,
    rng: fastrand::Rng,
    targets: BTreeMap<TargetId, Target>,
    max_nr_seen: u32,
    regions_at_last_split: usize,
}

impl Damon {
    pub fn new(rules: DamonRules, seed: u64) -> Self {
        Self {
            rules,
            rng: fastrand::Rng::with_seed(seed),
            targets: BTreeMap::new(),
            max_nr_seen: 0,
            regions_at_last_split: 0,
        }
    }

    fn total_len(&self) -> u64 {
        self.targets.values().flat_map(|t| &t.regions).map(Region::len).sum()
    }

    fn size_limit(&self, attrs: &MonitorAttrs) -> u64 {
        match self.rules {
            DamonRules::V12 => u64::MAX,
            DamonRules::Mainline => {
                let limit = self.total_len() / u64::from(attrs.min_regions.max(1));
                limit.max(PAGE_SIZE).next_multiple_of(PAGE_SIZE)
            }
        }
    }
}

impl Algorithm for Damon {
    fn set_space(&mut self, target: TargetId, space: &[AddrRange], attrs: &MonitorAttrs) {
        let t = self.targets.entry(target).or_default();
        let first_time = t.regions.is_empty();
        region::follow_space(&mut t.regions, space);
        if first_time {
            region::split_evenly(&mut t.regions, attrs.min_regions);
        }
        t.evidence = vec![Evidence::default(); t.regions.len()];
    }

    fn drop_target(&mut self, target: TargetId) {
        self.targets.remove(&target);
    }

    fn prepare(
        &mut self,
        target: TargetId,
        _tick: u32,
        _per_aggr: u32,
        source: &mut dyn AccessSource,
    ) -> Result<(), SourceError> {
        let Some(t) = self.targets.get_mut(&target) else { return Ok(()) };
        t.windows.clear();
        for r in &mut t.regions {
            r.sampling_addr = self.rng.u64(r.start / PAGE_SIZE..r.end / PAGE_SIZE) * PAGE_SIZE;
            t.windows.push(Window::new(r.sampling_addr, 1));
        }
        source.arm(target, &mut t.windows)
    }

    fn next_check(&self, tick: u32, _per_aggr: u32) -> u32 {
        tick + 1
    }

    fn check(
        &mut self,
        target: TargetId,
        _tick: u32,
        _per: u32,
        source: &mut dyn AccessSource,
    ) -> Result<(), SourceError> {
        let Some(t) = self.targets.get_mut(&target) else { return Ok(()) };
        // A page that could not be cleared would look accessed for ever.
        let blind_before: Vec<bool> = t.windows.iter().map(|w| w.seen.blind > 0).collect();
        source.look(target, &mut t.windows)?;
        for (((r, w), e), blind) in t.regions.iter_mut().zip(&t.windows).zip(&mut t.evidence).zip(blind_before) {
            e.pages += 1;
            e.present += u32::from(w.seen.present > 0);
            if blind || w.seen.blind > 0 {
                e.blind += 1;
                continue;
            }
            e.checks += 1;
            if w.seen.accessed > 0 {
                r.nr_accesses += 1;
                self.max_nr_seen = self.max_nr_seen.max(r.nr_accesses);
            }
        }
        Ok(())
    }

    fn aggregate(&mut self, attrs: &MonitorAttrs) {
        let size_limit = self.size_limit(attrs);
        let mut threshold = self.max_nr_seen / 10;
        let mut aging = Some(self.rules);
        loop {
            for t in self.targets.values_mut() {
                merge_with_evidence(t, threshold, size_limit, aging);
            }
            aging = None;
            let fits = self.nr_regions() <= attrs.max_regions as usize;
            if fits || self.rules == DamonRules::V12 || threshold >= attrs.max_nr_accesses() {
                break;
            }
            threshold = (threshold * 2).max(1);
        }
        if self.rules == DamonRules::Mainline {
            for t in self.targets.values_mut() {
                let before = t.regions.len();
                split::force_split(&mut t.regions, size_limit);
                if t.regions.len() != before {
                    // The parts share what was seen of the whole; nobody knows which part it was.
                    t.evidence = vec![Evidence::default(); t.regions.len()];
                }
            }
        }
        self.max_nr_seen = 0;
    }

    fn regions(&self, target: TargetId, out: &mut Vec<RegionInfo>) {
        let Some(t) = self.targets.get(&target) else { return };
        out.extend(t.regions.iter().zip(&t.evidence).map(|(r, e)| RegionInfo {
            start: r.start,
            end: r.end,
            nr_accesses: r.nr_accesses,
            age: r.age,
            evidence: (e.pages > 0).then_some(*e),
            accessed: None,
        }));
    }

    fn reset(&mut self, attrs: &MonitorAttrs) {
        for r in self.targets.values_mut().flat_map(|t| &mut t.regions) {
            r.last_nr_accesses = r.nr_accesses;
            r.nr_accesses = 0;
            r.last_bounds = (r.start, r.end);
        }
        let n = self.nr_regions();
        let max = attrs.max_regions as usize;
        if n <= max / 2 {
            let pieces = if n == self.regions_at_last_split && n < max / 3 { 3 } else { 2 };
            for t in self.targets.values_mut() {
                split::split_pass(&mut t.regions, pieces, &mut self.rng);
            }
        }
        self.regions_at_last_split = n;
        for t in self.targets.values_mut() {
            t.evidence = vec![Evidence::default(); t.regions.len()];
        }
    }

    fn rescale_ages(&mut self, old_us: u64, new_us: u64) {
        for r in self.targets.values_mut().flat_map(|t| &mut t.regions) {
            r.age = rescaled_age(r.age, old_us, new_us);
        }
    }

    fn adapt(&mut self, load: f64, _budget_ns: f64, _attrs: &MonitorAttrs) -> Stretch {
        if load > 1.0 {
            Stretch::Longer(load.min(2.0))
        } else if load < 0.6 {
            Stretch::Shorter((0.9 / load.max(0.45)).min(2.0))
        } else {
            Stretch::Keep
        }
    }

    fn nr_regions(&self) -> usize {
        self.targets.values().map(|t| t.regions.len()).sum()
    }

    fn mode(&self) -> Mode {
        Mode::Sample
    }
}

/// Merges and keeps the evidence beside the regions: a joined region has the evidence of its parts.
fn merge_with_evidence(t: &mut Target, threshold: u32, size_limit: u64, aging: Option<DamonRules>) {
    let before: Vec<u64> = t.regions.iter().map(|r| r.start).collect();
    merge::merge_pass(&mut t.regions, threshold, size_limit, aging);
    let mut evidence: Vec<Evidence> = Vec::with_capacity(t.regions.len());
    let mut starts = t.regions.iter().map(|r| r.start).peekable();
    for (start, e) in before.into_iter().zip(&t.evidence) {
        if starts.peek() == Some(&start) {
            starts.next();
            evidence.push(*e);
        } else if let Some(sum) = evidence.last_mut() {
            sum.checks += e.checks;
            sum.pages += e.pages;
            sum.present += e.present;
            sum.blind += e.blind;
        }
    }
    t.evidence = evidence;
}
