//! Why nothing, or not all, was injected.

use super::refusal::Refusal;
use crate::proc::ProcessError;
use isotherm_core::scheme::action::Action;
use std::io;

/// Why an injection ended before it was complete.
#[derive(Debug, thiserror::Error)]
pub(super) enum InjectError {
    /// The process is none that calls may be injected into.
    #[error("{0}")]
    Ineligible(String),
    /// What `/proc` should tell of it cannot be read.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// It would have too many mappings.
    #[error(
        "{action} of {ranges} ranges of pid {pid} would cut its memory into too many mappings; use a larger minimal size, or raise vm.max_map_count"
    )]
    TooManyMappings { action: Action, ranges: usize, pid: u32 },
    /// The memory has gone.
    #[error("nothing of the memory asked for is mapped in pid {0} any more")]
    NothingMapped(u32),
    /// A stop was asked for.
    #[error("stopped before it was finished")]
    Stopped,
    #[error("pid {0} has exited")]
    Gone(u32),
    #[error("memory for a helper process: {0}")]
    Memory(io::Error),
    #[error("a helper process could not be started: {0}; raise the process limit")]
    Fork(io::Error),
    /// The helper left the process alone.
    #[error("pid {0} {why}", why = .1.text())]
    LeftAlone(u32, Refusal),
    #[error("reading the code of pid {0}: {1}")]
    Code(u32, io::Error),
    /// Its program lacks the instructions.
    #[error(
        "the program of pid {0} has no instructions that do a system call and return from a signal; have it call madvise or mlock itself"
    )]
    NoGadgets(u32),
}
