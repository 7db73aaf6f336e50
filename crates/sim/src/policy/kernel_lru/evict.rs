//! Eviction, second half: what was taken off is looked up in the page tables, and evicted or put back.

use super::flags::Flags;
use super::lruvec::{Lruvec, MIN_GENS};
use super::pages::Pages;
use super::shadow::Shadow;
use super::tables::PageTables;
use super::{Variant, tier};

/// What one round of eviction came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Round {
    /// Pages looked at; 0 if another round would be in vain.
    pub scanned: u64,
    /// Pages evicted.
    pub reclaimed: u64,
}

impl Lruvec {
    /// Whether an isolated page stays in memory.
    fn keep<T: PageTables>(&mut self, pages: &mut Pages, tables: &mut T, page: u32) -> bool {
        // Only where an entry of it was seen accessed by looking around another page of the batch.
        if self.variant == Variant::V6_12 && pages.flags(page).has(Flags::REFERENCED) {
            return true;
        }
        let accessed = self.look_up(pages, tables, page);
        let flags = pages.flags_mut(page);
        match self.variant {
            Variant::V6_12 => {
                if accessed > 0 {
                    flags.set(Flags::REFERENCED);
                    return true;
                }
                // A dirty file page is left to whoever writes it.
                let dirty = flags.has(Flags::FILE) && flags.has(Flags::DIRTY);
                flags.clear(Flags::DIRTY);
                dirty
            }
            Variant::V6_14 => {
                if accessed > 0 && tier::proven(flags) {
                    flags.set(Flags::ACTIVE);
                }
                accessed > 0
            }
        }
    }

    fn put_back(&mut self, pages: &mut Pages, page: u32) {
        let flags = pages.flags(page);
        let young = match self.variant {
            Variant::V6_12 => true,
            Variant::V6_14 => !flags.has(Flags::ACTIVE) && self.placement(flags, false) == self.min_seq[flags.kind()],
        };
        if young {
            let flags = pages.flags_mut(page);
            flags.set_counter(0);
            flags.clear(Flags::REFERENCED);
            flags.set(Flags::ACTIVE);
        }
        self.add(pages, page, false);
        self.stats.list_moves += 1;
    }

    /// Removes a page that is on no list from memory and keeps a shadow of it.
    pub(super) fn evict<T: PageTables>(&mut self, pages: &mut Pages, tables: &mut T, page: u32) {
        tables.unmap(page);
        let flags = pages.flags(page);
        let kind = flags.kind();
        let refs = tier::refs(self.variant, flags);
        let workingset = match self.variant {
            Variant::V6_12 => refs != 0,
            Variant::V6_14 => flags.has(Flags::WORKINGSET),
        };
        self.controller.evicted[kind][tier::tier_of(self.variant, refs, workingset)] += 1;
        let shadow =
            Shadow { seq: self.min_seq[kind], refs: refs.saturating_sub(1), memcg: self.id, node: 0, workingset };
        let flags = pages.flags_mut(page);
        flags.reset();
        flags.set(Flags::SHADOW | if kind == 1 { Flags::FILE } else { 0 });
        pages.set_shadow(page, shadow.pack());
        self.stats.evictions += 1;
    }

    pub(super) fn evict_batch<T: PageTables>(&mut self, pages: &mut Pages, tables: &mut T, swappiness: u8) -> Round {
        let mut scanned = self.isolate_batch(pages, swappiness);
        scanned += u64::from(self.advance(pages, swappiness));
        if self.oldest(swappiness) + MIN_GENS > self.max_seq {
            scanned = 0;
        }
        let mut reclaimed = 0;
        let batch = std::mem::take(&mut self.isolated);
        for &page in &batch {
            if self.keep(pages, tables, page) {
                // Put back only after the whole batch, as others' look-around must see it off the lists.
                pages.flags_mut(page).set(Flags::RECLAIM);
            } else {
                self.evict(pages, tables, page);
                reclaimed += 1;
            }
        }
        for &page in &batch {
            let flags = pages.flags_mut(page);
            if flags.has(Flags::RESIDENT) {
                flags.clear(Flags::RECLAIM);
                self.put_back(pages, page);
            }
        }
        self.isolated = batch;
        self.isolated.clear();
        Round { scanned, reclaimed }
    }
}
