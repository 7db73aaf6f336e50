//! Injection into real threads, and the helper's death at every single point of it.

#[path = "../../../tests/common/victim.rs"]
#[allow(dead_code, reason = "also used by the tests of the whole actuator")]
mod victim;

use super::shared::Shared;
use super::{Call, Injector};
use crate::proc::{PidFd, Signal};
use crate::ptrace::Tracee;
use isotherm_core::addr::AddrRange;
use isotherm_core::scheme::action::Action;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use victim::{ACTIVITIES, Activity, Victim};

const ACTIONS: [Action; 4] = [Action::HugePage, Action::NoHugePage, Action::Lock, Action::Unlock];
const PAGES: u64 = 256;

fn inject(pidfd: &PidFd, action: Action, range: AddrRange, hook: &dyn Fn()) -> (u64, Option<String>) {
    let mut injector = Injector::default();
    let tally = injector.run_with(pidfd, Call::of(action).unwrap(), &[range], &AtomicBool::new(false), hook);
    (tally.applied, tally.error)
}

fn flags(pid: u32, addr: u64) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let mut lines = text.lines().skip_while(|l| !l.starts_with(&format!("{addr:x}-")));
    lines.find_map(|l| l.strip_prefix("VmFlags:")).unwrap().to_owned()
}

fn has(pid: u32, addr: u64, flag: &str) -> bool {
    flags(pid, addr).split_whitespace().any(|f| f == flag)
}

fn range(victim: &Victim) -> AddrRange {
    AddrRange::new(victim.addr(), victim.addr() + PAGES * 4096)
}

#[test]
fn root_a_program_that_confines_itself_between_two_looks_is_left_alone() {
    for kind in ACTIVITIES {
        let victim = Victim::start(kind, PAGES);
        let pidfd = PidFd::open(victim.pid()).unwrap();
        // It was free when the request was checked; the first call of the hook comes right before it is stopped.
        let (applied, error) = inject(&pidfd, Action::HugePage, range(&victim), &|| victim.confine());
        assert_eq!(applied, 0, "{kind:?}");
        assert!(error.as_ref().is_some_and(|e| e.contains("seccomp")), "{kind:?}: {error:?}");
        victim.check(&format!("it confined itself, {kind:?}"));
    }
}

#[test]
fn root_every_call_has_its_effect_whatever_the_thread_does() {
    for kind in ACTIVITIES {
        let victim = Victim::start(kind, PAGES);
        let (pid, all) = (victim.pid(), range(&victim));
        let pidfd = PidFd::open(pid).unwrap();
        for round in 0..5 {
            for (action, on, off) in [
                (Action::HugePage, "hg", "nh"),
                (Action::NoHugePage, "nh", "hg"),
                (Action::Lock, "lo", "--"),
                (Action::Unlock, "nh", "lo"),
            ] {
                assert_eq!(inject(&pidfd, action, all, &|| ()), (all.len(), None), "{kind:?} {action}");
                assert!(has(pid, all.start, on) && !has(pid, all.start, off), "{}", flags(pid, all.start));
                victim.check(&format!("{action} on {kind:?}, round {round}"));
            }
        }
    }
}

#[test]
fn root_the_target_survives_the_helpers_death_at_every_point() {
    for kind in ACTIVITIES {
        let victim = Victim::start(kind, PAGES);
        let pidfd = PidFd::open(victim.pid()).unwrap();
        for action in ACTIONS {
            let mut point = 0;
            loop {
                let (left, died) = (Cell::new(point), Shared::new(1).unwrap());
                let die = || match left.get() {
                    0 => {
                        died.set(0, 1);
                        // SAFETY: ends the helper at once, as SIGKILL does; the hook only runs there.
                        unsafe { libc::_exit(9) }
                    }
                    n => left.set(n - 1),
                };
                let (applied, error) = inject(&pidfd, action, range(&victim), &die);
                victim.check(&format!("{action} on {kind:?}, helper dead at point {point}"));
                if died.result(0).is_none() {
                    assert_eq!((applied, error), (PAGES * 4096, None));
                    break;
                }
                point += 1;
            }
            assert!(point >= 12, "only {point} points passed");
        }
        // Nobody traces it, and it does as it is asked.
        assert_eq!(inject(&pidfd, Action::Unlock, range(&victim), &|| ()), (PAGES * 4096, None));
    }
}

