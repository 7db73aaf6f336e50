//! Stopping processes for a while, in a way that they always go on again.
//!
//! SIGSTOP works for any process, in any control group. Whoever stopped them lets them go when its [`Frozen`] is
//! dropped, which SIGINT, SIGTERM and errors lead to. Against SIGKILL there is the [guard](crate::guard).

use crate::guard::Guard;
use crate::proc::stat::Stat;
use crate::proc::{PidFd, ProcessDir, Signal};
use std::io;
use std::sync::Arc;

/// Processes that we have stopped.
#[derive(Debug)]
pub struct Frozen {
    stopped: Vec<Arc<PidFd>>,
    guard: Guard,
}

impl Frozen {
    /// Nobody is stopped yet.
    pub const fn new(guard: Guard) -> Self {
        Self { stopped: Vec::new(), guard }
    }

    /// Stops a process; the guard knows first.
    pub fn freeze(&mut self, process: &Arc<PidFd>) -> io::Result<()> {
        if self.stopped.iter().any(|p| p.pid() == process.pid()) {
            return Ok(());
        }
        self.guard.stops(process.pid())?;
        process.send_signal(Signal::STOP)?;
        self.stopped.push(process.clone());
        Ok(())
    }

    /// Lets all go on.
    pub fn thaw(&mut self) {
        for process in self.stopped.drain(..) {
            // One that has ended needs nothing, and without a guard there is nobody to know.
            let _ = process.send_signal(Signal::CONT);
            let _ = self.guard.goes(process.pid());
        }
    }

    /// Whom we have stopped.
    pub fn pids(&self) -> Vec<u32> {
        self.stopped.iter().map(|p| p.pid()).collect()
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

pub fn kill(process: &PidFd) -> io::Result<()> {
    process.send_signal(Signal::KILL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_process::{Sleeper, wait_for};
    use std::process::Command;

    #[test]
    fn who_was_stopped_goes_on_again() {
        let sleeper = Sleeper::new();
        let pid = sleeper.pid();
        let process = Arc::new(PidFd::open(pid).unwrap());
        let mut frozen = Frozen::new(Guard::run(Command::new("sh").args(["-c", "echo; cat"])).unwrap());
        frozen.freeze(&process).unwrap();
        frozen.freeze(&process).unwrap();
        assert_eq!(frozen.pids(), [pid]);
        wait_for("the stop", || is_stopped(pid));
        drop(frozen);
        wait_for("the thaw", || !is_stopped(pid));
    }
}
