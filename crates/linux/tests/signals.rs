//! Stop signals: one test, because the dispositions belong to the whole process.

use isotherm_core::clock::{Clock, Wake};
use isotherm_linux::clock::{MonotonicClock, monotonic_ns};
use isotherm_linux::signals::{StopSignals, reload_on_hangup, take_reload};
use rustix::process::{Signal, getpid, kill_process};

fn disposition(signal: i32) -> usize {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: a null new action only asks for the present one, for which `action` is valid.
    unsafe {
        assert_eq!(libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()), 0);
        action.assume_init().sa_sigaction
    }
}

fn raise(signal: i32) {
    kill_process(getpid(), Signal::from_named_raw(signal).unwrap()).unwrap();
}

/// The same to this thread, so that the signal has been handled when it returns; the kernel may hand the other to any
/// thread.
fn raise_here(signal: i32) {
    // SAFETY: sends a signal to this thread, which catches it.
    unsafe { libc::raise(signal) };
}

#[test]
fn a_caught_signal_ends_sleeps_and_the_old_actions_come_back() {
    const FAR: u64 = 3_600_000_000_000;
    let before: Vec<usize> = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP].map(disposition).to_vec();
    {
        let signals = StopSignals::catch().unwrap();
        assert!(StopSignals::catch().is_err(), "only one guard at a time");
        assert_eq!(signals.received(), None);
        let mut clock = MonotonicClock::stopped_by(&signals);
        assert_eq!(clock.sleep_until_ns(monotonic_ns() + 1_000_000), Wake::Time);
        let sender = std::thread::spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            raise(libc::SIGINT);
        });
        assert_eq!(clock.sleep_until_ns(monotonic_ns() + FAR), Wake::Interrupted);
        sender.join().unwrap();
        assert_eq!(clock.sleep_until_ns(monotonic_ns() + FAR), Wake::Interrupted);
        assert_eq!(signals.received(), Some(libc::SIGINT));
    }
    assert_eq!([libc::SIGINT, libc::SIGTERM, libc::SIGHUP].map(disposition).to_vec(), before);

    // A guard that reloads on SIGHUP does not stop for it, and still does for the others.
    {
        let mut signals = StopSignals::catch().unwrap();
        signals.reload_on_hangup().unwrap();
        assert!(!take_reload());
        raise_here(libc::SIGHUP);
        assert!(take_reload() && !take_reload(), "one reload for one signal");
        assert_eq!(signals.received(), None);
        let mut clock = MonotonicClock::stopped_by(&signals);
        assert_eq!(clock.sleep_until_ns(monotonic_ns() + 1_000_000), Wake::Time);
        raise(libc::SIGINT);
        assert_eq!(clock.sleep_until_ns(monotonic_ns() + FAR), Wake::Interrupted);
    }
    assert_eq!([libc::SIGINT, libc::SIGTERM, libc::SIGHUP].map(disposition).to_vec(), before);

    // A new guard starts afresh, and SIGHUP is left ignored where it was.
    // SAFETY: SIG_IGN is a valid action.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
    {
        let signals = StopSignals::catch().unwrap();
        assert_eq!(signals.received(), None);
        assert_eq!(disposition(libc::SIGHUP), libc::SIG_IGN);
        let mut clock = MonotonicClock::stopped_by(&signals);
        assert_eq!(clock.sleep_until_ns(monotonic_ns() + 1_000_000), Wake::Time);
        raise(libc::SIGTERM);
        assert_eq!(clock.sleep_until_ns(monotonic_ns() + FAR), Wake::Interrupted);
        assert_eq!(signals.received(), Some(libc::SIGTERM));
    }
    {
        let mut signals = StopSignals::catch().unwrap();
        signals.reload_on_hangup().unwrap();
        raise_here(libc::SIGHUP);
        assert!(take_reload(), "a daemon reloads under nohup, too");
    }
    assert_eq!(disposition(libc::SIGHUP), libc::SIG_IGN);

    // One that comes before there is a guard is not lost.
    reload_on_hangup().unwrap();
    raise_here(libc::SIGHUP);
    {
        let mut signals = StopSignals::catch().unwrap();
        signals.reload_on_hangup().unwrap();
        assert_eq!(signals.received(), None);
        assert!(take_reload() && !take_reload());
        raise_here(libc::SIGHUP);
        assert!(take_reload(), "and the next one reloads, too");
    }
    // SAFETY: the disposition found at the start, SIG_DFL or SIG_IGN.
    unsafe { libc::signal(libc::SIGHUP, before[2]) };
}
