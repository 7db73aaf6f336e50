//! Schemes at work: what subscribes to a monitor and acts on what it sees.

use super::Scheme;
use super::apply::{Turn, World};
use super::effect::LookCost;
use super::goal::{Goal, GoalMetric};
use super::idle::IdleReason;
use super::pace::Pace;
use super::runner::Runner;
use super::stats::SchemeStats;
use super::target_view::TargetView;
use crate::action_log::ActionLog;
use crate::actuator::{Actuator, Outcome};
use crate::event::{Event, Step, Subscriber, SubscriberError};
use crate::history::reaccessed::Reaccessed;
use crate::meter::{LiveTarget, Meter, Metric};
use crate::source::AccessSource;
use crate::target::{TargetEnd, TargetId};
use crate::trace::{TraceEvent, Tracer};
use std::collections::{BTreeMap, BTreeSet};

/// How often it is read which control groups targets are in, ns, ...
const LOCATE_NS: u64 = 1_000_000_000;
/// ... and more seldom with many: each costs a read of a file in /proc.
const LOCATE_NS_PER_TARGET: u64 = 10_000_000;

/// Applies schemes to what a monitor sees.
pub struct SchemeEngine {
    runners: Vec<Runner>,
    actuator: Box<dyn Actuator>,
    meter: Box<dyn Meter>,
    targets: BTreeMap<TargetId, TargetView>,
    outcomes: Vec<Outcome>,
    pace: Pace,
    /// Which scheme comes first in the next turn where there is a pace: none is always too late for it.
    first: usize,
    log: ActionLog,
    /// Whether the actuator only pretends.
    dry_run: bool,
    /// Whether the monitor follows DAMON's algorithm.
    by_region: bool,
    /// Its sampling interval, ns; 0: not known yet.
    sample_ns: u64,
    /// When the targets' control groups were read last, ns; `None`: whoever drives the engine [tells them](Self::locate).
    located_ns: Option<u64>,
}

impl std::fmt::Debug for SchemeEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SchemeEngine").field("schemes", &self.runners.len()).finish_non_exhaustive()
    }
}

/// How a scheme stands, for people and programs.
#[derive(Debug)]
pub struct SchemeStatus<'a> {
    /// What it is.
    pub scheme: &'a Scheme,
    /// Its counters.
    pub stats: SchemeStats,
    /// Of what it has paged out: what came back since the start, by how long it had certainly been idle.
    pub back: Reaccessed,
    /// Why it does nothing; `None` while it acts.
    pub idle: Option<&'a IdleReason>,
    /// Last values of its goals, in their order; `None` where not known.
    pub goals: Vec<Option<u64>>,
    /// What its goals aim at, in the same order and units.
    pub goal_targets: Vec<u64>,
    /// Resident memory of all targets, bytes; `None` where not known.
    pub rss: Option<u64>,
}

impl SchemeEngine {
    /// An engine with `schemes`, which are expected to be valid ([`Scheme::validate`]).
    pub fn new(schemes: Vec<Scheme>, actuator: Box<dyn Actuator>, meter: Box<dyn Meter>) -> Self {
        Self {
            runners: schemes.into_iter().map(Runner::new).collect(),
            actuator,
            meter,
            targets: BTreeMap::new(),
            outcomes: Vec::new(),
            pace: Pace::default(),
            first: 0,
            log: ActionLog::default(),
            dry_run: false,
            by_region: false,
            sample_ns: 0,
            located_ns: Some(0),
        }
    }

    /// The same, with an actuator that only pretends: what it is said to have done is believed, and counted once.
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    /// Whether its actuator only pretends.
    pub const fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// Replaces the schemes. One that keeps its place, its action and its control group keeps what it has learnt.
    pub fn commit(&mut self, schemes: Vec<Scheme>) {
        let mut old: Vec<Option<Runner>> = self.runners.drain(..).map(Some).collect();
        for (i, scheme) in schemes.into_iter().enumerate() {
            let mut fresh = Runner::new(scheme);
            let is_same =
                |old: &Runner| old.scheme.action == fresh.scheme.action && old.scheme.group == fresh.scheme.group;
            if let Some(old) = old.get_mut(i).and_then(Option::take).filter(is_same) {
                fresh.learn_from(old);
            }
            self.runners.push(fresh);
        }
    }

