//! The monitor: one loop that drives an algorithm over an access source and hands out what it finds.
//!
//! Intervals are counted in passed sampling intervals, as in DAMON: a late thread stretches time, it never skips a
//! check.

mod algorithm;
pub mod budget;
pub mod config;
mod current;
mod damon;
pub mod intervals;
mod isotherm;
mod pages_only;
mod targets;
mod walks;

use crate::addr::AddrRange;
use crate::attrs::MonitorAttrs;
use crate::clock::{Clock, Wake};
use crate::engine::{Engine, EngineError, Progress, emit, sleep_with_turns};
use crate::event::{Event, MonitorStats, RunInfo, Step, Subscriber};
use crate::history::pages::PageHistory;
use crate::history::tracked::Tracked;
use crate::snapshot::Snapshot;
use crate::source::{AccessSource, SourceError};
use crate::space::Lasting;
use crate::target::{TargetEnd, TargetId};
use config::{Algorithm, MonitorConfig};
use current::CurrentIntervals;
use intervals::IntervalsGoal;
use targets::{Target, Targets};
use walks::Walks;

/// How often costs and resident memory are handed out, in ns.
const STATS_EVERY_NS: u64 = 1_000_000_000;

/// Walks do not wait for the end of an aggregation interval that is longer than this, ns.
const LONG_INTERVAL_NS: u64 = 1_500_000_000;

/// Part of the regions' budget that reading the targets' footprints may take.
const FOOTPRINTS_SHARE: f64 = 0.1;
/// Parts of the budget that finding targets and following their mappings may take.
const POLL_SHARE: f64 = 0.1;
const FOLLOW_SHARE: f64 = 0.15;
/// New and ended targets are found after at most so long, ns.
const LONGEST_POLL_NS: u64 = 10_000_000_000;

/// Watches the targets of an access source.
pub struct Monitor<S> {
    source: Tracked<S>,
    config: MonitorConfig,
    algorithm: Box<dyn algorithm::Algorithm + Send>,
    targets: Targets,
    intervals: CurrentIntervals,
    /// The page history's walks; `None`: it is not kept.
    walks: Option<Walks>,
    started: bool,
    interval_start_ns: u64,
    next_update_ns: u64,
    /// When what following mappings has cost is paid for; `None`: the next update is to follow all, whatever that costs.
    paid_ns: Option<u64>,
    /// The target whose turn to be followed it was last.
    followed: TargetId,
    next_stats_ns: u64,
    next_footprints_ns: u64,
    late_samples: u64,
}

