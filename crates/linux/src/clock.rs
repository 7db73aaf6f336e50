//! The system's clocks.

use crate::signals::StopSignals;
use isotherm_core::clock::{Clock, CpuClock, Wake};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// CLOCK_MONOTONIC, with sleeps that a stop signal ends.
#[derive(Debug, Default)]
pub struct MonotonicClock<'a> {
    stop: Option<&'a StopSignals>,
}

impl<'a> MonotonicClock<'a> {
    /// A clock whose sleeps nothing ends early.
    pub const fn new() -> Self {
        Self { stop: None }
    }

    /// A clock whose sleeps end as soon as a signal has been caught, and at once from then on.
    pub const fn stopped_by(signals: &'a StopSignals) -> Self {
        Self { stop: Some(signals) }
    }
}

impl Clock for MonotonicClock<'_> {
    fn now_ns(&self) -> u64 {
        monotonic_ns()
    }

    fn sleep_until_ns(&mut self, deadline_ns: u64) -> Wake {
        let fd = self.stop.map_or(-1, |s| s.as_fd().as_raw_fd());
        loop {
            if self.stop.is_some_and(|s| s.received().is_some()) {
                return Wake::Interrupted;
            }
            let left = deadline_ns.saturating_sub(monotonic_ns());
            if left == 0 {
                return Wake::Time;
            }
            let timeout = libc::timespec {
                tv_sec: (left / 1_000_000_000).min(i64::MAX as u64) as libc::time_t,
                tv_nsec: (left % 1_000_000_000) as libc::c_long,
            };
            // A negative descriptor is passed over by the kernel.
            let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            // SAFETY: `poll` is one valid pollfd and `timeout` a valid timespec, both alive over the call; a null mask
            // leaves the signal mask alone.
            unsafe { libc::ppoll(&mut poll, 1, &timeout, std::ptr::null()) };
        }
    }
}

impl CpuClock for MonotonicClock<'_> {
    fn cpu_ns(&self) -> u64 {
        thread_cpu_ns()
    }
}

/// CLOCK_MONOTONIC now, ns.
pub fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// CPU time that the calling thread has used, ns.
pub fn thread_cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time that all threads of this process have used, ns.
pub fn process_cpu_ns() -> u64 {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// CLOCK_REALTIME minus CLOCK_MONOTONIC now, ns.
pub fn realtime_offset_ns() -> i64 {
    // The thread may lose the CPU between two readings: the tightest of a few brackets is taken.
    let bracket = |_| {
        let before = monotonic_ns() as i64;
        let real = read(libc::CLOCK_REALTIME) as i64;
        let after = monotonic_ns() as i64;
        (after - before, real - (before + (after - before) / 2))
    };
    (0..5).map(bracket).min().map_or(0, |(_, offset)| offset)
}

/// The kernel's release, for example `6.1.0-25-amd64`.
pub fn kernel_release() -> io::Result<String> {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").map(|text| text.trim_end().to_owned())
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for the write. The clocks used here exist on every kernel, so the call cannot fail.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_ends_after_its_deadline_and_a_past_one_at_once() {
        let mut clock = MonotonicClock::new();
        let deadline = clock.now_ns() + 3_000_000;
        assert_eq!(clock.sleep_until_ns(deadline), Wake::Time);
        assert!(clock.now_ns() >= deadline);
        assert_eq!(clock.sleep_until_ns(0), Wake::Time);
    }

    #[test]
    fn cpu_time_grows_with_work_and_not_with_sleep() {
        let begin = thread_cpu_ns();
        let mut x = 1u64;
        while thread_cpu_ns() < begin + 2_000_000 {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        assert!(process_cpu_ns() >= 2_000_000);
        let (cpu, wall) = (thread_cpu_ns(), monotonic_ns());
        MonotonicClock::new().sleep_until_ns(wall + 20_000_000);
        assert!(thread_cpu_ns() - cpu < monotonic_ns() - wall);
    }

    #[test]
    fn the_offset_leads_to_wall_clock_time() {
        let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as i64;
        let ours = monotonic_ns() as i64 + realtime_offset_ns();
        assert!((ours - wall).abs() < 60_000_000_000, "{ours} {wall}");
        assert!(!kernel_release().unwrap().is_empty());
    }
}
