//! What can be set.

use super::block::BlockSize;

/// What an isolator can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// Which blocks (a memory block taken offline, a simulated allocator): they are returned batch by batch.
    Blocks,
    /// Only how many; the kernel gives those it likes (huge pages). What is returned is given out again at once, so that everything
    /// taken in a pass is kept until the pass is over.
    Number,
}

/// How to hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// The size of blocks.
    pub block: BlockSize,
    /// What the isolator can be told.
    pub choice: Choice,
    /// Blocks that are isolated together, or not at all: 1, or those of a memory block. A power of two.
    pub unit: u64,
    /// How many blocks of a unit must be worth reporting for it to be tried.
    pub unit_worth: u64,
    /// Blocks on their way to the other side, at most. At least a unit.
    pub batch: usize,
    /// Isolated blocks, at most. At least a batch. With [`Choice::Blocks`] nothing is gained by more than that.
    pub most_isolated: usize,
    /// Blocks to be reported that start a pass.
    pub threshold: u64,
    /// After which time fewer of them start one as well, ns; `None`: never.
    pub linger_ns: Option<u64>,
    /// From the end of a pass to the beginning of the next, at least, ns.
    pub gap_ns: u64,
    /// Bytes of free memory that are left alone.
    pub reserve: u64,
    /// When to send a batch again that was not acknowledged, ns.
    pub resend_ns: u64,
    /// How long to leave memory alone after pressure; doubled each time, up to the second, ns.
    pub backoff_ns: (u64, u64),
    /// After which time blocks that could not be had are tried again, ns.
    pub retry_ns: u64,
}

impl Default for Config {
    fn default() -> Self {
        const MS: u64 = 1_000_000;
        Self {
            block: BlockSize::huge(),
            choice: Choice::Blocks,
            unit: 1,
            unit_worth: 1,
            batch: 16,
            most_isolated: 16,
            threshold: 16,
            linger_ns: Some(5000 * MS),
            gap_ns: 100 * MS,
            reserve: 64 << 20,
            resend_ns: 2000 * MS,
            backoff_ns: (1000 * MS, 60_000 * MS),
            retry_ns: 10_000 * MS,
        }
    }
}

/// Settings that make no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Not a power of two.
    #[error("units of {0} blocks; a power of two is needed")]
    Unit(u64),
    /// Nothing would ever be worth it.
    #[error("{worth} blocks of a unit must be worth it, which has {unit}")]
    Worth {
        /// As given.
        worth: u64,
        /// The unit.
        unit: u64,
    },
    /// A batch cannot hold a unit, or more is on its way than may be isolated.
    #[error("a unit of {unit} blocks, {batch} in a batch, {most} isolated: none of them may be more than the next")]
    Batch {
        /// As given.
        unit: u64,
        /// As given.
        batch: usize,
        /// As given.
        most: usize,
    },
}

impl Config {
    /// Whether it makes sense.
    pub fn check(&self) -> Result<(), ConfigError> {
        if !self.unit.is_power_of_two() {
            return Err(ConfigError::Unit(self.unit));
        }
        if self.unit_worth > self.unit {
            return Err(ConfigError::Worth { worth: self.unit_worth, unit: self.unit });
        }
        if self.unit > self.batch as u64 || self.batch > self.most_isolated {
            return Err(ConfigError::Batch { unit: self.unit, batch: self.batch, most: self.most_isolated });
        }
        Ok(())
    }
}
