//! Why the kernel's DAMON cannot be used.

use crate::targets::TargetError;
use isotherm_core::source::SourceError;
use std::io;
use std::path::PathBuf;

/// Why the kernel's DAMON cannot be used; the text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum DamonError {
    /// No control files.
    #[error(
        "the kernel has no DAMON control files ({}): use a kernel with CONFIG_DAMON_SYSFS and CONFIG_DAMON_VADDR, or \
         another source",
        path.display()
    )]
    Missing {
        /// Where they would be.
        path: PathBuf,
    },
    /// Somebody uses it. Nothing was changed.
    #[error(
        "the kernel's DAMON is in use by {users}; it was left as it is: stop that user first, or take another source"
    )]
    InUse { users: String },
    /// The kernel has DAMON, but not for this kind of target.
    #[error(
        "the kernel's DAMON cannot watch {what}: it offers {available}; use a kernel with {option}, or another source"
    )]
    NoOperations {
        /// What was to be watched.
        what: &'static str,
        /// Operation sets that it has.
        available: String,
        /// The build option of the missing one.
        option: &'static str,
    },
    /// Several processes at once need a kernel that can tell their regions apart.
    #[error(
        "this kernel's DAMON cannot tell several processes apart: use kernel 6.6 or newer, watch one process, or take another source"
    )]
    OneProcessOnly,
    /// A control file could not be read or written.
    #[error("cannot {action} {}: {source}{}", path.display(), remedy(source))]
    Io {
        /// `read`, `write 'VALUE' to`, `open`.
        action: String,
        path: PathBuf,
        source: io::Error,
    },
    /// Its kernel thread ends again and again although the targets live.
    #[error(
        "the kernel's DAMON stops watching at once, {attempts} times in a row: it may not be able to read the target's memory map; take another source"
    )]
    KeepsStopping {
        /// How often it was started.
        attempts: u32,
    },
    /// The ranges of physical memory cannot be read.
    #[error("/proc/iomem tells no ranges of system memory: run as root (CAP_SYS_ADMIN)")]
    NoPhysicalRanges,
    /// The process that would put DAMON back has ended. Nothing was changed.
    #[error(
        "the guard that puts the kernel's DAMON back is gone ({source}): start isotherm again, or take another source"
    )]
    Unguarded { source: io::Error },
    /// The targets cannot be watched.
    #[error(transparent)]
    Target(#[from] TargetError),
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; run as root",
        io::ErrorKind::ResourceBusy => "; another user of DAMON came in between: try again, or take another source",
        _ => "",
    }
}

impl From<DamonError> for SourceError {
    fn from(error: DamonError) -> Self {
        Self::Failed(error.to_string())
    }
}
