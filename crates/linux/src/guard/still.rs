//! A process whose threads stand still, by ptrace.
//!
//! Not by SIGSTOP: a job that is stopped by it is sent SIGHUP when its shell ends, its parent learns of it, anybody's
//! SIGCONT ends it, and it lasts for good if whoever sent it is killed. What a process traces, however, goes on when
//! that process ends.

use crate::proc::stat::Stat;
use crate::proc::{PidFd, ProcessDir};
use crate::ptrace::{Stop, Tracee};
use std::collections::BTreeMap;
use std::io;

/// Threads of a process that this thread traces. Only this thread may do anything with them.
#[derive(Debug)]
pub(super) struct Still {
    process: PidFd,
    threads: BTreeMap<i32, Thread>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Thread {
    /// It was asked to stop and will before it runs its program again.
    Asked,
    /// It stands still, and this signal (0: none) is to be delivered to it.
    Stopped(i32),
}

impl Still {
    /// Nothing is stopped before the first [`Self::look`].
    pub fn new(process: PidFd) -> Self {
        Self { process, threads: BTreeMap::new() }
    }

    /// Asks threads to stop that have not been asked; whether all stand still. Fails if the process has ended, or
    /// somebody else traces it.
    pub fn look(&mut self) -> io::Result<bool> {
        self.notice();
        if self.threads.values().any(|thread| *thread == Thread::Asked) {
            return Ok(false);
        }
        // Only threads that run make new ones, so at some time there are none.
        let mut all = true;
        for entry in std::fs::read_dir(ProcessDir::live(self.process.pid()).file("task"))? {
            let Some(tid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            if !self.threads.contains_key(&tid) && self.ask(tid)? {
                all = false;
            }
        }
        Ok(all)
    }

    /// Asks a thread to stop; `false`: it has ended.
    fn ask(&mut self, tid: i32) -> io::Result<bool> {
        let tracee = Tracee(tid);
        if let Err(error) = tracee.seize() {
            // One that has ended but is not yet forgotten may not be traced, either.
            return if self.has_ended(tid) { Ok(false) } else { Err(error) };
        }
        // It may have ended meanwhile, which shows when it is waited for.
        let _ = tracee.interrupt();
        self.threads.insert(tid, Thread::Asked);
        Ok(true)
    }

    fn has_ended(&self, tid: i32) -> bool {
        let path = ProcessDir::live(self.process.pid()).file("task").join(tid.to_string()).join("stat");
        match std::fs::read(path) {
            Ok(stat) => Stat::parse(&stat).is_some_and(|stat| stat.is_zombie()),
            // What cannot be read for another reason may well run.
            Err(e) => matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)),
        }
    }

    /// Sees who has stopped, and who was killed.
    fn notice(&mut self) {
        self.threads.retain(|&tid, thread| match Tracee(tid).stop() {
            Some(Stop::Gone) => false,
            Some(Stop::Signal(signal)) => {
                *thread = Thread::Stopped(signal);
                true
            }
            Some(Stop::Interrupted | Stop::Group | Stop::Syscall) => {
                *thread = Thread::Stopped(0);
                true
            }
            Some(Stop::Timeout) | None => true,
        });
    }

    /// Whether nothing is traced any more: the process has ended.
    pub fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// Lets threads go on that stand still. `Some`: others have yet to stop before they can be.
    pub fn release(mut self) -> Option<Self> {
        self.notice();
        self.threads.retain(|&tid, thread| match *thread {
            Thread::Asked => true,
            Thread::Stopped(signal) => {
                // Fails only if it has just been killed. Then it is forgotten when its end is seen.
                Tracee(tid).detach(signal).is_err()
            }
        });
        (!self.threads.is_empty()).then_some(self)
    }
}
