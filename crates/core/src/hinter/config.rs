//! What a pass may take, by the way in which memory is isolated.

use super::block::BLOCK_BYTES;
use super::way::Way;

const MS: u64 = 1_000_000;
/// Blocks in a batch where they come one by one. Clearing takes its time, in which nobody looks after the guest; larger
/// batches gain little.
const TOUCH_BATCH: usize = 8;

/// The limits of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// How memory is isolated.
    pub way: Way,
    /// Blocks that are isolated together, or not at all: 1, or those of a memory block. A power of two.
    pub unit: u64,
    /// How many blocks of a unit must be worth reporting for it to be tried.
    pub unit_worth: u64,
    /// Blocks on their way to the host, at most. At least a unit.
    pub batch: usize,
    /// Isolated blocks, at most. At least a batch. With [`Way::Offline`] nothing is gained by more than that.
    pub most_isolated: usize,
    /// Blocks to be reported that start a pass.
    pub threshold: u64,
    /// After which time fewer of them start one as well, ns; `None`: never.
    pub linger_ns: Option<u64>,
    /// From the end of a pass to the beginning of the next, at least, ns.
    pub gap_ns: u64,
    /// Bytes of free memory that are left alone.
    pub reserve: u64,
    /// After which time blocks that could not be had are tried again, ns.
    pub retry_ns: u64,
}

impl Config {
    /// For memory blocks of `bytes`, a power of two and at least a block.
    pub fn offline(bytes: u64, reserve: u64) -> Self {
        let unit = bytes / BLOCK_BYTES;
        Self {
            way: Way::Offline,
            unit,
            // Taking a memory block off and on again costs some milliseconds: not for less than an eighth of 128 MiB.
            unit_worth: unit.min(8),
            batch: unit as usize,
            most_isolated: unit as usize,
            threshold: 16,
            linger_ns: Some(5000 * MS),
            gap_ns: 500 * MS,
            reserve,
            retry_ns: 10_000 * MS,
        }
    }

    /// For huge pages.
    pub fn touch(reserve: u64) -> Self {
        Self {
            way: Way::Touch,
            unit: 1,
            unit_worth: 1,
            batch: TOUCH_BATCH,
            // The reserve is the limit.
            most_isolated: 1 << 24,
            threshold: 4,
            linger_ns: None,
            gap_ns: 100 * MS,
            reserve,
            retry_ns: 2000 * MS,
        }
    }

    /// Whether none of a unit, a batch and what may be isolated is more than the next.
    pub(super) const fn is_consistent(&self) -> bool {
        self.unit.is_power_of_two()
            && self.unit_worth <= self.unit
            && self.unit <= self.batch as u64
            && self.batch <= self.most_isolated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_configuration_makes_sense() {
        assert!([1, 64, 1024].iter().all(|unit| Config::offline(unit * BLOCK_BYTES, 1 << 24).is_consistent()));
        assert!(Config::touch(1 << 24).is_consistent());
        assert!(!Config { batch: 1, ..Config::offline(2 * BLOCK_BYTES, 0) }.is_consistent());
    }
}
