//! How much memory is used, of what has a limit.

use isotherm_linux::cgroup::memory::Memcg;
use isotherm_linux::proc::ProcessDir;
use isotherm_linux::proc::status::Status;

/// How long the size of the page cache is taken for current, ns: telling it costs the kernel more than the sum does.
const CACHE_LIFE_NS: u64 = 250_000_000;

#[derive(Debug)]
pub struct Gauge {
    /// What is charged to these control groups, without files that no process maps: those the kernel drops by itself.
    /// None: the processes' resident memory.
    groups: Vec<Memcg>,
    /// Bytes of such files, and when they were read.
    cache: Option<(u64, u64)>,
}

impl Gauge {
    /// Of control groups; without any, of processes.
    pub const fn new(groups: Vec<Memcg>) -> Self {
        Self { groups, cache: None }
    }

    /// From now on it is this group's memory.
    pub fn set_group(&mut self, group: Memcg) {
        (self.groups, self.cache) = (vec![group], None);
    }

    /// Bytes in use; `None` once nothing is left to measure.
    pub fn used(&mut self, pids: impl Iterator<Item = u32>, now_ns: u64) -> Option<u64> {
        if self.groups.is_empty() {
            let mut buf = Vec::new();
            return sum(pids.filter_map(|pid| Status::read(&ProcessDir::live(pid), &mut buf).ok()?.vm_rss));
        }
        let used = sum(self.groups.iter().filter_map(|g| g.used().ok()))?;
        let unmapped = match self.cache {
            Some((bytes, when)) if now_ns < when + CACHE_LIFE_NS => bytes,
            _ => {
                // Where it is not known, nothing is taken off.
                let bytes = self.groups.iter().filter_map(|g| g.unmapped_cache().ok()).sum();
                self.cache = Some((bytes, now_ns));
                bytes
            }
        };
        Some(used.saturating_sub(unmapped))
    }

    /// How often programs have reached the groups' limits; `None` where the kernel does not say so of each, or keeps none.
    pub fn limit_hits(&self) -> Option<u64> {
        sum(self.groups.iter().map(|g| g.limit_hits().ok()).collect::<Option<Vec<_>>>()?.into_iter())
    }
}

/// The sum; `None` of nothing.
pub fn sum(figures: impl Iterator<Item = u64>) -> Option<u64> {
    figures.reduce(|a, b| a + b)
}
