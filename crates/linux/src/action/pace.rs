//! How much one system call may do, so that a stop is honoured soon and nothing waits long for the target's locks.

use isotherm_core::addr::TABLE_SPAN;
use std::time::Duration;

/// What one call should take at most.
const WISH: Duration = Duration::from_millis(20);
/// No call does more than this, however fast it is.
const MOST: u64 = 32 << 20;
/// Nor less: calls end where huge pages do.
const LEAST: u64 = TABLE_SPAN;

/// The size of the next call, learnt from those before.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    limit: u64,
}

impl Default for Pace {
    fn default() -> Self {
        // 4 MiB take 2 to 20 ms to page out to zram: a guess that is safe on slow machines.
        Self { limit: 4 << 20 }
    }
}

impl Pace {
    /// Bytes that the next call may do.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Learns from a call that did `bytes` in `took`. A slow one shrinks the next at once; fast ones let it grow by
    /// doubling.
    pub fn learn(&mut self, bytes: u64, took: Duration) {
        if bytes < LEAST && took < WISH {
            // Small calls are mostly overhead and tell nothing of large ones.
            return;
        }
        let fitting = (bytes as u128 * WISH.as_nanos() / took.as_nanos().max(1)).min(MOST.into()) as u64;
        self.limit = fitting.min(2 * self.limit).clamp(LEAST, MOST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_follows_speed_within_bounds() {
        let mut pace = Pace::default();
        for _ in 0..10 {
            pace.learn(pace.limit(), Duration::from_micros(10));
        }
        assert_eq!(pace.limit(), MOST);
        pace.learn(MOST, Duration::from_millis(80));
        assert_eq!(pace.limit(), MOST / 4);
        pace.learn(4096, Duration::from_nanos(1));
        assert_eq!(pace.limit(), MOST / 4);
        pace.learn(LEAST, Duration::from_secs(3));
        assert_eq!(pace.limit(), LEAST);
        pace.learn(LEAST, Duration::ZERO);
        assert_eq!(pace.limit(), 2 * LEAST);
    }
}
