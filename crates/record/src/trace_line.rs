//! The lines that `perf script` prints for DAMON's tracepoints.

use isotherm_core::trace::{TraceEvent, Tracepoint};
use std::fmt;

/// An event with what tells where it happened: a line, without its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceLine {
    /// Which of several that monitor.
    pub kdamond: usize,
    /// Its thread.
    pub tid: u32,
    /// The CPU that it ran on.
    pub cpu: u32,
    /// When, ns of CLOCK_MONOTONIC; microseconds are reported.
    pub time_ns: u64,
    /// What happened.
    pub event: TraceEvent,
}

impl fmt::Display for TraceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kdamond, tid, cpu, time_ns, event } = self;
        write!(f, "kdamond.{kdamond} {tid} [{cpu:03}] {}{event}", Head { time_ns: *time_ns, of: event.tracepoint() })
    }
}

/// What stands between the CPU and the fields.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    pub time_ns: u64,
    pub of: Tracepoint,
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sec, us) = (self.time_ns / 1_000_000_000, self.time_ns / 1000 % 1_000_000);
        write!(f, "{sec}.{us:06}: damon:{}: ", self.of.name())
    }
}
