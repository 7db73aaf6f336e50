//! Drives the kernel's DAMON as an [`Engine`].

use super::error::DamonError;
use super::files::{ControlFiles, Sysfs};
use super::kdamond::KdamondTime;
use super::ram::system_ram;
use super::reader::Reader;
use super::rounds::Whole;
use super::session::{Asked, DamonSession, Operations, SessionTargets};
use crate::clock::thread_cpu_ns;
use crate::guard::Guard;
use crate::proc::ProcessError;
use crate::proc::stat::Stat;
use crate::roots::Roots;
use crate::source::reset::RESET_NS;
use crate::targets::TargetTracker;
use isotherm_core::addr::AddrRange;
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::clock::{Clock, Wake};
use isotherm_core::engine::{Engine, EngineError, Progress, emit, sleep_with_turns};
use isotherm_core::event::{Event, Mode, MonitorStats, RunInfo, Step, Subscriber};
use isotherm_core::mapping::Mapping;
use isotherm_core::snapshot::Snapshot;
use isotherm_core::source::SourceError;
use isotherm_core::target::TargetId;
use isotherm_core::target::{TargetEnd, TargetInfo};
use isotherm_core::units::NS_PER_S;
use std::collections::VecDeque;

/// Starts in a row that end at once before we give up.
const MAX_ATTEMPTS: u32 = 10;

/// What the kernel's DAMON is to watch.
#[derive(Debug)]
pub enum DamonTargets {
    Processes(Box<TargetTracker>),
    /// All physical memory, as one target without a pid.
    Physical,
}

/// How it is to watch.
#[derive(Debug, Clone, PartialEq)]
pub struct DamonConfig {
    /// Intervals and region limits. The limits hold over all targets together.
    pub attrs: MonitorAttrs,
    /// Share of one core that reading the kernel's regions from its files may cost. Where every aggregation interval
    /// would cost more, some are not read; what happened in them still shows in the regions' ages. `None`: read every
    /// one. Reading from the tracepoint is cheap enough to leave none out. The kernel thread's own time is counted in
    /// the statistics, but only the intervals and region limits change it.
    pub cpu_budget: Option<f64>,
    /// Kernel release, for the record.
    pub kernel: String,
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC in ns, for the record.
    pub realtime_offset_ns: i64,
}

/// The kernel's DAMON at work. Dropping this puts everything back.
///
/// A snapshot is what DAMON had at the end of one aggregation interval. It comes from DAMON's tracepoint where perf
/// events can be had, else from its sysfs files. When targets come or execute another program, DAMON is set up afresh
/// and the ages of all regions begin anew.
#[derive(Debug)]
pub struct DamonEngine {
    inner: Inner<Sysfs>,
}

impl DamonEngine {
    /// Makes sure that the kernel has DAMON, that the attributes make sense, and that nobody uses it; sets nothing up
    /// before the first interval. `guard`, one for settings, puts DAMON back if we are killed.
    pub fn new(roots: Roots, targets: DamonTargets, config: DamonConfig, guard: Guard) -> Result<Self, DamonError> {
        Inner::new(Sysfs { roots, guard }, targets, config).map(|inner| Self { inner })
    }
}

impl Engine for DamonEngine {
    fn run_interval(
        &mut self,
        clock: &mut dyn Clock,
        subscriber: &mut dyn Subscriber,
    ) -> Result<Progress, EngineError> {
        self.inner.run_interval(clock, subscriber)
    }

    fn interval_ns(&self) -> u64 {
        self.inner.interval_ns()
    }
}

#[derive(Debug)]
pub(super) struct Inner<F: ControlFiles> {
    session: DamonSession<F>,
    targets: DamonTargets,
    config: DamonConfig,
    ram: Vec<AddrRange>,
    watched: Vec<WatchedTarget>,
    begun: bool,
    /// The kernel's targets are not `watched` any more.
    stale: bool,
    attempts: u32,
    /// While DAMON is on.
    reader: Option<Reader>,
    /// What has been read but not handed out yet.
    pending: VecDeque<Whole>,
    /// When to read next.
    next_read_ns: u64,
    next_update_ns: u64,
    next_stats_ns: u64,
    kdamond: KdamondTime,
    /// CPU time of this thread at the first interval.
    cpu_start_ns: u64,
    checks: u64,
    clears: u64,
    nr_regions: u32,
}

#[derive(Debug)]
struct WatchedTarget {
    info: TargetInfo,
    mappings: Vec<Mapping>,
    image: Option<(u64, u64)>,
    /// Its index in the kernel's context; `None`: the kernel does not watch it (yet).
    index: Option<u64>,
    /// End of its last snapshot, or the time it was set up.
    last_end_ns: u64,
}

impl WatchedTarget {
    const fn new(info: TargetInfo) -> Self {
        Self { info, mappings: Vec::new(), image: None, index: None, last_end_ns: 0 }
    }
}

