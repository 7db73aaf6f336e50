//! Ways to take free memory so that nobody can use it until we give it back, without a module.
//!
//! | way | how | holds | limits |
//! |---|---|---|---|
//! | [`offline`] | memory blocks go offline | exclusively, nothing is cleared | 128 MiB or more at a time; blocks with unmovable pages refuse |
//! | [`touch`] | huge pages on demand, touched | exclusively | always clears |
//!
//! Both outlive the agent: memory that the kernel took back at its death could be in use by the time that a host handles a
//! report of it. Blocks stay offline; huge pages belong to System V shared memory segments, which stay until they are removed. Once
//! the host has answered, huge pages belong to a process that the kernel ends before any other when memory runs
//! out.

mod holder;
pub mod offline;
mod physical;
pub mod pool;
pub(super) mod segment;
pub mod touch;

use super::{Ledger, MemoryMap};
use isotherm_core::addr::{AddrRange, normalize};
use std::fmt;
use std::io;

/// Size of what is reported at least: a huge page.
pub const HUGE_PAGE: u64 = 2 << 20;

/// A way to isolate memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Way {
    /// Memory blocks go offline.
    Offline,
    /// Huge pages touched.
    Touch,
}

impl Way {
    /// All of them, cheapest first.
    pub const ALL: [Self; 2] = [Self::Offline, Self::Touch];

    /// Whether it takes the very memory that it is asked for.
    pub const fn chooses(self) -> bool {
        matches!(self, Self::Offline)
    }

    /// Its name in commands.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Offline => "offline",
            Self::Touch => "touch",
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why nothing was taken, or what was taken is no longer ours.
#[derive(Debug, thiserror::Error)]
pub enum IsolateError {
    /// The guest's kernel has no such way, or it is in use by others.
    #[error("{0}")]
    Unsupported(String),
    /// Somebody else uses what we thought ours. Nothing of it may be reported.
    #[error("{0}; nothing that is held may be reported")]
    Foreign(String),
    /// Memory ran out, and the kernel took back what was held.
    #[error("the guest needed the memory that was held, and has it back")]
    Taken,
    /// A file or system call failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was to be done.
        what: String,
        /// Why not.
        source: io::Error,
    },
}

impl IsolateError {
    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

/// An error if not all of `reported` lies in what is `held`.
fn check_held(reported: &[AddrRange], mut held: Vec<AddrRange>) -> Result<(), IsolateError> {
    normalize(&mut held);
    let inside = |r: &AddrRange| held.iter().any(|h| h.start <= r.start && r.end <= h.end);
    match reported.iter().find(|r| !inside(r)) {
        None => Ok(()),
        Some(r) => Err(IsolateError::Foreign(format!("{:#x}-{:#x} is to be reported and not held", r.start, r.end))),
    }
}

/// Takes free memory and gives it back.
pub trait Isolator: fmt::Debug {
    /// How.
    fn way(&self) -> Way;

    /// Takes as much as `wanted` has, or less: just that where the way can choose ([`Way::chooses`]), else what the kernel gives.
    /// Empty: nothing to be had at present. All of it is whole huge pages.
    fn take(&mut self, wanted: &[AddrRange], ledger: &mut Ledger) -> Result<Vec<AddrRange>, IsolateError>;

    /// Whether `reported` is held, and all that is held still is nobody else's. To be asked right before a report.
    fn check(&mut self, reported: &[AddrRange]) -> Result<(), IsolateError>;

    /// Gives everything back that it holds. **No report of it may be on its way to a host any more.**
    fn give_back(&mut self, ledger: &mut Ledger) -> Result<(), IsolateError>;

    /// The host has answered for everything that is held: no report of it is on its way. It may go back from here on if the
    /// guest needs it.
    fn acked(&mut self);

    /// Gives back at once what the host has answered for, where that cannot touch what is reported and not answered, which stays.
    fn thin(&mut self);

    /// Bytes held now.
    fn held(&self) -> u64;

    /// Memory has come or gone, or others have given back what they held.
    fn set_memory(&mut self, map: &MemoryMap);
}
