//! What the kernel does by itself when main memory runs short: a clock with a second chance, in the background where it
//! can keep up, else while the program waits.
//!
//! This stands for the kernel's lists, so that a program may be larger than the machine. It is not their exact
//! algorithm (`isotherm sim lru` has that), and its looks at accessed bits do not disturb the monitor's, as they would
//! on a real machine.

use super::{SimMemory, bytes_of};
use crate::machine::cleared::Cleared;
use crate::machine::device::SCAN_NS;
use isotherm_core::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN};
use isotherm_core::mask::PageMask;
use isotherm_core::pages::{PageSet, mask_of, push_runs};

/// Pages reclaimed in one go (`SWAP_CLUSTER_MAX`).
const BATCH: u64 = 32;

#[derive(Debug, Default)]
pub(super) struct Reclaim {
    /// Where it goes on, page of the arena.
    hand: u64,
    /// When it looked at which pages of the arena, in time of work.
    looked: Cleared,
    /// Named as the next to go.
    cold: PageSet,
    /// When the background is done with what it has in hand, ns; `None`: it sleeps.
    next: Option<f64>,
    /// Nothing could be reclaimed although memory was short.
    failed: bool,
}

impl Reclaim {
    /// When the background comes next.
    pub const fn next(&self) -> Option<f64> {
        self.next
    }
}

/// Free memory, bytes, below which a program must reclaim itself; as the kernel's `min_free_kbytes`. A quarter more
/// wakes the background, half more lets it sleep.
fn least_free(memory: u64) -> u64 {
    ((4.0 * (memory as f64 / 1024.0).sqrt()) as u64 * 1024).min(memory / 20)
}

impl SimMemory {
    /// Whether memory was short and nothing could be done about it: a real machine would have killed the program.
    pub const fn out_of_memory(&self) -> bool {
        self.reclaim.failed
    }

    /// Names pages as the next to go; their accessed bits are cleared.
    pub(super) fn mark_cold(&mut self, base: u64, mask: &PageMask) {
        self.reclaim.cold.insert_mask(base, mask);
        let now = self.progress.next_work_ns();
        let mut runs = Vec::new();
        push_runs(base, mask, &mut runs);
        for run in runs {
            let page = |addr: u64| (addr - self.arena.start) / PAGE_SIZE;
            self.reclaim.looked.set(page(run.start)..page(run.end), now);
        }
    }

    /// Before the start: everything was populated in order, and what did not fit has gone.
    pub(super) fn fit(&mut self) {
        let enough = least_free(self.hardware.memory) * 3 / 2;
        while self.free() < enough && self.shrink().0 > 0 {}
        self.reclaim.failed = self.taken() > self.hardware.memory;
    }

    /// Memory has been taken: sees to it that enough is left. Returns what the program has to wait for that, ns.
    pub(super) fn relieve(&mut self, now: f64) -> u64 {
        let min = least_free(self.hardware.memory);
        let mut waits = 0;
        while self.free() < min {
            let (pages, cost) = self.shrink();
            waits += cost;
            if pages == 0 {
                self.reclaim.failed |= self.taken() > self.hardware.memory;
                break;
            }
        }
        if self.reclaim.next.is_none() && self.free() < min + min / 4 {
            self.reclaim.next = Some(now);
        }
        waits
    }

    /// The background takes the next pages.
    pub(super) fn background(&mut self, now: f64) {
        let enough = self.free() >= least_free(self.hardware.memory) * 3 / 2;
        let (pages, cost) = if enough { (0, 0) } else { self.shrink() };
        self.counters.worker_ns += cost;
        self.reclaim.next = (pages > 0).then(|| now + cost.max(1) as f64);
    }

    /// Reclaims a batch: how many pages went, and what that cost, ns.
    fn shrink(&mut self) -> (u64, u64) {
        let Some(device) = self.hardware.swap else { return (0, 0) };
        let room = self.hardware.swap_size.saturating_sub(self.out_bytes) / PAGE_SIZE;
        let want = BATCH.min(room);
        let (mut gone, mut looks) = (self.shrink_cold(want), 0);
        let pages = self.arena.len() / PAGE_SIZE;
        // Two rounds: what was touched before the first is not touched between both.
        while gone < want && looks < 2 * pages {
            let page = self.reclaim.hand;
            self.reclaim.hand = (page + 1) % pages;
            looks += 1;
            gone += self.try_page(page);
        }
        self.counters.reclaimed += gone * PAGE_SIZE;
        (gone, gone * device.page_out_ns() + looks * SCAN_NS)
    }

    /// Takes pages that were named.
    fn shrink_cold(&mut self, want: u64) -> u64 {
        let mut gone = 0;
        while gone < want {
            let Some(first) = self.reclaim.cold.ranges().first().map(|r| r.start) else { break };
            self.reclaim.cold.remove(AddrRange::new(first, first + PAGE_SIZE));
            gone += self.try_page((first - self.arena.start) / PAGE_SIZE);
        }
        gone
    }

    /// Takes a page of the arena, or the huge page that it lies in, unless it was touched since the last look; pages
    /// taken.
    fn try_page(&mut self, page: u64) -> u64 {
        let addr = self.arena.start + page * PAGE_SIZE;
        let base = super::base_of(addr);
        let (span, pages) = if self.is_huge(base) {
            let first = base.max(self.arena.start);
            (AddrRange::new(base, base + TABLE_SPAN), (first - self.arena.start) / PAGE_SIZE)
        } else {
            (AddrRange::new(addr, addr + PAGE_SIZE), page)
        };
        let pages = pages..pages + span.len() / PAGE_SIZE;
        let mask = mask_of(base, span);
        let (absent, locked, slow) = (self.absent(base), self.locked.mask(base), self.slow.mask(base));
        if (0..8).any(|i| mask[i] & (absent[i] | locked[i] | slow[i]) != 0) {
            return 0;
        }
        let now = self.progress.next_work_ns();
        let mut touched = false;
        self.reclaim.looked.for_each(pages.clone(), |run, last| {
            touched |= last.is_none_or(|last| self.activity.any_touched(run, last, now));
        });
        if touched {
            self.reclaim.looked.set(pages, now);
            return 0;
        }
        self.leave(base, &mask);
        bytes_of(&mask) / PAGE_SIZE
    }
}