impl<F: ControlFiles> Inner<F> {
    pub(super) fn new(files: F, targets: DamonTargets, config: DamonConfig) -> Result<Self, DamonError> {
        let (kind, ram) = match targets {
            DamonTargets::Processes(_) => (Operations::Processes, Vec::new()),
            DamonTargets::Physical => (Operations::Physical, system_ram(files.roots())),
        };
        let kdamond = KdamondTime::new(files.roots().clone());
        let session = DamonSession::claim(files, config.attrs, kind)?;
        if kind == Operations::Physical && ram.is_empty() {
            return Err(DamonError::NoPhysicalRanges);
        }
        Ok(Self {
            session,
            targets,
            config,
            ram,
            watched: Vec::new(),
            begun: false,
            stale: true,
            attempts: 0,
            reader: None,
            pending: VecDeque::new(),
            next_read_ns: 0,
            next_update_ns: 0,
            next_stats_ns: 0,
            kdamond,
            cpu_start_ns: 0,
            checks: 0,
            clears: 0,
            nr_regions: 0,
        })
    }

    pub(super) fn run_interval(
        &mut self,
        clock: &mut dyn Clock,
        subscriber: &mut dyn Subscriber,
    ) -> Result<Progress, EngineError> {
        if !self.begun {
            self.begin(clock.now_ns(), subscriber)?;
        }
        while self.pending.is_empty() {
            let turn = |s: &mut dyn Subscriber, now_ns| s.step(Step::Wanted, now_ns);
            if sleep_with_turns(self.next_read_ns, clock, subscriber, turn) == Wake::Interrupted {
                return Ok(Progress::Interrupted);
            }
            let now = clock.now_ns();
            if now >= self.next_update_ns {
                self.update(now, subscriber)?;
            }
            self.find_exec(now, subscriber)?;
            if self.watched.is_empty() {
                if !self.may_gain_targets() {
                    return Ok(Progress::TargetsGone);
                }
                self.stop()?;
                self.next_read_ns = now + self.aggr_ns();
            } else if self.stale {
                self.start(now, subscriber)?;
            } else {
                self.read(clock, subscriber)?;
            }
        }
        self.attempts = 0;
        self.hand_out(clock.now_ns(), subscriber)?;
        Ok(Progress::Aggregated)
    }

    /// Time between two looks at what the kernel tells: its aggregation interval, or longer where looking is expensive.
    pub(super) fn interval_ns(&self) -> u64 {
        self.next_read(Some(0), 0).max(self.aggr_ns())
    }

    const fn aggr_ns(&self) -> u64 {
        self.config.attrs.aggr_us * 1000
    }

    fn begin(&mut self, now_ns: u64, subscriber: &mut dyn Subscriber) -> Result<(), EngineError> {
        self.begun = true;
        self.cpu_start_ns = thread_cpu_ns();
        (self.next_read_ns, self.next_stats_ns) = (now_ns, now_ns);
        let run = RunInfo {
            source: "damon".to_owned(),
            algorithm: String::new(),
            attrs: self.config.attrs,
            cpu_budget: self.config.cpu_budget,
            kernel: self.config.kernel.clone(),
            realtime_offset_ns: self.config.realtime_offset_ns,
        };
        emit(subscriber, &Event::Run(run))?;
        if matches!(self.targets, DamonTargets::Physical) {
            let info = TargetInfo { target: 0, pid: None, name: "physical memory".to_owned() };
            let name =
                |range: &AddrRange| Mapping { name: "System RAM".to_owned(), ..Mapping::anon(range.start, range.end) };
            let mappings: Vec<Mapping> = self.ram.iter().map(name).collect();
            emit(subscriber, &Event::Target(info.clone()))?;
            emit(subscriber, &Event::Mappings { time_ns: now_ns, target: 0, mappings: mappings.clone() })?;
            self.watched.push(WatchedTarget { mappings, ..WatchedTarget::new(info) });
        }
        Ok(())
    }

    fn may_gain_targets(&self) -> bool {
        matches!(&self.targets, DamonTargets::Processes(tracker) if tracker.may_gain_targets())
    }

