//! The monitor: one loop that drives an algorithm over an access source and hands out what it finds.
//!
//! Intervals are counted in passed sampling intervals, as in DAMON: a late thread stretches time, it never skips a
//! check.

mod algorithm;
pub mod budget;
pub mod config;
mod damon;
pub mod intervals;
mod isotherm;
mod pages_only;
mod walks;

use crate::addr::{AddrRange, total_len};
use crate::attrs::MonitorAttrs;
use crate::clock::{Clock, Wake};
use crate::engine::{Engine, EngineError, Progress, sleep_with_turns};
use crate::event::{Event, MonitorStats, RunInfo, Step, Subscriber};
use crate::history::pages::PageHistory;
use crate::history::tracked::Tracked;
use crate::mapping::Mapping;
use crate::snapshot::Snapshot;
use crate::source::{AccessSource, SourceError};
use crate::space::{GivenSpace, Lasting, SpaceRule, close_narrow_holes, monitored_ranges};
use crate::target::TargetId;
use crate::target::{TargetEnd, TargetInfo};
use algorithm::Stretch;
use budget::{Bill, Budget};
use config::{Algorithm, MonitorConfig};
use intervals::{IntervalsGoal, IntervalsTuner};
use std::collections::BTreeMap;
use walks::Walks;

/// How often costs and resident memory are handed out, in ns.
const STATS_EVERY_NS: u64 = 1_000_000_000;

/// Less than one part in this many resident: mapped memory is taken to be a reservation.
const SPARSE: u64 = 2;
/// Unpopulated stretches below this many bytes stay in, so that they do not cost a region each.
const LEAST_HOLE: u64 = 64 << 20;

/// Walks do not wait for the end of an aggregation interval that is longer than this, ns.
const LONG_INTERVAL_NS: u64 = 1_500_000_000;

/// The least work of an interval is to leave this much of the budget for all else.
const LEAST_PART: f64 = 0.8;

/// Part of the regions' budget that reading the targets' footprints may take.
const FOOTPRINTS_SHARE: f64 = 0.1;
/// Part of the budget that following the mappings may take.
const UPDATE_SHARE: f64 = 0.25;

#[derive(Debug)]
struct Target {
    info: TargetInfo,
    mappings: Vec<Mapping>,
    /// What of them is monitored.
    space: Vec<AddrRange>,
}

/// Watches the targets of an access source.
pub struct Monitor<S> {
    source: Tracked<S>,
    config: MonitorConfig,
    /// Intervals in force: those of the user, stretched by the budget or tuned.
    attrs: MonitorAttrs,
    /// What the user wants instead, from the next interval on.
    retuned: Option<MonitorAttrs>,
    algorithm: Box<dyn algorithm::Algorithm + Send>,
    targets: Vec<Target>,
    /// Of targets that are monitored, and of some that are yet to come.
    given: BTreeMap<TargetId, GivenSpace>,
    budget: Budget,
    /// The page history's walks; `None`: it is not kept.
    walks: Option<Walks>,
    bill: Bill,
    tuner: Option<IntervalsTuner>,
    started: bool,
    interval_start_ns: u64,
    next_update_ns: u64,
    next_stats_ns: u64,
    next_footprints_ns: u64,
    late_samples: u64,
}

impl<S> std::fmt::Debug for Monitor<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Monitor").field("attrs", &self.attrs).field("targets", &self.targets).finish_non_exhaustive()
    }
}

impl<S: AccessSource> Monitor<S> {
    /// A monitor over `source`. The attributes are expected to be valid ([`MonitorAttrs::validate`]).
    pub fn new(source: S, config: MonitorConfig) -> Self {
        let algorithm: Box<dyn algorithm::Algorithm + Send> = match config.algorithm {
            Algorithm::Damon(rules) => Box::new(damon::Damon::new(rules, config.seed)),
            Algorithm::Isotherm => Box::new(isotherm::Isotherm::new(config.mode, config.seed, &config.attrs)),
            Algorithm::PagesOnly => Box::new(pages_only::PagesOnly),
        };
        Self {
            source: Tracked::new(source),
            attrs: config.attrs,
            retuned: None,
            algorithm,
            targets: Vec::new(),
            given: BTreeMap::new(),
            // With walks, regions begin with what these leave at first.
            budget: Budget::new(match config.walks {
                true => config.cpu_budget.map(|share| share * (1.0 - walks::SHARE_AT_FIRST)),
                false => config.cpu_budget,
            }),
            walks: config.walks.then(|| Walks::new(config.algorithm == Algorithm::PagesOnly)),
            bill: Bill::default(),
            tuner: config.intervals_goal.map(IntervalsTuner::new),
            config,
            started: false,
            interval_start_ns: 0,
            next_update_ns: 0,
            next_stats_ns: 0,
            next_footprints_ns: 0,
            late_samples: 0,
        }
    }

