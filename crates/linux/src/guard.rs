//! A small process of our own that puts things right if we are killed: it lets stopped processes go on, and puts the
//! kernel's settings back.
//!
//! Whoever stops a process or changes a [setting](crate::knob) tells the guard first. It waits for our end, lets go whom
//! we still had stopped, and writes what was there. It is started before anything is done, from the program that runs (a new version on disk does not matter), in a session
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
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The argument with which the program runs [`detach`] and [`serve`].
pub const COMMAND: &str = "guard";

/// The guard of what we do to others; it ends when this is dropped.
#[derive(Debug)]
pub struct Guard(Child);

impl Guard {
    /// Starts this program as a guard: it must run [`detach`] and [`serve`] when its only argument is [`COMMAND`].
    /// Before it is [confined](crate::confine), after which nothing is executed any more.
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

    /// We are about to change the setting in the file `path`, which holds the word `before`.
    pub(crate) fn changes(&mut self, path: &Path, before: &str) -> io::Result<()> {
        let is_word = |text: &str| !text.is_empty() && !text.contains(|c: char| c.is_whitespace());
        match path.to_str().filter(|path| is_word(path) && is_word(before)) {
            Some(path) => self.say(format_args!("change {path} {before}\n")),
            None => Err(io::Error::new(io::ErrorKind::InvalidInput, "a setting that is not one word")),
        }
    }

    /// It is as it was: whoever changes it from now on has reasons of their own.
    pub(crate) fn leaves(&mut self, path: &Path) -> io::Result<()> {
        self.say(format_args!("leave {} 0\n", path.display()))
    }

    fn say(&mut self, line: std::fmt::Arguments<'_>) -> io::Result<()> {
        let stdin = self.0.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        // One write: a line that is cut in two by our end would be lost.
        stdin.write_all(line.to_string().as_bytes())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // It ends by that.
        self.0.stdin = None;
        let _ = self.0.wait();
    }
}

fn start_of(pid: u32) -> Option<u64> {
    Stat::read(&ProcessDir::live(pid)).ok().map(|s| s.start_ticks)
}

/// What the guard does first: it leaves the groups of processes that end together with us.
pub fn detach(roots: &Roots) {
    // Signals of the terminal and of service managers go to all of a group: the guard must not fall to the first.
    ignore_signals();
    leave_group(roots);
}

/// The guard's work: reads lines `stop PID START`, `go PID 0`, `change FILE WORD` and `leave FILE 0` until the end of its
/// input, which comes when whoever wrote them ends. Then it writes back what files held, and lets those processes go
/// on that are still stopped and the same. Says on `output` when it is ready.
pub fn serve(input: impl BufRead, mut output: impl Write) -> io::Result<()> {
    output.write_all(b"\n")?;
    output.flush()?;
    let mut stopped: BTreeMap<u32, u64> = BTreeMap::new();
    let mut changed: BTreeMap<String, String> = BTreeMap::new();
    for line in input.lines() {
        let line = line?;
        let mut words = line.split(' ');
        let (Some(word), Some(what), Some(how)) = (words.next(), words.next(), words.next()) else { continue };
        match (word, what.parse::<u32>(), how.parse::<u64>()) {
            ("stop", Ok(pid), Ok(start)) => drop(stopped.insert(pid, start)),
            ("go", Ok(pid), _) => drop(stopped.remove(&pid)),
            // The first is what was there before us.
            ("change", ..) => drop(changed.entry(what.to_owned()).or_insert_with(|| how.to_owned())),
            ("leave", ..) => drop(changed.remove(what)),
            _ => {}
        }
    }
    for (path, before) in changed {
        let _ = std::fs::write(path, before);
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
        assert!(Guard::run(&mut Command::new("/no/such/program")).is_err());
        assert!(Guard::run(&mut Command::new("true")).is_err(), "it never got ready");
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
        serve(told.as_bytes(), &mut Vec::new()).unwrap();
        wait_for("the first to go on", || !is_stopped(pids[0]));
        assert!(is_stopped(pids[1]), "who was let go and then stopped by somebody else stays stopped");
    }
}
