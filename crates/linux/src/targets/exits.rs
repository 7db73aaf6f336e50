//! Which of many processes have exited, at a price for those that have (`epoll(7)`): to ask each of thousands every
//! second (`poll(2)`) takes a large part of what a monitor may spend.

use crate::proc::PidFd;
use isotherm_core::target::TargetId;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use std::io;
use std::os::fd::OwnedFd;

/// Told at once; more are told by the next call of the kernel.
const AT_ONCE: usize = 256;

/// The processes that are watched for their end.
#[derive(Debug)]
pub(super) struct Exits {
    epoll: OwnedFd,
}

impl Exits {
    /// Of none yet.
    pub fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    /// Watches a process, too, under the id of its target.
    pub fn watch(&self, target: TargetId, pidfd: &PidFd) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, pidfd, epoll::EventData::new_u64(u64::from(target)), epoll::EventFlags::IN)?)
    }

    /// Watches it no more.
    pub fn forget(&self, pidfd: &PidFd) {
        // What was never added is not there.
        let _ = epoll::delete(&self.epoll, pidfd);
    }

    /// Some of those that have exited; a zombie has. They are told again until they are forgotten.
    pub fn some(&self) -> io::Result<Vec<TargetId>> {
        let mut events = Vec::with_capacity(AT_ONCE);
        epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&Timespec::default()))?;
        Ok(events.iter().map(|event| event.data.u64() as TargetId).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};
    use std::time::Duration;

    fn sleeper() -> (Child, PidFd) {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let pidfd = PidFd::open(child.id()).unwrap();
        (child, pidfd)
    }

    #[test]
    fn those_that_have_exited_are_told_until_they_are_forgotten() {
        let exits = Exits::new().unwrap();
        let mut all: Vec<(Child, PidFd)> = (0..3).map(|_| sleeper()).collect();
        for (target, (_, pidfd)) in all.iter().enumerate() {
            exits.watch(7 + target as TargetId, pidfd).unwrap();
        }
        assert_eq!(exits.some().unwrap(), [0; 0]);
        all[1].0.kill().unwrap();
        assert!(all[1].1.wait_exit(Duration::from_secs(10)));
        for _ in 0..2 {
            assert_eq!(exits.some().unwrap(), [8], "a zombie has exited");
        }
        exits.forget(&all[1].1);
        assert_eq!(exits.some().unwrap(), [0; 0]);
        exits.watch(1, &all[1].1).unwrap();
        assert_eq!(exits.some().unwrap(), [1], "it had exited before");
        for (child, _) in &mut all {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
