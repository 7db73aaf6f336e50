//! The guest that the decisions are made for, as they reach it: its clock, its free memory, ways to isolate it, and its
//! host.

use super::block::Block;
use super::way::Way;
use crate::addr::AddrRange;
use std::fmt;
use std::io;

/// Free memory at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FreeMemory {
    /// All memory that the kernel manages, bytes.
    pub total: u64,
    /// Free bytes; isolated memory is not among them.
    pub free: u64,
    /// Bytes in free blocks of 2 MiB and more.
    pub free_huge: u64,
    /// Pages allocated since boot, as a clock of allocation; `None` where the kernel does not count.
    pub allocated_pages: Option<u64>,
}

impl FreeMemory {
    /// Pages that were allocated since `then`; `None` where the kernel does not count.
    pub(super) fn allocated_since(&self, then: &Self) -> Option<u64> {
        Some(self.allocated_pages?.wrapping_sub(then.allocated_pages?))
    }
}

/// Why nothing was isolated, or what was isolated is no longer ours.
#[derive(Debug, thiserror::Error)]
pub enum IsolateError {
    /// The guest's kernel has no such way, or it is in use by others.
    #[error("{0}")]
    Unsupported(String),
    /// Somebody else uses what we thought ours. Nothing of it may be reported.
    #[error("{0}; nothing that is isolated may be reported")]
    Foreign(String),
    /// Memory ran out, and the kernel took back what was isolated.
    #[error("the guest needed the memory that was isolated, and has it back")]
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
    /// For `map_err`: `what` was to be done.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

/// Isolates free memory and returns it. What it isolates, nobody else may have, not even after its own death, for as
/// long as a report may be acted upon.
pub trait Isolator {
    /// Isolates as much as `wanted` has, or less: with [`Way::Offline`] just that, else what the kernel gives. Empty:
    /// nothing to be had at present. All of it is whole blocks. Called for another way only while nothing is isolated.
    fn isolate(&mut self, way: Way, wanted: &[AddrRange]) -> Result<Vec<AddrRange>, IsolateError>;

    /// Whether `reported` is isolated, and all that is isolated still is nobody else's. To be asked right before a
    /// report.
    fn check(&mut self, reported: &[AddrRange]) -> Result<(), IsolateError>;

    /// Returns everything that is isolated. **No report of it may be on its way to a host any more.**
    fn release(&mut self) -> Result<(), IsolateError>;

    /// The host has answered for everything that is isolated: no report of it is on its way. It may be returned from
    /// here on if the guest needs it.
    fn acked(&mut self);

    /// Returns at once what the host has answered for, where that cannot touch what is reported and not answered, which
    /// stays.
    fn release_answered(&mut self);

    /// Bytes isolated now.
    fn isolated(&self) -> u64;
}

/// What is needed of a guest, live or simulated.
pub trait Guest {
    /// Why its free memory cannot be seen.
    type Error;
    /// What isolates its memory.
    type Isolator: Isolator;

    /// Now, ns.
    fn now_ns(&self) -> u64;

    /// How much memory is free.
    fn free_memory(&self) -> Result<FreeMemory, Self::Error>;

    /// Whether the page at a physical address is free.
    fn page_is_free(&self, addr: u64) -> Result<bool, Self::Error>;

    /// Idle time of all CPUs together since boot, ns; `None` where it is not known.
    fn idle_ns(&self) -> Option<u64>;

    /// CPU time that the agent has taken so far, ns.
    fn cpu_ns(&self) -> u64;

    /// Makes the kernel put free memory together into whole blocks, as far as it can. Asked for only while nothing is
    /// isolated, and only with [`Settings::compact`](super::Settings::compact).
    fn compact(&mut self) -> io::Result<()>;

    /// What isolates its memory.
    fn isolator(&mut self) -> &mut Self::Isolator;

    /// Sends a batch to the host, or hands it over to be sent. With units of `unit` blocks, all of each block's unit is
    /// isolated.
    fn report(&mut self, batch: u64, blocks: &[Block], unit: u64);

    /// Something is in the way that people should know of.
    fn trouble(&mut self, what: fmt::Arguments<'_>);
}

#[cfg(test)]
pub(super) mod tests;