    /// The source, for its own figures.
    pub fn source(&self) -> &S {
        self.source.source()
    }

    /// The source, for a change of its targets: they are looked up anew when the interval under way ends.
    pub const fn source_mut(&mut self) -> &mut S {
        self.next_update_ns = 0;
        self.source.source_mut()
    }

    /// Monitors these ranges of a target (sorted, disjoint, page aligned) instead of what its mappings say, from the next
    /// update on; the target may be one that is about to come. `None`: what its mappings say.
    pub fn give_space(&mut self, target: TargetId, space: Option<(Vec<AddrRange>, Lasting)>) {
        match space {
            None => drop(self.given.remove(&target)),
            Some((ranges, lasting)) => {
                self.given.insert(target, GivenSpace { ranges, lasting, until_ns: None });
            }
        }
        self.next_update_ns = 0;
    }

    /// How the intervals are tuned from now on; `None`: not.
    pub fn tune_intervals(&mut self, goal: Option<IntervalsGoal>) {
        self.config.intervals_goal = goal;
        self.tuner = goal.map(IntervalsTuner::new);
    }

    /// What is known of when each of a target's pages was last accessed; `None` before its first walk.
    pub fn page_history(&self, target: TargetId) -> Option<&PageHistory> {
        self.source.page_history(target)
    }

    /// Intervals in force.
    pub fn attrs(&self) -> &MonitorAttrs {
        &self.attrs
    }

    fn start(&mut self, now_ns: u64, subscriber: &mut dyn Subscriber) -> Result<(), EngineError> {
        let run = RunInfo {
            source: self.source.name().to_owned(),
            algorithm: match self.config.algorithm {
                Algorithm::Isotherm => "isotherm".to_owned(),
                Algorithm::Damon(_) => "damon".to_owned(),
                Algorithm::PagesOnly => "none".to_owned(),
            },
            attrs: self.config.attrs,
            cpu_budget: self.config.cpu_budget,
            kernel: self.config.kernel.clone(),
            realtime_offset_ns: self.config.realtime_offset_ns,
        };
        emit(subscriber, &Event::Run(run))?;
        self.started = true;
        // Time begins to count. What loading and self-tests cost was spent once, before.
        self.bill.take(&self.source.cost());
        self.budget.allowance_ns(now_ns);
        self.interval_start_ns = now_ns;
        self.next_stats_ns = now_ns;
        self.update(now_ns, subscriber)?;
        self.stats(now_ns, subscriber)
    }

    /// Takes in new targets and lets the regions follow the mappings.
    fn update(&mut self, now_ns: u64, subscriber: &mut dyn Subscriber) -> Result<(), EngineError> {
        subscriber.step_with(Step::BeforeUpdate, now_ns, &mut self.source);
        let spent_before = self.source.cost().monitor_ns;
        let nr_targets = self.targets.len();
        for info in self.source.poll_targets()? {
            emit(subscriber, &Event::Target(info.clone()))?;
            self.targets.push(Target { info, mappings: Vec::new(), space: Vec::new() });
        }
        let mut fresh = Vec::new();
        let ids: Vec<TargetId> = self.targets.iter().map(|t| t.info.target).collect();
        for id in ids {
            let mut result = self.source.mappings(id, &mut fresh);
            if matches!(result, Err(SourceError::Replaced { .. })) {
                self.fault(result, now_ns, subscriber)?;
                result = self.source.mappings(id, &mut fresh);
            }
            if !self.fault(result, now_ns, subscriber)? {
                continue;
            }
            let space = self.space(id, &fresh, now_ns);
            let Ok(space) = space else {
                self.fault(space.map(|_| ()), now_ns, subscriber)?;
                continue;
            };
            let Some(t) = self.targets.iter_mut().find(|t| t.info.target == id) else { continue };
            if t.space != space {
                self.algorithm.set_space(id, &space, &self.attrs);
                t.space = space;
            }
            if t.mappings != fresh {
                t.mappings.clone_from(&fresh);
                emit(subscriber, &Event::Mappings { time_ns: now_ns, target: id, mappings: fresh.clone() })?;
            }
        }
        let spent_ns = self.source.cost().monitor_ns - spent_before;
        // Reading tens of thousands of mappings is dear: then it is done less often.
        let affordable_ns = self.budget.share().map_or(0.0, |share| spent_ns as f64 / (share * UPDATE_SHARE));
        self.next_update_ns = now_ns + (self.attrs.update_us * 1000).max(affordable_ns as u64);
        if self.targets.len() > nr_targets {
            self.make_room();
        }
        subscriber.step_with(Step::AfterUpdate, now_ns, &mut self.source);
        Ok(())
    }

