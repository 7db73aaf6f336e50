//! A process stopped for a moment, with all its threads.

use crate::proc::{PidFd, ProcessDir, Signal};
use std::io;
use std::time::{Duration, Instant};

/// How often to look whether all threads have stopped.
const LOOK_EVERY: Duration = Duration::from_micros(100);

/// A process that stands still; it goes on when this is dropped.
#[derive(Debug)]
pub struct Paused<'a> {
    process: &'a PidFd,
    since: Instant,
}

impl<'a> Paused<'a> {
    /// Stops `process` and waits until every thread of it stands still, at most `patience`. `None`: it was stopped
    /// before, by somebody else, and is left so.
    pub fn stop(process: &'a PidFd, patience: Duration) -> io::Result<Option<Self>> {
        if states(process.pid())?.contains(&'T') {
            return Ok(None);
        }
        let since = Instant::now();
        process.send_signal(Signal::STOP)?;
        // From here on every way out lets it go on.
        let paused = Self { process, since };
        loop {
            // A thread deep in the kernel still writes to memory there; it counts as running until it has come to the
            // signal.
            if states(process.pid())?.iter().all(|state| matches!(state, 'T' | 't' | 'Z' | 'X')) {
                return Ok(Some(paused));
            }
            if since.elapsed() >= patience {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// How long it has been stopped, from the signal on.
    pub fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        // Fails only if the process is gone.
        let _ = self.process.send_signal(Signal::CONT);
    }
}

/// The state letters of all threads.
fn states(pid: u32) -> io::Result<Vec<char>> {
    let dir = ProcessDir::live(pid).file("task");
    let mut states = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        // A thread that has ended does nothing any more.
        let Ok(stat) = std::fs::read_to_string(entry?.path().join("stat")) else { continue };
        states.extend(stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()));
    }
    Ok(states)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn it_stands_still_and_goes_on() {
        let mut child = Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().unwrap();
        let pidfd = PidFd::open(child.id()).unwrap();
        let paused = Paused::stop(&pidfd, Duration::from_secs(60)).unwrap().unwrap();
        assert_eq!(states(child.id()).unwrap(), ['T']);
        assert!(Paused::stop(&pidfd, Duration::from_secs(60)).unwrap().is_none(), "somebody else's stop is left alone");
        assert_eq!(states(child.id()).unwrap(), ['T']);
        drop(paused);
        let begin = Instant::now();
        while states(child.id()).unwrap() == ['T'] {
            assert!(begin.elapsed() < Duration::from_secs(60));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(Paused::stop(&pidfd, Duration::from_secs(1)).is_err());
    }
}
