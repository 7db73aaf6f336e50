//! A process stopped for a moment.

use super::{Guard, Pause};
use crate::proc::PidFd;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A process that stands still with all its threads; it goes on when this is dropped.
#[derive(Debug)]
pub struct Paused<'a> {
    guard: &'a Mutex<Guard>,
    pid: u32,
    since: Instant,
}

impl<'a> Paused<'a> {
    /// Stops `process` and waits until every thread of it stands still, at most for `patience`. `None`: it was stopped
    /// before, by somebody else, and is left so. Fails as [`Guard::pause`] does.
    pub fn new(guard: &'a Mutex<Guard>, process: &PidFd, patience: Duration) -> io::Result<Option<Self>> {
        let since = Instant::now();
        let pause = guard.lock().unwrap_or_else(PoisonError::into_inner).pause(process, patience)?;
        Ok((pause == Pause::Still).then(|| Self { guard, pid: process.pid(), since }))
    }

    /// How long it has been stopped, from when that was asked for.
    pub fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        // Fails only if the guard has ended, and then the process goes on.
        let _ = self.guard.lock().unwrap_or_else(PoisonError::into_inner).resume(self.pid);
    }
}
