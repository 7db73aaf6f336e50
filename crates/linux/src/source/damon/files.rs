//! The control files below `/sys/kernel/mm/damon/admin/kdamonds`.

use super::error::DamonError;
use crate::facts::KDAMONDS;
use crate::folder_lock::FolderLock;
use crate::guard::Guard;
use crate::roots::Roots;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Writes control files: the kernel's, or a simulated kernel's in tests.
pub(super) trait ControlFiles {
    /// Where `/sys` and `/proc` are.
    fn roots(&self) -> &Roots;

    /// Writes `value` to the file at `path`, relative to [`KDAMONDS`], in one call.
    fn write(&mut self, path: &str, value: &str) -> io::Result<()>;

    /// The file at `path` is about to be changed and is to become `before` again if we are killed; what is given last
    /// is put back first.
    fn changes(&mut self, path: &str, before: &str) -> io::Result<()>;

    /// It is as it was.
    fn leaves(&mut self, path: &str);
}

/// The running kernel's files.
#[derive(Debug)]
pub(super) struct Sysfs {
    pub(super) roots: Roots,
    /// Puts them back if we are killed.
    pub(super) guard: Guard,
}

impl ControlFiles for Sysfs {
    fn roots(&self) -> &Roots {
        &self.roots
    }

    fn write(&mut self, path: &str, value: &str) -> io::Result<()> {
        OpenOptions::new().write(true).open(absolute(&self.roots, path))?.write_all(value.as_bytes())
    }

    fn changes(&mut self, path: &str, before: &str) -> io::Result<()> {
        self.guard.changes(&absolute(&self.roots, path), before)
    }

    fn leaves(&mut self, path: &str) {
        // Without a guard there is nobody to know.
        let _ = self.guard.leaves(&absolute(&self.roots, path));
    }
}

/// The place of a control file.
pub(super) fn absolute(roots: &Roots, path: &str) -> PathBuf {
    roots.path(KDAMONDS).join(path)
}

/// Keeps two Isotherms from using DAMON at once, until the lock is dropped or the process ends. The kernel has no such lock for others, who
/// are recognised by what they have set up.
pub(super) fn lock(roots: &Roots) -> Result<FolderLock, DamonError> {
    let path = roots.path(KDAMONDS);
    FolderLock::take(&path, Duration::ZERO).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => DamonError::Missing { path },
        io::ErrorKind::WouldBlock => DamonError::InUse { users: "another Isotherm".into() },
        _ => DamonError::Io { action: "lock".into(), path, source: e },
    })
}

/// Whether a control file exists on this kernel.
pub(super) fn exists(roots: &Roots, path: impl AsRef<Path>) -> bool {
    roots.path(KDAMONDS).join(path).exists()
}
