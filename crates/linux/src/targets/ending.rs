//! Ending a process with all that it has forked.

use crate::proc::children::ChildFinder;
use crate::proc::stat::Stat;
use crate::proc::{PidFd, ProcessDir, Signal};
use crate::roots::Roots;
use std::time::{Duration, Instant};

/// How long a process may take to stop after SIGSTOP; one in an uninterruptible wait cannot fork meanwhile anyway.
const STOP_LIMIT: Duration = Duration::from_millis(100);

/// Ends process `leader` and its descendants: SIGTERM, and SIGKILL for those that still run after `grace`.
///
/// For each round the family is stopped first, member by member until no new one turns up, so that none can fork out of
/// sight between the look and the signal. A process whose parent had exited before is not found; one that forks and
/// exits on SIGTERM can leave such a child behind.
pub(crate) fn end_family(leader: PidFd, grace: Duration) {
    let mut family = vec![leader];
    stop(&mut family);
    for process in &family {
        // It may have exited meanwhile, or belong to another user.
        let _ = process.send_signal(Signal::TERM);
    }
    for process in &family {
        let _ = process.send_signal(Signal::CONT);
    }
    let deadline = Instant::now() + grace;
    let left = || deadline.saturating_duration_since(Instant::now());
    family.retain(|process| !process.wait_exit(left()));
    if family.is_empty() {
        return;
    }
    stop(&mut family);
    for process in &family {
        let _ = process.send_signal(Signal::KILL);
    }
    for process in &family {
        // Bounded: a process in an uninterruptible wait, or of another user, must not hold us up.
        process.wait_exit(Duration::from_secs(1));
    }
}

/// Stops the processes of `family` and their descendants, which are added to it.
fn stop(family: &mut Vec<PidFd>) {
    let mut stopped = 0;
    while stopped < family.len() {
        for process in &family[stopped..] {
            if process.send_signal(Signal::STOP).is_ok() {
                wait_until_stopped(process);
            }
        }
        stopped = family.len();
        let pids: Vec<u32> = family.iter().map(PidFd::pid).collect();
        for (child, _) in ChildFinder::new(Roots::system()).poll(&pids).unwrap_or_default() {
            if let Ok(process) = PidFd::open(child)
                // The pid may have been given to a stranger between the look and the opening.
                && Stat::read(&ProcessDir::live(child)).is_ok_and(|s| family.iter().any(|p| p.pid() == s.ppid))
            {
                family.push(process);
            }
        }
    }
}

fn wait_until_stopped(process: &PidFd) {
    let deadline = Instant::now() + STOP_LIMIT;
    while Instant::now() < deadline && !process.has_exited() {
        match Stat::read(&ProcessDir::live(process.pid())) {
            Ok(stat) if !matches!(stat.state, 'T' | 't') => std::thread::sleep(Duration::from_micros(200)),
            _ => return,
        }
    }
}
