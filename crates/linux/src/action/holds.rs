//! Handles on targets, kept from the first time that each is named.

use crate::proc::PidFd;
use isotherm_core::meter::LiveTarget;
use isotherm_core::target::TargetId;
use std::collections::HashMap;
use std::sync::Arc;

/// Entries at which those of ended processes are looked for.
const MANY: usize = 64;

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

/// A pidfd per target. One that has ended keeps its entry without a descriptor, so that its pid is not mistaken for a
/// target when another process gets it.
#[derive(Debug, Default)]
pub(super) struct Holds {
    held: HashMap<(TargetId, u32), Option<Arc<PidFd>>>,
    look_at: usize,
}

impl Holds {
    /// The target's process.
    pub fn get(&mut self, target: LiveTarget) -> Result<Arc<PidFd>, HoldError> {
        let pid = target.pid.ok_or(HoldError::NoProcess)?;
        let gone = HoldError::Gone(pid);
        let key = (target.target, pid);
        if let Some(known) = self.held.get_mut(&key) {
            if known.as_ref().is_some_and(|fd| fd.has_exited()) {
                *known = None;
            }
            return known.clone().ok_or(gone);
        }
        if self.held.len() >= self.look_at.max(MANY) {
            self.held.values_mut().filter(|fd| fd.as_ref().is_some_and(|fd| fd.has_exited())).for_each(|fd| *fd = None);
            self.look_at = 2 * self.held.len();
        }
        match PidFd::open(pid) {
            Ok(fd) if fd.has_exited() => {
                self.held.insert(key, None);
                Err(gone)
            }
            Ok(fd) => {
                let fd = Arc::new(fd);
                self.held.insert(key, Some(fd.clone()));
                Ok(fd)
            }
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {
                self.held.insert(key, None);
                Err(gone)
            }
            Err(e) => Err(match e.raw_os_error() {
                Some(libc::EINVAL | libc::ENOENT) => HoldError::Thread(pid),
                Some(libc::EMFILE) => {
                    HoldError::Refused { pid, why: e.to_string(), help: "; raise the limit with `ulimit -n`" }
                }
                _ => HoldError::Refused { pid, why: e.to_string(), help: "" },
            }),
        }
    }
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
        assert!(holds.held.values().all(Option::is_none));
    }

    #[test]
    fn only_processes_can_be_held() {
        let mut holds = Holds::default();
        assert_eq!(holds.get(LiveTarget { target: 0, pid: None }).unwrap_err(), HoldError::NoProcess);
        assert_eq!(holds.get(live(1, u32::MAX)).unwrap_err(), HoldError::Gone(u32::MAX));
        assert!(holds.get(live(2, std::process::id())).is_ok());
    }
}
