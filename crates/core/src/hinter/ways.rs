//! Which of a guest's ways of isolating memory is used now.
//!
//! With several, memory blocks go offline first, and what these cannot give (blocks with memory that cannot be moved,
//! blocks in use for the most part) is isolated as huge pages afterwards.

use super::block::BLOCK_BYTES;
use super::block_map::BlockMap;
use super::config::Config;
use super::guest::FreeMemory;
use super::way::Way;

const MS: u64 = 1_000_000;
/// A memory block is taken offline only while so many of its size are free.
const LEAST_FREE: u64 = 3;
/// And only if all memory is so many times its size: a program that asks for more than there is without it is refused
/// in that moment.
const LEAST_TOTAL: u64 = 4;
/// Huge pages that are never asked for: the last ones would make the kernel tidy up memory, or drop its page cache.
const HUGE_MARGIN: u64 = 4;
/// How long a way that failed is not used, ns.
const PENALTY_NS: u64 = 60_000 * MS;

/// A way, and how it is used.
#[derive(Debug)]
struct Entry {
    config: Config,
    not_before_ns: u64,
    /// Blocks that were still new after the last pass. They cannot be had in this way (they are what the reserve keeps,
    /// or free in part only), and are no reason for another pass.
    left: u64,
}

/// The ways, in the order in which they are used.
#[derive(Debug)]
pub(super) struct Ways {
    entries: Vec<Entry>,
    now: usize,
}

impl Ways {
    pub(super) fn new(configs: &[Config]) -> Self {
        assert!(!configs.is_empty(), "a guest without a way to isolate memory");
        Self { entries: configs.iter().map(|&config| Entry { config, not_before_ns: 0, left: 0 }).collect(), now: 0 }
    }

    /// The way in use.
    pub(super) fn way(&self) -> Way {
        self.current().config.way
    }

    /// The limits of a pass in the way in use.
    pub(super) fn config(&self) -> Config {
        let Entry { config, left, .. } = *self.current();
        let left = if config.way == Way::Touch { left } else { 0 };
        Config { threshold: config.threshold + left, ..config }
    }

    /// Free memory as the way in use sees it, bytes.
    pub(super) fn free(&self, free: &FreeMemory) -> u64 {
        let config = &self.current().config;
        match config.way {
            Way::Offline => {
                // The guest lacks a whole block for a moment, which must not be much of what it has.
                let block = config.unit * BLOCK_BYTES;
                let enough = free.total >= LEAST_TOTAL * block;
                if enough { free.free.saturating_sub((LEAST_FREE - 1) * block) } else { 0 }
            }
            Way::Touch => {
                // More huge pages than there are free would be made by moving and dropping what is in use.
                let huge = free.free_huge.saturating_sub(HUGE_MARGIN * BLOCK_BYTES);
                free.free.min(huge.saturating_add(config.reserve))
            }
        }
    }

    /// The way in use failed: it is not used for a while.
    pub(super) fn penalize(&mut self, now_ns: u64) {
        self.entries[self.now].not_before_ns = now_ns + PENALTY_NS;
    }

    /// Whether the way in use may be used now.
    pub(super) fn is_usable(&self, now_ns: u64) -> bool {
        self.current().not_before_ns <= now_ns
    }

    /// The way in use has nothing more to do: goes on to the next for which there is something, or back to the first.
    /// True if another one is in use now. Nothing may be isolated.
    pub(super) fn go_on(&mut self, blocks: &BlockMap, insist: bool, now_ns: u64) -> bool {
        let (fresh, known) = (blocks.nr_free(), blocks.nr_free() + blocks.nr_reported());
        let before = self.now;
        let next = (self.now + 1..self.entries.len()).find(|&i| {
            let entry = &self.entries[i];
            // Clearing touches what the host had dropped already: not for little. What was offline comes last when the
            // kernel hands memory out, so that after it little is cleared in vain.
            let news = fresh.saturating_sub(entry.left);
            let least_share = if self.begins_offline() { 64 } else { 4 };
            let enough = entry.config.way == Way::Offline || news * least_share >= known;
            fresh > 0 && entry.not_before_ns <= now_ns && (insist || enough && news >= entry.config.threshold)
        });
        if self.now > 0 {
            let pause = if self.follows_offline() { 3000 * MS } else { 10_000 * MS };
            let entry = &mut self.entries[self.now];
            entry.not_before_ns = entry.not_before_ns.max(now_ns + pause);
        }
        self.now = next.unwrap_or(0);
        self.now != before
    }

    /// A pass has ended with `left` blocks that are still new, and everything is returned.
    pub(super) fn pass_ended(&mut self, left: u64) {
        self.entries[self.now].left = left;
    }

    /// So many blocks are new now.
    pub(super) fn looked(&mut self, fresh: u64) {
        self.entries.iter_mut().for_each(|entry| entry.left = entry.left.min(fresh));
    }

    /// Whether huge pages are touched now that are what memory blocks going offline have left. Then the pass is to stop
    /// as soon as it gets what the host had dropped already.
    pub(super) fn follows_offline(&self) -> bool {
        self.way() == Way::Touch && self.begins_offline()
    }

    /// Whether the way in use is the first.
    pub(super) const fn is_first(&self) -> bool {
        self.now == 0
    }

    /// Batches of `most` blocks at most, where blocks come one by one.
    pub(super) fn limit_batch(&mut self, most: usize) {
        for entry in self.entries.iter_mut().filter(|e| e.config.way == Way::Touch) {
            entry.config.batch = entry.config.batch.min(most.max(1));
        }
    }

    fn begins_offline(&self) -> bool {
        self.entries[0].config.way == Way::Offline
    }

    fn current(&self) -> &Entry {
        &self.entries[self.now]
    }
}
