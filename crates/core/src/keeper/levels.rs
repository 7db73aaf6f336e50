//! How often each page is used: learnt by walks, a byte a page; tables whose pages are alike take one byte for all.

use super::page::{NEW, group, next_level, random};
use super::page_kind::PageKind;
use super::reuse::ReuseModel;
use crate::addr::{AddrRange, PAGE_SIZE};
use crate::history::table::{PAGES, Table};
use crate::mask::{NO_PAGES, PageMask, and, and_not, count, has, iter, or};
use crate::pages::pages_in;
use std::collections::BTreeMap;

const ALL: PageMask = [u64::MAX; 8];

/// The levels of the pages of one address space, by table.
#[derive(Debug, Clone, Default)]
pub struct Levels(BTreeMap<u64, TableLevels>);

/// The levels of one table's pages.
#[derive(Debug, Clone)]
enum TableLevels {
    /// All the same.
    Alike(u8),
    /// One each.
    Each(Box<[u8; PAGES]>),
}

/// What a walk tells about the pages of one table.
#[derive(Debug)]
pub struct TableWalk<'a> {
    /// Where the table is.
    pub base: u64,
    /// Number of the walk.
    pub walk: u64,
    /// What was known of its pages before; `None`: nothing.
    pub before: Option<&'a Table>,
    /// Ages at the walk before, by the bytes that pages have in that.
    pub ages: &'a [u8; 256],
    /// Pages of which something was known.
    pub known: PageMask,
    /// Pages that are there for the first time; disjoint from `known`.
    pub fresh: PageMask,
    /// Used since the walk before.
    pub used: PageMask,
    /// Of these pages nobody can tell whether they were used.
    pub silent: PageMask,
    /// Pages of files.
    pub file: PageMask,
}

impl Levels {
    /// The level of page `i` of the table at `base`.
    pub fn of(&self, base: u64, i: usize) -> u8 {
        self.0.get(&base).map_or(NEW, |levels| levels.of(i))
    }

    /// Takes over what a walk tells of a table, and counts for `reuse` which pages were used.
    pub fn learn(&mut self, walked: &TableWalk<'_>, reuse: &mut ReuseModel) {
        let levels = self.0.entry(walked.base).or_insert(TableLevels::Alike(NEW));
        levels.count(walked, reuse);
        levels.update(walked);
    }

    /// Forgets tables without a page in `ranges` (sorted, disjoint).
    pub fn keep(&mut self, ranges: &[AddrRange]) {
        self.0.retain(|&base, _| pages_in(base, ranges) != NO_PAGES);
    }

    /// Memory that it takes, bytes; the map's own overhead is estimated.
    pub fn memory_bytes(&self) -> usize {
        let heap = |levels: &TableLevels| if let TableLevels::Each(_) = levels { PAGES } else { 0 };
        self.0.values().map(|levels| size_of::<(u64, TableLevels)>() * 3 / 2 + heap(levels)).sum()
    }
}

impl TableLevels {
    fn of(&self, i: usize) -> u8 {
        match self {
            Self::Alike(level) => *level,
            Self::Each(levels) => levels[i],
        }
    }

    /// Counts the pages that were used and those that were not, by the groups that they belonged to.
    fn count(&self, walked: &TableWalk<'_>, reuse: &mut ReuseModel) {
        let Some(before) = walked.before else { return };
        let telling = and_not(&walked.known, &walked.silent);
        if let (Self::Alike(level), Some(code)) = (self, before.alike()) {
            let group = group(walked.ages[usize::from(code)], *level);
            let mut note =
                |kind, pages: &PageMask| reuse.note(kind, group, count(&and(pages, &walked.used)), count(pages));
            note(PageKind::Anon, &and_not(&telling, &walked.file));
            note(PageKind::File, &and(&telling, &walked.file));
            return;
        }
        for i in iter(&telling) {
            let kind = if has(&walked.file, i) { PageKind::File } else { PageKind::Anon };
            let group = group(walked.ages[usize::from(before.code(i))], self.of(i));
            reuse.note(kind, group, u32::from(has(&walked.used, i)), 1);
        }
    }

    fn update(&mut self, walked: &TableWalk<'_>) {
        let page = walked.base / PAGE_SIZE;
        if let Self::Alike(level) = self {
            let used = and(&walked.used, &walked.known);
            // Pages of which nothing is known have no level yet; they get one when they come.
            let alike = used == NO_PAGES || used == walked.known;
            let next = next_level(*level, used != NO_PAGES, random(page, walked.walk));
            if alike && (walked.fresh == NO_PAGES || next == NEW) {
                *level = next;
                return;
            }
            if walked.known == NO_PAGES {
                *level = NEW;
                return;
            }
        }
        let mut levels = match std::mem::replace(self, Self::Alike(NEW)) {
            Self::Alike(level) => Box::new([level; PAGES]),
            Self::Each(levels) => levels,
        };
        iter(&walked.fresh).for_each(|i| levels[i] = NEW);
        for i in iter(&walked.known) {
            levels[i] = next_level(levels[i], has(&walked.used, i), random(page + i as u64, walked.walk));
        }
        let seen = or(&walked.known, &walked.fresh);
        let first = iter(&seen).next().map_or(NEW, |i| levels[i]);
        let alike =
            if seen == ALL { levels.iter().all(|&l| l == first) } else { iter(&seen).all(|i| levels[i] == first) };
        *self = if alike { Self::Alike(first) } else { Self::Each(levels) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walked(walk: u64, known: PageMask, fresh: PageMask, used: PageMask) -> TableWalk<'static> {
        TableWalk { base: 0, walk, before: None, ages: &[0; 256], known, fresh, used, silent: NO_PAGES, file: NO_PAGES }
    }

    #[test]
    fn tables_whose_pages_are_used_alike_take_one_byte_and_come_back_to_it() {
        let (mut levels, mut reuse) = (Levels::default(), ReuseModel::default());
        levels.learn(&walked(1, NO_PAGES, ALL, ALL), &mut reuse);
        (2..50).for_each(|walk| levels.learn(&walked(walk, ALL, NO_PAGES, ALL), &mut reuse));
        let small = levels.memory_bytes();
        assert!(small < 64 && levels.of(0, 0) > 200 && levels.of(0, 0) == levels.of(0, 511));
        (50..60).for_each(|walk| levels.learn(&walked(walk, ALL, NO_PAGES, [0xff; 8]), &mut reuse));
        assert!(levels.memory_bytes() > 512 && levels.of(0, 0) > levels.of(0, 8));
        (60..900).for_each(|walk| levels.learn(&walked(walk, ALL, NO_PAGES, NO_PAGES), &mut reuse));
        assert_eq!((levels.memory_bytes(), levels.of(0, 0)), (small, 0));
    }

    #[test]
    fn pages_that_come_are_new_whatever_was_known_of_their_neighbours() {
        let (mut levels, mut reuse) = (Levels::default(), ReuseModel::default());
        let (some, rest) = ([0xff; 8], [!0xff; 8]);
        levels.learn(&walked(1, NO_PAGES, some, some), &mut reuse);
        (2..50).for_each(|walk| levels.learn(&walked(walk, some, NO_PAGES, some), &mut reuse));
        levels.learn(&walked(50, some, rest, some), &mut reuse);
        assert_eq!((levels.of(0, 8), levels.of(TABLE_AT, 3)), (NEW, NEW));
        assert!(levels.of(0, 0) > 200);
    }

    const TABLE_AT: u64 = crate::addr::TABLE_SPAN;
}
