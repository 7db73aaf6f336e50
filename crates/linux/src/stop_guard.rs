//! A small process of our own that lets stopped processes go on if we are killed.
//!
//! Whoever stops a process tells the guard first. It waits for our end and lets go whom we still had stopped. It is
//! started before anybody is stopped, from the program that runs (a new version on disk does not matter), in a session
//! of its own (what is sent to our process group does not reach it) and in the root control group (what kills all of
//! our group does not, either).
//!
//! Limit: a stopped job whose shell ends is sent SIGHUP by the kernel, as after Ctrl-Z.

use crate::cgroup::CgroupSetup;
use crate::proc::stat::Stat;
use crate::proc::{PidFd, ProcessDir, Signal};
use crate::roots::Roots;
use std::collections::BTreeMap;
use std::io::{self, BufRead, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// The argument with which the program runs [`serve`].
pub const COMMAND: &str = "guard";

/// The guard of those whom we stop; it ends when this is dropped.
#[derive(Debug)]
pub struct StopGuard(Child);

impl StopGuard {
    /// Starts this program as a guard: it must run [`serve`] when its only argument is [`COMMAND`].
    pub fn start() -> io::Result<Self> {
        // Not its path: that may be another version by now, or none.
        Self::run(Command::new("/proc/self/exe").arg(COMMAND))
    }

    /// Starts another program as a guard.
    pub fn run(command: &mut Command) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // SAFETY: setsid is one system call; nothing is allocated between fork and exec.
        unsafe { command.pre_exec(|| rustix::process::setsid().map(drop).map_err(io::Error::from)) };
        let mut guard = Self(command.spawn()?);
        // It says when it is ready.
        let mut ready = [0];
        match guard.0.stdout.take().map_or(Ok(0), |mut out| out.read(&mut ready))? {
            0 => Err(io::Error::other("the guard ended at once")),
            _ => Ok(guard),
        }
    }

    /// We are about to stop process `pid`.
    pub fn stops(&mut self, pid: u32) -> io::Result<()> {
        let start = start_of(pid).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
        self.say(format_args!("stop {pid} {start}\n"))
    }

    /// It goes on: whoever stops it from now on has reasons of their own.
    pub fn goes(&mut self, pid: u32) -> io::Result<()> {
        self.say(format_args!("go {pid} 0\n"))
    }

    fn say(&mut self, line: std::fmt::Arguments<'_>) -> io::Result<()> {
        let stdin = self.0.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        // One write: a line that is cut in two by our end would be lost.
        stdin.write_all(line.to_string().as_bytes())
    }
}

impl Drop for StopGuard {
    fn drop(&mut self) {
        // It ends by that.
        self.0.stdin = None;
        let _ = self.0.wait();
    }
}

fn start_of(pid: u32) -> Option<u64> {
    Stat::read(&ProcessDir::live(pid)).ok().map(|s| s.start_ticks)
}

/// The guard's work: reads lines `stop PID START` and `go PID 0` until the end of its input, which comes when whoever
/// wrote them ends, and then lets those processes go on that are still stopped and the same. Says on `output` when it
/// is ready.
pub fn serve(input: impl BufRead, mut output: impl Write, roots: &Roots) -> io::Result<()> {
    // Signals of the terminal and of service managers go to all of a group: the guard must not fall to the first.
    ignore_signals();
    leave_group(roots);
    output.write_all(b"\n")?;
    output.flush()?;
    let mut stopped: BTreeMap<u32, u64> = BTreeMap::new();
    for line in input.lines() {
        let line = line?;
        let mut words = line.split(' ');
        let (Some(word), Some(pid), Some(start)) = (words.next(), words.next(), words.next()) else { continue };
        let (Ok(pid), Ok(start)) = (pid.parse::<u32>(), start.parse::<u64>()) else { continue };
        match word {
            "stop" => stopped.insert(pid, start),
            _ => stopped.remove(&pid),
        };
    }
    for (pid, start) in stopped {
        let Ok(process) = PidFd::open(pid) else { continue };
        if start_of(pid) == Some(start) {
            let _ = process.send_signal(Signal::CONT);
        }
    }
    Ok(())
}

/// Moves this process to the root control group. Where that is refused (no right, a container), it stays.
fn leave_group(roots: &Roots) {
    let setup = CgroupSetup::read(roots);
    for mount in setup.v2.iter().chain(&setup.v1_memory) {
        let _ = std::fs::write(roots.path(mount.join("cgroup.procs")), std::process::id().to_string());
    }
}

fn ignore_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE] {
        // SAFETY: sets the disposition of a signal to ignore; no handler of ours is involved.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lru::freeze::is_stopped;
    use crate::test_process::{Sleeper, wait_for};

    #[test]
    fn a_guard_that_cannot_be_started_is_an_error() {
        assert!(StopGuard::run(&mut Command::new("/no/such/program")).is_err());
        assert!(StopGuard::run(&mut Command::new("true")).is_err(), "it never got ready");
    }

    #[test]
    fn the_guard_lets_go_whom_it_was_told_and_nobody_else() {
        let (left, thawed) = (Sleeper::new(), Sleeper::new());
        let pids = [left.pid(), thawed.pid()];
        for pid in pids {
            PidFd::open(pid).unwrap().send_signal(Signal::STOP).unwrap();
            wait_for("the stop", || is_stopped(pid));
        }
        let start = |pid| start_of(pid).unwrap();
        let told = format!(
            "stop {} {}\nstop {} {}\ngo {} 0\nnonsense\n",
            pids[0],
            start(pids[0]),
            pids[1],
            start(pids[1]),
            pids[1]
        );
        let t = crate::test_tree::tree(&[]);
        serve(told.as_bytes(), &mut Vec::new(), &t.roots).unwrap();
        wait_for("the first to go on", || !is_stopped(pids[0]));
        assert!(is_stopped(pids[1]), "who was let go and then stopped by somebody else stays stopped");
    }
}