    /// Sets the kernel up for the targets as they are now.
    fn start(&mut self, now_ns: u64, subscriber: &mut dyn Subscriber) -> Result<(), EngineError> {
        if self.attempts >= MAX_ATTEMPTS {
            return Err(SourceError::from(DamonError::KeepsStopping { attempts: self.attempts }).into());
        }
        self.attempts += 1;
        let watched = match self.targets {
            DamonTargets::Physical => SessionTargets::Physical(self.ram.clone()),
            DamonTargets::Processes(_) => {
                SessionTargets::Processes(self.watched.iter().filter_map(|t| t.info.pid).collect())
            }
        };
        self.stop()?;
        let count = watched.targets();
        let started = self.session.start(&watched).and_then(|()| {
            Reader::open(&self.session, count, &self.config.attrs, now_ns).map(|reader| self.reader = Some(reader))
        });
        if let Err(e) = started {
            // The kernel refuses a process that has just ended.
            let before = self.watched.len();
            self.drop_ended(now_ns, subscriber)?;
            return if self.watched.len() < before { Ok(()) } else { Err(SourceError::from(e).into()) };
        }
        self.kdamond.follow(self.session.kdamond());
        for (index, target) in (0..).zip(&mut self.watched) {
            (target.index, target.last_end_ns) = (Some(index), now_ns);
        }
        self.stale = false;
        self.next_read_ns = self.next_read(Some(now_ns), now_ns);
        Ok(())
    }

    fn stop(&mut self) -> Result<(), EngineError> {
        self.reader = None;
        self.watched.iter_mut().for_each(|t| t.index = None);
        self.session.stop().map_err(|e| SourceError::from(e).into())
    }

    /// Reads what the kernel has to tell.
    fn read(&mut self, clock: &dyn Clock, subscriber: &mut dyn Subscriber) -> Result<(), EngineError> {
        let Some(reader) = &mut self.reader else { return Ok(()) };
        let count = self.watched.iter().filter_map(|t| t.index).max().map_or(0, |i| i as usize + 1);
        let mut found = Vec::new();
        let asked = reader.read(&mut self.session, count, clock, &mut found).map_err(SourceError::from)?;
        let now = clock.now_ns();
        // A target that has ended would look idle from its end on.
        self.drop_ended(now, subscriber)?;
        match asked {
            Asked::Ready => self.next_read_ns = self.next_read(found.last().map(|w| w.time_ns), now),
            Asked::Stopped => {
                // Its targets have ended, or it could not begin with them.
                self.stale = true;
                self.next_read_ns = now + self.aggr_ns();
            }
        }
        self.pending.extend(found);
        Ok(())
    }

    fn next_read(&self, end_ns: Option<u64>, now_ns: u64) -> u64 {
        self.reader.as_ref().map_or(now_ns, |r| r.next_ns(end_ns, now_ns, self.config.cpu_budget))
    }

    /// Takes in new targets and mappings.
    fn update(&mut self, now_ns: u64, subscriber: &mut dyn Subscriber) -> Result<(), EngineError> {
        subscriber.step(Step::BeforeUpdate, now_ns);
        self.next_update_ns = now_ns + self.config.attrs.update_us * 1000;
        if let DamonTargets::Processes(tracker) = &mut self.targets {
            for info in tracker.poll().map_err(|e| SourceError::from(DamonError::from(e)))? {
                emit(subscriber, &Event::Target(info.clone()))?;
                self.watched.push(WatchedTarget::new(info));
                self.stale = true;
            }
        }
        for id in self.ids() {
            self.read_mappings(id, now_ns, subscriber)?;
        }
        subscriber.step(Step::AfterUpdate, now_ns);
        Ok(())
    }

    fn ids(&self) -> Vec<TargetId> {
        self.watched.iter().map(|t| t.info.target).collect()
    }

    fn read_mappings(&mut self, id: TargetId, now_ns: u64, subscriber: &mut dyn Subscriber) -> Result<(), EngineError> {
        let DamonTargets::Processes(tracker) = &mut self.targets else { return Ok(()) };
        let mut fresh = Vec::new();
        let read = |tracker: &mut TargetTracker, fresh: &mut Vec<Mapping>| -> Result<_, ProcessError> {
            let process = tracker.process(id)?;
            process.mappings(fresh)?;
            Stat::read(process.dir()).map(|s| s.image)
        };
        let mut result = read(tracker, &mut fresh);
        if let Err(ProcessError::Replaced { .. }) = result {
            emit(subscriber, &Event::End { time_ns: now_ns, target: id, why: TargetEnd::Replaced })?;
            // The kernel still has the old program's regions.
            self.stale = true;
            result = read(tracker, &mut fresh);
        }
        match result {
            Ok(image) => {
                let Some(target) = self.watched.iter_mut().find(|t| t.info.target == id) else { return Ok(()) };
                target.image = Some(image);
                if target.mappings != fresh {
                    target.mappings.clone_from(&fresh);
                    emit(subscriber, &Event::Mappings { time_ns: now_ns, target: id, mappings: fresh })?;
                }
                Ok(())
            }
            Err(e) if e.is_gone() => self.end(id, now_ns, subscriber),
            // Another exec right behind the first: the next look will find it.
            Err(ProcessError::Replaced { .. }) => Ok(()),
            Err(e) => Err(e.into_source_error(id).into()),
        }
    }

