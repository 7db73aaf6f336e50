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

/// A clock whose sleeps nobody is kept in beyond a given time: they end then as if a stop had been asked for.
pub struct Until<'a> {
    clock: &'a mut dyn Clock,
    end_ns: u64,
}

impl<'a> Until<'a> {
    /// `clock`, but for sleeps beyond `end_ns`.
    pub const fn new(clock: &'a mut dyn Clock, end_ns: u64) -> Self {
        Self { clock, end_ns }
    }
}

impl std::fmt::Debug for Until<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Until").field("end_ns", &self.end_ns).finish_non_exhaustive()
    }
}

impl Clock for Until<'_> {
    fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    fn sleep_until_ns(&mut self, deadline_ns: u64) -> Wake {
        let wake = self.clock.sleep_until_ns(deadline_ns.min(self.end_ns));
        if deadline_ns > self.end_ns { Wake::Interrupted } else { wake }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_sleep_lasts_beyond_the_end() {
        let mut clock = VirtualClock::new(5);
        let mut until = Until::new(&mut clock, 100);
        assert_eq!((until.sleep_until_ns(40), until.now_ns()), (Wake::Time, 40));
        assert_eq!((until.sleep_until_ns(100), until.now_ns()), (Wake::Time, 100), "the end itself is not beyond it");
        assert_eq!((until.sleep_until_ns(101), until.now_ns()), (Wake::Interrupted, 100));
        clock.advance_ns(50);
        assert_eq!(Until::new(&mut clock, 100).sleep_until_ns(120), Wake::Interrupted);
        assert_eq!(clock.now_ns(), 150);
    }
}