    /// Replaces the goals of one scheme alone; false where there is no such scheme.
    pub fn commit_goals(&mut self, scheme: usize, goals: Vec<Goal>) -> bool {
        self.runners
            .get_mut(scheme)
            .map(|r| {
                r.quota.set_goals(goals.clone());
                r.scheme.quota.goals = goals;
            })
            .is_some()
    }

    /// Takes in a value for the goals of a scheme that wait for one; how many took it.
    pub fn push_feedback(&mut self, scheme: usize, value: u64) -> usize {
        let Some(runner) = self.runners.get_mut(scheme) else { return 0 };
        let waiting = runner.quota.goals.iter_mut().filter(|g| g.goal.metric == GoalMetric::UserInput);
        waiting.map(|g| g.push(value)).count()
    }

    /// Limits what all schemes do together, bytes a second.
    pub const fn set_pace(&mut self, per_second: Option<u64>) {
        self.pace.set(per_second);
    }

    /// What all schemes together have left at `now_ns`, bytes: for work that the engine does not do itself.
    pub fn pace_left(&mut self, now_ns: u64) -> u64 {
        self.pace.left(now_ns)
    }

    /// Takes what such work uses up of it.
    pub fn spend_pace(&mut self, bytes: u64) {
        self.pace.spend(bytes);
    }

    /// Limits one scheme alone to so many bytes until this is called again, work that is not finished yet among them, and
    /// keeps what it has learnt; false where there is no such scheme.
    pub fn limit(&mut self, scheme: usize, bytes: Option<u64>) -> bool {
        self.runners
            .get_mut(scheme)
            .map(|r| r.quota.set_room(bytes.map_or(u64::MAX, |bytes| bytes.saturating_sub(r.in_flight()))))
            .is_some()
    }

    /// Asks `group_of` anew which control group each target is in: processes move. Schemes for one group go by that. The engine itself
    /// does not look from then on.
    pub fn locate(&mut self, mut group_of: impl FnMut(u32) -> Option<String>) {
        self.located_ns = None;
        for view in self.targets.values_mut() {
            view.cgroup = view.live.pid.and_then(&mut group_of);
        }
    }

    /// Reads anew which control groups the targets are in, where schemes go by that.
    fn follow_groups(&mut self, now_ns: u64) {
        let Some(located_ns) = self.located_ns else { return };
        let pause_ns = LOCATE_NS.max(self.targets.len() as u64 * LOCATE_NS_PER_TARGET);
        if now_ns < located_ns + pause_ns || !self.runners.iter().any(|r| r.scheme.goes_by_group()) {
            return;
        }
        self.located_ns = Some(now_ns);
        for view in self.targets.values_mut() {
            view.cgroup = self.meter.cgroup_of(view.live);
        }
    }

    /// Number of schemes.
    pub const fn len(&self) -> usize {
        self.runners.len()
    }

    /// Whether there is no scheme.
    pub const fn is_empty(&self) -> bool {
        self.runners.is_empty()
    }

