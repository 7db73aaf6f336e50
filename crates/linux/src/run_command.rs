//! A command that is run to its end, with signals that come to us handed on.

use crate::proc::{PidFd, Signal};
use crate::ready::{Interest, wait};
use crate::signals::StopSignals;
use crate::targets::end_family;
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// Runs the command and waits for it. A stop signal that comes meanwhile is handed on: SIGTERM and SIGHUP, and SIGINT
/// unless the terminal has sent it to both of us already, which leaves the answer to the command. A command that still
/// runs `grace` after the first signal that was handed on gets SIGHUP, the one that ends shells in which somebody types;
/// after the same time again it is killed, with all that it has forked. `before_kill` ends what it may wait for: a process
/// that waits for an answer of ours, in a file system that we serve, is not gone before it has that.
pub fn run_command(
    words: &[OsString],
    signals: &StopSignals,
    grace: Duration,
    before_kill: impl FnOnce(),
) -> io::Result<ExitStatus> {
    let [program, args @ ..] = words else { return Err(io::ErrorKind::InvalidInput.into()) };
    let mut child = Command::new(program).args(args).spawn()?;
    let process = match PidFd::open(child.id()) {
        Ok(process) => process,
        Err(e) => {
            // What nobody could end is not to be left running.
            child.kill()?;
            child.wait()?;
            return Err(e);
        }
    };
    let (done, running) = io::pipe()?;
    let waiter = std::thread::spawn(move || {
        let status = child.wait();
        drop(running);
        status
    });
    let ended = (done.as_fd(), Interest::Read);
    let mut next: Option<(Instant, NextStep)> = None;
    loop {
        let left = next.as_ref().map(|(at, _)| at.saturating_duration_since(Instant::now()));
        if wait(&[ended, (signals.as_fd(), Interest::Read)], left)?[0] {
            break;
        }
        if let Some(signal) = signals.take() {
            let reported = signal == libc::SIGINT && hears_the_terminal();
            if let (false, Some(signal)) = (reported, Signal::from_named_raw(signal)) {
                // It may have ended just now.
                let _ = process.send_signal(signal);
                next.get_or_insert((Instant::now() + grace, NextStep::HangUp));
            }
        }
        match next {
            Some((at, NextStep::HangUp)) if Instant::now() >= at => {
                tracing::info!("'{}' (pid {}) still runs; it gets SIGHUP", program.display(), process.pid());
                let _ = process.send_signal(Signal::HUP);
                next = Some((Instant::now() + grace, NextStep::Kill));
            }
            Some((at, NextStep::Kill)) if Instant::now() >= at => {
                tracing::warn!("'{}' (pid {}) still runs; it is killed", program.display(), process.pid());
                before_kill();
                // It has had its time.
                end_family(process, Duration::ZERO);
                break;
            }
            _ => {}
        }
    }
    waiter.join().map_err(|_| io::Error::other("the thread that waits for the command panicked"))?
}

/// Whether Ctrl-C in the terminal comes to us, and so to a command that has stayed in our process group. A shell in which
/// somebody types has not.
fn hears_the_terminal() -> bool {
    // SAFETY: neither takes a pointer. Where standard input is no terminal of ours, the first is -1.
    unsafe { libc::tcgetpgrp(libc::STDIN_FILENO) == libc::getpgrp() }
}

/// What is done to a command that does not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextStep {
    HangUp,
    Kill,
}