impl<S> std::fmt::Debug for Monitor<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Monitor")
            .field("intervals", &self.intervals)
            .field("targets", &self.targets)
            .finish_non_exhaustive()
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
        let mut source = Tracked::new(source);
        if config.algorithm == Algorithm::PagesOnly {
            source.notes_rests();
        }
        Self {
            source,
            algorithm,
            targets: Targets::default(),
            // With walks, regions begin with what these leave at first.
            intervals: CurrentIntervals::new(
                config.attrs,
                config.intervals_goal,
                match config.walks {
                    true => config.cpu_budget.map(|share| share * (1.0 - walks::SHARE_AT_FIRST)),
                    false => config.cpu_budget,
                },
            ),
            walks: config.walks.then(|| Walks::new(config.algorithm == Algorithm::PagesOnly)),
            config,
            started: false,
            interval_start_ns: 0,
            next_update_ns: 0,
            paid_ns: None,
            followed: 0,
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
        (self.next_update_ns, self.paid_ns) = (0, None);
        self.source.source_mut()
    }

    /// Monitors these ranges of a target (sorted, disjoint, page aligned) instead of what its mappings say, from the next
    /// update on; the target may be one that is about to come. `None`: what its mappings say.
    pub fn give_space(&mut self, target: TargetId, space: Option<(Vec<AddrRange>, Lasting)>) {
        self.targets.give_space(target, space);
        (self.next_update_ns, self.paid_ns) = (0, None);
    }

    /// How the intervals are tuned from now on; `None`: not.
    pub fn tune_intervals(&mut self, goal: Option<IntervalsGoal>) {
        self.intervals.tune(goal);
    }

    /// What is known of when each of a target's pages was last accessed; `None` before its first walk.
    pub fn page_history(&self, target: TargetId) -> Option<&PageHistory> {
        self.source.page_history(target)
    }

    /// Intervals in force.
    pub fn attrs(&self) -> &MonitorAttrs {
        self.intervals.attrs()
    }

    /// Whether anything but walks looks at memory.
    fn has_regions(&self) -> bool {
        self.config.algorithm != Algorithm::PagesOnly
    }

    fn start(&mut self, now_ns: u64, subscriber: &mut dyn Subscriber) -> Result<(), EngineError> {
        let run = RunInfo {
            source: self.source.name().to_owned(),
            algorithm: match self.config.algorithm {
                Algorithm::Isotherm => "isotherm".to_owned(),
                Algorithm::Damon(_) => "damon".to_owned(),
                Algorithm::PagesOnly => "none".to_owned(),
            },
            attrs: *self.intervals.wanted(),
            cpu_budget: self.config.cpu_budget,
            kernel: self.config.kernel.clone(),
            realtime_offset_ns: self.config.realtime_offset_ns,
        };
        emit(subscriber, &Event::Run(run))?;
        self.started = true;
        // Time begins to count. What loading and self-tests cost was spent once, before.
        self.intervals.skip(&self.source.cost());
        self.intervals.allowance_ns(now_ns);
        self.interval_start_ns = now_ns;
        self.next_stats_ns = now_ns;
        self.update(now_ns, subscriber)?;
        self.stats(now_ns, subscriber)
    }

    /// Takes in new targets and lets the regions follow the mappings: those of new targets at once, of the others in turn
    /// as many as their share pays for.
    fn update(&mut self, now_ns: u64, subscriber: &mut dyn Subscriber) -> Result<(), EngineError> {
        subscriber.step_with(Step::BeforeUpdate, now_ns, &mut self.source);
        let spent_before = self.source.cost().monitor_ns;
        let nr_targets = self.targets.all().len();
        for info in self.source.poll_targets()? {
            emit(subscriber, &Event::Target(info.clone()))?;
            self.targets.add(info);
        }
        // Finding thousands of processes is expensive, and so is reading tens of thousands of mappings. But opening those that
        // have come all at once is no reason not to see that others end.
        let found = self.source.cost().monitor_ns;
        let pause_ns = self.intervals.pause_ns(found - spent_before, POLL_SHARE).min(LONGEST_POLL_NS);
        let (new, others) = self.targets.in_turn(self.followed);
        for id in new {
            self.follow(id, now_ns, subscriber)?;
        }
        for id in others {
            if self.paid_ns.is_some_and(|paid_ns| paid_ns + self.follow_pause_ns(found) > now_ns) {
                break;
            }
            self.follow(id, now_ns, subscriber)?;
            self.followed = id;
        }
        self.paid_ns = Some(self.paid_ns.unwrap_or(0).max(now_ns) + self.follow_pause_ns(found));
        self.next_update_ns = now_ns + (self.intervals.attrs().update_us * 1000).max(pause_ns);
        if self.targets.all().len() > nr_targets {
            self.intervals.make_room(self.algorithm.as_mut());
        }
        subscriber.step_with(Step::AfterUpdate, now_ns, &mut self.source);
        Ok(())
    }

    /// How long what following mappings has cost since the source had spent so much has to wait for its share, ns.
    fn follow_pause_ns(&self, spent_before: u64) -> u64 {
        self.intervals.pause_ns(self.source.cost().monitor_ns - spent_before, FOLLOW_SHARE)
    }

    /// Lets the regions of a target follow its mappings.
    fn follow(&mut self, id: TargetId, now_ns: u64, subscriber: &mut dyn Subscriber) -> Result<(), EngineError> {
        // Nobody but the process itself changes its mappings. Regions may have another reason to look.
        let cpu_ns = if self.has_regions() { None } else { self.source.cpu_ns(id) };
        let is_known = |t: &mut Target| cpu_ns.is_some() && t.followed_cpu_ns == cpu_ns;
        if self.targets.get_mut(id).is_some_and(is_known) {
            return Ok(());
        }
        let mut fresh = Vec::new();
        let mut result = self.source.mappings(id, &mut fresh);
        if matches!(result, Err(SourceError::Replaced { .. })) {
            self.fault(result, now_ns, subscriber)?;
            result = self.source.mappings(id, &mut fresh);
        }
        if !self.fault(result, now_ns, subscriber)? {
            return Ok(());
        }
        if self.has_regions() {
            let attrs = *self.intervals.attrs();
            let space = self.targets.space(&mut self.source, (id, &fresh), self.config.space, &attrs, now_ns);
            let Ok(space) = space else {
                self.fault(space.map(|_| ()), now_ns, subscriber)?;
                return Ok(());
            };
            let Some(t) = self.targets.get_mut(id) else { return Ok(()) };
            if t.space != space {
                self.algorithm.set_space(id, &space, &attrs);
                t.space = space;
            }
        }
        let Some(t) = self.targets.get_mut(id) else { return Ok(()) };
        t.followed_cpu_ns = cpu_ns;
        if t.mappings != fresh {
            t.mappings.clone_from(&fresh);
            emit(subscriber, &Event::Mappings { time_ns: now_ns, target: id, mappings: fresh })?;
        }
        Ok(())
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
        self.targets.end(target, why);
        if why == TargetEnd::Replaced {
            self.next_update_ns = now_ns;
        }
        emit(subscriber, &Event::End { time_ns: now_ns, target, why })?;
        Ok(false)
    }

    /// Calls `f` for each target that has regions, and takes out those that are gone.
    fn for_each_target(
        &mut self,
        now_ns: u64,
        subscriber: &mut dyn Subscriber,
        mut f: impl FnMut(&mut dyn algorithm::Algorithm, &mut Tracked<S>, TargetId) -> Result<(), SourceError>,
    ) -> Result<(), EngineError> {
        if !self.has_regions() {
            return Ok(());
        }
        for id in self.targets.ids() {
            let result = f(self.algorithm.as_mut(), &mut self.source, id);
            self.fault(result, now_ns, subscriber)?;
        }
        Ok(())
    }

    fn snapshots(&mut self, end_ns: u64, subscriber: &mut dyn Subscriber) -> Result<(), EngineError> {
        if !self.has_regions() {
            return Ok(());
        }
        let attrs = *self.intervals.attrs();
        for t in self.targets.all() {
            let mut snapshot = Snapshot {
                target: t.info.target,
                pid: t.info.pid,
                start_ns: self.interval_start_ns,
                end_ns,
                sample_us: attrs.sample_us,
                aggr_us: attrs.aggr_us,
                max_nr_accesses: attrs.max_nr_accesses(),
                regions: Vec::new(),
            };
            self.algorithm.regions(t.info.target, &mut snapshot.regions);
            self.intervals.add(&snapshot);
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
        let attrs = self.intervals.attrs();
        let stats = MonitorStats {
            time_ns: now_ns,
            monitor_ns: cost.monitor_ns,
            target_ns: cost.target_ns,
            checks: cost.pages_read,
            clears: cost.pages_cleared,
            nr_regions: self.algorithm.nr_regions() as u32,
            mode: self.algorithm.mode(),
            sample_us: attrs.sample_us,
            aggr_us: attrs.aggr_us,
            late_samples: self.late_samples,
        };
        emit(subscriber, &Event::Stats(stats))?;
        if now_ns < self.next_footprints_ns {
            return Ok(());
        }
        for t in self.targets.all_mut() {
            if let Some(footprint) = self.source.footprint(t.info.target, now_ns) {
                emit(subscriber, &Event::Footprint(footprint))?;
                t.footprint = Some(footprint);
            }
        }
        // Of hundreds of targets they are expensive: then they come less often.
        let spent_ns = self.source.cost().monitor_ns - cost.monitor_ns;
        self.next_footprints_ns = now_ns + self.intervals.pause_ns(spent_ns, FOOTPRINTS_SHARE);
        Ok(())
    }

    /// Walks the targets whose time has come.
    fn walk(&mut self, clock: &mut dyn Clock, subscriber: &mut dyn Subscriber) -> Result<(), EngineError> {
        self.pay();
        let Some(walks) = &mut self.walks else { return Ok(()) };
        let faults = walks.turn(&mut self.source, self.targets.all(), self.config.cpu_budget, clock, subscriber)?;
        // Walks pay for themselves; regions, or what follows mappings and footprints, have what they leave.
        self.intervals.skip(&self.source.cost());
        self.intervals.set_share(self.config.cpu_budget.map(|share| share * walks.left(share)));
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

    /// Takes what the source has cost since the last time out of the budget.
    fn pay(&mut self) {
        let spent_ns = self.intervals.pay(&self.source.cost());
        if let Some(walks) = &mut self.walks {
            walks.others_spent(spent_ns);
        }
    }

    /// Adapts intervals to what was seen and what was spent.
    fn adapt(&mut self, now_ns: u64) {
        if !self.intervals.take_retuned(self.algorithm.as_mut()) {
            self.pay();
            self.intervals.adapt(now_ns, self.algorithm.as_mut());
        }
    }
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
        let gone = self.targets.all().is_empty() && !self.source.may_gain_targets();
        Ok(if gone { Progress::TargetsGone } else { Progress::Aggregated })
    }

    fn retune(&mut self, attrs: MonitorAttrs) -> bool {
        self.intervals.retune(attrs);
        true
    }

    fn interval_ns(&self) -> u64 {
        self.intervals.attrs().aggr_us * 1000
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
        if self.targets.all().is_empty() && !self.source.may_gain_targets() {
            return Ok(Progress::TargetsGone);
        }
        let attrs = *self.intervals.attrs();
        let per_aggr = attrs.max_nr_accesses();
        let sample_ns = attrs.sample_us * 1000;
        let mut tick = 0;
        let mut deadline = clock.now_ns();
        self.interval_start_ns = deadline;
        self.source.begin_interval(deadline);
        self.pay();
        self.algorithm.allow(self.intervals.allowance_ns(deadline), self.intervals.budget_ns());
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
        self.algorithm.aggregate(&attrs);
        self.snapshots(end_ns, subscriber)?;
        self.walk(clock, subscriber)?;
        self.adapt(end_ns);
        self.algorithm.reset(self.intervals.attrs());
        subscriber.step_with(Step::AfterAggregate, end_ns, &mut self.source);
        if end_ns >= self.next_update_ns {
            self.update(end_ns, subscriber)?;
        }
        self.stats(end_ns, subscriber)?;
        Ok(Progress::Aggregated)
    }
}
