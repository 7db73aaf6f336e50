//! Processes with their generations, kept by walking page tables.

use super::store::Store;
use crate::args::target::StartedCommand;
use crate::args::target::{Target, TargetArgs};
use crate::exit::Unsupported;
use crate::kept_history;
use anyhow::Context;
use isotherm_core::clock::{Clock, Wake};
use isotherm_core::keeper::address_space::Walked;
use isotherm_core::keeper::memory::Memory;
use isotherm_core::source::AccessSource;
use isotherm_core::target::TargetId;
use isotherm_core::units::nanos;
use isotherm_linux::cgroup::memory::Memcgs;
use isotherm_linux::clock::{MonotonicClock, monotonic_ns};
use isotherm_linux::lru::page_out::LivePageOut;
use isotherm_linux::roots::Roots;
use isotherm_linux::signals::StopSignals;
use isotherm_linux::source::pagetable::PageTableSource;
use isotherm_linux::targets::TargetTracker;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

/// What is watched, and what acts on it.
pub struct Live {
    pub source: PageTableSource,
    pub out: LivePageOut,
    /// Where memory is counted.
    pub groups: Memcgs,
    signals: StopSignals,
    command: Option<StartedCommand>,
}

#[derive(Debug)]
pub struct Member {
    pub pid: u32,
    pub name: String,
    /// Its control group; empty where it is in none.
    pub memcg: String,
}

impl Live {
    pub fn open(target: &TargetArgs) -> anyhow::Result<Self> {
        kept_history::void_node();
        Self::with(target, |source| source)
    }

    /// Opens the targets for many walks, of which nothing is kept: accessed bits are cleared in the cheapest way, after
    /// which pages that a processor goes on using through translations it has cached may look idle.
    pub fn for_many_walks(target: &TargetArgs) -> anyhow::Result<Self> {
        kept_history::void();
        Self::with(target, PageTableSource::prefer_cheapest)
    }

    fn with(target: &TargetArgs, how: fn(PageTableSource) -> PageTableSource) -> anyhow::Result<Self> {
        let signals = StopSignals::catch().context("cannot catch signals")?;
        let Target { spec, command } = target.resolve()?;
        let mut tracker = TargetTracker::new(spec)?;
        tracker.on_skip(|skipped| tracing::warn!("{skipped}"));
        tracker.on_watched_elsewhere(|other| tracing::warn!("{other}"));
        let source = PageTableSource::new(tracker).map_err(|e| Unsupported(e.to_string()))?;
        let source = how(source);
        let roots = Roots::system();
        Ok(Self { source, out: LivePageOut::new(&roots), groups: Memcgs::new(&roots), signals, command })
    }

    /// Refuses where nothing may be evicted of any of the targets (no swap, a process that is to be left alone): then there is
    /// no point in beginning.
    pub fn refuse_obstacles(&mut self, targets: impl IntoIterator<Item = TargetId>) -> anyhow::Result<()> {
        let obstacles: Option<Vec<String>> = targets.into_iter().map(|target| self.out.obstacle(target)).collect();
        match obstacles.and_then(|all| all.into_iter().next()) {
            Some(why) => Err(Unsupported(format!("nothing can be evicted: {why}")).into()),
            None => Ok(()),
        }
    }

    /// Processes that have come since the last call.
    pub fn poll(&mut self) -> anyhow::Result<Vec<(TargetId, Member)>> {
        let mut new = Vec::new();
        let found = self.source.poll_targets()?;
        self.out.keep_only(|target| self.source.is_running(target));
        for info in found {
            let Some(pid) = info.pid else { continue };
            self.out.add(info.target, pid);
            let memcg = self.groups.path_of(pid).and_then(Result::ok).unwrap_or_default();
            new.push((info.target, Member { pid, name: info.name, memcg }));
        }
        Ok(new)
    }

    /// Waits until `until_ns` or a signal.
    pub fn wait(&self, until_ns: u64) -> Wake {
        MonotonicClock::stopped_by(&self.signals).sleep_until_ns(until_ns)
    }

