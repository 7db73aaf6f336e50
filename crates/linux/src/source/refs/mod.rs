//! `refs`: accesses per mapping by `clear_refs` and `smaps`, the fallback that needs no privilege.
//!
//! Once per aggregation interval all accessed bits of a target are cleared and, at its end, the kernel's own count of
//! referenced bytes is read for each mapping. One mapping is the smallest unit: a hot page in a large mapping shows
//! only as a small share. Limits: hugetlb memory and the memory of KVM guests are reported as not observable; pages of
//! files count as referenced when another process uses them, too (the kernel adds the page's own flag, which that
//! process's reads and exit set); translations that a CPU still holds hide accesses for some milliseconds after the
//! clear, so intervals are never below [`SHORTEST_NS`].

mod areas;
mod probe;

pub use probe::probe;

use crate::clock::{kernel_release, realtime_offset_ns, thread_cpu_ns};
use crate::proc::{Process, ProcessError};
use crate::source::reset::RESET_NS;
use crate::targets::TargetTracker;
use areas::{Area, Held, join_above, regions};
use isotherm_core::addr::PAGE_SIZE;
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::clock::{Clock, Wake};
use isotherm_core::engine::{Engine, EngineError, Progress, emit, sleep_with_turns};
use isotherm_core::event::{Event, Mode, MonitorStats, RunInfo, Step, Subscriber};
use isotherm_core::mapping::{Mapping, MappingKind};
use isotherm_core::snapshot::Snapshot;
use isotherm_core::source::SourceError;
use isotherm_core::target::TargetEnd;
use isotherm_core::target::TargetId;

const SOURCE: &str = "refs";

/// Shortest aggregation interval: accesses in the first milliseconds after a clear may be missed.
pub const SHORTEST_NS: u64 = 100_000_000;

/// Longest sleep in one piece: ends and new processes are noticed at least this often.
const NAP_NS: u64 = 1_000_000_000;

/// Expected cost of one clear and one read, ns per resident byte (20 ms per GiB), until the first has been measured.
const EXPECTED_NS_PER_BYTE: f64 = 20e6 / (1u64 << 30) as f64;

/// The engine. See the module's description.
#[derive(Debug)]
pub struct RefsEngine {
    tracker: TargetTracker,
    attrs: MonitorAttrs,
    cpu_budget: Option<f64>,
    /// Aggregation interval in force.
    aggr_ns: u64,
    targets: Vec<RefsTarget>,
    started: bool,
    next_update_ns: u64,
    next_stats_ns: u64,
    cost: Cost,
    /// CPU time of our thread up to which `cost` counts.
    charged_ns: u64,
}

#[derive(Debug)]
struct RefsTarget {
    target: TargetId,
    pid: u32,
    /// When its bits were cleared last; `None`: not yet.
    cleared_ns: Option<u64>,
    /// Accessed bits expected to be set, which the next clear will clear.
    bits_set: u64,
    mappings: Vec<Mapping>,
    held: Vec<Held>,
    nr_regions: u32,
}

/// Totals since the start.
#[derive(Debug, Default, Clone, Copy)]
struct Cost {
    monitor_ns: u64,
    target_ns: u64,
    checks: u64,
    clears: u64,
}

impl Cost {
    const fn total_ns(&self) -> u64 {
        self.monitor_ns + self.target_ns
    }
}

impl RefsEngine {
    /// An engine over the targets of `tracker`. `cpu_budget` is the share of one core that monitoring and the targets'
    /// losses together may cost; the aggregation interval is stretched to keep it.
    pub fn new(tracker: TargetTracker, attrs: MonitorAttrs, cpu_budget: Option<f64>) -> Self {
        Self {
            tracker,
            attrs,
            cpu_budget,
            aggr_ns: (attrs.aggr_us * 1000).max(SHORTEST_NS),
            targets: Vec::new(),
            started: false,
            next_update_ns: 0,
            next_stats_ns: 0,
            cost: Cost::default(),
            charged_ns: 0,
        }
    }

    fn start(&mut self, now_ns: u64, subscriber: &mut dyn Subscriber) -> Result<(), EngineError> {
        let kernel = kernel_release()
            .map_err(|e| SourceError::Failed(format!("cannot read the kernel's release below /proc: {e}")))?;
        let run = RunInfo {
            source: SOURCE.to_owned(),
            algorithm: String::new(),
            attrs: self.attrs,
            cpu_budget: self.cpu_budget,
            kernel,
            realtime_offset_ns: realtime_offset_ns(),
        };
        self.started = true;
        self.next_stats_ns = now_ns;
        emit(subscriber, &Event::Run(run))
    }

