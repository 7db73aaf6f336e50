//! A small process of our own that does to others what must be undone if we are killed: it stops processes, and knows
//! which of the kernel's settings we have changed.
//!
//! It stops them by [ptrace](still): whatever ends it lets them go on, so nobody stays stopped even where it is killed
//! together with us. Whoever changes a [setting](crate::knob) tells it first; it writes back what was there. It is
//! started before anything is done, from the program that runs (a new version on disk does not matter), in a session
//! of its own (what is sent to our process group does not reach it) and, if it is for settings, in the root control
//! group (what kills all of our group does not, either), unless that may not be entered.

mod changes;
mod paused;
mod serve;
mod still;

pub use paused::Paused;
pub use serve::serve;

use crate::cgroup::CgroupSetup;
use crate::proc::stat::Stat;
use crate::proc::{PidFd, ProcessDir};
use crate::roots::Roots;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

/// The argument with which the program runs [`detach`] and [`serve()`].
pub const COMMAND: &str = "guard";

/// What a guard is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To stop processes.
    Processes,
    /// To put settings back.
    Settings,
}

impl Purpose {
    /// The word for it, which is the argument after [`COMMAND`].
    pub const fn word(self) -> &'static str {
        match self {
            Self::Processes => "processes",
            Self::Settings => "settings",
        }
    }
}

impl FromStr for Purpose {
    type Err = UnknownPurpose;

    fn from_str(word: &str) -> Result<Self, UnknownPurpose> {
        [Self::Processes, Self::Settings].into_iter().find(|p| p.word() == word).ok_or(UnknownPurpose)
    }
}

/// No guard has this purpose.
#[derive(Debug, thiserror::Error)]
#[error("a guard is for 'processes' or for 'settings'")]
pub struct UnknownPurpose;

/// How stopping a process went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// All its threads stand still.
    Still,
    /// Somebody else had stopped it before. It is left so.
    Before,
}

/// The guard of what we do to others; it ends when this is dropped.
#[derive(Debug)]
pub struct Guard {
    process: Child,
    answers: BufReader<ChildStdout>,
}

impl Guard {
    /// Starts this program as a guard: it must run [`detach`] and [`serve()`] when its arguments are [`COMMAND`] and the
    /// purpose's word. Before it is [confined](crate::confine), after which nothing is executed any more.
    pub fn start(purpose: Purpose) -> io::Result<Self> {
        // Not its path: that may be another version by now, or none.
        Self::run(Command::new("/proc/self/exe").args([COMMAND, purpose.word()]))
    }

    /// Starts another program as a guard.
    pub fn run(command: &mut Command) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // SAFETY: setsid is one system call; nothing is allocated between fork and exec.
        unsafe { command.pre_exec(|| rustix::process::setsid().map(drop).map_err(io::Error::from)) };
        let mut process = command.spawn()?;
        let answers = process.stdout.take().map(BufReader::new).ok_or(io::ErrorKind::BrokenPipe)?;
        let mut guard = Self { process, answers };
        // It says when it is ready.
        guard.answer().map(|_| guard)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Stops all threads of a process and waits until they stand still, at most for `patience`.
    ///
    /// Fails with [`io::ErrorKind::TimedOut`] if they did not all stop by then (they go on), with
    /// [`io::ErrorKind::PermissionDenied`] if somebody else traces it.
    pub fn pause(&mut self, process: &PidFd, patience: Duration) -> io::Result<Pause> {
        let pid = process.pid();
        let start = start_of(pid).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
        self.say(format_args!("pause {pid} {start} {}\n", patience.as_micros()))?;
        match self.answer()?.split_once(' ').unwrap_or_default() {
            ("still", _) => Ok(Pause::Still),
            ("before", _) => Ok(Pause::Before),
            ("late", _) => Err(io::ErrorKind::TimedOut.into()),
            (_, number) => Err(io::Error::from_raw_os_error(number.parse().unwrap_or(libc::EIO))),
        }
    }

    /// Lets it go on.
    pub fn resume(&mut self, pid: u32) -> io::Result<()> {
        self.say(format_args!("resume {pid}\n"))
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
        self.say(format_args!("leave {}\n", path.display()))
    }

    fn say(&mut self, line: std::fmt::Arguments<'_>) -> io::Result<()> {
        let stdin = self.process.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        // One write: a line that is cut in two by our end would be lost.
        stdin.write_all(line.to_string().as_bytes())
    }

    fn answer(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.answers.read_line(&mut line)? {
            0 => Err(io::Error::other("the guard has ended")),
            _ => Ok(line.trim_end_matches('\n').to_owned()),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // It ends by that.
        self.process.stdin = None;
        let _ = self.process.wait();
    }
}

fn start_of(pid: u32) -> Option<u64> {
    Stat::read(&ProcessDir::live(pid)).ok().map(|s| s.start_ticks)
}

/// What the guard does first: it leaves the groups of processes that end together with us. The error says why it stays in
/// our control group.
pub fn detach(purpose: Purpose, roots: &Roots) -> io::Result<()> {
    // Signals of the terminal and of service managers go to all of a group: the guard must not fall to the first.
    ignore_signals();
    match purpose {
        Purpose::Settings => leave_group(roots),
        Purpose::Processes => Ok(()),
    }
}

/// Moves this process to the root control group. Where that is refused (no right, a container), it stays.
fn leave_group(roots: &Roots) -> io::Result<()> {
    let setup = CgroupSetup::read(roots);
    let mut left = Ok(());
    for mount in setup.v2.iter().chain(&setup.v1_memory) {
        let entered = std::fs::write(roots.path(mount.join("cgroup.procs")), std::process::id().to_string());
        left = left.and(entered);
    }
    left
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
    use crate::test_tree::tree;

    #[test]
    fn a_control_group_that_cannot_be_left_is_told() {
        let mount = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
        let t = tree(&[("proc/self/mountinfo", mount), ("sys/fs/cgroup/cgroup.procs", "")]);
        leave_group(&t.roots).unwrap();
        let entered = t.roots.read("/sys/fs/cgroup/cgroup.procs").unwrap();
        assert_eq!(entered, std::process::id().to_string());
        // A folder in its place can be written to by nobody, root included.
        let t = tree(&[("proc/self/mountinfo", mount), ("sys/fs/cgroup/cgroup.procs/x", "")]);
        leave_group(&t.roots).unwrap_err();
    }

    #[test]
    fn a_guard_that_cannot_be_started_is_an_error() {
        assert!(Guard::run(&mut Command::new("/no/such/program")).is_err());
        assert!(Guard::run(&mut Command::new("true")).is_err(), "it never got ready");
    }
}
