//! Memory that Isotherm and its helper share: what was done to each range, why not, and the order to stop.

use super::refusal::Refusal;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

/// A range that nothing was done to yet.
const UNTOUCHED: i64 = i64::MIN;

#[repr(C)]
struct Head {
    stop: AtomicU32,
    refusal: AtomicU32,
    stops: AtomicU32,
    longest_ns: AtomicU64,
}

/// A shared anonymous mapping. After a fork parent and child see the same.
pub(super) struct Shared {
    mapping: NonNull<Head>,
    bytes: usize,
    results: usize,
}

impl Shared {
    /// Room for `results` results.
    pub fn new(results: usize) -> io::Result<Self> {
        let bytes = size_of::<Head>() + results * size_of::<AtomicI64>();
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let p = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if p == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let shared = Self { mapping: NonNull::new(p.cast()).ok_or(io::ErrorKind::InvalidData)?, bytes, results };
        (0..results).for_each(|i| shared.slot(i).store(UNTOUCHED, Ordering::Relaxed));
        Ok(shared)
    }

    fn head(&self) -> &Head {
        // SAFETY: the mapping is at least this long, aligned to a page, zeroed (valid for atomics), and lives as long
        // as self.
        unsafe { self.mapping.as_ref() }
    }

    fn slot(&self, i: usize) -> &AtomicI64 {
        assert!(i < self.results);
        // SAFETY: the mapping has room for `results` slots behind the head, which is a multiple of 8 bytes long.
        unsafe { self.mapping.add(1).cast::<AtomicI64>().add(i).as_ref() }
    }

    /// Notes what the system call for range `i` gave.
    pub fn set(&self, i: usize, result: i64) {
        self.slot(i).store(result, Ordering::Release);
    }

    /// What it gave; `None` if it was not done.
    pub fn result(&self, i: usize) -> Option<i64> {
        let value = self.slot(i).load(Ordering::Acquire);
        (value != UNTOUCHED).then_some(value)
    }

    /// Asks the helper to leave after its present stop.
    pub fn stop(&self) {
        self.head().stop.store(1, Ordering::Relaxed);
    }

    pub fn is_stopped(&self) -> bool {
        self.head().stop.load(Ordering::Relaxed) != 0
    }

    pub fn refuse(&self, refusal: Refusal) {
        self.head().refusal.store(refusal as u32, Ordering::Release);
    }

    pub fn refusal(&self) -> Refusal {
        Refusal::from_number(self.head().refusal.load(Ordering::Acquire))
    }

    /// Notes a stop of the target that took so long.
    pub(crate) fn add_stop(&self, ns: u64) {
        self.head().stops.fetch_add(1, Ordering::Relaxed);
        self.head().longest_ns.fetch_max(ns, Ordering::Relaxed);
    }

    /// How often the target was stopped, and for how long at most, ns.
    pub fn stops(&self) -> (u32, u64) {
        (self.head().stops.load(Ordering::Relaxed), self.head().longest_ns.load(Ordering::Relaxed))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: unmaps what `new` mapped; references into it cannot outlive self.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.bytes) };
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
