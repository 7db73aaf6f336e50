//! What is watched: a process, or whatever else has an address space.

use serde::{Deserialize, Serialize};

/// Index of a target within a source; stable while the source lives.
pub type TargetId = u32;

/// A target's identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetInfo {
    /// Index of the target.
    pub target: u32,
    /// Process, where the target is one.
    pub pid: Option<u32>,
    /// Command line, or the cgroup's path, or what else names it.
    pub name: String,
}

/// Why a target ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TargetEnd {
    /// The process exited.
    Exited,
    /// The process executed another program; it goes on as a new address space under the same index.
    Replaced,
}

/// Resident memory of a target as the kernel counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footprint {
    /// When, ns of CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// Which target.
    pub target: u32,
    /// Virtual size, bytes.
    pub vsz: u64,
    /// Resident set, bytes.
    pub rss: u64,
    /// Swapped out, bytes; `None` where the kernel does not tell.
    pub swap: Option<u64>,
}