    /// The ranges to monitor. Where little of what is mapped is resident (reserved heaps), the parts that were never
    /// populated are left out.
    fn space(&mut self, id: TargetId, mappings: &[Mapping], now_ns: u64) -> Result<Vec<AddrRange>, SourceError> {
        if let Some(given) = self.given.get_mut(&id) {
            match given.at(now_ns, self.attrs.update_us) {
                Some(ranges) => return Ok(ranges),
                None => drop(self.given.remove(&id)),
            }
        }
        // Half of the regions stay free to adapt inside the ranges.
        let max_ranges = (self.attrs.max_regions / 2).max(1) as usize;
        let mapped = monitored_ranges(mappings, self.config.space, max_ranges);
        let mapped_len = total_len(&mapped);
        let sparse = self.source.footprint(id, now_ns).is_some_and(|f| f.rss < mapped_len / SPARSE);
        if !sparse || self.config.space != SpaceRule::Mappings {
            return Ok(mapped);
        }
        let mut populated = Vec::new();
        self.source.populated(id, &mapped, &mut populated)?;
        close_narrow_holes(&mut populated, &mapped, LEAST_HOLE, max_ranges);
        Ok(populated)
    }

    /// Handles a source's answer for one target: false when the target must be left alone for now.
    fn fault(
        &mut self,
        result: Result<(), SourceError>,
        now_ns: u64,
        subscriber: &mut dyn Subscriber,
    ) -> Result<bool, EngineError> {
        let (target, why) = match result {
            Ok(()) => return Ok(true),
            Err(SourceError::Gone { target, .. }) => (target, TargetEnd::Exited),
            Err(SourceError::Replaced { target, .. }) => (target, TargetEnd::Replaced),
            Err(e @ SourceError::Failed(_)) => return Err(e.into()),
        };
        self.algorithm.drop_target(target);
        if let Some(walks) = &mut self.walks {
            walks.drop_target(target);
        }
        match why {
            TargetEnd::Exited => {
                self.targets.retain(|t| t.info.target != target);
                self.given.remove(&target);
            }
            TargetEnd::Replaced => {
                for t in self.targets.iter_mut().filter(|t| t.info.target == target) {
                    t.mappings.clear();
                    t.space.clear();
                }
                self.next_update_ns = now_ns;
            }
        }
        emit(subscriber, &Event::End { time_ns: now_ns, target, why })?;
        Ok(false)
    }

    /// Calls `f` for each target and takes out those that are gone.
    fn for_each_target(
        &mut self,
        now_ns: u64,
        subscriber: &mut dyn Subscriber,
        mut f: impl FnMut(&mut dyn algorithm::Algorithm, &mut Tracked<S>, TargetId) -> Result<(), SourceError>,
    ) -> Result<(), EngineError> {
        let ids: Vec<TargetId> = self.targets.iter().map(|t| t.info.target).collect();
        for id in ids {
            let result = f(self.algorithm.as_mut(), &mut self.source, id);
            self.fault(result, now_ns, subscriber)?;
        }
        Ok(())
    }

    fn snapshots(&mut self, end_ns: u64, subscriber: &mut dyn Subscriber) -> Result<(), EngineError> {
        if self.config.algorithm == Algorithm::PagesOnly {
            return Ok(());
        }
        for t in &self.targets {
            let mut snapshot = Snapshot {
                target: t.info.target,
                pid: t.info.pid,
                start_ns: self.interval_start_ns,
                end_ns,
                sample_us: self.attrs.sample_us,
                aggr_us: self.attrs.aggr_us,
                max_nr_accesses: self.attrs.max_nr_accesses(),
                regions: Vec::new(),
            };
            self.algorithm.regions(t.info.target, &mut snapshot.regions);
            if let Some(tuner) = &mut self.tuner {
                tuner.add(&snapshot);
            }
            emit(subscriber, &Event::Snapshot(snapshot))?;
        }
        Ok(())
    }