    /// Looks for programs that were executed since the last look: the kernel shows the old program's regions, all idle,
    /// until its next update.
    fn find_exec(&mut self, now_ns: u64, subscriber: &mut dyn Subscriber) -> Result<(), EngineError> {
        let DamonTargets::Processes(tracker) = &mut self.targets else { return Ok(()) };
        let mut changed = Vec::new();
        for target in &self.watched {
            let process = tracker.process(target.info.target);
            let image = process.and_then(|p| Stat::read(p.dir())).map(|s| s.image);
            if image.ok() != target.image {
                changed.push(target.info.target);
            }
        }
        changed.into_iter().try_for_each(|id| self.read_mappings(id, now_ns, subscriber))
    }

    fn drop_ended(&mut self, now_ns: u64, subscriber: &mut dyn Subscriber) -> Result<(), EngineError> {
        let DamonTargets::Processes(tracker) = &mut self.targets else { return Ok(()) };
        let mut ended: Vec<TargetId> = self.watched.iter().map(|t| t.info.target).collect();
        ended.retain(|&id| !tracker.process(id).is_ok_and(|p| p.is_alive()));
        ended.into_iter().try_for_each(|id| self.end(id, now_ns, subscriber))
    }

    fn end(&mut self, id: TargetId, now_ns: u64, subscriber: &mut dyn Subscriber) -> Result<(), EngineError> {
        if let DamonTargets::Processes(tracker) = &mut self.targets {
            tracker.close(id);
        }
        self.watched.retain(|t| t.info.target != id);
        emit(subscriber, &Event::End { time_ns: now_ns, target: id, why: TargetEnd::Exited })
    }

    /// Hands out the regions of all targets at the end of one aggregation interval.
    fn hand_out(&mut self, now_ns: u64, subscriber: &mut dyn Subscriber) -> Result<(), EngineError> {
        let attrs = self.config.attrs;
        let aggr_ns = self.aggr_ns();
        subscriber.step(Step::BeforeAggregate, now_ns);
        self.nr_regions = 0;
        let mut last_index = None;
        // Indices ascend within an interval.
        while self.pending.front().is_some_and(|w| last_index.is_none_or(|last| last < w.target)) {
            let Some(whole) = self.pending.pop_front() else { break };
            last_index = Some(whole.target);
            let Whole { time_ns: end_ns, regions, target: index } = whole;
            let Some(target) = self.watched.iter_mut().find(|t| t.index == Some(index)) else { continue };
            if regions.is_empty() {
                // A request that timed out, or a target that DAMON could not begin with: not seen, which is not idle.
                continue;
            }
            let last_ns = std::mem::replace(&mut target.last_end_ns, end_ns);
            let intervals = (end_ns.saturating_sub(last_ns) / aggr_ns.max(1)).max(1);
            let accesses: u64 = regions.iter().map(|r| u64::from(r.nr_accesses)).sum();
            // DAMON looks at one page of a region per sampling interval and clears the accessed bit it finds set.
            self.checks += regions.len() as u64 * u64::from(attrs.max_nr_accesses()) * intervals;
            self.clears += accesses * intervals;
            self.nr_regions += regions.len() as u32;
            let snapshot = Snapshot {
                target: target.info.target,
                pid: target.info.pid,
                start_ns: end_ns.saturating_sub(aggr_ns).max(last_ns),
                end_ns,
                sample_us: attrs.sample_us,
                aggr_us: attrs.aggr_us,
                max_nr_accesses: attrs.max_nr_accesses(),
                regions,
            };
            emit(subscriber, &Event::Snapshot(snapshot))?;
        }
        subscriber.step(Step::AfterAggregate, now_ns);
        if now_ns >= self.next_stats_ns {
            self.next_stats_ns = now_ns + NS_PER_S;
            self.stats(now_ns, subscriber)?;
        }
        Ok(())
    }

    fn stats(&mut self, now_ns: u64, subscriber: &mut dyn Subscriber) -> Result<(), EngineError> {
        let stats = MonitorStats {
            time_ns: now_ns,
            monitor_ns: self.kdamond.total_ns() + thread_cpu_ns().saturating_sub(self.cpu_start_ns),
            target_ns: self.clears * RESET_NS,
            checks: self.checks,
            clears: self.clears,
            nr_regions: self.nr_regions,
            mode: Mode::Sample,
            sample_us: self.config.attrs.sample_us,
            aggr_us: self.config.attrs.aggr_us,
            late_samples: 0,
        };
        emit(subscriber, &Event::Stats(stats))?;
        for id in self.ids() {
            let DamonTargets::Processes(tracker) = &mut self.targets else { break };
            if let Some(footprint) = tracker.process(id).ok().and_then(|p| p.footprint(id, now_ns)) {
                emit(subscriber, &Event::Footprint(footprint))?;
            }
        }
        Ok(())
    }
}
