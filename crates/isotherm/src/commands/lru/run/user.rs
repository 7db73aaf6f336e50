//! `lru run` with generations of our own.

use super::gauge::{Gauge, sum};
use super::limits::{Limit, LimitSource};
use super::react::Reaction;
use super::{Args, Engine, NO_LIMIT};
use crate::commands::lru::live::Live;
use crate::exit::Usage;
use crate::output::is_stdout;
use isotherm_core::clock::Wake;
use isotherm_core::keeper::figures::LimitFigures;
use isotherm_core::keeper::left_to_kernel::KernelReclaim;
use isotherm_core::keeper::limit::{LimitConfig, LimitKeeper, System};
use isotherm_core::source::AccessSource;
use isotherm_core::units::{format_size, format_time, nanos};
use isotherm_linux::clock::{MonotonicClock, monotonic_ns, process_cpu_ns};
use isotherm_linux::proc::ProcessDir;
use isotherm_linux::proc::stat::Stat;
use std::collections::{BTreeMap, HashSet};

/// How often new processes are looked for, ns.
const POLL_NS: u64 = 500_000_000;

/// The targets and their limits.
pub struct UserEngine<'a> {
    args: &'a Args,
    live: Live,
    limits: Vec<Kept>,
    begin_ns: u64,
    next_poll_ns: u64,
    /// Something can be evicted of a target.
    checked: bool,
}

/// A limit, and what the system knows of it.
struct Kept {
    keeper: LimitKeeper,
    gauge: Gauge,
    /// Where the limit is read again; `None`: it was given.
    source: Option<LimitSource>,
    reaction: Reaction,
    /// Major faults of each process when it came, by pid.
    faults: BTreeMap<u32, u64>,
}

impl Kept {
    fn new(name: String, limit: Limit, args: &Args) -> anyhow::Result<Self> {
        let config = LimitConfig {
            limit: limit.bytes,
            headroom: args.headroom,
            swappiness: args.swappiness,
            min_ttl_ns: nanos(args.min_ttl),
            max_interval_ns: nanos(args.max_interval),
            cpu_budget: args.cpu_budget.0,
        };
        Ok(Self {
            keeper: LimitKeeper::new(name, limit.paths, config),
            gauge: Gauge::new(limit.groups),
            source: limit.source,
            reaction: Reaction::new(args.on_thrash, args.freeze_time)?,
            faults: BTreeMap::new(),
        })
    }

    /// Does what is due; when the next turn is, ns.
    fn turn(&mut self, live: &mut Live, args: &Args) -> u64 {
        let now = monotonic_ns();
        if let Some(limit) = self.source.as_mut().and_then(|source| source.changed(now)) {
            self.keeper.set_limit(limit.as_ref().map(|limit| limit.bytes));
            limit.into_iter().for_each(|limit| self.gauge.set_group(limit.group));
        }
        if self.keeper.is_thaw_due(now) {
            self.reaction.thaw();
        }
        if self.keeper.wants_reclaim(now) {
            let never_sleep = live.out.never_sleep(self.keeper.targets(), now);
            let kernel = self.gauge.limit_hits().map(|times| KernelReclaim { times, never_sleep });
            self.keeper.count_reclaim(now, kernel);
        }
        let used = self.gauge.used(self.keeper.pids(), now);
        let mut system = System { source: &mut live.source, out: &mut live.out, clock: &MonotonicClock::new() };
        let turn = self.keeper.turn(&mut system, used);
        if let Some(who) = turn.thrashing {
            let (name, ttl) = (self.keeper.name(), format_time(nanos(args.min_ttl)));
            let plight = format!("{name} is thrashing: its working set of the last {ttl} does not fit below its limit");
            if self.reaction.react(&plight, &who, &mut live.out) {
                self.keeper.stopped_until(now.saturating_add(nanos(args.freeze_time)));
            }
        }
        turn.wake_ns
    }

    fn figures(&self) -> LimitFigures {
        let since = |pid| Some(major_faults(pid)?.saturating_sub(*self.faults.get(&pid)?));
        LimitFigures {
            major_faults: sum(self.keeper.pids().filter_map(since)),
            frozen: self.reaction.frozen().to_vec(),
            ..self.keeper.figures(monotonic_ns())
        }
    }
}

