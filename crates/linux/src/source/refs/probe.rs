//! Whether `clear_refs` and `smaps` tell the truth here, tried on our own memory.

use super::SOURCE;
use crate::arena::{Arena, HugePages};
use crate::proc::{Process, ProcessError};
use isotherm_core::addr::PAGE_SIZE;
use std::path::Path;

/// Why the source cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The kernel lacks the files.
    #[error("the kernel has no {0}; use one with CONFIG_PROC_PAGE_MONITOR=y and mount proc")]
    Missing(&'static str),
    /// Our own process cannot be read.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// No memory for the trial.
    #[error(transparent)]
    Arena(#[from] crate::arena::ArenaError),
    /// The trial's own pages could not be made ready.
    #[error("cannot change the protection of memory of our own: {0}")]
    Flush(std::io::Error),
    /// What was touched was not seen, or what was left alone was.
    #[error(
        "{SOURCE} does not see accesses on this machine: of 64 pages touched {touched} were seen, of 64 left alone {idle}; \
         use another source"
    )]
    Wrong {
        /// Pages seen among those touched.
        touched: u64,
        /// Pages seen among those left alone.
        idle: u64,
    },
}

const PAGES: u64 = 64;

/// Touches pages of our own and leaves others alone; fails unless exactly the first are seen.
pub fn probe() -> Result<(), ProbeError> {
    for file in ["/proc/self/clear_refs", "/proc/self/smaps"] {
        if !Path::new(file).exists() {
            return Err(ProbeError::Missing(file));
        }
    }
    let mut process = Process::open(std::process::id())?;
    let mut touched = Arena::new(PAGES * PAGE_SIZE, HugePages::No)?;
    let mut idle = Arena::new(PAGES * PAGE_SIZE, HugePages::No)?;
    let all: Vec<u64> = (0..PAGES).collect();
    touched.touch(&all);
    idle.touch(&all);
    process.clear_refs()?;
    // Translations that this CPU still holds would hide our accesses (see `Process::clear_refs`).
    touched.flush_translations().map_err(ProbeError::Flush)?;
    touched.read(&all);
    let (mut seen, mut seen_idle) = (0, 0);
    process.smaps(|line, _, figures| {
        if line.range == touched.range() {
            seen = figures.referenced / PAGE_SIZE;
        } else if line.range == idle.range() {
            seen_idle = figures.referenced / PAGE_SIZE;
        }
    })?;
    if (seen, seen_idle) == (PAGES, 0) { Ok(()) } else { Err(ProbeError::Wrong { touched: seen, idle: seen_idle }) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn our_own_accesses_are_seen() {
        super::probe().unwrap();
    }
}
