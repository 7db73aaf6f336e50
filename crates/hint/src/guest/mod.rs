//! The guest's side: finds free memory, isolates it, tells the host, gives it back to the guest.
//!
//! What is isolated, reported and returned, and when, is decided by [`isotherm_core::hinter`]. Here are the machine and
//! the host:
//!
//! * `agent`: the loop;
//! * `leftover`: what a dead predecessor isolated;
//! * `machine`: the kernel's files, as the decisions reach them;
//! * `wish`: which ways of isolating memory there are;
//! * `session`: the protocol;
//! * `link`: the stream of bytes;
//! * `status`: what the agent tells of itself.

mod agent;
mod leftover;
mod link;
mod machine;
mod session;
mod status;
mod wish;

pub use agent::{Agent, Ended};
pub use link::Address;
pub use status::Status;
pub use wish::Wish;

use crate::protocol::auth::Key;
use isotherm_linux::guestmem::{LedgerError, StillTaken};
use std::io;
use std::time::Duration;

/// What the user can choose.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the host is.
    pub address: Address,
    /// What this guest and a host that is reached over a network know.
    pub key: Option<Key>,
    /// How to isolate.
    pub wish: Wish,
    /// Bytes of free memory to be left alone; `None`: by the size of the guest.
    pub reserve: Option<u64>,
    /// Between looks at free memory.
    pub interval: Duration,
    /// The share of one CPU that passes may take while the guest is busy; `None`: what they need.
    pub cpu_budget: Option<f64>,
    /// Whether the kernel is asked to put scattered free memory together where that is worth it.
    pub compact: bool,
    /// One pass, then the end.
    pub once: bool,
    /// Hint although the balloon reports already, or although the kernel clears what is freed.
    pub force: bool,
}

/// Why the agent cannot run, or had to end.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// No way to isolate memory.
    #[error("no memory can be isolated here: {0}")]
    NoWay(String),
    /// What is given back would be written to by the kernel.
    #[error(
        "this guest's kernel clears memory when it is freed (init_on_free or page_poison), so that all that is hinted would be in the \
         host's memory again at once; boot without that, or let the host look for zeros: isotherm hint host --scan-zero"
    )]
    ClearsOnFree,
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// What is isolated has to stay so, because a report of it may be on its way.
    #[error(
        "{0} stays isolated, because the host has not answered the last report and may still act on it; start the agent again \
         while the host is there, or power this virtual machine off and start it again (after a reboot alone the host could still \
         drop that memory, which the new kernel uses)"
    )]
    Unanswered(String),
    /// Not everything could be put back.
    #[error(transparent)]
    StillTaken(#[from] StillTaken),
    /// With `once`: no host.
    #[error("no host answered at {0} within {1} s")]
    NoHost(String, u64),
    /// The host will not have us.
    #[error("the host refuses: {0}")]
    Refused(String),
    /// We will not have the host.
    #[error("the host cannot be trusted: {0}")]
    Mistrusted(String),
    /// A file or system call.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was to be done.
        what: String,
        /// Why not.
        source: io::Error,
    },
}

impl GuestError {
    /// Whether this user, or this container, has not the rights that it takes.
    pub fn is_denied(&self) -> bool {
        let source = match self {
            Self::Ledger(LedgerError::Io { source, .. }) | Self::Io { source, .. } => source,
            _ => return false,
        };
        matches!(source.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
    }

    fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_rights_are_told_from_other_errors() {
        let error = |number| io::Error::from_raw_os_error(number);
        let ledger = |number| LedgerError::Io { what: "create", path: "/run/x".into(), source: error(number) };
        // EACCES, EPERM and EROFS; ENOSPC.
        for (number, denied) in [(13, true), (1, true), (30, true), (28, false)] {
            assert_eq!(GuestError::io("open it")(error(number)).is_denied(), denied, "{number}");
            assert_eq!(GuestError::from(ledger(number)).is_denied(), denied, "{number}");
        }
        assert!(!GuestError::ClearsOnFree.is_denied());
    }
}