impl<'a> UserEngine<'a> {
    /// Opens the targets; a command is started with the first turn.
    pub fn open(args: &'a Args) -> anyhow::Result<Self> {
        let mut live = Live::for_many_walks(&args.target.keeping_stdout(args.stats.as_deref().is_some_and(is_stdout)))?;
        if args.swappiness == 0 {
            live.out.files_only();
        }
        let mut limits = Vec::new();
        if args.target.cgroups.is_empty() {
            let bytes = args.limit.ok_or_else(|| Usage(NO_LIMIT.into()))?;
            let limit = Limit { paths: Vec::new(), groups: Vec::new(), bytes, source: None };
            limits.push(Kept::new("all targets".into(), limit, args)?);
        } else {
            let paths: Vec<_> = args.target.cgroups.iter().map(|path| path.to_string_lossy().into_owned()).collect();
            for limit in Limit::of(&paths, &mut live.groups, args.limit)? {
                limits.push(Kept::new(limit.paths.join(", "), limit, args)?);
            }
        }
        let now = monotonic_ns();
        Ok(Self { args, live, limits, begin_ns: now, next_poll_ns: now, checked: false })
    }

    /// Lets stopped processes go on, and ends a command that we started.
    pub fn finish(self) -> anyhow::Result<()> {
        drop(self.limits);
        self.live.finish()
    }

    /// Takes in processes that have come.
    fn poll(&mut self) -> anyhow::Result<()> {
        let new = self.live.poll()?;
        for limit in &mut self.limits {
            let pids: HashSet<u32> = limit.keeper.pids().collect();
            limit.faults.retain(|pid, _| pids.contains(pid));
        }
        if !self.checked && !new.is_empty() {
            self.checked = true;
            self.live.refuse_obstacles(new.iter().map(|(target, _)| *target))?;
        }
        for (target, member) in new {
            if let Some(limit) = self.limits.iter_mut().find(|limit| limit.keeper.takes(&member.memcg)) {
                let by_process = self.args.target.cgroups.is_empty();
                let memory = if by_process { format!("pid {}", member.pid) } else { member.memcg };
                limit.keeper.add(target, member.pid, memory);
                if let Some(faults) = major_faults(member.pid) {
                    limit.faults.insert(member.pid, faults);
                }
            }
        }
        Ok(())
    }
}

impl Engine for UserEngine<'_> {
    fn turn(&mut self) -> anyhow::Result<Option<u64>> {
        let now = monotonic_ns();
        if now >= self.next_poll_ns {
            self.next_poll_ns = now + POLL_NS;
            self.poll()?;
            if self.limits.iter().all(|limit| limit.keeper.pids().next().is_none())
                && !self.live.source.may_gain_targets()
            {
                return Ok(None);
            }
        }
        let turns = self.limits.iter_mut().map(|limit| limit.turn(&mut self.live, self.args));
        Ok(Some(turns.fold(self.next_poll_ns, u64::min)))
    }

    fn wait(&self, until_ns: u64) -> Wake {
        let wake = self.live.wait(until_ns);
        if wake == Wake::Interrupted {
            let share = process_cpu_ns() as f64 / (monotonic_ns() - self.begin_ns) as f64 * 100.0;
            say!("interrupted; {share:.1} % of one core used");
        }
        wake
    }

    fn figures(&self) -> Vec<LimitFigures> {
        self.limits.iter().map(Kept::figures).collect()
    }

    fn summary(&self, figures: &LimitFigures) -> String {
        // No share: what the kernel has evicted comes back as well.
        format!(
            "{} evicted; {} came back, of that and of what the kernel evicted; {} walks; CPU: {:.2} s for walks, {:.2} s for evictions",
            format_size(figures.evicted),
            format_size(figures.refaulted.unwrap_or(0)),
            figures.walks,
            (figures.walk_ns + figures.target_ns.unwrap_or(0)) as f64 / 1e9,
            figures.evict_ns as f64 / 1e9
        )
    }
}

fn major_faults(pid: u32) -> Option<u64> {
    Stat::read(&ProcessDir::live(pid)).ok().map(|s| s.major_faults)
}
