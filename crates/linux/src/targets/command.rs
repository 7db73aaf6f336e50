//! A command that Isotherm starts, watches and ends.

use super::ending::end_family;
use super::error::TargetError;
use crate::proc::PidFd;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How a command came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandEnd {
    pub status: ExitStatus,
    /// Whether it was still running and we ended it.
    pub terminated: bool,
}

/// What a command reads and writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Streams {
    /// Our standard input, output and error.
    #[default]
    Ours,
    /// The same, but for its output, which goes to our standard error: ours is for something else.
    Aside,
    /// Nothing to read, and its output is thrown away: the terminal is used otherwise.
    Silent,
}

/// A command that has been forked but waits at a gate before it executes, so that recording can begin with its first
/// instructions. Clones stand for the same command.
///
/// Dropping the last clone ends the command and collects it: nothing that we started is left behind.
#[derive(Debug, Clone)]
pub struct Command {
    inner: Arc<Mutex<Inner>>,
    pid: u32,
}

#[derive(Debug)]
struct Inner {
    program: String,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Forked; the thread's `spawn` returns once the gate is opened and exec has succeeded or failed.
    Waiting {
        gate: PipeWriter,
        spawner: JoinHandle<io::Result<Child>>,
    },
    Running(Child),
    Ended(CommandEnd),
    /// It could not be executed.
    Failed,
}

impl Command {
    /// Forks a process that will execute `words` with our standard input, output and error. Fails if there is no such
    /// program, before anything is forked.
    pub fn prepare(words: &[OsString]) -> Result<Self, TargetError> {
        Self::prepare_with(words, Streams::Ours)
    }

    /// Like [`prepare`](Self::prepare), with other streams.
    pub fn prepare_with(words: &[OsString], streams: Streams) -> Result<Self, TargetError> {
        let Some((program, args)) = words.split_first() else { return Err(TargetError::Nothing) };
        let shown = program.to_string_lossy().into_owned();
        let failed = |source: io::Error| TargetError::CannotRun { program: shown.clone(), source };
        check_executable(program, std::env::var_os("PATH").as_deref())?;
        let (gate_reader, gate) = io::pipe().map_err(failed)?;
        let (mut pid_reader, pid_writer) = io::pipe().map_err(failed)?;
        let mut command = std::process::Command::new(program);
        command.args(args);
        match streams {
            Streams::Ours => {}
            Streams::Aside => {
                command.stdout(io::stderr().as_fd().try_clone_to_owned().map_err(failed)?);
            }
            Streams::Silent => {
                command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            }
        }
        let gate_fd = gate.as_raw_fd();
        let (mut gate_in_child, mut pid_in_child) = (gate_reader, pid_writer);
        let wait_at_gate = move || {
            // The child must not hold the gate open itself, or it would wait forever should we die.
            // SAFETY: the descriptor is open in the child (it was when we forked) and nothing in the child uses it.
            unsafe { libc::close(gate_fd) };
            pid_in_child.write_all(&std::process::id().to_ne_bytes())?;
            let mut go = [0];
            // An end without a byte: the command is not wanted any more.
            gate_in_child.read_exact(&mut go)
        };
        // SAFETY: between fork and exec the closure only closes, writes and reads descriptors that it owns, all of them
        // async-signal-safe calls; it allocates nothing (io::Error from an errno or a constant does not).
        unsafe { command.pre_exec(wait_at_gate) };
        // `spawn` returns only after exec, so it waits at the gate in a thread of its own.
        let spawner = std::thread::Builder::new()
            .name("isotherm-spawn".to_owned())
            .spawn(move || command.spawn())
            .map_err(failed)?;
        let mut pid = [0; 4];
        if let Err(e) = pid_reader.read_exact(&mut pid) {
            let error = join(spawner).err().unwrap_or(e);
            return Err(failed(error));
        }
        let state = State::Waiting { gate, spawner };
        let inner = Inner { program: shown.clone(), state };
        Ok(Self { inner: Arc::new(Mutex::new(inner)), pid: u32::from_ne_bytes(pid) })
    }

    /// Its process id; known before it starts.
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Opens the gate. Returns once the program has been executed; at once if it has been before.
    pub fn start(&self) -> Result<(), TargetError> {
        let mut inner = self.lock();
        match std::mem::replace(&mut inner.state, State::Failed) {
            State::Waiting { mut gate, spawner } => {
                let opened = gate.write_all(&[1]);
                match join(spawner).and_then(|child| opened.map(|()| child)) {
                    Ok(child) => inner.state = State::Running(child),
                    Err(source) => return Err(TargetError::CannotRun { program: inner.program.clone(), source }),
                }
            }
            other => inner.state = other,
        }
        Ok(())
    }

