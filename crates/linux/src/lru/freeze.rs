//! Stopping processes for a while, in a way that they always go on again.
//!
//! SIGSTOP works for any process, in any control group. Whoever stopped them lets them go when its [`Frozen`] is
//! dropped, which SIGINT, SIGTERM and errors lead to. Against SIGKILL there is a guard: a small process of our own that
//! waits for our end and lets go whom we still had stopped. It is started before anybody is stopped, from the program
//! that runs (a new version on disk does not matter), in a session of its own (what is sent to our process group does
//! not reach it) and in the root control group (what kills all of our group does not, either).
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
use std::sync::Arc;

/// Processes that we have stopped.
#[derive(Debug)]
pub struct Frozen {
    stopped: Vec<Arc<PidFd>>,
    guard: Child,
}

impl Frozen {
    /// Nobody is stopped yet. `guard`: arguments with which this program runs [`guard`].
    pub fn new(guard: &[&str]) -> io::Result<Self> {
        // Not its path: that may be another version by now, or none.
        Self::guarded_by(Command::new("/proc/self/exe").args(guard))
    }

    fn guarded_by(command: &mut Command) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // SAFETY: setsid is one system call; nothing is allocated between fork and exec.
        unsafe { command.pre_exec(|| rustix::process::setsid().map(drop).map_err(io::Error::from)) };
        let mut guard = command.spawn()?;
        // It says when it is ready.
        let mut ready = [0];
        let said = guard.stdout.take().map_or(Ok(0), |mut out| out.read(&mut ready));
        let frozen = Self { stopped: Vec::new(), guard };
        if said? == 0 {
            return Err(io::Error::other("the guard ended at once"));
        }
        Ok(frozen)
    }

    /// Stops a process; the guard knows first.
    pub fn freeze(&mut self, process: &Arc<PidFd>) -> io::Result<()> {
        if self.stopped.iter().any(|p| p.pid() == process.pid()) {
            return Ok(());
        }
        let start = start_of(process.pid()).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
        let stdin = self.guard.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(stdin, "stop {} {start}", process.pid())?;
        stdin.flush()?;
        process.send_signal(Signal::STOP)?;
        self.stopped.push(process.clone());
        Ok(())
    }

    /// Lets all go on.
    pub fn thaw(&mut self) {
        for process in self.stopped.drain(..) {
            // One that has ended needs nothing.
            let _ = process.send_signal(Signal::CONT);
            // Whoever stops it from now on has reasons of their own.
            if let Some(stdin) = &mut self.guard.stdin {
                let _ = writeln!(stdin, "go {} 0", process.pid());
            }
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
        // It ends by that.
        self.guard.stdin = None;
        let _ = self.guard.wait();
    }
}

/// Whether a process is stopped already, by somebody else: then it is not ours to let go.
pub fn is_stopped(pid: u32) -> bool {
    Stat::read(&ProcessDir::live(pid)).is_ok_and(|s| matches!(s.state, 'T' | 't'))
}

fn start_of(pid: u32) -> Option<u64> {
    Stat::read(&ProcessDir::live(pid)).ok().map(|s| s.start_ticks)
}

/// The guard's work: reads lines `stop PID START` and `go PID 0` until the end of its input, which comes when whoever
/// wrote them ends, and then lets those processes go on that are still stopped and the same. Says on `output` when it
/// is ready.
pub fn guard(input: impl BufRead, mut output: impl Write, roots: &Roots) -> io::Result<()> {
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
        let mut frozen = Frozen::guarded_by(Command::new("sh").args(["-c", "echo; cat"])).unwrap();
        frozen.freeze(&process).unwrap();
        frozen.freeze(&process).unwrap();
        assert_eq!(frozen.pids(), [pid]);
        wait_for("the stop", || is_stopped(pid));
        drop(frozen);
        wait_for("the thaw", || !is_stopped(pid));
    }

    #[test]
    fn a_guard_that_cannot_be_started_is_an_error() {
        assert!(Frozen::guarded_by(&mut Command::new("/no/such/program")).is_err());
        assert!(Frozen::guarded_by(&mut Command::new("true")).is_err(), "it never got ready");
    }

    #[test]
    fn the_guard_lets_go_whom_it_was_told_and_nobody_else() {
        let (left, thawed) = (Sleeper::new(), Sleeper::new());
        let pids = [left.0.id(), thawed.0.id()];
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
        guard(told.as_bytes(), &mut Vec::new(), &t.roots).unwrap();
        wait_for("the first to go on", || !is_stopped(pids[0]));
        assert!(is_stopped(pids[1]), "who was let go and then stopped by somebody else stays stopped");
    }
}
