//! What the agent tells of itself.

use isotherm_core::hinter::{CompactionStats, HintStats};
use isotherm_linux::proc::status::Status as ProcessStatus;
use serde::Serialize;

/// How the agent is doing.
#[derive(Debug, Clone, Serialize)]
pub struct Status {
    /// Time since its start, ms.
    pub ms: u64,
    /// How memory is isolated now: `offline`, `touch`; `watch` where the balloon does the work.
    pub way: &'static str,
    /// Whether a host has welcomed it.
    pub host: bool,
    /// Free memory, bytes.
    pub free: u64,
    /// Of it in blocks of 2 MiB, bytes.
    pub free_huge: u64,
    /// Blocks that seem free and that the host has not dropped.
    pub fresh_blocks: u64,
    /// Blocks that the host has dropped and that were not used since.
    pub dropped_blocks: u64,
    /// Isolated now, bytes.
    pub isolated: u64,
    /// Bytes that are left alone.
    pub reserve: u64,
    /// Why nothing is done at the moment.
    pub rest: String,
    /// The agent's resident memory, bytes.
    pub rss: Option<u64>,
    /// CPU time that it has taken, us.
    pub cpu_us: u64,
    /// Longest time that a step of isolating took, us.
    pub longest_step_us: u64,
    /// Counters of the algorithm, in blocks.
    pub counters: HintStats,
    /// What was done to put scattered free memory together.
    pub compaction: CompactionStats,
}

/// Resident memory of this process, bytes.
pub(super) fn own_rss() -> Option<u64> {
    ProcessStatus::parse(&std::fs::read("/proc/self/status").ok()?).vm_rss
}
