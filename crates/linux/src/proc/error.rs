//! Why a process cannot be read.

use crate::confine::{CapabilitySet, lacks};
use isotherm_core::source::SourceError;
use isotherm_core::target::TargetId;
use rustix::process::geteuid;
use std::io;
use std::path::PathBuf;

/// Why a process cannot be read; the text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// No process has this id.
    #[error("no process has pid {pid}; `ps -e` lists the running ones")]
    NoSuchProcess {
        /// The pid asked for.
        pid: u32,
    },
    /// The process has exited and waits for its parent to collect its status: it has no memory any more.
    #[error("pid {pid} ({name}) is a zombie: it has exited and has no memory to watch; choose a running process")]
    Zombie {
        /// The pid asked for.
        pid: u32,
        name: String,
    },
    /// The process lives in other threads than the one that leads it, behind which alone the kernel finds a process's memory for
    /// others.
    #[error(
        "pid {pid} ({name}) runs on although its main thread has ended: the kernel lets others work on the memory of a process through \
         that thread only, so it cannot be watched; choose another process, or let the program keep its main thread"
    )]
    Leaderless {
        /// The pid asked for.
        pid: u32,
        name: String,
    },
    /// A kernel thread: it has no memory of its own.
    #[error("pid {pid} ({name}) is a kernel thread: it has no memory of its own to watch; choose a user process")]
    KernelThread {
        /// The pid asked for.
        pid: u32,
        name: String,
    },
    /// The id of a thread that does not lead its process.
    #[error("{pid} is a thread of process {leader}; give {leader} instead (all threads share its memory)")]
    NotALeader {
        /// The id asked for.
        pid: u32,
        /// The process it belongs to.
        leader: u32,
    },
    /// The kernel refuses to show the process's memory to this user.
    #[error(
        "not allowed to read {}: {}", path.display(), permission_remedy(*pid, geteuid().is_root(), lacks(CapabilitySet::SYS_PTRACE))
    )]
    Permission {
        /// The pid asked for.
        pid: u32,
        /// The file that was refused.
        path: PathBuf,
    },
    /// The process has exited since it was opened.
    #[error("pid {pid} has exited")]
    Exited { pid: u32 },
    /// The process has executed another program since it was last read. Reported once; later reads speak of the new
    /// program.
    #[error("pid {pid} executed another program")]
    Replaced { pid: u32 },
    /// The process has executed a program that this user may not look into (a set-user-id program, say).
    #[error("pid {pid} executed a program whose memory may not be read; run as root to go on watching it")]
    OutOfReach { pid: u32 },
    /// There are as many targets as the limit of open files allows.
    #[error(
        "pid {pid} is not watched: {watched} processes are, with {each} open files each, and the limit is {most}; watch fewer, or \
         raise it with `ulimit -n` (in a unit: LimitNOFILE=)"
    )]
    NoRoom {
        /// The pid that came too late.
        pid: u32,
        /// Processes that are watched.
        watched: u64,
        /// Open files that each of them takes.
        each: u64,
        /// The limit of open files.
        most: u64,
    },
    /// A file could not be read for another reason.
    #[error("cannot read {} of pid {pid}: {source}{}", path.display(), remedy(source))]
    Io { pid: u32, path: PathBuf, source: io::Error },
    /// A file did not have the expected form.
    #[error("{} does not look as proc(5) describes it: {what}; please report this with your kernel's version", path.display())]
    Malformed {
        path: PathBuf,
        /// What was wrong, with the text found.
        what: String,
    },
}

/// What helps where a process may not be looked into. Root is not sent for root. `lacks`: we are without CAP_SYS_PTRACE.
fn permission_remedy(pid: u32, root: bool, lacks: bool) -> String {
    match (root, lacks) {
        (true, true) => {
            "this root lacks CAP_SYS_PTRACE; grant it, run outside the container, or choose another process".into()
        }
        (true, false) => format!(
            "although this root has CAP_SYS_PTRACE: pid {pid} is in another user namespace or guarded by a security module; run \
             outside the container, or choose another process"
        ),
        (false, _) => format!(
            "run as root (in a container, with CAP_SYS_PTRACE), or as the user who owns pid {pid} (set-user-id programs need root)"
        ),
    }
}

fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EMFILE) => "; watch fewer processes or raise the limit with `ulimit -n`",
        Some(libc::ENFILE) => "; the system's table of open files is full (fs.file-max)",
        Some(libc::ENOSYS) => "; kernel 5.3 or newer is needed",
        _ => "",
    }
}

impl ProcessError {
    /// Whether the process is simply not there (any more), which is nothing special for one that is being watched.
    pub const fn is_gone(&self) -> bool {
        matches!(self, Self::NoSuchProcess { .. } | Self::Zombie { .. } | Self::Exited { .. } | Self::OutOfReach { .. })
    }

    /// Whether this process has too many files open.
    pub(crate) fn is_out_of_descriptors(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.raw_os_error() == Some(libc::EMFILE))
    }

    /// The same as an access source tells it about its target `target`.
    pub(crate) fn into_source_error(self, target: TargetId) -> SourceError {
        match self {
            Self::Exited { pid }
            | Self::NoSuchProcess { pid }
            | Self::Zombie { pid, .. }
            | Self::OutOfReach { pid } => SourceError::Gone { target, pid },
            Self::Replaced { pid } => SourceError::Replaced { target, pid },
            other => SourceError::Failed(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_not_sent_for_root() {
        for lacks in [false, true] {
            assert!(permission_remedy(7, false, lacks).contains("run as root"));
        }
        let text = permission_remedy(7, true, false);
        assert!(
            !text.contains("run as root") && text.contains("user namespace") && text.contains("has CAP_SYS_PTRACE")
        );
        let text = permission_remedy(7, true, true);
        assert!(
            !text.contains("run as root") && !text.contains("user namespace") && text.contains("lacks CAP_SYS_PTRACE")
        );
    }
}
