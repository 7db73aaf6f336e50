//! How much memory is used, of what has a limit.

use isotherm_linux::lru::memcg::Memcg;
use isotherm_linux::proc::ProcRoot;
use isotherm_linux::proc::status::Status;
use std::collections::BTreeSet;

/// How long the size of the page cache is taken for current, ns: telling it costs the kernel more than the sum does.
const CACHE_LIFE_NS: u64 = 250_000_000;

/// What is measured.
#[derive(Debug)]
pub enum Gauge {
    /// What is charged to these control groups, without files that no process maps: those the kernel drops by itself.
    Groups {
        /// The groups.
        groups: Vec<Memcg>,
        /// Bytes of such files, and when they were read.
        cache: Option<(u64, u64)>,
    },
    /// Resident memory of these processes.
    Processes(BTreeSet<u32>),
}

impl Gauge {
    /// Of control groups.
    pub fn of_groups(groups: Vec<Memcg>) -> Self {
        Self::Groups { groups, cache: None }
    }

    /// Bytes in use; `None` once nothing is left to measure.
    pub fn used(&mut self, now_ns: u64) -> Option<u64> {
        match self {
            Self::Groups { groups, cache } => {
                let figures: Vec<u64> = groups.iter().filter_map(|g| g.used().ok()).collect();
                if figures.is_empty() {
                    return None;
                }
                let unmapped = match *cache {
                    Some((bytes, when)) if now_ns < when + CACHE_LIFE_NS => bytes,
                    _ => {
                        // Where it is not told, nothing is taken off.
                        let bytes = groups.iter().filter_map(|g| g.unmapped_cache().ok()).sum();
                        *cache = Some((bytes, now_ns));
                        bytes
                    }
                };
                Some(figures.iter().sum::<u64>().saturating_sub(unmapped))
            }
            Self::Processes(pids) => {
                let (root, mut buf) = (ProcRoot::default(), Vec::new());
                let mut rss = |pid: &u32| Status::read(&root.process(*pid), &mut buf).ok()?.vm_rss;
                let figures: Vec<u64> = pids.iter().filter_map(&mut rss).collect();
                (!figures.is_empty()).then(|| figures.iter().sum())
            }
        }
    }

    /// A process has come.
    pub fn add(&mut self, pid: u32) {
        if let Self::Processes(pids) = self {
            pids.insert(pid);
        }
    }

    /// A process has gone.
    pub fn remove(&mut self, pid: u32) {
        if let Self::Processes(pids) = self {
            pids.remove(&pid);
        }
    }
}
