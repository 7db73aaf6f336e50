//! The multi-generational LRU on its own: one memory of so many pages, fed with accesses.

use super::{Access, Hit, LruStats, Variant};
use std::collections::VecDeque;

/// How the multi-generational LRU is set up.
#[derive(Debug, Clone)]
pub struct MgConfig {
    /// Pages that fit.
    pub capacity: u32,
    /// How many pages there are; more are taken as they come, at the price of growing.
    pub pages: u32,
    /// Whose behaviour.
    pub variant: Variant,
    /// Preference for anonymous memory, 0 (never) to 200; 201: anonymous memory only.
    pub swappiness: u8,
    /// How many pages are handled at once (the kernel: 64). Also the noise floor of the controller.
    pub batch: u32,
}

impl MgConfig {
    /// The kernel's defaults.
    pub fn new(capacity: u32) -> Self {
        Self { capacity, pages: 0, variant: Variant::default(), swappiness: 60, batch: 64 }
    }
}

/// The multi-generational LRU over simulated page tables.
#[derive(Debug)]
pub struct MgLru {
    config: MgConfig,
    state: Vec<u8>,
    queue: VecDeque<u32>,
    stats: LruStats,
}

impl MgLru {
    /// An empty memory.
    pub fn new(config: MgConfig) -> Self {
        let state = vec![0; config.pages as usize];
        Self { config, state, queue: VecDeque::new(), stats: LruStats::default() }
    }

    /// One access; reclaims when more than the capacity is in memory.
    pub fn access(&mut self, page: u32, _access: Access) -> Hit {
        fifo(&mut self.state, &mut self.queue, &mut self.stats, self.config.capacity, page)
    }

    /// What it did.
    pub const fn stats(&self) -> LruStats {
        self.stats
    }
}

/// Stands in for the algorithms until they are complete: first in, first out.
pub(super) fn fifo(state: &mut Vec<u8>, queue: &mut VecDeque<u32>, stats: &mut LruStats, cap: u32, page: u32) -> Hit {
    let at = page as usize;
    if at >= state.len() {
        state.resize(at + 1, 0);
    }
    stats.requests += 1;
    if state[at] == 1 {
        return Hit::Hit;
    }
    let hit = if state[at] == 2 { Hit::Refault } else { Hit::Miss };
    stats.misses += 1;
    stats.refaults += u64::from(hit == Hit::Refault);
    state[at] = 1;
    queue.push_back(page);
    while queue.len() > cap as usize {
        let Some(old) = queue.pop_front() else { break };
        state[old as usize] = 2;
        stats.evictions += 1;
    }
    hit
}
