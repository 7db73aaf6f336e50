//! Why a process could not be confined.

use std::io;

/// What could not be taken away, and why.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    #[error("capabilities cannot be given up: {0}")]
    Capabilities(io::Error),
    #[error("no_new_privs cannot be set: {0}")]
    NewPrivileges(io::Error),
    /// The set of calls is no filter, on this architecture.
    #[error("the filter of system calls cannot be made: {0}")]
    Compile(#[from] seccompiler::BackendError),
    /// The kernel did not take the filter.
    #[error("system calls cannot be filtered: {source}{}", hint(.source))]
    Filter {
        /// Why not.
        source: io::Error,
    },
    /// A thread has a filter of its own.
    #[error("system calls cannot be filtered: thread {0} has another filter")]
    Thread(i64),
    #[error("files cannot be restricted by Landlock: {0}")]
    Landlock(#[from] landlock::RulesetError),
}

fn hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENOSYS | libc::EINVAL) => " (needs CONFIG_SECCOMP_FILTER=y, and a container that allows seccomp)",
        _ => "",
    }
}
