//! How often each page is used: learnt by walks, a byte a page; tables whose pages are alike take one byte for all.

use super::odds::Odds;
use super::page::{NEW, group, next_level, random};
use super::page_kind::PageKind;
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
pub struct Lesson<'a> {
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

    /// Takes over what a walk tells of a table, and counts for `odds` which pages were used.
    pub fn learn(&mut self, lesson: &Lesson<'_>, odds: &mut Odds) {
        let levels = self.0.entry(lesson.base).or_insert(TableLevels::Alike(NEW));
        levels.count(lesson, odds);
        levels.update(lesson);
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
    fn count(&self, lesson: &Lesson<'_>, odds: &mut Odds) {
        let Some(before) = lesson.before else { return };
        let telling = and_not(&lesson.known, &lesson.silent);
        if let (Self::Alike(level), Some(code)) = (self, before.alike()) {
            let group = group(lesson.ages[usize::from(code)], *level);
            let mut note =
                |kind, pages: &PageMask| odds.note(kind, group, count(&and(pages, &lesson.used)), count(pages));
            note(PageKind::Anon, &and_not(&telling, &lesson.file));
            note(PageKind::File, &and(&telling, &lesson.file));
            return;
        }
        for i in iter(&telling) {
            let kind = if has(&lesson.file, i) { PageKind::File } else { PageKind::Anon };
            let group = group(lesson.ages[usize::from(before.code(i))], self.of(i));
            odds.note(kind, group, u32::from(has(&lesson.used, i)), 1);
        }
    }

    fn update(&mut self, lesson: &Lesson<'_>) {
        let page = lesson.base / PAGE_SIZE;
        if let Self::Alike(level) = self {
            let used = and(&lesson.used, &lesson.known);
            // Pages of which nothing is known have no level yet; they get one when they come.
            let alike = used == NO_PAGES || used == lesson.known;
            let next = next_level(*level, used != NO_PAGES, random(page, lesson.walk));
            if alike && (lesson.fresh == NO_PAGES || next == NEW) {
                *level = next;
                return;
            }
            if lesson.known == NO_PAGES {
                *level = NEW;
                return;
            }
        }
        let mut levels = match std::mem::replace(self, Self::Alike(NEW)) {
            Self::Alike(level) => Box::new([level; PAGES]),
            Self::Each(levels) => levels,
        };
        iter(&lesson.fresh).for_each(|i| levels[i] = NEW);
        for i in iter(&lesson.known) {
            levels[i] = next_level(levels[i], has(&lesson.used, i), random(page + i as u64, lesson.walk));
        }
        let seen = or(&lesson.known, &lesson.fresh);
        let first = iter(&seen).next().map_or(NEW, |i| levels[i]);
        let alike =
            if seen == ALL { levels.iter().all(|&l| l == first) } else { iter(&seen).all(|i| levels[i] == first) };
        *self = if alike { Self::Alike(first) } else { Self::Each(levels) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lesson(walk: u64, known: PageMask, fresh: PageMask, used: PageMask) -> Lesson<'static> {
        Lesson { base: 0, walk, before: None, ages: &[0; 256], known, fresh, used, silent: NO_PAGES, file: NO_PAGES }
    }

    #[test]
    fn tables_whose_pages_are_used_alike_take_one_byte_and_come_back_to_it() {
        let (mut levels, mut odds) = (Levels::default(), Odds::default());
        levels.learn(&lesson(1, NO_PAGES, ALL, ALL), &mut odds);
        (2..50).for_each(|walk| levels.learn(&lesson(walk, ALL, NO_PAGES, ALL), &mut odds));
        let small = levels.memory_bytes();
        assert!(small < 64 && levels.of(0, 0) > 200 && levels.of(0, 0) == levels.of(0, 511));
        (50..60).for_each(|walk| levels.learn(&lesson(walk, ALL, NO_PAGES, [0xff; 8]), &mut odds));
        assert!(levels.memory_bytes() > 512 && levels.of(0, 0) > levels.of(0, 8));
        (60..900).for_each(|walk| levels.learn(&lesson(walk, ALL, NO_PAGES, NO_PAGES), &mut odds));
        assert_eq!((levels.memory_bytes(), levels.of(0, 0)), (small, 0));
    }

    #[test]
    fn pages_that_come_are_new_whatever_was_known_of_their_neighbours() {
        let (mut levels, mut odds) = (Levels::default(), Odds::default());
        let (some, rest) = ([0xff; 8], [!0xff; 8]);
        levels.learn(&lesson(1, NO_PAGES, some, some), &mut odds);
        (2..50).for_each(|walk| levels.learn(&lesson(walk, some, NO_PAGES, some), &mut odds));
        levels.learn(&lesson(50, some, rest, some), &mut odds);
        assert_eq!((levels.of(0, 8), levels.of(TABLE_AT, 3)), (NEW, NEW));
        assert!(levels.of(0, 0) > 200);
    }

    const TABLE_AT: u64 = crate::addr::TABLE_SPAN;
}
