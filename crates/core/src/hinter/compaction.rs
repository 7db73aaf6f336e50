//! When the guest's kernel is asked to put scattered free memory together into whole blocks (compaction).
//!
//! Only whole blocks can be isolated as huge pages. What a guest has freed in smaller pieces stays with the host, unless
//! the kernel moves the pages between them. That costs CPU time and makes programs wait for pages that are being
//! moved, so it is asked for by need: much is scattered, the guest has been calm for a while with a CPU idle, nothing
//! else is to be done, and no more than a hundredth of the time goes into it. If it brings little for what is
//! scattered, the pause before the next doubles.

use super::block::BLOCK_BYTES;
use super::guest::FreeMemory;
use super::sampler::NEWS_PAGES;
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

/// What was seen at a look.
#[derive(Debug, Clone, Copy)]
struct Look {
    free: FreeMemory,
    own_pages: u64,
    idle_ns: u64,
    at_ns: u64,
}

/// Decides when to compact.
#[derive(Debug)]
pub(super) struct Compaction {
    /// Since when the guest is calm, ns.
    calm_since_ns: Option<u64>,
    last: Option<Look>,
    not_before_ns: u64,
    pause_ns: u64,
    stats: CompactionStats,
}

impl Compaction {
    pub(super) fn new() -> Self {
        Self {
            calm_since_ns: None,
            last: None,
            not_before_ns: 0,
            pause_ns: PAUSE_NS.0,
            stats: CompactionStats::default(),
        }
    }

    pub(super) const fn stats(&self) -> CompactionStats {
        self.stats
    }

    /// The guest was looked at. `own_pages`: pages that were isolated since the start, which the kernel counts as
    /// allocated; `idle_ns`: idle time of all CPUs since boot.
    pub(super) fn looked(&mut self, free: &FreeMemory, own_pages: u64, idle_ns: u64, now_ns: u64) {
        let last = self.last.replace(Look { free: *free, own_pages, idle_ns, at_ns: now_ns });
        let calm = last.is_some_and(|last| {
            let own = own_pages - last.own_pages;
            let quiet = free.allocated_since(&last.free).is_some_and(|pages| pages.saturating_sub(own) < NEWS_PAGES);
            // Half of one CPU's time at least: then there is one that can do the work.
            quiet && idle_ns.saturating_sub(last.idle_ns) >= now_ns.saturating_sub(last.at_ns) / 2
        });
        if calm {
            self.calm_since_ns.get_or_insert(now_ns);
        } else {
            self.calm_since_ns = None;
        }
    }

    /// Somebody needed memory.
    pub(super) const fn pressure(&mut self) {
        self.calm_since_ns = None;
    }

    /// Whether to compact now; only asked while nothing is isolated and nothing else is to be done. `insist`: not later,
    /// even if the guest is not calm.
    pub(super) fn is_due(&self, free: &FreeMemory, insist: bool, now_ns: u64) -> bool {
        let calm = self.calm_since_ns.is_some_and(|since| now_ns >= since.saturating_add(CALM_NS));
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

    fn allocated(pages: u64) -> FreeMemory {
        FreeMemory { allocated_pages: Some(pages), ..free(500, 0) }
    }

    /// One of a guest that has been calm since second 1.
    fn calm() -> Compaction {
        let mut compaction = Compaction::new();
        compaction.looked(&allocated(0), 0, 0, 0);
        compaction.looked(&allocated(0), 0, SECOND, SECOND);
        compaction
    }

    #[test]
    fn much_must_be_scattered() {
        let compaction = calm();
        assert!(compaction.is_due(&free(500, 468), false, 4 * SECOND));
        assert!(!compaction.is_due(&free(500, 469), false, 4 * SECOND));
        assert!(!compaction.is_due(&free(500, 501), false, 4 * SECOND), "counts that do not fit each other");
        let large = FreeMemory { total: 64 << 30, ..free(1000, 0) };
        assert!(!compaction.is_due(&large, false, 4 * SECOND), "little of a large guest");
    }

    #[test]
    fn the_guest_must_have_been_calm_for_a_while() {
        let mut compaction = calm();
        assert!(!compaction.is_due(&free(500, 0), false, 4 * SECOND - 1));
        assert!(compaction.is_due(&free(500, 0), true, SECOND), "unless it is now or never");
        compaction.looked(&allocated(NEWS_PAGES + 511), 512, 4 * SECOND, 4 * SECOND);
        assert!(compaction.is_due(&free(500, 0), false, 4 * SECOND), "much of that was isolated");
        compaction.looked(&allocated(2 * NEWS_PAGES + 511), 512, 4 * SECOND, 4 * SECOND);
        assert!(!compaction.is_due(&free(500, 0), false, 5 * SECOND), "it allocates");
        compaction.looked(&allocated(2 * NEWS_PAGES + 511), 512, 4 * SECOND + SECOND / 2 - 1, 5 * SECOND);
        assert!(!compaction.is_due(&free(500, 0), false, 10 * SECOND), "its CPUs are busy");
        compaction.looked(&allocated(2 * NEWS_PAGES + 511), 512, 5 * SECOND, 6 * SECOND);
        assert!(compaction.is_due(&free(500, 0), false, 9 * SECOND));
        compaction.pressure();
        assert!(!compaction.is_due(&free(500, 0), false, 9 * SECOND));
    }

    #[test]
    fn one_that_brings_little_is_repeated_later_each_time() {
        let mut compaction = calm();
        let mut now = 10 * SECOND;
        // 200 blocks are scattered: 25 are worth it.
        for (gained, pause) in [(50, 5), (48, 10), (0, 20), (2, 40), (50, 5), (48, 10)] {
            compaction.done(&free(500, 100), &free(500, 100 + gained), now, now + MS);
            now += MS;
            assert!(!compaction.is_due(&free(500, 0), false, now + pause * SECOND - 1), "{gained} {pause}");
            assert!(compaction.is_due(&free(500, 0), false, now + pause * SECOND), "{gained} {pause}");
            now += pause * SECOND;
        }
        (0..20).for_each(|_| compaction.done(&free(500, 100), &free(490, 90), now, now));
        assert!(compaction.is_due(&free(500, 0), false, now + 600 * SECOND), "never more than ten minutes");
        let stats = compaction.stats();
        assert_eq!((stats.compactions, stats.gained_blocks, stats.spent_us), (26, 25 + 24 + 1 + 25 + 24, 6000));
    }

    #[test]
    fn it_takes_a_hundredth_of_the_time_at_most() {
        let mut compaction = calm();
        compaction.done(&free(500, 100), &free(500, 400), 10 * SECOND, 11 * SECOND);
        assert!(!compaction.is_due(&free(500, 0), true, 111 * SECOND - 1));
        assert!(compaction.is_due(&free(500, 0), false, 111 * SECOND));
        compaction.failed();
        assert!(!compaction.is_due(&free(500, 0), true, 1000 * SECOND));
    }
}
