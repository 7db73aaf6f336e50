//! What all analyses may use of the machine.

use isotherm_core::units::{UnitError, parse_size};
use std::{io, thread};
use tokio::runtime::{Builder, Runtime};

/// What was asked for cannot be: the exit status is 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// The least that queries work with.
const LEAST: u64 = 64 << 20;

/// Limits.
#[derive(clap::Args, Debug)]
pub struct Resources {
    /// Memory that queries hold at most; what is more goes to the folder for temporary files
    #[arg(long, value_name = "SIZE", default_value = "2G", value_parser = memory)]
    pub memory: usize,
    /// Threads; by default as many as there are processors
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

/// Why a size is not used.
#[derive(Debug, thiserror::Error)]
enum MemoryError {
    #[error(transparent)]
    Size(#[from] UnitError),
    #[error("queries need 64M at least")]
    Small,
}

fn memory(text: &str) -> Result<usize, MemoryError> {
    let bytes = parse_size(text)?;
    if bytes < LEAST {
        return Err(MemoryError::Small);
    }
    Ok(usize::try_from(bytes).unwrap_or(usize::MAX))
}

impl Resources {
    /// How many threads work.
    pub fn threads(&self) -> usize {
        self.threads.map_or_else(|| thread::available_parallelism().map_or(1, usize::from), usize::from)
    }

    /// What runs queries.
    pub fn runtime(&self) -> io::Result<Runtime> {
        Builder::new_multi_thread().worker_threads(self.threads()).enable_all().build()
    }
}
