//! A clock whose sleep ends when the kdamond is asked to stop.

use crate::held::held;
use isotherm_core::clock::{Clock, Wake};
use isotherm_linux::clock::monotonic_ns;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Whether to stop.
#[derive(Debug, Default)]
pub(super) struct Stop {
    asked: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// Asks for it; a sleep ends at once.
    pub(super) fn ask(&self) {
        *held(&self.asked) = true;
        self.changed.notify_all();
    }
}

impl Clock for &Stop {
    fn now_ns(&self) -> u64 {
        monotonic_ns()
    }

    fn sleep_until_ns(&mut self, deadline_ns: u64) -> Wake {
        let mut asked = held(&self.asked);
        loop {
            if *asked {
                return Wake::Interrupted;
            }
            let left = deadline_ns.saturating_sub(monotonic_ns());
            if left == 0 {
                return Wake::Time;
            }
            let wait = self.changed.wait_timeout(asked, Duration::from_nanos(left));
            asked = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_ends_in_time_or_when_asked() {
        let stop = Stop::default();
        let mut clock = &stop;
        assert_eq!(clock.sleep_until_ns(monotonic_ns() + 1_000_000), Wake::Time);
        std::thread::scope(|scope| {
            scope.spawn(|| stop.ask());
            assert_eq!((&stop).sleep_until_ns(u64::MAX), Wake::Interrupted);
        });
    }
}
