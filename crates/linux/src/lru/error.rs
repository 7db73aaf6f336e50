//! Why the kernel's generations, or a control group's memory, cannot be used.

use super::files::{ENABLED, FILE};
use isotherm_core::keeper::lru_gen::LruGenError;
use std::io;

/// Why the kernel's multi-generational LRU cannot be used, with what helps.
#[derive(Debug, thiserror::Error)]
pub enum KernelLruError {
    /// It is not built in.
    #[error(
        "this kernel has no multi-generational LRU (no /sys/kernel/mm/lru_gen); use a kernel with CONFIG_LRU_GEN=y (6.1 or later), or --engine user"
    )]
    Absent,
    /// It is switched off.
    #[error(
        "the kernel's multi-generational LRU is switched off ({ENABLED} is {0}); switch it on with `echo y >{ENABLED}`, or use --engine user"
    )]
    Off(String),
    /// The switch holds something else than a number.
    #[error("{ENABLED} holds {0:?}, which is not understood; use --engine user")]
    Switch(String),
    /// The generations cannot be read.
    #[error("cannot read {FILE}: {0}; {help}, or use --engine user", help = help(.0))]
    Hidden(io::Error),
    /// A file cannot be read or written.
    #[error("cannot {what} {file}: {source}")]
    File {
        /// What was to be done.
        what: &'static str,
        /// With which file.
        file: &'static str,
        /// How it failed.
        source: io::Error,
    },
    /// The generations are in an unknown form.
    #[error("{FILE}: {0}")]
    Form(#[from] LruGenError),
    /// No such control group.
    #[error("{FILE} knows no control group '{0}'; it lists those that control memory")]
    NoGroup(String),
    /// A command is refused.
    #[error("the kernel refuses {command:?}: {source}{why}", why = why(.source))]
    Refused {
        /// As it was written.
        command: String,
        /// How it failed.
        source: io::Error,
    },
}

fn help(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "mount it with `mount -t debugfs none /sys/kernel/debug`",
        _ => "run as root; a kernel that is locked down does not show it at all",
    }
}

fn why(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EINVAL) => {
            "; no such control group, node or generation, or one of the two youngest, which are never evicted"
        }
        Some(libc::ERANGE) => "; there are four generations already: evict the oldest first",
        Some(libc::EEXIST) => "; the kernel created this generation meanwhile",
        _ => "",
    }
}
