//! Pages that come and go, and the counts that follow them.

use super::{SimMemory, bytes_of};
use isotherm_core::addr::{AddrRange, PAGE_SIZE, TABLE_PAGES, TABLE_SPAN};
use isotherm_core::mask::PageMask;
use isotherm_core::pages::{mask_of, push_runs};
use std::cmp::Reverse;
use std::ops::Range;

impl SimMemory {
    /// Notes when the pages of `range`, which are not there, will be touched next.
    pub(super) fn expect_touches(&mut self, range: AddrRange) {
        let (first, from) = (self.arena.start / PAGE_SIZE, self.progress.next_work_ns());
        let pages = range.start / PAGE_SIZE - first..range.end / PAGE_SIZE - first;
        for run in self.activity.ever_touched(pages) {
            for page in run {
                // What comes after the end of the work never comes.
                if let Some(next) = self.activity.next_touch(page, from).filter(|&t| t < self.goal_ns) {
                    self.due.push(Reverse((next, (first + page) * PAGE_SIZE)));
                }
            }
        }
    }

    /// The pages of `range`, which lies within 2 MiB at `base`, that are in memory.
    pub(super) fn present(&self, base: u64, range: AddrRange) -> PageMask {
        let asked = range.intersect(&self.arena).map_or([0; 8], |r| mask_of(base, r));
        let absent = self.absent(base);
        std::array::from_fn(|i| asked[i] & !absent[i])
    }

    /// Swaps pages of the 2 MiB at `base` out, all of them present.
    pub(super) fn leave(&mut self, base: u64, mask: &PageMask) {
        let bytes = bytes_of(mask);
        self.set_huge(base, false);
        self.leave_slow_node(base, mask);
        self.out.insert_mask(base, mask);
        self.out_bytes += bytes;
        self.counters.swap_out += bytes;
        let mut runs = Vec::new();
        push_runs(base, mask, &mut runs);
        runs.into_iter().for_each(|run| self.expect_touches(run));
    }

    /// Brings those of the pages that are out back; how many bytes.
    pub(super) fn come_back(&mut self, base: u64, mask: &PageMask) -> u64 {
        let bytes = self.out.remove_mask(base, mask);
        self.out_bytes -= bytes;
        self.counters.swap_in += bytes;
        bytes
    }

    /// Populates those of the pages that never were; how many bytes.
    pub(super) fn populate(&mut self, base: u64, mask: &PageMask) -> u64 {
        let bytes = self.holes.remove_mask(base, mask);
        self.hole_bytes -= bytes;
        bytes
    }

    /// Moves pages that are present to the slow node; how many bytes were not there.
    pub(super) fn join_slow_node(&mut self, base: u64, mask: &PageMask) -> u64 {
        let there = self.slow.mask(base);
        let new: PageMask = std::array::from_fn(|i| mask[i] & !there[i]);
        let bytes = bytes_of(&new);
        if bytes > 0 {
            self.slow.insert_mask(base, &new);
            self.slow_bytes += bytes;
            self.slow_share += self.share_of(base, &new);
            self.renew_speed();
        }
        bytes
    }

    /// Moves pages to the fast node; how many bytes were not there.
    pub(super) fn leave_slow_node(&mut self, base: u64, mask: &PageMask) -> u64 {
        let there = self.slow.mask(base);
        let leaving: PageMask = std::array::from_fn(|i| mask[i] & there[i]);
        let bytes = bytes_of(&leaving);
        if bytes > 0 {
            self.slow.remove_mask(base, &leaving);
            self.slow_bytes -= bytes;
            self.slow_share -= self.share_of(base, &leaving);
            self.renew_speed();
        }
        bytes
    }

    /// Backs the 2 MiB at `base` by a huge page, or no longer.
    pub(super) fn set_huge(&mut self, base: u64, huge: bool) {
        let changed = if huge { self.huge.insert(base) } else { self.huge.remove(&base) };
        if changed {
            let share = self.share_of(base, &[u64::MAX; 8]);
            self.huge_share += if huge { share } else { -share };
            self.renew_speed();
        }
    }

    /// Takes the shares anew: another stage has begun.
    pub(super) fn renew_shares(&mut self) {
        let at = self.progress.work_ns();
        self.stage_end = self.activity.stage_end_ns(at);
        self.huge_share = self.huge.iter().map(|&base| self.share_of(base, &[u64::MAX; 8])).sum();
        self.slow_share = self.slow.ranges().iter().map(|r| self.share_of_range(*r)).sum();
        self.renew_speed();
    }

    /// The share of the touches that go to pages of the 2 MiB at `base`.
    fn share_of(&self, base: u64, mask: &PageMask) -> f64 {
        let mut runs = Vec::new();
        push_runs(base, mask, &mut runs);
        runs.into_iter().map(|run| self.share_of_range(run)).sum()
    }

    fn share_of_range(&self, range: AddrRange) -> f64 {
        self.activity.share_of(self.arena_pages(range), self.progress.work_ns())
    }

    fn arena_pages(&self, range: AddrRange) -> Range<u64> {
        let first = self.arena.start / PAGE_SIZE;
        let inside = range.intersect(&self.arena).unwrap_or(AddrRange::new(self.arena.start, self.arena.start));
        inside.start / PAGE_SIZE - first..inside.end / PAGE_SIZE - first
    }

    /// How fast the program works, by where what it touches lies.
    fn renew_speed(&mut self) {
        // Shares are sums of small differences: none may leave a trace.
        if self.huge.is_empty() {
            self.huge_share = 0.0;
        }
        if self.slow_bytes == 0 {
            self.slow_share = 0.0;
        }
        let touch_ns = 1e9 / self.activity.rate();
        let extra = self.hardware.slow.map_or(0.0, |(tier, _)| tier.extra_ns / touch_ns);
        let time =
            1.0 + self.slow_share.clamp(0.0, 1.0) * extra - self.huge_share.clamp(0.0, 1.0) * self.hardware.huge_gain;
        self.progress.set_speed(1.0 / time.max(0.01));
    }

    /// Whether all of the 2 MiB at `base` belong to the process.
    pub(super) fn holds_block(&self, base: u64) -> bool {
        self.arena.start <= base && base + TABLE_SPAN <= self.arena.end
    }

    /// Pages of the 2 MiB at `base` that are out.
    pub(super) fn pages_out(&self, base: u64) -> u64 {
        bytes_of(&self.out.mask(base)) / PAGE_SIZE
    }

    /// Whether nothing of the 2 MiB at `base` was ever there.
    pub(super) fn never_populated(&self, base: u64) -> bool {
        bytes_of(&self.holes.mask(base)) == TABLE_PAGES * PAGE_SIZE
    }

    /// Makes the 2 MiB at `base` one huge page on the fast node: what is out comes back, what never was is there now.
    pub(super) fn make_huge(&mut self, base: u64) {
        let all = [u64::MAX; 8];
        self.come_back(base, &all);
        self.populate(base, &all);
        self.leave_slow_node(base, &all);
        self.set_huge(base, true);
    }
}
