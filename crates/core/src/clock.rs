//! Time as the monitor sees it: injected, so that tests and simulations need no waiting.

/// Why a sleep ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// The time asked for has come.
    Time,
    /// Somebody asked the loop to stop (a signal, Ctrl-C).
    Interrupted,
}

/// A monotonic clock in nanoseconds.
pub trait Clock {
    /// Now, in nanoseconds of CLOCK_MONOTONIC (or of virtual time).
    fn now_ns(&self) -> u64;
    /// Sleeps until `deadline_ns`; returns at once if that has passed.
    fn sleep_until_ns(&mut self, deadline_ns: u64) -> Wake;
}

/// A clock that also tells what work costs.
pub trait CpuClock: Clock {
    /// CPU time that the calling thread has used, ns.
    fn cpu_ns(&self) -> u64;
}

/// A clock that only moves when asked to, or when somebody sleeps on it.
#[derive(Debug, Clone, Default)]
pub struct VirtualClock {
    now_ns: u64,
}

impl VirtualClock {
    /// A clock that stands at `now_ns`.
    pub const fn new(now_ns: u64) -> Self {
        Self { now_ns }
    }

    /// Moves the clock forward.
    pub fn advance_ns(&mut self, by_ns: u64) {
        self.now_ns += by_ns;
    }
}

impl Clock for VirtualClock {
    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn sleep_until_ns(&mut self, deadline_ns: u64) -> Wake {
        self.now_ns = self.now_ns.max(deadline_ns);
        Wake::Time
    }
}
