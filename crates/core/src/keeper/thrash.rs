//! Thrashing prevention: a working set that was used within a given time and does not fit.
//!
//! As in the kernel (`min_ttl_ms`) this is a verdict, not a rule of eviction: what to do about it is somebody else's
//! decision. Here it is drawn from pages: there is need to evict, and of what could go too little has been idle for as
//! long.

/// The verdict holds only if it was the same so many times in a row.
const TIMES: u32 = 3;

/// Watches for thrashing.
#[derive(Debug, Clone)]
pub(crate) struct ThrashWatch {
    ttl_ns: u64,
    in_a_row: u32,
    since_ns: u64,
}

impl ThrashWatch {
    /// A working set of the last `ttl_ns` must stay; 0 watches for nothing.
    pub const fn new(ttl_ns: u64) -> Self {
        Self { ttl_ns, in_a_row: 0, since_ns: 0 }
    }

    /// The time that a working set must stay.
    pub(crate) const fn ttl_ns(&self) -> u64 {
        self.ttl_ns
    }

    /// After a walk: `need` bytes are to be evicted until the next, `idle` bytes could go without touching the working
    /// set (`None`: we do not watch for long enough to tell). True once, when thrashing begins to be certain.
    pub fn judge(&mut self, need: u64, idle: Option<u64>, now_ns: u64) -> bool {
        let thrashing = self.ttl_ns > 0 && need > 0 && idle.is_some_and(|idle| idle < need);
        if !thrashing {
            self.in_a_row = 0;
            return false;
        }
        if self.in_a_row == 0 {
            self.since_ns = now_ns;
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.in_a_row == TIMES
    }

    /// Since when it has been thrashing, if it is.
    pub const fn since(&self) -> Option<u64> {
        if self.in_a_row >= TIMES { Some(self.since_ns) } else { None }
    }

    /// Something was done about it: judge anew.
    pub fn reset(&mut self) {
        self.in_a_row = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_certainty_and_is_reported_once() {
        let mut w = ThrashWatch::new(1_000_000_000);
        assert!(!w.judge(100, Some(50), 1) && !w.judge(100, Some(0), 2));
        assert!(w.judge(100, Some(99), 3));
        assert!(!w.judge(100, Some(0), 4));
        assert_eq!(w.since(), Some(1));
        assert!(!w.judge(100, Some(100), 5));
        assert_eq!(w.since(), None);
    }

    #[test]
    fn no_need_no_knowledge_and_no_ttl_are_no_thrashing() {
        let mut w = ThrashWatch::new(1);
        let mut off = ThrashWatch::new(0);
        for now in 0..10 {
            assert!(!w.judge(0, Some(0), now) && !w.judge(9, None, now) && !off.judge(9, Some(0), now));
        }
    }
}
