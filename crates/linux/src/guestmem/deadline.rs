//! A limit for a system call that may take for ever: from then on a signal interrupts it, again and again.

use std::io;
use std::time::Duration;

/// How often the signal comes once the time is up. The first may come just before the call begins, and would be lost.
const AGAIN: Duration = Duration::from_millis(100);

/// Interrupts the system calls of the calling thread from a moment on, until it is dropped. Calls that the kernel can
/// interrupt fail with [`io::ErrorKind::Interrupted`] then; use those of the standard library that do not try again.
///
/// It takes SIGALRM for itself; a program that uses that for something else must not use this. It stays with the thread
/// that made it.
pub(super) struct Deadline {
    timer: libc::timer_t,
    previous: libc::sigaction,
}

extern "C" fn nothing(_: i32) {}

impl Deadline {
    /// Interrupts after `limit`.
    pub(super) fn after(limit: Duration) -> io::Result<Self> {
        // SAFETY: sigaction is plain data for which all zeros is a valid value: no flags (so that calls are not
        // restarted) and an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        let handler: extern "C" fn(i32) = nothing;
        action.sa_sigaction = handler as libc::sighandler_t;
        let mut old = std::mem::MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: `action` is initialised and its handler does nothing; the old action is written to `old`.
        let old = unsafe {
            if libc::sigaction(libc::SIGALRM, &action, old.as_mut_ptr()) != 0 {
                return Err(io::Error::last_os_error());
            }
            old.assume_init()
        };
        let mut deadline = Self { timer: std::ptr::null_mut(), previous: old };
        // SAFETY: sigevent is plain data for which all zeros is valid; the fields that count are set below.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = libc::SIGALRM;
        event.sigev_notify_thread_id = rustix::thread::gettid().as_raw_pid();
        let mut timer: libc::timer_t = std::ptr::null_mut();
        // SAFETY: `event` is initialised, and the timer's number is written to `timer`.
        if unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer) } != 0 {
            let error = io::Error::last_os_error();
            deadline.restore();
            // There is no timer to delete.
            std::mem::forget(deadline);
            return Err(error);
        }
        deadline.timer = timer;
        let spec = libc::itimerspec { it_value: timespec(limit), it_interval: timespec(AGAIN) };
        // SAFETY: the timer was just made, and `spec` is a valid itimerspec.
        if unsafe { libc::timer_settime(timer, 0, &spec, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(deadline)
    }

    fn restore(&mut self) {
        // SAFETY: the action is what the kernel gave us for this signal.
        unsafe { libc::sigaction(libc::SIGALRM, &self.previous, std::ptr::null_mut()) };
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        // Before the old action comes back: that may be to end the process. A signal that is pending for this thread is
        // delivered on the way out of the call that deletes the timer, at the latest.
        // SAFETY: the timer is ours and was not deleted before.
        unsafe { libc::timer_delete(self.timer) };
        self.restore();
    }
}

/// Not less than a nanosecond: zero would mean never.
fn timespec(time: Duration) -> libc::timespec {
    let time = time.max(Duration::from_nanos(1));
    libc::timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos() as libc::c_long,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::time::Instant;

    #[test]
    fn a_call_that_would_wait_for_ever_is_interrupted() {
        let (mut reader, _writer) = io::pipe().unwrap();
        let begin = Instant::now();
        let deadline = Deadline::after(Duration::from_millis(30)).unwrap();
        let error = reader.read(&mut [0]).unwrap_err();
        drop(deadline);
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
        assert!(begin.elapsed() >= Duration::from_millis(30));
        // Gone: nothing interrupts, nothing kills.
        let next = Deadline::after(Duration::from_secs(3600)).unwrap();
        std::thread::sleep(Duration::from_millis(5));
        drop(next);
    }
}
