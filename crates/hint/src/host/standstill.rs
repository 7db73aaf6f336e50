//! Notices that this process did not run for a while.

use std::time::Duration;

/// Much longer than a connection's thread ever waits of its own accord, other than for what a message leads to.
const MOST: Duration = Duration::from_secs(3);

/// When a thread was last seen to run. One that stood still (SIGSTOP, a frozen cgroup) finds reports that were true
/// when they came: meanwhile the guest may have been reset, and what it had isolated be in use by its next kernel, which
/// the connection through a VMM's port outlives.
#[derive(Debug)]
pub(super) struct Standstill {
    ran_ns: u64,
}

impl Standstill {
    pub const fn new(now_ns: u64) -> Self {
        Self { ran_ns: now_ns }
    }

    /// It runs. Tells for how long it did not, if that is too long to act upon what was said meanwhile.
    pub fn noticed(&mut self, now_ns: u64) -> Option<Duration> {
        let stood = Duration::from_nanos(now_ns.saturating_sub(self.ran_ns));
        self.ran_ns = now_ns;
        (stood >= MOST).then_some(stood)
    }

    /// It has been at work up to now, however long that took: dropping a lot of memory does.
    pub const fn worked(&mut self, now_ns: u64) {
        self.ran_ns = now_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn only_what_was_no_work_counts() {
        let mut standstill = Standstill::new(5 * S);
        assert_eq!(standstill.noticed(7 * S), None);
        assert_eq!(standstill.noticed(9 * S), None, "looked at in between");
        standstill.worked(60 * S);
        assert_eq!(standstill.noticed(62 * S), None, "slow, but at work");
        assert_eq!(standstill.noticed(72 * S), Some(Duration::from_secs(10)));
        assert_eq!(standstill.noticed(73 * S), None, "once");
    }
}
