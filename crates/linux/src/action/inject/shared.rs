//! Memory that Isotherm and its helper share: what was done to each range, why not, and the order to stop.

use super::refusal::Refusal;
use crate::mm::mapping::Mapping;
use std::io;
use std::sync::atomic::Ordering;

/// A range that nothing was done to yet.
const UNTOUCHED: i64 = i64::MIN;

// Offsets of the words. All but the order to stop are written by the helper alone.
const STOP: usize = 0;
const REFUSAL: usize = 8;
const STOPS: usize = 16;
const LONGEST_NS: usize = 24;
const RESULTS: usize = 32;

/// A shared anonymous mapping. After a fork parent and child see the same.
pub(super) struct Shared {
    mapping: Mapping,
    results: usize,
}

impl Shared {
    /// Room for `results` results.
    pub fn new(results: usize) -> io::Result<Self> {
        let shared = Self { mapping: Mapping::shared(RESULTS + results * size_of::<i64>())?, results };
        (0..results).for_each(|i| shared.set(i, UNTOUCHED));
        Ok(shared)
    }

    fn slot(&self, i: usize) -> usize {
        assert!(i < self.results);
        RESULTS + i * size_of::<i64>()
    }

    /// Notes what the system call for range `i` gave.
    pub fn set(&self, i: usize, result: i64) {
        self.mapping.store(self.slot(i), result as u64, Ordering::Release);
    }

    /// What it gave; `None` if it was not done.
    pub fn result(&self, i: usize) -> Option<i64> {
        let value = self.mapping.load(self.slot(i), Ordering::Acquire) as i64;
        (value != UNTOUCHED).then_some(value)
    }

    /// Asks the helper to leave after its present stop.
    pub fn stop(&self) {
        self.mapping.store(STOP, 1, Ordering::Relaxed);
    }

    pub fn is_stopped(&self) -> bool {
        self.mapping.load(STOP, Ordering::Relaxed) != 0
    }

    pub fn refuse(&self, refusal: Refusal) {
        self.mapping.store(REFUSAL, refusal as u64, Ordering::Release);
    }

    pub fn refusal(&self) -> Refusal {
        Refusal::from_number(self.mapping.load(REFUSAL, Ordering::Acquire) as u32)
    }

    /// Notes a stop of the target that took so long.
    pub(crate) fn add_stop(&self, ns: u64) {
        let (stops, longest) = self.stops();
        self.mapping.store(STOPS, u64::from(stops) + 1, Ordering::Relaxed);
        self.mapping.store(LONGEST_NS, longest.max(ns), Ordering::Relaxed);
    }

    /// How often the target was stopped, and for how long at most, ns.
    pub fn stops(&self) -> (u32, u64) {
        let read = |at| self.mapping.load(at, Ordering::Relaxed);
        (read(STOPS) as u32, read(LONGEST_NS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_and_refusals_are_kept() {
        let shared = Shared::new(3).unwrap();
        assert_eq!((shared.result(0), shared.result(2)), (None, None));
        shared.set(2, -12);
        shared.add_stop(5);
        shared.add_stop(3);
        assert_eq!((shared.result(2), shared.stops()), (Some(-12), (2, 5)));
        assert_eq!(shared.refusal(), Refusal::None);
        shared.refuse(Refusal::Stopped);
        shared.stop();
        assert!(shared.is_stopped() && shared.refusal() == Refusal::Stopped);
    }
}