    /// How each scheme stands.
    pub fn status(&mut self) -> Vec<SchemeStatus<'_>> {
        let live = self.live();
        let stall = self.meter.read(&Metric::SomeMemPsi(None), &live).ok();
        let targets = &self.targets;
        let meter = self.meter.as_mut();
        let mut of_targets = |live: &[LiveTarget]| {
            let mut read = |metric| meter.read(&metric, live).ok();
            (read(Metric::TargetMajorFaults), read(Metric::TargetRss))
        };
        let all = of_targets(&live);
        let of_scheme = |group: Option<&str>| match group {
            Some(group) => of_targets(&members(targets, Some(group))),
            None => all,
        };
        status_of(&mut self.runners, stall, of_scheme)
    }

    /// The same without faults, stall and resident memory, for which the files of all targets would have to be read.
    pub fn status_without_meters(&mut self) -> Vec<SchemeStatus<'_>> {
        status_of(&mut self.runners, None, |_| (None, None))
    }

    /// The control groups in which targets are, as [`locate`](Self::locate) had them last.
    pub fn groups(&self) -> BTreeSet<String> {
        self.targets.values().filter_map(|t| t.cgroup.clone()).collect()
    }

    /// What was done lately, newest last.
    pub const fn log(&self) -> &ActionLog {
        &self.log
    }

    /// The targets that are alive.
    pub fn live(&self) -> Vec<LiveTarget> {
        members(&self.targets, None)
    }

    /// Looks at the watermarks whose time has come; whether to watch: while they keep every scheme off, nothing needs
    /// to be sampled. Where there is no scheme, somebody else wants to see.
    pub fn turn_gates(&mut self, now_ns: u64) -> bool {
        let live = self.live();
        for r in &mut self.runners {
            if let Some(reason) = r.watermarks.turn(now_ns, self.meter.as_mut(), &live) {
                r.idle = Some(reason);
            }
        }
        self.runners.is_empty() || self.runners.iter().any(|r| r.watermarks.is_open())
    }

    /// When the watermarks are to be looked at next.
    pub(crate) fn next_gate_ns(&self) -> Option<u64> {
        self.runners.iter().filter_map(|r| r.watermarks.next_ns()).min()
    }

    /// Takes in what the actuator has finished, and looks for what came back. Called by every turn; also to be called
    /// at the end, so that nothing done is missing from the figures.
    pub fn collect(&mut self, now_ns: u64, mut source: Option<&mut dyn AccessSource>) {
        self.actuator.collect(&mut self.outcomes);
        for mut outcome in self.outcomes.drain(..) {
            if self.dry_run {
                // Who only pretends has no clock.
                outcome.done_ns = now_ns;
            }
            self.log.add(&outcome);
            // Schemes may have been replaced since: what another one asked for is not this one's doing.
            let runner = self.runners.get_mut(outcome.request.scheme);
            let Some(runner) = runner.filter(|r| r.scheme.action == outcome.request.action) else { continue };
            runner.finished(&outcome, reborrow(&mut source).filter(|_| !self.dry_run), now_ns);
        }
        if let Some(source) = source {
            let pauses = self.runners.iter().map(|r| r.effect.cost()).sum::<LookCost>().pauses();
            let mapped = |target| self.targets.get(&target).and_then(TargetView::known_ranges);
            self.runners.iter_mut().for_each(|r| r.effect.look(source, &mapped, pauses, now_ns));
        }
    }

    /// Whether work that was handed over is not finished.
    pub(crate) fn has_pending(&self) -> bool {
        (0..self.runners.len()).any(|scheme| self.actuator.pending(scheme) > 0)
    }

    /// Gives every scheme whose time has come its turn. `aggregated`: an aggregation interval has just ended.
    fn turn(
        &mut self,
        now_ns: u64,
        aggregated: bool,
        mut source: Option<&mut dyn AccessSource>,
        tracer: &mut dyn Tracer,
    ) {
        self.collect(now_ns, reborrow(&mut source));
        self.turn_gates(now_ns);
        self.follow_groups(now_ns);
        let all = self.live();
        let schemes = self.runners.len();
        self.first = if self.pace.is_limited() { (self.first + 1) % schemes.max(1) } else { 0 };
        for index in (0..schemes).map(|i| (i + self.first) % schemes) {
            let runner = &mut self.runners[index];
            if !runner.is_due(now_ns, aggregated, self.sample_ns) {
                continue;
            }
            let of_group = runner.scheme.group.as_deref().map(|group| members(&self.targets, Some(group)));
            let live = of_group.as_deref().unwrap_or(&all);
            let pace = self.pace.left(now_ns);
            runner.quota.set_pace(pace);
            let mut world = World {
                targets: &self.targets,
                live,
                actuator: self.actuator.as_mut(),
                meter: self.meter.as_mut(),
                source: reborrow(&mut source),
                tracer: &mut *tracer,
                now_ns,
                dry_run: self.dry_run,
                by_region: self.by_region,
            };
            let idle = Turn::new(index, runner, &mut world).run();
            runner.idle = idle;
            self.pace.spend(pace - runner.quota.pace());
            tracer.trace(&TraceEvent::stat(index, &runner.stats, runner.quota.exceeds));
        }
    }

    /// A step of the monitor's loop, as [`Subscriber::step_with`] tells it. `tracer` hears what schemes do.
    pub(crate) fn step_traced(
        &mut self,
        step: Step,
        now_ns: u64,
        source: Option<&mut dyn AccessSource>,
        tracer: &mut dyn Tracer,
    ) {
        match (step, source) {
            (Step::AfterAggregate, source) => self.turn(now_ns, true, source, tracer),
            (Step::Wanted, Some(source)) => self.turn(now_ns, false, Some(source), tracer),
            // Also where schemes were replaced meanwhile.
            (Step::AfterUpdate, Some(source)) => {
                let ages = self.runners.iter().map(|r| r.asked_ns(self.by_region));
                ages.filter(|&age_ns| age_ns > 0).for_each(|age_ns| source.ask_age(age_ns));
            }
            _ => {}
        }
    }
}

