//! The process that injects: forked for one request, so that it outlives whatever kills Isotherm.

use super::plan::Plan;
use super::refusal::Refusal;
use super::shared::Shared;
use super::thread::{Buffers, Hook, Stopped};
use crate::fork::fork;
use crate::ptrace::nap;
use rustix::process::{Pid, getpid, getppid};
use std::io;
use std::time::Duration;

/// After so long the target gets a rest.
const STOP_MOST: Duration = Duration::from_millis(1);
/// The rest is so many times as long as the stop before.
const REST: u32 = 5;
/// Tries for a moment that suits.
const TRIES: u32 = 40;

/// Starts the helper; gives its pid. It ends by itself.
pub(super) fn start(plan: &Plan<'_>, shared: &Shared, hook: Hook<'_>) -> io::Result<Pid> {
    // Made before the fork: a child of a process with threads had better not allocate.
    let mut buffers = Buffers::new();
    let parent = getpid();
    // Not even in the first moment may a signal meant for Isotherm (Ctrl-C) reach the helper.
    let mut all = std::mem::MaybeUninit::uninit();
    let mut old = std::mem::MaybeUninit::uninit();
    // SAFETY: both sets are written before they are read. The child only makes system calls, reads what it has
    // inherited, and writes to the shared mapping and to the buffers.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), old.as_mut_ptr());
        let forked = fork(|| {
            // A session of its own: signals to Isotherm's process group do not reach it.
            libc::setsid();
            // The target waits for it: on a busy machine it must not lose its turn. Refused to some, which only takes
            // longer.
            libc::setpriority(libc::PRIO_PROCESS, 0, -20);
            work(plan, shared, &mut buffers, hook, parent);
        });
        libc::pthread_sigmask(libc::SIG_SETMASK, old.as_ptr(), std::ptr::null_mut());
        forked
    }
}

/// Goes through the ranges, with a rest after every stop.
fn work(plan: &Plan<'_>, shared: &Shared, buffers: &mut Buffers, hook: Hook<'_>, parent: Pid) {
    let (mut next, mut tries) = (0, 0);
    while next < plan.ranges.len() && !shared.is_stopped() && getppid() == Some(parent) {
        match one_stop(plan, &mut next, shared, buffers, hook) {
            Ok(stopped) => {
                tries = 0;
                shared.add_stop(stopped.as_nanos() as u64);
                if next < plan.ranges.len() {
                    nap((stopped * REST).clamp(Duration::from_millis(1), Duration::from_secs(1)));
                }
            }
            Err(why) if why.passes() && tries < TRIES => {
                tries += 1;
                nap(Duration::from_micros(500 * u64::from(tries)));
            }
            Err(why) => {
                shared.refuse(why);
                return;
            }
        }
    }
}

/// Does as many ranges from `next` on as fit into one stop.
fn one_stop(
    plan: &Plan<'_>,
    next: &mut usize,
    shared: &Shared,
    buffers: &mut Buffers,
    hook: Hook<'_>,
) -> Result<Duration, Refusal> {
    let mut thread = Stopped::seize(plan, buffers, hook)?;
    while let Some(range) = plan.ranges.get(*next) {
        let (number, args) = plan.call.registers(*range);
        let result = thread.call(number, args)?;
        shared.set(*next, result);
        *next += 1;
        if thread.since() >= STOP_MOST {
            break;
        }
    }
    Ok(thread.release())
}
