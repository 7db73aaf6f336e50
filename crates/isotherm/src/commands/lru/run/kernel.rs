//! `lru run` through the kernel's own generations.

use super::gauge::sum;
use super::limits::{Limit, LimitSource};
use super::{Args, Engine, OnThrash};
use crate::commands::lru::engine::KernelTarget;
use crate::exit::{Unsupported, Usage};
use anyhow::Context;
use isotherm_core::clock::{Clock, Wake};
use isotherm_core::keeper::figures::LimitFigures;
use isotherm_core::keeper::kernel::{KernelGenerations, KernelKeeper, KernelMemory};
use isotherm_core::units::format_size;
use isotherm_linux::cgroup::memory::{Memcg, Memcgs};
use isotherm_linux::clock::{MonotonicClock, monotonic_ns};
use isotherm_linux::facts::Environment;
use isotherm_linux::guard::{Guard, Purpose};
use isotherm_linux::knob::Knob;
use isotherm_linux::lru::kernel::KernelLru;
use isotherm_linux::roots::Roots;
use isotherm_linux::signals::StopSignals;
use std::io;

/// Control groups, each kept below its limit by the kernel.
pub struct KernelEngine {
    limits: Vec<(KernelKeeper, Groups)>,
    signals: StopSignals,
    _min_ttl: Option<Knob>,
}

/// The groups below a limit.
struct Groups {
    target: KernelTarget,
    /// Those that were named.
    named: Vec<Memcg>,
    /// Those whose memory counts: the same, or one above them that has the limit.
    groups: Vec<Memcg>,
    /// Where the limit is read again.
    source: Option<LimitSource>,
}

impl Groups {
    fn new(lru: &KernelLru, limit: Limit, memcgs: &Memcgs) -> anyhow::Result<Self> {
        let Limit { paths, groups, source, .. } = limit;
        let named = paths.iter().map(|path| memcgs.open(path)).collect::<Result<_, _>>().map_err(anyhow::Error::msg)?;
        Ok(Self { target: KernelTarget { lru: lru.clone(), paths }, named, groups, source })
    }

    /// Whether there is anything left to keep below the limit. The group that has it may stay for ever.
    fn is_left(&self) -> bool {
        self.named.iter().any(Memcg::exists)
    }
}

impl KernelGenerations for Groups {
    type Error = anyhow::Error;

    fn used(&mut self) -> Option<u64> {
        sum(self.groups.iter().filter_map(|g| g.used().ok()))
    }

    fn memories(&mut self) -> anyhow::Result<Vec<KernelMemory>> {
        self.target.memories()
    }

    fn age(&mut self, memory: &KernelMemory) -> anyhow::Result<()> {
        self.target.lru.age(memory).map_err(anyhow::Error::msg)
    }

    fn evict(&mut self, memory: &KernelMemory, seq: u64, swappiness: u8, pages: u64) -> anyhow::Result<()> {
        self.target.lru.evict(memory, seq, swappiness, pages).map_err(anyhow::Error::msg)
    }
}

impl KernelEngine {
    /// Finds the groups' limits, and hands `--min-ttl` to the kernel.
    pub fn open(target: &KernelTarget, args: &Args) -> anyhow::Result<Self> {
        if !args.min_ttl.is_zero() && args.on_thrash != OnThrash::Kill {
            let text = "with --engine kernel, --min-ttl is the kernel's own, which kills: give --on-thrash kill, or --engine user";
            return Err(Usage(text.into()).into());
        }
        let roots = Roots::system();
        if Environment::read_swap(&roots).is_empty() && args.swappiness > 0 {
            let text = "nothing can be evicted: there is no swap; add some, for example zram";
            return Err(Unsupported(text.into()).into());
        }
        let signals = StopSignals::catch().context("cannot catch signals")?;
        let mut limits = Vec::new();
        let mut memcgs = Memcgs::new(&roots);
        for limit in Limit::of(&target.paths, &mut memcgs, args.limit)? {
            let keeper = KernelKeeper::new(limit.paths.join(", "), limit.bytes, args.headroom, args.swappiness);
            limits.push((keeper, Groups::new(&target.lru, limit, &memcgs)?));
        }
        let ttl = (!args.min_ttl.is_zero()).then(|| args.min_ttl.as_millis().min(u64::MAX.into()) as u64);
        let min_ttl = match ttl {
            Some(ms) => {
                let failed = |e: io::Error| io::Error::new(e.kind(), format!("its guard cannot be started: {e}"));
                let guard = || Guard::start(Purpose::Settings).map_err(failed);
                Some(target.lru.set_min_ttl(ms, guard).map_err(anyhow::Error::msg)?)
            }
            None => None,
        };
        Ok(Self { limits, signals, _min_ttl: min_ttl })
    }
}

impl Engine for KernelEngine {
    fn turn(&mut self) -> anyhow::Result<Option<u64>> {
        let clock = MonotonicClock::new();
        for (keeper, below) in &mut self.limits {
            let Some(limit) = below.source.as_mut().and_then(|source| source.changed(monotonic_ns())) else { continue };
            keeper.set_limit(limit.as_ref().map(|limit| limit.bytes));
            below.groups = limit.map_or_else(|| std::mem::take(&mut below.groups), |limit| vec![limit.group]);
        }
        let wake = self.limits.iter_mut().map(|(keeper, groups)| keeper.turn(groups, &clock)).min();
        let is_left = self.limits.iter().any(|(_, below)| below.is_left());
        Ok(wake.filter(|_| is_left))
    }

    fn wait(&self, until_ns: u64) -> Wake {
        MonotonicClock::stopped_by(&self.signals).sleep_until_ns(until_ns)
    }

    fn figures(&self) -> Vec<LimitFigures> {
        self.limits.iter().map(|(keeper, _)| keeper.figures(monotonic_ns())).collect()
    }

    fn summary(&self, figures: &LimitFigures) -> String {
        format!("about {} evicted by the kernel", format_size(figures.evicted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_once_the_named_groups_are_gone_whoever_has_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("proc/self/mountinfo", "29 24 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            ("sys/fs/cgroup/cgroup.controllers", "memory\n"),
            ("sys/fs/cgroup/p/cgroup.procs", ""),
            ("sys/fs/cgroup/p/memory.max", "8388608\n"),
            ("sys/fs/cgroup/p/a/cgroup.procs", ""),
            ("sys/fs/cgroup/p/a/memory.max", "max\n"),
            ("sys/kernel/mm/lru_gen/enabled", "0x0007\n"),
            ("sys/kernel/debug/lru_gen", ""),
        ] {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let roots = Roots::captured(folder.path());
        let mut memcgs = Memcgs::new(&roots);
        let limit = Limit::of(&["/p/a".to_owned()], &mut memcgs, None).unwrap().remove(0);
        let below = Groups::new(&KernelLru::open(&roots).unwrap(), limit, &memcgs).unwrap();
        assert_eq!(below.groups, [memcgs.open("/p").unwrap()], "the limit is of the one above");
        assert!(below.is_left());
        std::fs::remove_dir_all(folder.path().join("sys/fs/cgroup/p/a")).unwrap();
        assert!(!below.is_left() && below.groups[0].exists());
    }
}
