//! Handles on targets, kept from the first time that each is named.

use crate::proc::PidFd;
use isotherm_core::meter::LiveTarget;
use isotherm_core::target::TargetId;
use std::collections::HashMap;
use std::sync::Arc;

/// Entries at which those of ended processes are looked for.
const MANY: usize = 64;

/// A pidfd per target. One that has ended keeps its entry without a descriptor, so that its pid is not mistaken for a
/// target when another process gets it.
#[derive(Debug, Default)]
pub(super) struct Holds {
    held: HashMap<(TargetId, u32), Option<Arc<PidFd>>>,
    look_at: usize,
}

impl Holds {
    /// The target's process; `Err` tells why it cannot be had.
    pub fn get(&mut self, target: LiveTarget) -> Result<Arc<PidFd>, String> {
        let Some(pid) = target.pid else {
            return Err("the target is not a process; actions need one".into());
        };
        let gone = || format!("pid {pid} has exited");
        let key = (target.target, pid);
        if let Some(known) = self.held.get_mut(&key) {
            if known.as_ref().is_some_and(|fd| fd.has_exited()) {
                *known = None;
            }
            return known.clone().ok_or_else(gone);
        }
        if self.held.len() >= self.look_at.max(MANY) {
            self.held.values_mut().filter(|fd| fd.as_ref().is_some_and(|fd| fd.has_exited())).for_each(|fd| *fd = None);
            self.look_at = 2 * self.held.len();
        }
        match PidFd::open(pid) {
            Ok(fd) if fd.has_exited() => {
                self.held.insert(key, None);
                Err(gone())
            }
            Ok(fd) => {
                let fd = Arc::new(fd);
                self.held.insert(key, Some(fd.clone()));
                Ok(fd)
            }
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {
                self.held.insert(key, None);
                Err(gone())
            }
            Err(e) => Err(match e.raw_os_error() {
                Some(libc::EMFILE) => format!("pid {pid}: {e}; raise the limit with `ulimit -n`"),
                Some(libc::EINVAL | libc::ENOENT) => format!("{pid} is a thread, not a process; give its process"),
                _ => format!("pid {pid}: {e}"),
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
            assert_eq!(holds.get(target).unwrap_err(), format!("pid {} has exited", child.id()));
        }
        assert!(holds.held.values().all(Option::is_none));
    }

    #[test]
    fn only_processes_can_be_held() {
        let mut holds = Holds::default();
        assert!(holds.get(LiveTarget { target: 0, pid: None }).unwrap_err().contains("not a process"));
        assert!(holds.get(live(1, u32::MAX)).unwrap_err().contains("has exited"));
        assert!(holds.get(live(2, std::process::id())).is_ok());
    }
}
