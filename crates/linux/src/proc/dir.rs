//! Where a process's files are: the proc file system, or a captured tree of it.

use super::error::ProcessError;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The folder that proc is mounted on, or a captured copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcRoot(PathBuf);

impl Default for ProcRoot {
    fn default() -> Self {
        Self(PathBuf::from("/proc"))
    }
}

impl ProcRoot {
    /// A proc tree at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The files of process `pid`.
    pub fn process(&self, pid: u32) -> ProcessDir {
        ProcessDir { pid, path: self.0.join(pid.to_string()) }
    }

    /// Pids of all processes, in no particular order.
    pub fn pids(&self) -> io::Result<Vec<u32>> {
        let mut pids = Vec::new();
        for entry in std::fs::read_dir(&self.0)? {
            pids.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
        }
        Ok(pids)
    }

    /// The pid that was given out last in this pid namespace (to a process or a thread): while it stays the same,
    /// nobody has forked. `None` where `loadavg` does not tell.
    pub(crate) fn last_pid(&self) -> Option<u32> {
        let text = std::fs::read_to_string(self.0.join("loadavg")).ok()?;
        text.split_ascii_whitespace().nth(4)?.parse().ok()
    }
}

/// The files of one process below a proc root. Holds nothing open: whoever needs protection from a reused pid checks a
/// [`PidFd`](super::PidFd) *after* reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessDir {
    pid: u32,
    path: PathBuf,
}

impl ProcessDir {
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// The path of file `name`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Opens file `name` for reading.
    pub fn open(&self, name: &str) -> Result<File, ProcessError> {
        File::open(self.file(name)).map_err(|e| self.error(name, e))
    }

    /// Replaces `buf` by the content of file `name`.
    pub fn read(&self, name: &str, buf: &mut Vec<u8>) -> Result<(), ProcessError> {
        buf.clear();
        self.open(name)?.read_to_end(buf).map(drop).map_err(|e| self.error(name, e))
    }

    /// The typed form of a failure to use file `name`.
    pub fn error(&self, name: &str, error: io::Error) -> ProcessError {
        let pid = self.pid;
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH) => ProcessError::NoSuchProcess { pid },
            Some(libc::EACCES | libc::EPERM) => ProcessError::Permission { pid, path: self.file(name) },
            _ => ProcessError::Io { pid, path: self.file(name), source: error },
        }
    }

    pub(super) fn malformed(&self, name: &str, what: impl Into<String>) -> ProcessError {
        ProcessError::Malformed { path: self.file(name), what: what.into() }
    }
}