#[test]
fn root_threads_that_are_stopped_or_traced_are_left_alone() {
    let victim = Victim::start(Activity::Busy, PAGES);
    let pidfd = PidFd::open(victim.pid()).unwrap();
    pidfd.send_signal(Signal::STOP).unwrap();
    let stopped = || {
        let text = std::fs::read_to_string(format!("/proc/{}/status", victim.pid())).unwrap();
        text.contains("State:\tT")
    };
    while !stopped() {
        std::thread::yield_now();
    }
    let (applied, error) = inject(&pidfd, Action::Lock, range(&victim), &|| ());
    assert_eq!(applied, 0);
    assert!(error.unwrap().contains("SIGCONT"));
    assert!(stopped());
    pidfd.send_signal(Signal::CONT).unwrap();
    victim.check("it was let go on");
}

#[test]
fn root_much_work_is_done_in_many_short_stops() {
    const MANY: u64 = 32 << 10;
    let victim = Victim::start(Activity::Busy, MANY);
    let pidfd = PidFd::open(victim.pid()).unwrap();
    let all = AddrRange::new(victim.addr(), victim.addr() + MANY * 4096);
    for action in ACTIONS {
        let mut injector = Injector::default();
        let begin = Instant::now();
        let tally = injector.run(&pidfd, Call::of(action).unwrap(), &[all], &AtomicBool::new(false));
        let (stops, longest) = injector.stops;
        eprintln!(
            "{action} of 128 MiB: {stops} stops, the longest {} us, {:?} in all",
            longest / 1000,
            begin.elapsed()
        );
        assert_eq!((tally.applied, tally.error), (all.len(), None));
        // Sixteen pieces of pages to visit do not fit into one stop, while flags of a mapping do.
        let visits = matches!(action, Action::Lock | Action::Unlock);
        assert!(stops >= 1 && (visits || stops == 1), "{stops} stops");
        victim.check("much work");
    }
}

#[test]
fn root_a_debugger_is_not_disturbed() {
    let victim = Victim::start(Activity::Busy, PAGES);
    let pidfd = PidFd::open(victim.pid()).unwrap();
    // This thread traces it; the tracing ends with the thread.
    Tracee(victim.pid() as i32).seize().unwrap();
    let (applied, error) = inject(&pidfd, Action::Lock, range(&victim), &|| ());
    assert_eq!(applied, 0);
    assert!(error.unwrap().contains("traces it"));
    victim.check("tracing");
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn root_stop_signals_at_any_moment_do_no_harm() {
    for kind in ACTIVITIES {
        let victim = Victim::start(kind, PAGES);
        let pidfd = PidFd::open(victim.pid()).unwrap();
        let end = AtomicBool::new(false);
        let (mut done, mut refused) = (0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut wait = 1u64;
                while !end.load(Ordering::Relaxed) {
                    wait = wait.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    pidfd.send_signal(Signal::STOP).unwrap();
                    std::thread::sleep(Duration::from_micros(wait >> 54));
                    pidfd.send_signal(Signal::CONT).unwrap();
                    std::thread::sleep(Duration::from_micros(wait >> 52));
                }
            });
            // Also if something below fails: a scope waits for its threads.
            let _end = SetOnDrop(&end);
            let mut injector = Injector::default();
            let begin = Instant::now();
            while done < 30 || refused < 3 {
                assert!(begin.elapsed() < Duration::from_secs(300), "{kind:?}: {done} done, {refused} refused");
                for action in ACTIONS {
                    let call = Call::of(action).unwrap();
                    let tally = injector.run(&pidfd, call, &[range(&victim)], &AtomicBool::new(false));
                    match tally.error {
                        None => done += 1,
                        Some(_) => refused += 1,
                    }
                }
            }
        });
        pidfd.send_signal(Signal::CONT).unwrap();
        victim.check(&format!("stop signals to {kind:?}"));
    }
}
