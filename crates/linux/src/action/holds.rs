//! Handles on targets, kept from the first time that each is named.

use crate::proc::PidFd;
use isotherm_core::meter::LiveTarget;
use isotherm_core::target::TargetId;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So many entries more, and those of ended processes are looked for.
const MANY: usize = 64;
/// How long it is remembered that a target has ended: much longer than whoever names targets takes to find that out.
const REMEMBERED: Duration = Duration::from_secs(60);

/// Why a target's process cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HoldError {
    /// Not a process, but for example a range of physical memory.
    #[error("the target is not a process; actions need one")]
    NoProcess,
    /// It has ended.
    #[error("pid {0} has exited")]
    Gone(u32),
    /// The number is a thread's.
    #[error("{0} is a thread, not a process; give its process")]
    Thread(u32),
    /// The kernel gives no descriptor.
    #[error("pid {pid}: {why}{help}")]
    Refused {
        /// Its number.
        pid: u32,
        /// The system's reason.
        why: String,
        /// What to do; may be empty.
        help: &'static str,
    },
}

/// A pidfd per target. One that has ended keeps its entry for a while without a descriptor, so that its pid is not
/// mistaken for the target when another process gets it.
#[derive(Debug, Default)]
pub(super) struct Holds {
    held: HashMap<(TargetId, u32), Hold>,
    /// Entries at which to look for ended ones.
    look_at: usize,
}

#[derive(Debug)]
enum Hold {
    Alive(Arc<PidFd>),
    /// And when that was found.
    Ended(Instant),
}

impl Holds {
    /// The target's process.
    pub fn get(&mut self, target: LiveTarget) -> Result<Arc<PidFd>, HoldError> {
        self.get_at(target, Instant::now())
    }

    fn get_at(&mut self, target: LiveTarget, now: Instant) -> Result<Arc<PidFd>, HoldError> {
        let pid = target.pid.ok_or(HoldError::NoProcess)?;
        let key = (target.target, pid);
        match self.held.get_mut(&key) {
            Some(Hold::Alive(fd)) if !fd.has_exited() => return Ok(fd.clone()),
            Some(Hold::Ended(_)) => return Err(HoldError::Gone(pid)),
            Some(hold) => {
                *hold = Hold::Ended(now);
                return Err(HoldError::Gone(pid));
            }
            None => {}
        }
        if self.held.len() >= self.look_at.max(MANY) {
            self.release(now);
            self.look_at = self.held.len() + MANY.max(self.held.len() / 4);
        }
        match PidFd::open(pid) {
            Ok(fd) if !fd.has_exited() => {
                let fd = Arc::new(fd);
                self.held.insert(key, Hold::Alive(fd.clone()));
                Ok(fd)
            }
            Err(e) if e.raw_os_error() != Some(libc::ESRCH) => Err(refused(pid, &e)),
            Ok(_) | Err(_) => {
                self.held.insert(key, Hold::Ended(now));
                Err(HoldError::Gone(pid))
            }
        }
    }

    /// Forgets targets that nobody names any more.
    pub fn keep_only(&mut self, keep: impl Fn(TargetId) -> bool) {
        self.held.retain(|(target, _), _| keep(*target));
    }

    /// Closes the descriptors of ended processes, and forgets those that ended long ago.
    pub fn release(&mut self, now: Instant) {
        self.held.retain(|_, hold| match hold {
            Hold::Alive(fd) => {
                if fd.has_exited() {
                    *hold = Hold::Ended(now);
                }
                true
            }
            Hold::Ended(when) => now.duration_since(*when) < REMEMBERED,
        });
    }
}

fn refused(pid: u32, error: &io::Error) -> HoldError {
    let help = match error.raw_os_error() {
        Some(libc::EINVAL | libc::ENOENT) => return HoldError::Thread(pid),
        Some(libc::EMFILE) => "; raise the limit with `ulimit -n`",
        _ => "",
    };
    HoldError::Refused { pid, why: error.to_string(), help }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(target: TargetId, pid: u32) -> LiveTarget {
        LiveTarget { target, pid: Some(pid) }
    }

    #[test]
    fn an_ended_process_stays_ended() {
        let mut holds = Holds::default();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let target = live(0, child.id());
        assert!(holds.get(target).is_ok());
        child.kill().unwrap();
        child.wait().unwrap();
        for _ in 0..2 {
            assert_eq!(holds.get(target).unwrap_err(), HoldError::Gone(child.id()));
        }
        assert!(holds.held.values().all(|hold| matches!(hold, Hold::Ended(_))));
    }

    #[test]
    fn those_that_came_and_went_leave_nothing() {
        let mut holds = Holds::default();
        let (begin, own) = (Instant::now(), std::process::id());
        let mut most = 0;
        for target in 0..2000u32 {
            let mut child = std::process::Command::new("true").spawn().unwrap();
            let now = begin + Duration::from_millis(u64::from(target) * 100);
            holds.get_at(live(target, child.id()), now).ok();
            child.wait().unwrap();
            let alive = holds.held.values().filter(|hold| matches!(hold, Hold::Alive(_))).count();
            most = most.max(alive);
        }
        assert!(most < 3 * MANY, "{most} descriptors of processes of which one lived at a time");
        // Ten a second for a minute are remembered, and some until the next look.
        assert!(holds.held.len() < 1000, "{} entries", holds.held.len());
        assert!(holds.get_at(live(5000, own), begin).is_ok());
    }

    #[test]
    fn only_processes_can_be_held() {
        let mut holds = Holds::default();
        assert_eq!(holds.get(LiveTarget { target: 0, pid: None }).unwrap_err(), HoldError::NoProcess);
        assert_eq!(holds.get(live(1, u32::MAX)).unwrap_err(), HoldError::Gone(u32::MAX));
        assert!(holds.get(live(2, std::process::id())).is_ok());
    }
}
