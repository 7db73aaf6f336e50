//! The system's clocks.

use crate::signals::StopSignals;
use isotherm_core::clock::{Clock, CpuClock, Wake};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use std::io;

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
        let mut event = self.stop.map(|s| PollFd::new(s, PollFlags::IN));
        loop {
            if self.stop.is_some_and(|s| s.received().is_some()) {
                return Wake::Interrupted;
            }
            let left = deadline_ns.saturating_sub(monotonic_ns());
            if left == 0 {
                return Wake::Time;
            }
            let timeout = Timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 };
            // However it ends: the loop looks again.
            let _ = poll(event.as_mut_slice(), Some(&timeout));
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
    read(ClockId::Monotonic)
}

/// CLOCK_BOOTTIME now, ns: time in suspend counts, too.
pub fn boottime_ns() -> u64 {
    read(ClockId::Boottime)
}

/// Microseconds since 1970 (UTC).
pub fn unix_us() -> i64 {
    (read(ClockId::Realtime) / 1000) as i64
}

/// CPU time that the calling thread has used, ns.
pub fn thread_cpu_ns() -> u64 {
    read(ClockId::ThreadCPUTime)
}

/// CPU time that all threads of this process have used, ns.
pub fn process_cpu_ns() -> u64 {
    read(ClockId::ProcessCPUTime)
}

/// CPU time that all threads of process `pid`, those that have ended included, have used, ns; `None` once it has exited.
///
/// What a thread has run for since the last tick of the kernel's is added at the next one, or when it stops. On a processor
/// without ticks (`nohz_full`) that may be a second later.
pub fn cpu_ns_of(pid: u32) -> Option<u64> {
    /// As the kernel's headers make a clock of a process: the pid, inverted, above three bits.
    const CPUCLOCK_SCHED: i32 = 2;
    let clock = !(pid as i32) << 3 | CPUCLOCK_SCHED;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is ours, and all that the call writes to.
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    (result == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// CLOCK_REALTIME minus CLOCK_MONOTONIC now, ns.
pub fn realtime_offset_ns() -> i64 {
    // The thread may lose the CPU between two readings: the tightest of a few brackets is taken.
    let bracket = |_| {
        let before = monotonic_ns() as i64;
        let real = read(ClockId::Realtime) as i64;
        let after = monotonic_ns() as i64;
        (after - before, real - (before + (after - before) / 2))
    };
    (0..5).map(bracket).min().map_or(0, |(_, offset)| offset)
}

/// The kernel's release, for example `6.1.0-25-amd64`.
pub fn kernel_release() -> io::Result<String> {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").map(|text| text.trim_end().to_owned())
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
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
    fn cpu_time_of_a_process_grows_only_while_it_runs() {
        let own = cpu_ns_of(std::process::id()).unwrap();
        assert!(process_cpu_ns().abs_diff(own) < 1_000_000_000, "{own}");
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let pid = child.id();
        // Until it sleeps.
        let stopped = |_| {
            let before = cpu_ns_of(pid);
            MonotonicClock::new().sleep_until_ns(monotonic_ns() + 20_000_000);
            before == cpu_ns_of(pid)
        };
        assert!((0..500).any(stopped), "it goes on running");
        assert!(cpu_ns_of(pid).is_some_and(|ns| ns > 0));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(cpu_ns_of(pid), None, "it has ended");
    }

    #[test]
    fn the_offset_leads_to_wall_clock_time() {
        let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as i64;
        let ours = monotonic_ns() as i64 + realtime_offset_ns();
        assert!((ours - wall).abs() < 60_000_000_000, "{ours} {wall}");
        assert!(!kernel_release().unwrap().is_empty());
    }
}
