//! When evicting is left to the kernel: it has to reclaim all the same, in the program's own path, and the program loses the time in which
//! pages are evicted ahead of that, since it never sleeps.

use crate::addr::PAGE_SIZE;
use crate::units::format_time;
use std::ops::RangeInclusive;

/// How long both are counted, ns.
const WINDOW_NS: u64 = 2_000_000_000;
/// With fewer of the kernel's reclaims than this meanwhile there is nothing to gain.
const LEAST: u64 = 256;
/// How long it is left to the kernel, ns: twice as long each time in a row.
const LEFT_NS: RangeInclusive<u64> = 30_000_000_000..=300_000_000_000;

/// What the kernel does about a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelReclaim {
    /// How often a program that wanted memory had to reclaim some first, since the limit was made.
    pub times: u64,
    /// Whether the programs whose pages are evicted never sleep.
    pub never_sleep: bool,
}

/// Eviction and the kernel's own reclaim, side by side.
#[derive(Debug, Default)]
pub(crate) struct LeftToKernel {
    /// When counting began, ns, the kernel's reclaims then, and the bytes evicted.
    window: Option<(u64, u64, u64)>,
    left_until_ns: u64,
    /// How long it was left to the kernel the last time; 0: since then eviction has kept ahead.
    left_ns: u64,
}

impl LeftToKernel {
    /// Whether it is time to [count](Self::count).
    pub fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.window.map_or(self.left_until_ns, |(began_ns, ..)| began_ns + WINDOW_NS)
    }

    /// Takes what the kernel has done so far (`None`: not known), with so many bytes evicted so far, and decides.
    pub fn count(&mut self, now_ns: u64, kernel: Option<KernelReclaim>, evicted: u64) {
        let Some(KernelReclaim { times, never_sleep }) = kernel else { return };
        let Some((began_ns, times_before, evicted_before)) = self.window.replace((now_ns, times, evicted)) else {
            return;
        };
        if now_ns < began_ns + WINDOW_NS {
            return;
        }
        let times = times.saturating_sub(times_before);
        if !never_sleep || times < LEAST || times <= evicted.saturating_sub(evicted_before) / PAGE_SIZE {
            self.left_ns = 0;
            return;
        }
        self.left_ns = (self.left_ns * 2).clamp(*LEFT_NS.start(), *LEFT_NS.end());
        self.left_until_ns = now_ns + self.left_ns;
        self.window = None;
    }

    /// What is said while it is left to the kernel.
    pub fn reason(&self, now_ns: u64) -> Option<String> {
        let why = "what is evicted never sleeps, and the kernel would have to reclaim all the same";
        self.is_left(now_ns).then(|| format!("left to the kernel for {}: {why}", format_time(self.left_ns)))
    }

    /// Whether it is left to the kernel.
    pub const fn is_left(&self, now_ns: u64) -> bool {
        now_ns < self.left_until_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    /// Counts every 2 s from `from_s` on, with so many reclaims and evicted pages in each; for how many seconds it is left then.
    fn counts(left: &mut LeftToKernel, from_s: u64, never_sleep: bool, times: u64, pages: u64) -> Vec<Option<u64>> {
        let mut counted = Vec::new();
        for i in 0..4 {
            let now_ns = (from_s + 2 * i) * S;
            if left.is_due(now_ns) {
                left.count(now_ns, Some(KernelReclaim { times: i * times, never_sleep }), i * pages * PAGE_SIZE);
                counted.push(left.is_left(now_ns).then_some(left.left_ns / S));
            }
        }
        counted
    }

    #[test]
    fn it_is_left_to_the_kernel_that_does_more_and_longer_each_time() {
        let mut left = LeftToKernel::default();
        assert_eq!(counts(&mut left, 0, true, 1000, 999), [None, Some(30)]);
        assert!(left.is_left(31 * S) && !left.is_left(32 * S) && !left.is_due(31 * S));
        for (from_s, seconds) in [(32, 60), (100, 120), (300, 240), (600, 300), (1000, 300)] {
            assert_eq!(counts(&mut left, from_s, true, 1000, 999), [None, Some(seconds)]);
        }
        assert_eq!(counts(&mut left, 2000, true, 1000, 1000), [None; 4], "it keeps ahead");
        assert_eq!(counts(&mut left, 3000, true, 1000, 0), [None, Some(30)], "the shortest time again");
    }

    #[test]
    fn one_that_sleeps_and_one_that_hardly_waits_are_evicted() {
        assert_eq!(counts(&mut LeftToKernel::default(), 0, false, 1000, 0), [None; 4]);
        assert_eq!(counts(&mut LeftToKernel::default(), 0, true, LEAST - 1, 0), [None; 4]);
        let mut unknown = LeftToKernel::default();
        [0, 2, 4].iter().for_each(|s| unknown.count(s * S, None, 0));
        assert!(!unknown.is_left(4 * S) && unknown.is_due(4 * S));
    }
}