    /// Whether a signal has asked to stop.
    pub fn interrupted(&self) -> bool {
        self.signals.received().is_some()
    }

    /// Ends the command that we started, if there is one.
    pub fn finish(self) -> anyhow::Result<()> {
        drop(self.source);
        self.command.map_or(Ok(()), |c| c.finish())
    }
}

/// Processes each with generations of its own: what the commands that look once or act once work on.
pub struct Processes {
    pub live: Live,
    pub all: BTreeMap<TargetId, (Member, Memory)>,
    store: Store,
    /// Pids of which nothing is read nor kept.
    unkept: HashSet<u32>,
    /// Whether every process had been looked at by an earlier command.
    pub known: bool,
}

impl Processes {
    /// Opens the targets, and what earlier commands kept about them.
    pub fn open(target: &TargetArgs) -> anyhow::Result<Self> {
        let (live, store) = (Live::open(target)?, Store::new());
        let mut this = Self { live, all: BTreeMap::new(), store, unkept: HashSet::new(), known: true };
        let new = this.live.poll()?;
        let pids = new.iter().map(|(_, member)| member.pid).collect();
        this.store.lock(pids, |until_ns| this.live.wait(until_ns) == Wake::Interrupted)?;
        this.take_in(new);
        this.known &= !this.all.is_empty();
        if this.all.is_empty() && !this.live.source.may_gain_targets() {
            anyhow::bail!("every target has ended; nothing is left to look at");
        }
        Ok(this)
    }

    /// Takes in processes that have come meanwhile. One that another command is at work on is nobody's to keep.
    fn poll(&mut self) -> anyhow::Result<()> {
        let new = self.live.poll()?;
        self.unkept.extend(new.iter().map(|(_, member)| member.pid).filter(|&pid| !self.store.try_lock(pid)));
        self.take_in(new);
        Ok(())
    }

    fn take_in(&mut self, new: Vec<(TargetId, Member)>) {
        for (target, member) in new {
            let kept = if self.unkept.contains(&member.pid) { None } else { self.store.take(member.pid) };
            self.known &= kept.is_some();
            let mut memory = Memory::default();
            match kept {
                Some((created, space)) => {
                    memory = Memory::restore(created);
                    memory.spaces.insert(target, space);
                }
                None => memory.add(target),
            }
            self.all.insert(target, (member, memory));
        }
    }

    /// Walks the page tables of all: each gets a generation more.
    pub fn age(&mut self) -> anyhow::Result<Walked> {
        self.poll()?;
        let mut sum = Walked::default();
        for (_, memory) in self.all.values_mut() {
            sum.add(&memory.age(&mut self.live.source, monotonic_ns())?);
        }
        self.all.retain(|_, (_, memory)| !memory.spaces.is_empty());
        Ok(sum)
    }

    /// Walks now and then every `interval` until `duration` has passed or a signal came. At least once.
    pub fn watch(&mut self, interval: Duration, duration: Duration) -> anyhow::Result<()> {
        let begin = monotonic_ns();
        let end = begin.saturating_add(nanos(duration));
        let mut next = begin;
        loop {
            self.age()?;
            next = next.saturating_add(nanos(interval));
            if next > end || self.live.wait(next) == Wake::Interrupted {
                return Ok(());
            }
        }
    }

    /// Looks what is in memory now.
    pub fn refresh(&mut self) -> anyhow::Result<()> {
        for (_, memory) in self.all.values_mut() {
            memory.refresh(&mut self.live.source)?;
        }
        self.all.retain(|_, (_, memory)| !memory.spaces.is_empty());
        Ok(())
    }

    /// Keeps what is known for the next command, and ends a command that we started.
    pub fn finish(mut self) -> anyhow::Result<()> {
        for (member, memory) in self.all.values().filter(|(member, _)| !self.unkept.contains(&member.pid)) {
            if let (Some(created), Some(space)) = (memory.created(), memory.spaces.values().next()) {
                self.store.save(member.pid, created, space);
            }
        }
        self.live.finish()
    }
}