/// How schemes stand. `of_targets`: major faults and resident memory of the targets in a group, or of all.
fn status_of<'a>(
    runners: &'a mut [Runner],
    stall_us: Option<u64>,
    mut of_targets: impl FnMut(Option<&str>) -> (Option<u64>, Option<u64>),
) -> Vec<SchemeStatus<'a>> {
    let status = |r: &'a mut Runner| {
        let (faults, rss) = of_targets(r.scheme.group.as_deref());
        let stats = r.stats(faults, stall_us);
        SchemeStatus {
            scheme: &r.scheme,
            stats,
            back: r.effect.back(),
            idle: r.idle.as_ref(),
            goals: r.quota.goals.iter().map(|g| g.current).collect(),
            goal_targets: r.quota.goals.iter().map(|g| g.goal.target).collect(),
            rss,
        }
    };
    runners.iter_mut().map(status).collect()
}

/// Those of `targets` that are in the control group `group`, or all.
fn members(targets: &BTreeMap<TargetId, TargetView>, group: Option<&str>) -> Vec<LiveTarget> {
    let is_in = |t: &&TargetView| group.is_none_or(|group| t.cgroup.as_deref() == Some(group));
    targets.values().filter(is_in).map(|t| t.live).collect()
}

/// The source for a shorter time; `Option::as_deref_mut` cannot shorten the life of the trait object itself.
fn reborrow<'s>(source: &'s mut Option<&mut dyn AccessSource>) -> Option<&'s mut dyn AccessSource> {
    match source {
        Some(source) => Some(&mut **source),
        None => None,
    }
}

impl Subscriber for SchemeEngine {
    fn event(&mut self, event: &Event) -> Result<(), SubscriberError> {
        match event {
            Event::Target(info) => {
                let live = LiveTarget { target: info.target, pid: info.pid };
                let cgroup = self.meter.cgroup_of(live);
                let view = TargetView { live, cgroup, mappings: Vec::new(), snapshot: None };
                self.targets.insert(info.target, view);
            }
            Event::Mappings { target, mappings, .. } => {
                if let Some(t) = self.targets.get_mut(target) {
                    t.mappings.clone_from(mappings);
                }
            }
            Event::Snapshot(snapshot) => {
                if let Some(t) = self.targets.get_mut(&snapshot.target) {
                    t.snapshot = Some(snapshot.clone());
                }
                self.runners.iter_mut().for_each(|r| r.stats.nr_snapshots += 1);
            }
            Event::End { target, why, .. } => {
                self.runners.iter_mut().for_each(|r| r.drop_target(*target));
                match why {
                    TargetEnd::Exited => {
                        self.targets.remove(target);
                    }
                    TargetEnd::Replaced => {
                        if let Some(t) = self.targets.get_mut(target) {
                            t.mappings.clear();
                            t.snapshot = None;
                        }
                    }
                }
            }
            Event::Run(run) => {
                self.by_region = run.algorithm == "damon";
                self.sample_ns = run.attrs.sample_us.saturating_mul(1000);
            }
            Event::Stats(_) | Event::Footprint(_) | Event::Pages(_) | Event::Together(_) => {}
        }
        Ok(())
    }

    fn step(&mut self, step: Step, now_ns: u64) {
        self.step_traced(step, now_ns, None, &mut ());
    }

    fn step_with(&mut self, step: Step, now_ns: u64, source: &mut dyn AccessSource) {
        self.step_traced(step, now_ns, Some(source), &mut ());
    }

    fn wanted_ns(&self) -> Option<u64> {
        self.runners.iter().filter_map(Runner::next_apply_ns).min()
    }
}