    /// Takes in new targets, and the mappings of all.
    fn update(&mut self, now_ns: u64, subscriber: &mut dyn Subscriber) -> Result<(), EngineError> {
        subscriber.step(Step::BeforeUpdate, now_ns);
        for info in self.tracker.poll().map_err(|e| SourceError::Failed(e.to_string()))? {
            let target = RefsTarget {
                target: info.target,
                pid: info.pid.unwrap_or_default(),
                cleared_ns: None,
                bits_set: 0,
                mappings: Vec::new(),
                held: Vec::new(),
                nr_regions: 0,
            };
            self.targets.push(target);
            emit(subscriber, &Event::Target(info))?;
        }
        self.for_each_target(now_ns, subscriber, |process, watched, subscriber| {
            refresh_mappings(process, watched, now_ns, subscriber)
        })?;
        self.next_update_ns = now_ns + self.attrs.update_us * 1000;
        subscriber.step(Step::AfterUpdate, now_ns);
        Ok(())
    }

    /// Clears the bits of targets for which `which` holds.
    fn clear(
        &mut self,
        clock: &dyn Clock,
        subscriber: &mut dyn Subscriber,
        which: impl Fn(&RefsTarget) -> bool,
    ) -> Result<(), EngineError> {
        let now_ns = clock.now_ns();
        subscriber.step(Step::BeforeSample, now_ns);
        let mut cleared = 0;
        self.for_each_target(now_ns, subscriber, |process, watched, _| {
            if which(watched) {
                if watched.cleared_ns.is_none() {
                    let resident = process.footprint(watched.target, now_ns).map_or(0, |f| f.rss);
                    watched.bits_set = resident / PAGE_SIZE;
                }
                process.clear_refs()?;
                watched.cleared_ns = Some(clock.now_ns());
                cleared += std::mem::take(&mut watched.bits_set);
            }
            Ok(())
        })?;
        self.cost.clears += cleared;
        self.cost.target_ns += cleared * RESET_NS;
        Ok(())
    }

    /// Reads what was referenced and hands out a snapshot of each target.
    fn read(&mut self, clock: &dyn Clock, subscriber: &mut dyn Subscriber) -> Result<(), EngineError> {
        let (attrs, aggr_us) = (self.attrs, self.aggr_ns / 1000);
        let mut checks = 0;
        self.for_each_target(clock.now_ns(), subscriber, |process, watched, subscriber| {
            // Notices an exec: what was cleared has gone.
            refresh_mappings(process, watched, clock.now_ns(), subscriber)?;
            let Some(start_ns) = watched.cleared_ns else { return Ok(()) };
            let end_ns = clock.now_ns();
            let mut areas = Vec::new();
            watched.bits_set = read_areas(process, &mut areas)?;
            checks += areas.iter().map(|a| a.resident / PAGE_SIZE).sum::<u64>();
            join_above(&mut areas, attrs.max_regions as usize);
            let max_nr_accesses = attrs.max_nr_accesses();
            let regions = regions(&areas, &mut watched.held, max_nr_accesses, (start_ns, end_ns));
            watched.nr_regions = regions.len() as u32;
            // Each page is looked at once an aggregation interval, so that is the sampling interval, too.
            let snapshot = Snapshot {
                target: watched.target,
                pid: Some(watched.pid),
                start_ns,
                end_ns,
                sample_us: aggr_us,
                aggr_us,
                max_nr_accesses,
                regions,
            };
            emit(subscriber, &Event::Snapshot(snapshot)).map_err(Fault::Engine)
        })?;
        self.cost.checks += checks;
        Ok(())
    }

