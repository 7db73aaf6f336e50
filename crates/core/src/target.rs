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

impl TargetInfo {
    /// Leaves the arguments out of a process's command line, which may hold passwords: its first word stays. A program's
    /// name in brackets (`[name]`, of one without a command line) has none.
    pub fn leave_out_arguments(&mut self) {
        let is_bare = self.name.starts_with('[') && self.name.ends_with(']') && self.name.len() <= MOST_BARE;
        if self.pid.is_some() && !is_bare {
            let end = self.name.find(char::is_whitespace).unwrap_or(self.name.len());
            self.name.truncate(end);
        }
    }
}

/// The kernel's names of programs have 15 bytes at most.
const MOST_BARE: usize = 15 + "[]".len();

/// How a target's process began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// When, ns of CLOCK_MONOTONIC; up to 10 ms too early, as the kernel tells it.
    pub time_ns: u64,
    /// Whether it was forked and has not executed a program since: it began with all private memory of its parent, which
    /// runs the same program.
    pub forked: bool,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_left_out() {
        let left = |pid, name: &str| {
            let mut info = TargetInfo { target: 0, pid, name: name.to_owned() };
            info.leave_out_arguments();
            info.name
        };
        assert_eq!(left(Some(1), "/usr/bin/java -Dpassword=secret -jar x"), "/usr/bin/java");
        assert_eq!(left(Some(1), "redis-server"), "redis-server");
        assert_eq!(left(Some(1), "[Web Content]"), "[Web Content]");
        assert_eq!(left(Some(1), "[x --password=secret]"), "[x");
        assert_eq!(left(None, "physical memory"), "physical memory");
    }
}
