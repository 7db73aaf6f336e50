//! Aging: a new generation is created; everything else thereby becomes older.

use super::flags::Flags;
use super::lruvec::{Lruvec, MAX_GENS, MIN_GENS, index};
use super::pages::Pages;
use super::tables::PageTables;
use super::{Variant, tier};

impl Lruvec {
    /// Moves a page one generation up, unless a walk has promoted it meanwhile. The generation it then is in.
    pub(super) fn one_up(&mut self, pages: &mut Pages, page: u32, reclaim: bool) -> usize {
        let flags = pages.flags_mut(page);
        let oldest = index(self.min_seq[flags.kind()]);
        match flags.generation() {
            Some(label) if label != oldest => label,
            _ => {
                let next = (oldest + 1) % MAX_GENS as usize;
                tier::forget(self.variant, flags);
                if reclaim {
                    flags.set(Flags::RECLAIM);
                }
                self.relabel(flags, Some(next));
                next
            }
        }
    }

    /// Makes room for a generation: what is left of the oldest one joins the next.
    pub(super) fn retire_oldest(&mut self, pages: &mut Pages, kind: usize, swappiness: u8) {
        let oldest = index(self.min_seq[kind]);
        if self.evictable(swappiness)[kind] {
            let list = self.list(oldest, kind);
            while let Some(page) = pages.tail(list) {
                let flags = pages.flags(page);
                if self.variant == Variant::V6_14 && !tier::saturated(self.variant, flags) {
                    self.controller.protected[kind][tier::tier(self.variant, flags)] += 1;
                }
                let next = self.one_up(pages, page, false);
                pages.remove(page);
                pages.push_tail(self.list(next, kind), page);
                self.stats.list_moves += 1;
            }
        }
        self.controller.carry_over(kind);
        self.min_seq[kind] += 1;
    }

    /// Creates the generation after `seq`. False if that was done already.
    pub(super) fn create_generation(&mut self, pages: &mut Pages, seq: u64, swappiness: u8) -> bool {
        if seq < self.max_seq {
            return false;
        }
        for kind in [1, 0] {
            if self.generations(kind) == MAX_GENS {
                self.retire_oldest(pages, kind, swappiness);
            }
        }
        self.max_seq += 1;
        self.stats.agings += 1;
        true
    }

    /// Walks the page tables and creates a generation. With `force` all tables are read. False if that was done
    /// already.
    pub fn age<T: PageTables>(&mut self, pages: &mut Pages, tables: &mut T, swappiness: u8, force: bool) -> bool {
        let seq = self.max_seq;
        if seq <= self.walk.seq {
            return false;
        }
        if self.switches.leaf_walk {
            self.walk_tables(pages, tables, swappiness, force);
        }
        self.walk.seq += 1;
        self.create_generation(pages, seq, swappiness)
    }

    /// Whether a generation should be created, and how many pages there are to scan (none if eviction is impossible).
    pub(super) fn wants_aging(&self, swappiness: u8) -> (bool, u64) {
        let oldest = self.oldest(swappiness);
        if oldest + MIN_GENS > self.max_seq {
            return (true, 0);
        }
        let (mut total, mut young, mut old) = (0, 0, 0);
        for kind in 0..2 {
            if !self.evictable(swappiness)[kind] {
                continue;
            }
            for seq in self.min_seq[kind]..=self.max_seq {
                let size = self.sizes[index(seq)][kind];
                total += size;
                if seq == self.max_seq {
                    young += size;
                } else if seq + MIN_GENS == self.max_seq {
                    old += size;
                }
            }
        }
        let three = oldest + MIN_GENS == self.max_seq;
        let wants = match self.variant {
            Variant::V6_12 => three && (young * MIN_GENS > total || old * (MIN_GENS + 2) < total),
            Variant::V6_14 => three,
        };
        (wants, total)
    }
}