    fn stats(&mut self, now_ns: u64, subscriber: &mut dyn Subscriber) -> Result<(), EngineError> {
        if now_ns < self.next_stats_ns {
            return Ok(());
        }
        self.next_stats_ns = now_ns + STATS_EVERY_NS;
        let cost = self.source.cost();
        let stats = MonitorStats {
            time_ns: now_ns,
            monitor_ns: cost.monitor_ns,
            target_ns: cost.target_ns,
            checks: cost.pages_read,
            clears: cost.pages_cleared,
            nr_regions: self.algorithm.nr_regions() as u32,
            mode: self.algorithm.mode(),
            sample_us: self.attrs.sample_us,
            aggr_us: self.attrs.aggr_us,
            late_samples: self.late_samples,
        };
        emit(subscriber, &Event::Stats(stats))?;
        if now_ns < self.next_footprints_ns {
            return Ok(());
        }
        for t in &self.targets {
            if let Some(footprint) = self.source.footprint(t.info.target, now_ns) {
                emit(subscriber, &Event::Footprint(footprint))?;
            }
        }
        // Of hundreds of targets they are dear: then they come less often.
        let spent_ns = self.source.cost().monitor_ns - cost.monitor_ns;
        let affordable_ns = self.budget.share().map_or(0.0, |share| spent_ns as f64 / (share * FOOTPRINTS_SHARE));
        self.next_footprints_ns = now_ns + affordable_ns as u64;
        Ok(())
    }

    /// Walks the targets whose time has come.
    fn walk(&mut self, clock: &mut dyn Clock, subscriber: &mut dyn Subscriber) -> Result<(), EngineError> {
        self.pay();
        let Some(walks) = &mut self.walks else { return Ok(()) };
        let faults = walks.turn(&mut self.source, &self.targets, self.config.cpu_budget, clock, subscriber)?;
        // Walks pay for themselves; regions, or what follows mappings and footprints, have what they leave.
        self.bill.take(&self.source.cost());
        self.budget.set_share(self.config.cpu_budget.map(|share| share * walks.left(share)));
        for fault in faults {
            self.fault(Err(fault), clock.now_ns(), subscriber)?;
        }
        Ok(())
    }

    /// Sleeps until `deadline`, giving `subscriber` the turns that it wants meanwhile. Walks wait for the end of the
    /// aggregation interval, or they would clear bits that regions are about to look at; only in long intervals they do
    /// not.
    fn sleep(
        &mut self,
        deadline: u64,
        clock: &mut dyn Clock,
        subscriber: &mut dyn Subscriber,
    ) -> Result<Wake, EngineError> {
        loop {
            let walk_ns = self.walks.as_ref().and_then(Walks::next_ns).unwrap_or(u64::MAX);
            let until = deadline.min(walk_ns.max(self.interval_start_ns + LONG_INTERVAL_NS));
            let source = &mut self.source;
            let wake =
                sleep_with_turns(until, clock, subscriber, |s, now_ns| s.step_with(Step::Wanted, now_ns, source));
            if wake == Wake::Interrupted || until >= deadline {
                return Ok(wake);
            }
            self.walk(clock, subscriber)?;
        }
    }

    /// What one aggregation interval brings, ns.
    fn budget_ns(&self) -> f64 {
        self.budget.share().map_or(f64::INFINITY, |share| share * self.attrs.aggr_us as f64 * 1e3)
    }

    /// Many targets have come: intervals that cannot be paid for are stretched before they cost anything.
    fn make_room(&mut self) {
        let by = self.algorithm.least_ns() / (self.budget_ns() * LEAST_PART);
        if by > 1.0 && self.tuner.is_none() {
            self.stretch(by);
        }
    }

    /// Takes what the source has cost since the last time out of the budget.
    fn pay(&mut self) {
        let spent_ns = self.bill.take(&self.source.cost());
        self.budget.spend(spent_ns);
        if let Some(walks) = &mut self.walks {
            walks.others_spent(spent_ns);
        }
    }

    fn set_attrs(&mut self, attrs: MonitorAttrs) {
        self.algorithm.rescale_ages(self.attrs.aggr_us, attrs.aggr_us);
        self.attrs = attrs;
    }

    /// Adapts intervals to what was seen and what was spent.
    fn adapt(&mut self, now_ns: u64) {
        if let Some(attrs) = self.retuned.take() {
            self.config.attrs = attrs;
            self.budget.stretched(attrs.aggr_us as f64 / self.attrs.aggr_us as f64);
            return self.set_attrs(attrs);
        }
        if let Some(tuned) = self.tuner.as_mut().and_then(|t| t.end_interval(&self.attrs)) {
            self.set_attrs(tuned);
        }
        self.pay();
        let Some(load) = self.budget.load(now_ns) else { return };
        match self.algorithm.adapt(load, self.budget_ns(), &self.attrs) {
            Stretch::Keep => {}
            Stretch::Longer(by) => self.stretch(by),
            // Intervals that the tuner has chosen are not shortened behind its back.
            Stretch::Shorter(_) if self.tuner.is_some() => {}
            Stretch::Shorter(by) => self.stretch(1.0 / by),
        }
    }

