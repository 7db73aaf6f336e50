//! Stopping processes for a while, in a way that they always go on again.
//!
//! SIGSTOP works for any process, in any control group. Whoever stopped them lets them go when its [`Frozen`] is
//! dropped, which SIGINT, SIGTERM and errors lead to. Against SIGKILL there is a guard: a small process of our own that
//! waits for our end and lets go whom we still had stopped.

use crate::proc::stat::Stat;
use crate::proc::{PidFd, ProcRoot, Signal};
use std::io::{self, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;

/// Processes that we have stopped.
#[derive(Debug, Default)]
pub struct Frozen {
    stopped: Vec<Arc<PidFd>>,
    guard: Option<(Child, ChildStdin)>,
}

impl Frozen {
    /// Nobody is stopped yet. `guard` is the command that runs [`guard`]; it is started at the first freeze.
    pub fn freeze(&mut self, process: &Arc<PidFd>, guard: &mut Command) -> io::Result<()> {
        if self.stopped.iter().any(|p| p.pid() == process.pid()) {
            return Ok(());
        }
        let start = start_of(process.pid()).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
        if self.guard.is_none() {
            let mut child = guard.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
            let Some(stdin) = child.stdin.take() else {
                return Err(io::Error::other("the guard has no standard input"));
            };
            self.guard = Some((child, stdin));
        }
        // It must know first.
        if let Some((_, stdin)) = &mut self.guard {
            writeln!(stdin, "{} {start}", process.pid())?;
            stdin.flush()?;
        }
        process.send_signal(Signal::STOP)?;
        self.stopped.push(process.clone());
        Ok(())
    }

    /// Lets all go on.
    pub fn thaw(&mut self) {
        for process in self.stopped.drain(..) {
            // One that has ended needs nothing.
            let _ = process.send_signal(Signal::CONT);
        }
        if let Some((mut child, stdin)) = self.guard.take() {
            drop(stdin);
            let _ = child.wait();
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
    Stat::read(&ProcRoot::default().process(pid)).is_ok_and(|s| matches!(s.state, 'T' | 't'))
}

fn start_of(pid: u32) -> Option<u64> {
    Stat::read(&ProcRoot::default().process(pid)).ok().map(|s| s.start_ticks)
}

/// The guard's work: reads lines `PID START` until the end of its input, which comes when whoever wrote them ends, and
/// then lets those processes go on, if they are still the same.
pub fn guard(mut input: impl Read) -> io::Result<()> {
    let mut text = String::new();
    // Signals of the terminal and of service managers go to all of a group: the guard must not fall to the first.
    ignore_signals();
    input.read_to_string(&mut text)?;
    for line in text.lines() {
        let mut words = line.split(' ');
        let (Some(pid), Some(start)) = (words.next(), words.next()) else { continue };
        let (Ok(pid), Ok(start)) = (pid.parse::<u32>(), start.parse::<u64>()) else { continue };
        let Ok(process) = PidFd::open(pid) else { continue };
        if start_of(pid) == Some(start) {
            let _ = process.send_signal(Signal::CONT);
        }
    }
    Ok(())
}

fn ignore_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE] {
        // SAFETY: sets the disposition of a signal to ignore; no handler of ours is involved.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

pub fn kill(process: &PidFd) -> io::Result<()> {
    process.send_signal(Signal::KILL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !condition() {
            assert!(Instant::now() < deadline, "waited in vain for {what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    struct Sleeper(Child);

    impl Sleeper {
        fn new() -> Self {
            Self(Command::new("sleep").arg("600").spawn().unwrap())
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn who_was_stopped_goes_on_again() {
        let sleeper = Sleeper::new();
        let pid = sleeper.0.id();
        let process = Arc::new(PidFd::open(pid).unwrap());
        let mut frozen = Frozen::default();
        frozen.freeze(&process, &mut Command::new("cat")).unwrap();
        frozen.freeze(&process, &mut Command::new("cat")).unwrap();
        assert_eq!(frozen.pids(), [pid]);
        wait_for("the stop", || is_stopped(pid));
        drop(frozen);
        wait_for("the thaw", || !is_stopped(pid));
    }

    #[test]
    fn a_guard_that_cannot_be_started_stops_nobody() {
        let sleeper = Sleeper::new();
        let process = Arc::new(PidFd::open(sleeper.0.id()).unwrap());
        let mut frozen = Frozen::default();
        assert!(frozen.freeze(&process, &mut Command::new("/no/such/program")).is_err());
        assert!(!is_stopped(sleeper.0.id()) && frozen.pids().is_empty());
    }
}
