//! Virtual time that a monitor and the machine it watches share.

use isotherm_core::clock::{Clock, Wake};
use std::cell::Cell;
use std::rc::Rc;

/// A clock that moves when somebody sleeps on it or spends time. Clones show and move the same time.
#[derive(Debug, Clone, Default)]
pub struct SimClock {
    now_ns: Rc<Cell<u64>>,
}

impl SimClock {
    /// A clock that stands at `now_ns`.
    pub fn new(now_ns: u64) -> Self {
        Self { now_ns: Rc::new(Cell::new(now_ns)) }
    }

    /// Moves the time forward for all that share it.
    pub fn advance_ns(&self, by_ns: u64) {
        self.now_ns.set(self.now_ns.get().saturating_add(by_ns));
    }
}

impl Clock for SimClock {
    fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    fn sleep_until_ns(&mut self, deadline_ns: u64) -> Wake {
        self.now_ns.set(self.now_ns.get().max(deadline_ns));
        Wake::Time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_the_time() {
        let mut a = SimClock::new(5);
        let b = a.clone();
        a.sleep_until_ns(10);
        b.advance_ns(1);
        assert_eq!((a.now_ns(), b.now_ns()), (11, 11));
        a.sleep_until_ns(3);
        assert_eq!(b.now_ns(), 11);
    }
}
