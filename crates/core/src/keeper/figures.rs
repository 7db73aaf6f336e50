//! What became of a limit: a line of `lru run --stats`, and what a running one shows.

use serde::{Deserialize, Serialize};

crate::figures! {
    /// A limit's figures, since the start unless said otherwise.
    #[derive(Debug, Clone, Default, Serialize, Deserialize)]
    pub struct LimitFigures {
        limit: Option<u64> = Gauge Bytes, "The limit, as it is now.";
        used: Option<u64> = Gauge Bytes, "Memory used now.";
        evicted: u64 = Counter Bytes, "Memory that was evicted.";
        spared: Option<u64> = Counter Bytes, "Memory that was chosen, but used before it went.";
        refaulted: Option<u64> = Counter Bytes, "Memory that came back, as walks saw it, whoever had evicted it.";
        major_faults: Option<u64> = Counter Count, "Major faults of the targets that still run, since each joined.";
        walks: u64 = Counter Count, "Walks, each of which created a generation.";
        present: Option<u64> = Gauge Bytes, "Memory that was there at the last walk.";
        used_share: Option<f64> = Gauge Ratio as "accessed", "Share of it that the last walk found accessed.";
        interval_ns: Option<u64> = Gauge Nanoseconds, "Time to the next walk.";
        over_budget: Option<bool> = Gauge Count, "1 while walks are rarer than they should be, for the CPU budget.";
        tables_read: Option<u64> = Counter Count, "Page tables read.";
        walk_ns: u64 = Counter Nanoseconds as "walk_cpu", "CPU time for walks.";
        target_ns: Option<u64> = Counter Nanoseconds as "target_cost", "CPU time that the targets lost to walks, estimated.";
        evict_ns: u64 = Counter Nanoseconds as "evict_cpu",
            "CPU time for evictions, which the targets would have spent otherwise.";
        reactions: u64 = Counter Count, "Times that something was done about a working set that does not fit.";
    }
    and {
        /// ns on CLOCK_MONOTONIC.
        time_ns: u64;
        /// What has the limit.
        domain: String;
        /// Who keeps the generations.
        engine: String;
        /// Since when the working set has not fitted, ns on the same clock.
        thrashing_since_ns: Option<u64>;
        /// Processes that are stopped now.
        frozen: Vec<u32>;
        /// Evicted from each memory.
        memories: Vec<MemoryFigures>;
        /// Why nothing is done although there is need.
        idle_reason: Option<String>;
    }
}

crate::figures! {
    /// One memory (a control group, or a process) below a limit.
    #[derive(Debug, Clone, Default, Serialize, Deserialize)]
    pub struct MemoryFigures {
        evicted: u64 = Counter Bytes, "Memory that was evicted since the start.";
        evictable: u64 = Gauge Bytes, "Memory that may be evicted now.";
    }
    and {
        /// Its name.
        memcg: String;
    }
}
