//! The guest's side: finds free memory, isolates it, tells the host, gives it back to the guest.
//!
//! * [`agent`]: the loop;
//! * [`watch`]: which blocks are free, from samples;
//! * [`ways`]: how they are isolated;
//! * `work`: carries out what the algorithm decides;
//! * [`session`]: the protocol;
//! * [`link`]: the stream of bytes;
//! * [`status`]: what it tells of itself.

pub mod agent;
pub mod link;
pub mod session;
pub mod status;
pub mod watch;
pub mod ways;
mod work;

pub use agent::{Agent, Ended};
pub use link::{Address, AddressError};
pub use status::Status;
pub use ways::Wish;

use isotherm_linux::guestmem::LedgerError;
use std::io;
use std::time::Duration;

/// What the user can choose.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the host is.
    pub address: Address,
    /// What a host that is reached over a network wants to hear; else empty.
    pub key: Vec<u8>,
    /// How to isolate.
    pub wish: Wish,
    /// Bytes of free memory to be left alone; `None`: by the size of the guest.
    pub reserve: Option<u64>,
    /// Between looks at free memory.
    pub interval: Duration,
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
    /// The ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// Settings that make no sense together.
    #[error("{0}")]
    Config(String),
    /// Not everything could be put back.
    #[error("{0}")]
    Left(String),
    /// With `once`: no host.
    #[error("no host answered at {0} within {1} s")]
    NoHost(String, u64),
    /// The host will not have us.
    #[error("the host refuses: {0}")]
    Refused(String),
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
    fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
