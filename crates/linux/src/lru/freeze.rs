//! Stopping processes for a while, in a way that they always go on again.

use crate::guard::{Guard, Pause};
use crate::proc::stat::Stat;
use crate::proc::{PidFd, ProcessDir, Signal};
use std::io;
use std::time::Duration;

/// How long a process may take to stop. In the midst of a slow swap-in it cannot.
const PATIENCE: Duration = Duration::from_secs(1);

/// Processes that we have stopped; they go on when this is dropped, and at our end, whatever ends us.
#[derive(Debug)]
pub struct Frozen {
    stopped: Vec<u32>,
    guard: Guard,
}

impl Frozen {
    /// Nobody is stopped yet.
    pub const fn new(guard: Guard) -> Self {
        Self { stopped: Vec::new(), guard }
    }

    /// Stops a process. Fails as [`Guard::pause`] does, and with [`io::ErrorKind::ResourceBusy`] if somebody else has
    /// stopped it.
    pub fn freeze(&mut self, process: &PidFd) -> io::Result<()> {
        if self.stopped.contains(&process.pid()) {
            return Ok(());
        }
        match self.guard.pause(process, PATIENCE)? {
            Pause::Still => self.stopped.push(process.pid()),
            Pause::Before => return Err(io::ErrorKind::ResourceBusy.into()),
        }
        Ok(())
    }

    /// Lets all go on.
    pub fn thaw(&mut self) {
        for pid in self.stopped.drain(..) {
            // Without a guard they have gone on already.
            let _ = self.guard.resume(pid);
        }
    }

    /// The process that keeps them stopped for us.
    pub fn guard_pid(&self) -> u32 {
        self.guard.pid()
    }

    /// Whom we have stopped.
    pub fn pids(&self) -> &[u32] {
        &self.stopped
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.thaw();
    }
}

/// Whether a process is stopped already, by somebody else: then it is not ours to let go.
pub fn is_stopped(pid: u32) -> bool {
    Stat::read(&ProcessDir::live(pid)).is_ok_and(|s| matches!(s.state, 'T' | 't'))
}

/// Ends a process.
pub fn kill(process: &PidFd) -> io::Result<()> {
    process.send_signal(Signal::KILL)
}
