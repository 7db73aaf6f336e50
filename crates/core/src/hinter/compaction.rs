//! When the guest's kernel is asked to put scattered free memory together into whole blocks (compaction).
//!
//! Only whole blocks can be isolated as huge pages. What a guest has freed in smaller pieces stays with the host, unless
//! the kernel moves the pages between them. That costs CPU time and makes programs wait for pages that are being
//! moved, so it is asked for by need: much is scattered, the guest has been calm for a while with a CPU idle, nothing
//! else is to be done, and no more than a hundredth of the time goes into it. If it brings little for what is
//! scattered, the pause before the next doubles.

use super::block::BLOCK_BYTES;
use super::guest::FreeMemory;
use serde::{Deserialize, Serialize};

const MS: u64 = 1_000_000;
/// How long the guest must have been calm, ns.
const CALM_NS: u64 = 3_000 * MS;
/// Between compactions, at least, ns; doubled, up to the second, while they bring little.
const PAUSE_NS: (u64, u64) = (5_000 * MS, 600_000 * MS);
/// One part in so many of the time goes into it, at most.
const SHARE: u64 = 100;
/// What must be scattered: this part of all memory, and so many blocks.
const SCATTERED_SHARE: u64 = 32;
const SCATTERED_BLOCKS: u64 = 8;
/// A compaction is worth its while if it makes this part of what was scattered whole, and so many blocks.
const GAIN_SHARE: u64 = 8;
const GAIN_BLOCKS: u64 = 4;

/// What compactions did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionStats {
    /// Compactions asked for.
    pub compactions: u64,
    /// Blocks of 2 MiB by which more were free after them than before.
    pub gained_blocks: u64,
    /// Time that they took, us.
    pub spent_us: u64,
}

/// Decides when to compact.
#[derive(Debug)]
pub(super) struct Compaction {
    not_before_ns: u64,
    pause_ns: u64,
    stats: CompactionStats,
}

impl Compaction {
    pub(super) fn new() -> Self {
        Self { not_before_ns: 0, pause_ns: PAUSE_NS.0, stats: CompactionStats::default() }
    }

    pub(super) const fn stats(&self) -> CompactionStats {
        self.stats
    }

    /// Whether to compact now; only asked while nothing is isolated and nothing else is to be done. `calm_ns`: how long
    /// the guest has been calm, ns; `insist`: not later, even if it is not.
    pub(super) fn is_due(&self, free: &FreeMemory, calm_ns: u64, insist: bool, now_ns: u64) -> bool {
        let calm = calm_ns >= CALM_NS;
        let much = (free.total / SCATTERED_SHARE).max(SCATTERED_BLOCKS * BLOCK_BYTES);
        (calm || insist) && now_ns >= self.not_before_ns && scattered(free) >= much
    }

    /// A compaction has ended: free memory before and after, and the times (ns).
    pub(super) fn done(&mut self, before: &FreeMemory, after: &FreeMemory, begin_ns: u64, end_ns: u64) {
        let took = end_ns.saturating_sub(begin_ns);
        let gained = after.free_huge.saturating_sub(before.free_huge) / BLOCK_BYTES;
        self.stats.compactions += 1;
        self.stats.gained_blocks += gained;
        self.stats.spent_us += took / 1000;
        let worth = (scattered(before) / BLOCK_BYTES / GAIN_SHARE).max(GAIN_BLOCKS);
        self.pause_ns = if gained >= worth { PAUSE_NS.0 } else { (self.pause_ns * 2).min(PAUSE_NS.1) };
        self.not_before_ns = end_ns.saturating_add(self.pause_ns.max(took.saturating_mul(SHARE)));
    }

    /// It failed, and would again.
    pub(super) const fn failed(&mut self) {
        self.not_before_ns = u64::MAX;
    }
}

/// Free bytes in smaller pieces than blocks.
const fn scattered(free: &FreeMemory) -> u64 {
    free.free.saturating_sub(free.free_huge)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1000 * MS;
    const MIB: u64 = 1 << 20;

    fn free(free_mib: u64, huge_mib: u64) -> FreeMemory {
        FreeMemory { total: 1 << 30, free: free_mib * MIB, free_huge: huge_mib * MIB, allocated_pages: Some(0) }
    }

    /// In a calm guest in which much is scattered.
    fn is_due(compaction: &Compaction, now: u64) -> bool {
        compaction.is_due(&free(500, 0), CALM_NS, false, now)
    }

    #[test]
    fn much_must_be_scattered_and_the_guest_calm_for_a_while() {
        let compaction = Compaction::new();
        let due = |free: FreeMemory| compaction.is_due(&free, CALM_NS, false, 0);
        assert!(due(free(500, 468)) && !due(free(500, 469)));
        assert!(!due(free(500, 501)), "counts that do not fit each other");
        assert!(!due(FreeMemory { total: 64 << 30, ..free(1000, 0) }), "little of a large guest");
        assert!(!compaction.is_due(&free(500, 0), CALM_NS - 1, false, 0));
        assert!(compaction.is_due(&free(500, 0), 0, true, 0), "now or never");
    }

    #[test]
    fn one_that_brings_little_is_repeated_later_each_time() {
        let mut compaction = Compaction::new();
        let mut now = 10 * SECOND;
        // 200 blocks are scattered: 25 are worth it.
        for (gained, pause) in [(50, 5), (48, 10), (0, 20), (2, 40), (50, 5), (48, 10)] {
            compaction.done(&free(500, 100), &free(500, 100 + gained), now, now + MS);
            now += MS + pause * SECOND;
            assert!(!is_due(&compaction, now - 1) && is_due(&compaction, now), "{gained} {pause}");
        }
        (0..20).for_each(|_| compaction.done(&free(500, 100), &free(490, 90), now, now));
        assert!(is_due(&compaction, now + 600 * SECOND), "never more than ten minutes");
        let stats = compaction.stats();
        assert_eq!((stats.compactions, stats.gained_blocks, stats.spent_us), (26, 25 + 24 + 1 + 25 + 24, 6000));
    }

    #[test]
    fn it_takes_a_hundredth_of_the_time_at_most() {
        let mut compaction = Compaction::new();
        compaction.done(&free(500, 100), &free(500, 400), 10 * SECOND, 11 * SECOND);
        assert!(!compaction.is_due(&free(500, 0), 0, true, 111 * SECOND - 1));
        assert!(is_due(&compaction, 111 * SECOND));
        compaction.failed();
        assert!(!compaction.is_due(&free(500, 0), CALM_NS, true, 1000 * SECOND));
    }
}