    /// Whether it has been executed and has not been collected.
    pub fn is_running(&self) -> bool {
        matches!(self.lock().state, State::Running(_))
    }

    /// How it ended, if it has ended by itself or by [`finish`](Self::finish).
    pub fn try_end(&self) -> io::Result<Option<CommandEnd>> {
        let mut inner = self.lock();
        if let State::Running(child) = &mut inner.state
            && let Some(status) = child.try_wait()?
        {
            inner.state = State::Ended(CommandEnd { status, terminated: false });
        }
        Ok(match inner.state {
            State::Ended(end) => Some(end),
            _ => None,
        })
    }

    /// Ends it, if it still runs: SIGTERM to it and to the processes that it forked, after `grace` SIGKILL. Collects it
    /// and tells how it ended; `None` if it has never been executed.
    pub fn finish(&self, grace: Duration) -> io::Result<Option<CommandEnd>> {
        self.lock().finish(grace)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic elsewhere must not keep us from ending the command.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn finish(&mut self, grace: Duration) -> io::Result<Option<CommandEnd>> {
        match std::mem::replace(&mut self.state, State::Failed) {
            State::Waiting { gate, spawner } => {
                // Closing the gate unopened makes the child leave, and `spawn` collects it.
                drop(gate);
                drop(join(spawner));
                Ok(None)
            }
            State::Running(mut child) => {
                let end = match child.try_wait()? {
                    Some(status) => CommandEnd { status, terminated: false },
                    None => CommandEnd { status: terminate(&mut child, grace)?, terminated: true },
                };
                self.state = State::Ended(end);
                Ok(Some(end))
            }
            State::Ended(end) => {
                self.state = State::Ended(end);
                Ok(Some(end))
            }
            State::Failed => Ok(None),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Nobody is left to tell about a failure.
        let _ = self.finish(Duration::from_secs(1));
    }
}

fn join(spawner: JoinHandle<io::Result<Child>>) -> io::Result<Child> {
    spawner.join().unwrap_or_else(|_| Err(io::Error::other("the thread that starts it panicked")))
}

fn terminate(child: &mut Child, grace: Duration) -> io::Result<ExitStatus> {
    // We have not collected it, so its pid is still its own.
    end_family(PidFd::open(child.id())?, grace);
    child.wait()
}

/// Refuses a program that exec would not find or not be allowed to run, with the search rules of execvp.
fn check_executable(program: &OsStr, path: Option<&OsStr>) -> Result<(), TargetError> {
    let shown = || program.to_string_lossy().into_owned();
    let candidates: Vec<PathBuf> = if program.as_bytes().contains(&b'/') {
        vec![PathBuf::from(program)]
    } else {
        let path = path.unwrap_or(OsStr::new("/bin:/usr/bin"));
        std::env::split_paths(path).map(|dir| dir.join(program)).collect()
    };
    let mut denied = false;
    for file in candidates.iter().filter(|_| !program.is_empty()) {
        match executable(file) {
            Some(true) => return check_interpreter(&shown(), file),
            Some(false) => denied = true,
            None => {}
        }
    }
    if denied {
        let source = io::Error::from_raw_os_error(libc::EACCES);
        return Err(TargetError::CannotRun { program: shown(), source });
    }
    Err(TargetError::NoSuchProgram { program: shown() })
}

/// Whether a file can be executed by somebody; `None` if there is no such file.
fn executable(file: &Path) -> Option<bool> {
    let meta = std::fs::metadata(file).ok()?;
    Some(meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Refuses a script whose interpreter (`#!` line) is missing: exec would only say that there is no such file.
fn check_interpreter(program: &str, file: &Path) -> Result<(), TargetError> {
    // The kernel looks at no more than this.
    let mut head = Vec::with_capacity(256);
    // A program may be executable without being readable; then exec has the last word.
    if File::open(file).and_then(|f| f.take(256).read_to_end(&mut head)).is_err() {
        return Ok(());
    }
    let line = head.split(|&b| b == b'\n').next().unwrap_or_default();
    let Some(words) = line.strip_prefix(b"#!") else { return Ok(()) };
    let interpreter = words.trim_ascii().split(|b| b.is_ascii_whitespace()).next().unwrap_or_default();
    let path = PathBuf::from(OsStr::from_bytes(interpreter));
    if executable(&path) == Some(true) {
        return Ok(());
    }
    let text = format!("its interpreter '{}' does not exist or cannot be executed", path.display());
    Err(TargetError::CannotRun { program: program.to_owned(), source: io::Error::new(io::ErrorKind::NotFound, text) })
}
