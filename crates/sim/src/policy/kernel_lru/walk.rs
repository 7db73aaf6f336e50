//! The walk over page tables that aging begins with, and the look around one accessed entry that eviction makes.

use super::bloom::Bloom;
use super::flags::Flags;
use super::lruvec::{Lruvec, index};
use super::pages::Pages;
use super::tables::{EntryAt, PageTables, Shape, ones, suitable};
use super::{PageKind, Variant, tier};

/// The entries to look at around `entry`: at most `width` of those that there are, as centred as the borders allow.
/// None if there is nothing but the entry itself.
pub fn window(entry: u32, entries: u32, width: u32) -> Option<(u32, u32)> {
    if entries <= 1 {
        None
    } else if entries <= width {
        Some((0, entries))
    } else if entry < width / 2 {
        Some((0, width))
    } else if entries - entry < width / 2 {
        Some((entries - width, entries))
    } else {
        let from = (entry - width / 2).min(entries - width);
        Some((from, from + width))
    }
}

impl Lruvec {
    fn filter_allows(&self, seq: u64, key: u64) -> bool {
        self.walk.filters[(seq % 2) as usize].as_ref().is_none_or(|filter| filter.contains(key))
    }

    fn filter_add(&mut self, seq: u64, key: u64) {
        if let Some(filter) = &mut self.walk.filters[(seq % 2) as usize] {
            self.detail.tables_added += u64::from(filter.insert(key));
        }
    }

    /// Labels an accessed page as one of the youngest, without moving it. False if it does not belong here or did not
    /// need to.
    fn promote(&mut self, pages: &mut Pages, page: u32) -> bool {
        let youngest = index(self.max_seq);
        let flags = pages.flags_mut(page);
        if !flags.has(Flags::RESIDENT) || flags.memcg() != self.id || flags.has(Flags::UNEVICTABLE) {
            return false;
        }
        let Some(old) = flags.generation() else {
            if self.variant == Variant::V6_12 {
                flags.set(Flags::REFERENCED);
            }
            return false;
        };
        match self.variant {
            Variant::V6_12 => tier::forget(self.variant, flags),
            Variant::V6_14 if !tier::proven(flags) => return false,
            Variant::V6_14 => {}
        }
        self.relabel(flags, Some(youngest));
        old != youngest
    }

    /// Reads the tables of all address spaces that ran, and promotes what was accessed.
    pub(super) fn walk_tables<T: PageTables>(
        &mut self,
        pages: &mut Pages,
        tables: &mut T,
        swappiness: u8,
        force: bool,
    ) {
        let seq = self.max_seq;
        match &mut self.walk.filters[((seq + 1) % 2) as usize] {
            Some(filter) => filter.clear(),
            none => *none = Some(Bloom::default()),
        }
        for space in 0..tables.spaces() {
            let ran = tables.take_ran(space);
            if !(ran || force) || !tables.enter(space) {
                continue;
            }
            let mut from = 0;
            while let Some(table) = tables.next_table(space, from) {
                from = table + 1;
                let kind = tables.kind(table).map(|kind: PageKind| kind as usize);
                if kind.is_none_or(|kind| self.evictable(swappiness)[kind]) {
                    self.walk_table(pages, tables, table, force);
                }
            }
        }
    }

    fn walk_table<T: PageTables>(&mut self, pages: &mut Pages, tables: &mut T, table: u32, force: bool) {
        let entries = match tables.shape(table) {
            Shape::Absent => return,
            Shape::Huge(page) => {
                self.stats.ptes_read += 1;
                if tables.table_young(table) {
                    tables.clear_table_young(table);
                    self.detail.promoted_by_walk += u64::from(self.promote(pages, page));
                }
                return;
            }
            Shape::Table(entries) => entries,
        };
        let (seq, key) = (self.max_seq, tables.key(table));
        if self.switches.non_leaf && !force {
            if !tables.table_young(table) {
                self.stats.tables_skipped += 1;
                return;
            }
            tables.clear_table_young(table);
        }
        if !force && !self.filter_allows(seq, key) {
            self.stats.tables_skipped += 1;
            return;
        }
        let worthwhile = if tables.lock(table) {
            let young = tables.take_young(table, 0, entries);
            self.stats.ptes_read += u64::from(entries);
            self.detail.tables_read += 1;
            let mut count = 0;
            for entry in ones(&young) {
                let Some(page) = tables.page(EntryAt { table, entry }) else { continue };
                count += 1;
                self.detail.promoted_by_walk += u64::from(self.promote(pages, page));
            }
            suitable(entries, count)
        } else {
            self.variant == Variant::V6_14
        };
        if worthwhile {
            self.filter_add(seq + 1, key);
        } else {
            self.detail.tables_in_vain += 1;
        }
    }

    /// Looks a page up in the page tables: how many entries were accessed. Where one was, looks around it.
    pub(super) fn look_up<T: PageTables>(&mut self, pages: &mut Pages, tables: &mut T, page: u32) -> u32 {
        let (mut accessed, mut nth) = (0, 0);
        while let Some(place) = tables.place(page, nth) {
            nth += 1;
            self.stats.ptes_read += 1;
            let bits = tables.take_young(place.table, place.entry, place.entry + 1);
            if ones(&bits).next().is_some() {
                accessed += 1;
                self.look_around(pages, tables, place);
            }
        }
        self.detail.rmap_walks += u64::from(nth > 0);
        accessed
    }

    fn look_around<T: PageTables>(&mut self, pages: &mut Pages, tables: &mut T, at: EntryAt) {
        let Shape::Table(entries) = tables.shape(at.table) else { return };
        let Some((from, to)) = window(at.entry, entries, self.batch) else { return };
        if !tables.lock(at.table) {
            return;
        }
        let young = tables.take_young(at.table, from, to);
        self.stats.ptes_read += u64::from(to - from - 1);
        let mut count = 1;
        for entry in ones(&young) {
            let place = EntryAt { entry, ..at };
            let Some(page) = tables.page(place) else { continue };
            let flags = pages.flags(page);
            if flags.memcg() != self.id {
                tables.put_back(place);
                continue;
            }
            count += 1;
            // It waits in the same batch for its own look-up, which must still find the bit: nothing else would tell
            // that it was accessed, and it would be evicted.
            if flags.generation().is_none() && self.variant == Variant::V6_14 {
                tables.put_back(place);
                continue;
            }
            self.detail.promoted_by_look += u64::from(self.promote(pages, page));
        }
        if suitable(to - from, count) {
            self.filter_add(self.max_seq, tables.key(at.table));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_centred_and_within_bounds() {
        assert_eq!(window(0, 1, 64), None);
        assert_eq!(window(3, 40, 64), Some((0, 40)));
        assert_eq!(window(31, 512, 64), Some((0, 64)));
        assert_eq!(window(32, 512, 64), Some((0, 64)));
        assert_eq!(window(33, 512, 64), Some((1, 65)));
        assert_eq!(window(511, 512, 64), Some((448, 512)));
        assert_eq!(window(480, 512, 64), Some((448, 512)));
        for entry in 0..512 {
            for width in [2, 4, 64] {
                let (from, to) = window(entry, 512, width).unwrap();
                assert!(from <= entry && entry < to && to - from == width && to <= 512);
            }
        }
    }

    #[test]
    fn one_entry_in_eight_is_worth_it() {
        assert!(suitable(512, 64));
        assert!(!suitable(512, 63));
        assert!(suitable(64, 8));
        assert!(!suitable(64, 7));
    }
}
