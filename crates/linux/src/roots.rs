//! Where the kernel's file systems are: on the running system, or in a captured tree.

use crate::proc::lines::read_unsized;
use rustix::fs::{Access, access};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Where `/proc`, `/sys` and the like are found: `/`, or a folder with a captured tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    base: PathBuf,
}

impl Roots {
    pub fn system() -> Self {
        Self { base: PathBuf::from("/") }
    }

    /// A tree that was captured below `base`, which has `proc` and `sys` in it.
    pub fn captured(base: impl Into<PathBuf>) -> Self {
        Self { base: base.into() }
    }

    /// Whether this is the running system, so that system calls speak of the same.
    pub(crate) fn is_system(&self) -> bool {
        self.base == Path::new("/")
    }

    /// The place of an absolute path.
    pub fn path(&self, absolute: impl AsRef<Path>) -> PathBuf {
        let p = absolute.as_ref();
        self.base.join(p.strip_prefix("/").unwrap_or(p))
    }

    pub fn read(&self, absolute: impl AsRef<Path>) -> io::Result<String> {
        let mut bytes = Vec::new();
        read_unsized(&File::open(self.path(absolute))?, &mut bytes)?;
        Ok(String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
    }

    /// A file's text without the white space around it; `None` where it is missing or unreadable.
    pub fn line(&self, absolute: impl AsRef<Path>) -> Option<String> {
        self.read(absolute).ok().map(|t| t.trim().to_owned())
    }

    /// Whether a file or folder is there.
    pub fn exists(&self, absolute: impl AsRef<Path>) -> bool {
        self.path(absolute).exists()
    }

    /// Whether we may write to a file. Nothing is opened.
    pub(crate) fn may_write(&self, absolute: impl AsRef<Path>) -> bool {
        access(self.path(absolute), Access::WRITE_OK).is_ok()
    }

    /// Pids of all processes, in no particular order.
    pub fn pids(&self) -> io::Result<Vec<u32>> {
        let mut pids = Vec::new();
        for entry in std::fs::read_dir(self.path("/proc"))? {
            pids.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
        }
        Ok(pids)
    }

    /// The pid that was given out last in this pid namespace (to a process or a thread): while it stays the same,
    /// nobody has forked. `None` where `loadavg` does not tell.
    pub(crate) fn last_pid(&self) -> Option<u32> {
        self.line("/proc/loadavg")?.split_ascii_whitespace().nth(4)?.parse().ok()
    }

    /// Names in a folder, sorted; empty where it is missing.
    pub fn names(&self, absolute: impl AsRef<Path>) -> Vec<String> {
        let Ok(dir) = std::fs::read_dir(self.path(absolute)) else { return Vec::new() };
        let mut names: Vec<String> = dir.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort_unstable();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captured_paths_stay_below_their_base() {
        let roots = Roots::captured("/tmp/tree");
        assert_eq!(roots.path("/proc/meminfo"), Path::new("/tmp/tree/proc/meminfo"));
        assert_eq!(Roots::system().path("/proc/meminfo"), Path::new("/proc/meminfo"));
        assert!(Roots::system().is_system() && !roots.is_system());
    }
}