    /// Calls `f` for each target; those that have ended are reported and left out from then on.
    fn for_each_target(
        &mut self,
        now_ns: u64,
        subscriber: &mut dyn Subscriber,
        mut f: impl FnMut(&mut Process, &mut RefsTarget, &mut dyn Subscriber) -> Result<(), Fault>,
    ) -> Result<(), EngineError> {
        let mut result = Ok(());
        self.targets.retain_mut(|watched| {
            if result.is_err() {
                return true;
            }
            let target = watched.target;
            let mut done = match self.tracker.process(target) {
                Ok(process) => match f(process, watched, subscriber) {
                    Err(Fault::Process(ProcessError::Replaced { .. })) => {
                        // The new program counts from its own first clear.
                        watched.forget();
                        let why = TargetEnd::Replaced;
                        match emit(subscriber, &Event::End { time_ns: now_ns, target, why }) {
                            Ok(()) => refresh_mappings(process, watched, now_ns, subscriber),
                            Err(e) => Err(Fault::Engine(e)),
                        }
                    }
                    other => other,
                },
                Err(e) => Err(Fault::Process(e)),
            };
            // An exec during the look at the new program: it is looked at again at the next step.
            if matches!(done, Err(Fault::Process(ProcessError::Replaced { .. }))) {
                done = Ok(());
            }
            match done {
                Ok(()) => true,
                Err(Fault::Process(e)) if e.is_gone() => {
                    self.tracker.close(target);
                    result = emit(subscriber, &Event::End { time_ns: now_ns, target, why: TargetEnd::Exited });
                    false
                }
                Err(Fault::Process(e)) => {
                    result = Err(e.into_source_error(target).into());
                    true
                }
                Err(Fault::Engine(e)) => {
                    result = Err(e);
                    true
                }
            }
        });
        result
    }

    fn stats(&mut self, now_ns: u64, subscriber: &mut dyn Subscriber) -> Result<(), EngineError> {
        self.next_stats_ns = now_ns + NAP_NS;
        self.charge();
        let Cost { monitor_ns, target_ns, checks, clears } = self.cost;
        let stats = MonitorStats {
            time_ns: now_ns,
            monitor_ns,
            target_ns,
            checks,
            clears,
            nr_regions: self.targets.iter().map(|t| t.nr_regions).sum(),
            mode: Mode::Scan,
            sample_us: self.aggr_ns / 1000,
            aggr_us: self.aggr_ns / 1000,
            late_samples: 0,
        };
        emit(subscriber, &Event::Stats(stats))?;
        for watched in &self.targets {
            if let Ok(process) = self.tracker.process(watched.target)
                && let Some(footprint) = process.footprint(watched.target, now_ns)
            {
                emit(subscriber, &Event::Footprint(footprint))?;
            }
        }
        Ok(())
    }

    /// Adds the CPU time that our thread has used since the last call.
    fn charge(&mut self) {
        let now = thread_cpu_ns();
        self.cost.monitor_ns += now.saturating_sub(std::mem::replace(&mut self.charged_ns, now));
    }

    /// Sets the interval in force so that `cycle_ns` of cost for each keeps the budget.
    fn stretch(&mut self, cycle_ns: f64) {
        let wanted = (self.attrs.aggr_us * 1000).max(SHORTEST_NS);
        // A tenth of the budget is kept for what varies from one interval to the next.
        let affordable = self.cpu_budget.map_or(0.0, |share| cycle_ns / (share * 0.9).max(1e-6));
        self.aggr_ns = wanted.max(affordable as u64);
    }

    /// Sleeps until the interval ends, keeping an eye on the targets.
    fn wait(
        &mut self,
        begin_ns: u64,
        clock: &mut dyn Clock,
        subscriber: &mut dyn Subscriber,
    ) -> Result<Progress, EngineError> {
        loop {
            let now_ns = clock.now_ns();
            if self.targets.is_empty() && !self.tracker.may_gain_targets() {
                return Ok(Progress::TargetsGone);
            }
            let deadline_ns = begin_ns + self.aggr_ns;
            if now_ns >= deadline_ns {
                return Ok(Progress::Aggregated);
            }
            let nap_ns = deadline_ns.min(now_ns + NAP_NS);
            if sleep_with_turns(nap_ns, clock, subscriber, |s, now_ns| s.step(Step::Wanted, now_ns))
                == Wake::Interrupted
            {
                return Ok(Progress::Interrupted);
            }
            let now_ns = clock.now_ns();
            if now_ns >= self.next_update_ns {
                self.update(now_ns, subscriber)?;
                self.clear(clock, subscriber, |t| t.cleared_ns.is_none())?;
            } else {
                self.for_each_target(now_ns, subscriber, |process, _, _| Ok(process.check_alive()?))?;
            }
            if now_ns >= self.next_stats_ns {
                self.stats(now_ns, subscriber)?;
            }
        }
    }

