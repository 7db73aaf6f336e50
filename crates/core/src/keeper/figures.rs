//! What became of a limit: a line of `--stats`.

use serde::Serialize;

/// A limit's figures. Sums since the start unless said otherwise; bytes and ns.
#[derive(Debug, Clone, Default, Serialize)]
pub struct LimitFigures {
    /// ns on CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// What has the limit.
    pub domain: String,
    /// Who keeps the generations.
    pub engine: &'static str,
    /// The limit.
    pub limit: u64,
    /// Used now.
    pub used: Option<u64>,
    /// Left memory.
    pub evicted: u64,
    /// Chosen, but used before they went.
    pub spared: u64,
    /// Came back, as walks saw it.
    pub refaulted: u64,
    /// Major faults of the targets that still run, since each joined.
    pub major_faults: Option<u64>,
    /// Walks, each of which created a generation.
    pub walks: u64,
    /// In memory at the last walk.
    pub present: u64,
    /// Share of it that the last walk found used.
    pub used_share: Option<f64>,
    /// Time to the next walk.
    pub interval_ns: u64,
    /// Whether walks are rarer than they should be, for the CPU budget.
    pub over_budget: bool,
    /// Page tables read.
    pub tables_read: u64,
    /// CPU time for walks.
    pub walk_ns: u64,
    /// CPU time that the targets lost to them, estimated.
    pub target_ns: u64,
    /// CPU time for evictions, which the targets would have spent otherwise.
    pub evict_ns: u64,
    /// Since when the working set has not fitted, ns on the same clock.
    pub thrashing_since_ns: Option<u64>,
    /// How often something was done about that.
    pub reactions: u64,
    /// Processes that are stopped now.
    pub frozen: Vec<u32>,
    /// Evicted from each memory.
    pub memories: Vec<MemoryFigures>,
    /// Why nothing is done although there is need.
    pub idle_reason: Option<String>,
}

/// One memory (a control group, or a process) below a limit.
#[derive(Debug, Clone, Default, Serialize)]
pub struct MemoryFigures {
    /// Its name.
    pub memcg: String,
    /// Left memory since the start.
    pub evicted: u64,
    /// May be evicted now.
    pub evictable: u64,
}
