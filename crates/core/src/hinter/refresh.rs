//! When all free memory counts as new again, although it was reported.
//!
//! Samples miss memory that was used and freed between two looks: everything counts as new after a minute, if much was
//! allocated meanwhile, and never so often that it costs more than a hundredth of the time.
//!
//! It counts as new sooner where the kernel gave what the host had dropped already, and much is left: memory blocks
//! that go offline and come back are handed out last, so that the next pass meets what is left. That waits until the
//! guest itself allocates little and has a CPU to spare, and a tenth of the time at most goes into it.

use super::guest::FreeMemory;
use crate::addr::PAGE_SIZE;

const REFRESH_NS: u64 = 60_000_000_000;
const REFRESH_SHARE: u64 = 100;
/// After this time at first everything counts as new for what is left, ns; doubled as long as it does not help.
const LEFT_NS: u64 = 3_000_000_000;
const LEFT_SHARE: u64 = 10;
/// What is much: this part of all free memory, and so many blocks.
const MUCH_SHARE: u64 = 32;
const MUCH_BLOCKS: u64 = 4;

/// When everything counts as new.
#[derive(Debug)]
pub(super) struct Refresh {
    /// Time spent on isolating and returning since the last time, ns.
    pub(super) spent_ns: u64,
    last_ns: u64,
    last: FreeMemory,
    /// How long to wait for the sake of what is left, ns; `None`: nothing is.
    left_ns: Option<u64>,
    /// The same for the next time.
    next_left_ns: u64,
}

impl Refresh {
    pub(super) const fn new(free: FreeMemory, now_ns: u64) -> Self {
        Self { spent_ns: 0, last_ns: now_ns, last: free, left_ns: None, next_left_ns: LEFT_NS }
    }

    /// Whether it is time. `calm`: the guest allocates little; `clears`: isolating clears memory.
    pub(super) fn is_due(&mut self, free: &FreeMemory, calm: bool, clears: bool, now_ns: u64) -> bool {
        let since = now_ns.saturating_sub(self.last_ns);
        if calm && self.left_ns.is_some_and(|pause| since >= pause.max(self.spent_ns * LEFT_SHARE)) {
            self.next_left_ns = (self.next_left_ns * 2).min(10 * REFRESH_NS);
            return true;
        }
        let pause = (self.spent_ns * REFRESH_SHARE).max(if clears { 10 * REFRESH_NS } else { REFRESH_NS });
        let much = free.total / PAGE_SIZE / 4;
        since >= pause && free.allocated_since(&self.last).is_none_or(|pages| pages >= much)
    }

    /// Everything counts as new.
    pub(super) const fn done(&mut self, free: FreeMemory, now_ns: u64) {
        self.last_ns = now_ns;
        self.last = free;
        self.spent_ns = 0;
        self.left_ns = None;
    }

    /// A pass in which the kernel chose the blocks has left `left` of `known` free blocks.
    pub(super) fn pass_left(&mut self, left: u64, known: u64) {
        let much = left * MUCH_SHARE >= known && left >= MUCH_BLOCKS;
        self.left_ns = much.then_some(self.next_left_ns);
        if !much {
            self.next_left_ns = LEFT_NS;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn free(allocated: u64) -> FreeMemory {
        FreeMemory { total: 4 << 30, free: 1 << 30, free_huge: 1 << 30, allocated_pages: Some(allocated) }
    }

    #[test]
    fn everything_is_new_after_a_minute_if_much_was_allocated() {
        let mut refresh = Refresh::new(free(0), 0);
        let quarter = 1 << 18;
        assert!(!refresh.is_due(&free(quarter), true, false, 59 * SECOND));
        assert!(!refresh.is_due(&free(quarter - 1), true, false, 60 * SECOND));
        assert!(refresh.is_due(&free(quarter), true, false, 60 * SECOND));
        assert!(!refresh.is_due(&free(quarter), true, true, 60 * SECOND), "clearing costs more");
        assert!(refresh.is_due(&free(quarter), true, true, 600 * SECOND));
        refresh.spent_ns = SECOND;
        assert!(!refresh.is_due(&free(quarter), true, false, 60 * SECOND), "it would cost more than a hundredth");
        refresh.done(free(quarter), 100 * SECOND);
        assert!(!refresh.is_due(&free(quarter), true, false, 1000 * SECOND), "nothing was allocated since");
        assert!(refresh.is_due(&FreeMemory { allocated_pages: None, ..free(0) }, true, false, 160 * SECOND));
    }

    #[test]
    fn what_a_pass_has_left_is_waited_for_longer_each_time() {
        let mut refresh = Refresh::new(free(0), 0);
        refresh.pass_left(3, 32);
        assert!(!refresh.is_due(&free(0), true, false, 59 * SECOND), "too little is left");
        refresh.pass_left(4, 129);
        assert!(!refresh.is_due(&free(0), true, false, 59 * SECOND), "too small a part is left");
        let mut at = 0;
        for pause in [3, 6, 12, 24] {
            refresh.pass_left(4, 128);
            assert!(!refresh.is_due(&free(0), true, false, at + pause * SECOND - 1));
            assert!(!refresh.is_due(&free(0), false, false, at + pause * SECOND), "the guest is busy");
            at += pause * SECOND;
            assert!(refresh.is_due(&free(0), true, false, at));
            refresh.done(free(0), at);
        }
        refresh.pass_left(0, 128);
        refresh.pass_left(4, 128);
        refresh.spent_ns = SECOND;
        assert!(!refresh.is_due(&free(0), true, false, at + 10 * SECOND - 1), "a tenth of the time at most");
        assert!(refresh.is_due(&free(0), true, false, at + 10 * SECOND));
    }
}