    fn interval(&mut self, clock: &mut dyn Clock, subscriber: &mut dyn Subscriber) -> Result<Progress, EngineError> {
        let begin_ns = clock.now_ns();
        self.update(begin_ns, subscriber)?;
        if self.cost.checks == 0 {
            let resident: u64 = self
                .targets
                .iter()
                .filter_map(|t| self.tracker.process(t.target).ok()?.footprint(t.target, begin_ns))
                .map(|f| f.rss)
                .sum();
            self.stretch(resident as f64 * EXPECTED_NS_PER_BYTE);
        }
        self.clear(clock, subscriber, |_| true)?;
        let progress = self.wait(begin_ns, clock, subscriber)?;
        if progress != Progress::Aggregated {
            return Ok(progress);
        }
        subscriber.step(Step::BeforeAggregate, clock.now_ns());
        self.read(clock, subscriber)?;
        subscriber.step(Step::AfterSample, clock.now_ns());
        subscriber.step(Step::AfterAggregate, clock.now_ns());
        Ok(progress)
    }
}

impl Engine for RefsEngine {
    fn interval_ns(&self) -> u64 {
        self.aggr_ns
    }

    fn retune(&mut self, attrs: MonitorAttrs) -> bool {
        self.attrs = attrs;
        true
    }

    fn run_interval(
        &mut self,
        clock: &mut dyn Clock,
        subscriber: &mut dyn Subscriber,
    ) -> Result<Progress, EngineError> {
        if !self.started {
            self.start(clock.now_ns(), subscriber)?;
        }
        self.charged_ns = thread_cpu_ns();
        let cost_before = self.cost.total_ns();
        let progress = self.interval(clock, subscriber)?;
        self.charge();
        if progress == Progress::Aggregated {
            self.stretch((self.cost.total_ns() - cost_before) as f64);
        }
        let now_ns = clock.now_ns();
        if now_ns >= self.next_stats_ns || progress != Progress::Aggregated {
            self.stats(now_ns, subscriber)?;
        }
        Ok(progress)
    }
}

impl RefsTarget {
    fn forget(&mut self) {
        self.cleared_ns = None;
        self.mappings.clear();
        self.held.clear();
    }
}

/// Why work on one target stopped.
enum Fault {
    Process(ProcessError),
    Engine(EngineError),
}

impl From<ProcessError> for Fault {
    fn from(error: ProcessError) -> Self {
        Self::Process(error)
    }
}

fn refresh_mappings(
    process: &mut Process,
    watched: &mut RefsTarget,
    now_ns: u64,
    subscriber: &mut dyn Subscriber,
) -> Result<(), Fault> {
    let mut mappings = Vec::new();
    process.mappings(&mut mappings)?;
    if mappings != watched.mappings {
        watched.mappings.clone_from(&mappings);
        let event = Event::Mappings { time_ns: now_ns, target: watched.target, mappings };
        emit(subscriber, &event).map_err(Fault::Engine)?;
    }
    Ok(())
}

/// Reads smaps into `areas`, kernel-made ones left out. Returns the number of accessed bits that are set.
fn read_areas(process: &mut Process, areas: &mut Vec<Area>) -> Result<u64, ProcessError> {
    let guests = process.runs_guests();
    let mut bits = 0;
    let mut last: (u64, MappingKind, bool, Vec<u8>) = (0, MappingKind::Special, false, Vec::new());
    process.smaps(|line, kind, figures| {
        // Two pieces of one read may overlap when the address space changes between them.
        let floor = areas.last().map_or(0, |a: &Area| a.range.end);
        if kind == MappingKind::Special || line.range.start < floor {
            return;
        }
        let huge = figures.anon_huge.min(figures.referenced);
        bits += (figures.referenced - huge) / PAGE_SIZE + huge / (512 * PAGE_SIZE);
        let (end, last_kind, last_shared, last_name) = &last;
        let continues = *end == line.range.start
            && *last_kind == kind
            && *last_shared == line.is_shared()
            && last_name.as_slice() == line.name;
        areas.push(Area {
            range: line.range,
            resident: figures.rss,
            referenced: figures.referenced,
            blind: kind == MappingKind::Hugetlb || guests,
            continues,
        });
        let mut name = std::mem::take(&mut last.3);
        name.clear();
        name.extend_from_slice(line.name);
        last = (line.range.end, kind, line.is_shared(), name);
    })?;
    Ok(bits)
}