    fn stretch(&mut self, by: f64) {
        let attrs = stretched(&self.attrs, &self.config.attrs, by);
        self.budget.stretched(attrs.aggr_us as f64 / self.attrs.aggr_us as f64);
        self.set_attrs(attrs);
    }
}

/// `attrs` with intervals multiplied by `by`, never below those of `user`, at most an hour.
fn stretched(attrs: &MonitorAttrs, user: &MonitorAttrs, by: f64) -> MonitorAttrs {
    const HOUR_US: f64 = 3_600_000_000.0;
    let per_aggr = u64::from(user.max_nr_accesses());
    let longest = (HOUR_US / per_aggr as f64) as u64;
    let sample_us = ((attrs.sample_us as f64 * by) as u64).clamp(user.sample_us, longest.max(user.sample_us));
    let aggr_us = if sample_us == user.sample_us { user.aggr_us } else { sample_us * per_aggr };
    MonitorAttrs { sample_us, aggr_us, update_us: user.update_us.max(aggr_us), ..*attrs }
}

fn emit(subscriber: &mut dyn Subscriber, event: &Event) -> Result<(), EngineError> {
    subscriber.event(event).map_err(EngineError::Subscriber)
}

impl<S: AccessSource> Engine for Monitor<S> {
    fn follow_targets(
        &mut self,
        clock: &mut dyn Clock,
        subscriber: &mut dyn Subscriber,
    ) -> Result<Progress, EngineError> {
        let now = clock.now_ns();
        if self.started {
            self.update(now, subscriber)?;
        } else {
            self.start(now, subscriber)?;
        }
        let gone = self.targets.is_empty() && !self.source.may_gain_targets();
        Ok(if gone { Progress::TargetsGone } else { Progress::Aggregated })
    }

    fn retune(&mut self, attrs: MonitorAttrs) -> bool {
        self.retuned = Some(attrs);
        true
    }

    fn page_source(&mut self) -> Option<&mut dyn AccessSource> {
        Some(&mut self.source)
    }

    fn run_interval(
        &mut self,
        clock: &mut dyn Clock,
        subscriber: &mut dyn Subscriber,
    ) -> Result<Progress, EngineError> {
        if !self.started {
            self.start(clock.now_ns(), subscriber)?;
            self.walk(clock, subscriber)?;
        }
        if self.targets.is_empty() && !self.source.may_gain_targets() {
            return Ok(Progress::TargetsGone);
        }
        let per_aggr = self.attrs.max_nr_accesses();
        let sample_ns = self.attrs.sample_us * 1000;
        let mut tick = 0;
        let mut deadline = clock.now_ns();
        self.interval_start_ns = deadline;
        self.source.begin_interval(deadline);
        self.pay();
        self.algorithm.allow(self.budget.allowance_ns(deadline), self.budget_ns());
        while tick < per_aggr {
            subscriber.step_with(Step::BeforeSample, clock.now_ns(), &mut self.source);
            self.for_each_target(deadline, subscriber, |a, s, id| a.prepare(id, tick, per_aggr, s))?;
            let next = self.algorithm.next_check(tick, per_aggr).clamp(tick + 1, per_aggr);
            deadline += u64::from(next - tick) * sample_ns;
            let wake = self.sleep(deadline, clock, subscriber)?;
            let now = clock.now_ns();
            if now > deadline + sample_ns {
                self.late_samples += 1;
                deadline = now;
            }
            if wake == Wake::Interrupted {
                self.next_stats_ns = now;
                self.stats(now, subscriber)?;
                return Ok(Progress::Interrupted);
            }
            tick = next;
            self.for_each_target(now, subscriber, |a, s, id| a.check(id, tick, per_aggr, s))?;
            subscriber.step_with(Step::AfterSample, now, &mut self.source);
        }
        let end_ns = clock.now_ns();
        subscriber.step_with(Step::BeforeAggregate, end_ns, &mut self.source);
        self.algorithm.aggregate(&self.attrs);
        self.snapshots(end_ns, subscriber)?;
        self.walk(clock, subscriber)?;
        self.adapt(end_ns);
        self.algorithm.reset(&self.attrs);
        subscriber.step_with(Step::AfterAggregate, end_ns, &mut self.source);
        if end_ns >= self.next_update_ns {
            self.update(end_ns, subscriber)?;
        }
        self.stats(end_ns, subscriber)?;
        Ok(Progress::Aggregated)
    }
}
