//! Eviction, first half: what the oldest generation still holds is sorted; what is left is taken off to be evicted.

use super::flags::Flags;
use super::lruvec::{Lruvec, MAX_GENS, MIN_GENS, index};
use super::pages::Pages;
use super::{Variant, tier};

impl Lruvec {
    fn move_up(&mut self, pages: &mut Pages, page: u32, generation: usize, head: bool) {
        let list = self.list(generation, pages.flags(page).kind());
        pages.remove(page);
        if head {
            pages.push_head(list, page);
        } else {
            pages.push_tail(list, page);
        }
        self.stats.list_moves += 1;
    }

    /// Moves a page where it belongs if that is elsewhere. False if it may be evicted as far as is known.
    fn sort(&mut self, pages: &mut Pages, page: u32, highest: usize) -> bool {
        let flags = pages.flags(page);
        let kind = flags.kind();
        if flags.has(Flags::UNEVICTABLE) {
            self.take_off(pages, page);
            return true;
        }
        if let Some(label) = flags.generation().filter(|&label| label != index(self.min_seq[kind])) {
            self.move_up(pages, page, label, true);
            self.detail.sorted += 1;
            return true;
        }
        let (tier, saturated) = (tier::tier(self.variant, flags), tier::saturated(self.variant, flags));
        if tier > highest || saturated {
            let next = self.one_up(pages, page, false);
            self.move_up(pages, page, next, self.variant == Variant::V6_14);
            if self.variant == Variant::V6_12 || !saturated {
                self.controller.protected[kind][tier] += 1;
            }
            self.detail.protected += 1;
            return true;
        }
        let dirty_file = flags.has(Flags::FILE) && flags.has(Flags::DIRTY);
        if flags.has(Flags::WRITEBACK) || (dirty_file && self.variant == Variant::V6_14) {
            let next = self.one_up(pages, page, true);
            self.move_up(pages, page, next, true);
            // Someone else writes it now; it is taken to be clean when it is met again.
            pages.flags_mut(page).clear(Flags::DIRTY | Flags::WRITEBACK);
            return true;
        }
        false
    }

    fn isolate(&mut self, pages: &mut Pages, page: u32) {
        self.take_off(pages, page);
        let variant = self.variant;
        let flags = pages.flags_mut(page);
        if !flags.has(Flags::REFERENCED) {
            flags.set_counter(0);
            if variant == Variant::V6_12 {
                flags.clear(Flags::WORKINGSET);
            }
        }
        flags.clear(Flags::RECLAIM);
        if variant == Variant::V6_12 {
            flags.clear(Flags::REFERENCED);
        }
        self.isolated.push(page);
    }

    /// Goes through the oldest generation of one kind from its tail. How many pages it looked at, or 0 if nothing came
    /// of it and nothing will.
    fn scan(&mut self, pages: &mut Pages, kind: usize, highest: usize) -> u64 {
        if self.generations(kind) == MIN_GENS {
            return 0;
        }
        let list = self.list(index(self.min_seq[kind]), kind);
        let budget = u64::from(self.batch) * 64;
        let mut scanned = 0;
        while scanned < budget && self.isolated.len() < self.batch as usize {
            let Some(page) = pages.tail(list) else { break };
            scanned += 1;
            if !self.sort(pages, page, highest) {
                self.isolate(pages, page);
            }
        }
        self.stats.pages_scanned += scanned;
        if self.isolated.is_empty() && scanned < budget { 0 } else { scanned }
    }

    /// Takes off a batch of pages to be evicted. How many it looked at.
    pub(super) fn isolate_batch(&mut self, pages: &mut Pages, swappiness: u8) -> u64 {
        let floor = u64::from(self.batch);
        let (kind, mut highest) = self.controller.choose(self.variant, swappiness, self.min_seq, floor);
        for kind in [kind, kind.other()] {
            let kind = kind as usize;
            if !self.evictable(swappiness)[kind] {
                continue;
            }
            let tier = highest.take().unwrap_or_else(|| self.controller.evictable_tier(self.variant, kind, floor));
            let scanned = self.scan(pages, kind, tier);
            if scanned > 0 {
                return scanned;
            }
        }
        0
    }

    /// Leaves generations behind that are empty. Whether there were any.
    pub(super) fn advance(&mut self, pages: &Pages, swappiness: u8) -> bool {
        let evictable = self.evictable(swappiness);
        let mut oldest = self.min_seq;
        for kind in (0..2).filter(|&kind| evictable[kind]) {
            while oldest[kind] + MIN_GENS <= self.max_seq && pages.is_list_empty(self.list(index(oldest[kind]), kind)) {
                oldest[kind] += 1;
            }
        }
        if evictable == [true, true] {
            match self.variant {
                Variant::V6_12 => {
                    oldest[0] = oldest[0].min(oldest[1]);
                    oldest[1] = oldest[0].max(self.min_seq[1]);
                }
                Variant::V6_14 if oldest != self.min_seq => {
                    let limit = self.max_seq - MIN_GENS;
                    for (kind, other) in [(0, 1), (1, 0)] {
                        if oldest[kind] > limit && oldest[other] < limit {
                            oldest[kind] = limit;
                            break;
                        }
                    }
                }
                Variant::V6_14 => {}
            }
        }
        let mut moved = false;
        for (kind, oldest) in oldest.into_iter().enumerate() {
            if oldest > self.min_seq[kind] {
                self.controller.carry_over(kind);
                self.min_seq[kind] = oldest;
                moved = true;
            }
        }
        debug_assert!((0..2).all(|kind| (MIN_GENS..=MAX_GENS).contains(&self.generations(kind))));
        moved
    }
}
