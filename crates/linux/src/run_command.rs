//! A command that is run to its end, with signals that come to us handed on.

use crate::ready::{Interest, wait};
use crate::signals::StopSignals;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::process::{Command, ExitStatus};

/// Runs the command and waits for it. A stop signal that comes meanwhile is the command's to answer: SIGTERM and SIGHUP
/// are handed on, and SIGINT unless the terminal has sent it to both of us already.
pub fn run_command(words: &[OsString], signals: &StopSignals) -> io::Result<ExitStatus> {
    let [program, args @ ..] = words else { return Err(io::ErrorKind::InvalidInput.into()) };
    let mut child = Command::new(program).args(args).spawn()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let (done, running) = io::pipe()?;
    let waiter = std::thread::spawn(move || {
        let status = child.wait();
        drop(running);
        status
    });
    let ended = (done.as_fd(), Interest::Read);
    while !wait(&[ended, (signals.as_fd(), Interest::Read)], None)?[0] {
        let Some(signal) = signals.received() else { continue };
        let reported = signal == libc::SIGINT && io::stdin().is_terminal();
        if let (false, Some(pid), Some(signal)) = (reported, pid, Signal::from_named_raw(signal)) {
            // It may have ended, and is not collected before the waiter has said so.
            let _ = kill_process(pid, signal);
        }
        // The signals' file stays readable.
        while !wait(&[ended], None)?[0] {}
        break;
    }
    waiter.join().map_err(|_| io::Error::other("the thread that waits for the command panicked"))?
}
