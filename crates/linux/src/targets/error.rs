//! Why targets cannot be watched.

use crate::proc::ProcessError;
use std::io;
use std::path::PathBuf;

/// Why targets cannot be watched; the text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// Neither pid, control group nor command.
    #[error("no target: give --pid N, --name NAME, --cgroup PATH, --all or -- COMMAND")]
    Nothing,
    /// One of the processes cannot be watched.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// No control group has this path.
    #[error("no control group '{}': looked for {}; `cat /proc/PID/cgroup` shows where a process is", path.display(), list(tried))]
    NoCgroup {
        path: PathBuf,
        /// Folders that were looked for.
        tried: Vec<PathBuf>,
    },
    /// No process has this name.
    #[error("no process is named '{name}'; `ps -e` shows names")]
    NoSuchName { name: String },
    /// A file that lists processes cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// The kernel does not tell when processes end.
    #[error(
        "cannot watch for the end of processes (epoll): {0}; if too many files are open, raise the limit (ulimit -n)"
    )]
    Exits(#[source] io::Error),
    /// The command does not exist.
    #[error("cannot run '{program}': no such program{}", if program.contains('/') { "" } else { " in PATH" })]
    NoSuchProgram { program: String },
    /// The command exists but cannot be executed.
    #[error("cannot run '{program}': {source}")]
    CannotRun { program: String, source: io::Error },
}

fn list(paths: &[PathBuf]) -> String {
    if paths.is_empty() {
        return "a mounted cgroup hierarchy (none is mounted)".to_owned();
    }
    paths.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", ")
}
