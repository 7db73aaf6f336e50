//! The files of one process.

use super::error::ProcessError;
use super::lines::read_unsized;
use crate::roots::Roots;
use std::fs::File;
use std::io;
use std::path::PathBuf;

/// The files of one process, of the running system or of a captured tree. Holds nothing open: whoever needs protection from a reused pid checks a
/// [`PidFd`](super::PidFd) *after* reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessDir {
    pid: u32,
    path: PathBuf,
}

impl ProcessDir {
    /// The files of process `pid` below `roots`.
    pub fn of(roots: &Roots, pid: u32) -> Self {
        Self { pid, path: roots.path(format!("/proc/{pid}")) }
    }

    /// The files of process `pid` of the running system: for whoever also makes system calls on that process, which
    /// no captured tree can stand for.
    pub fn live(pid: u32) -> Self {
        Self::of(&Roots::system(), pid)
    }

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
        read_unsized(&self.open(name)?, buf).map_err(|e| self.error(name, e))
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
