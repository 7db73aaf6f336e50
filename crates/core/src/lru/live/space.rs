//! The pages of one address space.

use super::odds::Odds;
use super::page::Page;
use crate::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN};
use crate::lru::Kind;
use crate::lru::bloom::Bloom;
use crate::mapping::{Mapping, MappingKind};
use crate::pages::{TableMask, mask_of};
use crate::source::TableBits;
use std::collections::BTreeMap;

const NONE: TableMask = [0; 8];
/// Walks after which a page that the kernel would not evict is tried again.
const TRY_AGAIN: u64 = 16;
/// Pages out of memory that a range to be evicted may reach over.
const LONGEST_GAP: u64 = 32 * PAGE_SIZE;
/// With more tables than this, those that the filter does not hold are passed over by most walks (2 GiB).
const MANY_TABLES: usize = 1024;
/// Every so many walks read all tables.
const FULL_WALK_EVERY: u64 = 4;

/// What is known of one 2 MiB span.
#[derive(Debug, Clone)]
pub(super) struct Table {
    /// In memory when last looked at.
    pub present: TableMask,
    /// Have been in memory, and were not when last looked at.
    pub out: TableMask,
    /// Found used since the last walk.
    used: TableMask,
    /// Cannot be observed.
    blind: TableMask,
    /// The kernel was asked to evict them, and did not.
    stuck: TableMask,
    /// Belong to files, the rest is anonymous (or shared memory, which goes to swap as well).
    pub file: TableMask,
    /// Locked, or memory of a kind that is never evicted.
    fixed: TableMask,
    /// One entry maps all of it: in or out as a whole.
    pub huge: bool,
    /// The walk that last read it.
    walked: u64,
    pub pages: [Page; 512],
}

impl Table {
    pub fn new() -> Self {
        let pages = [Page::default(); 512];
        Self {
            present: NONE,
            out: NONE,
            used: NONE,
            blind: NONE,
            stuck: NONE,
            file: NONE,
            fixed: NONE,
            huge: false,
            walked: 0,
            pages,
        }
    }

    /// Pages that may be evicted now.
    pub fn evictable(&self) -> TableMask {
        let free = |w: usize| self.present[w] & !(self.blind[w] | self.fixed[w] | self.stuck[w] | self.used[w]);
        let mask = std::array::from_fn(free);
        if self.huge && mask != [u64::MAX; 8] { NONE } else { mask }
    }

    fn kind(&self, page: usize) -> Kind {
        if self.file[page / 64] >> (page % 64) & 1 == 1 { Kind::File } else { Kind::Anon }
    }

    /// Takes over what a walk saw of it.
    fn walk(&mut self, bits: &TableBits, odds: &mut Odds, sum: &mut Walked) {
        self.huge = bits.leaf_shift > 12;
        for w in 0..8 {
            let (present, blind) = (bits.present[w], bits.blind[w]);
            let back = present & self.out[w];
            let known = self.present[w] | self.out[w];
            let fresh = present & !known;
            let used = bits.accessed[w] | self.used[w] | back | blind;
            let mut rest = known | present;
            while rest != 0 {
                let i = rest.trailing_zeros() as usize;
                let bit = 1u64 << i;
                rest &= rest - 1;
                let kind = self.kind(w * 64 + i);
                let page = &mut self.pages[w * 64 + i];
                if fresh & bit != 0 {
                    *page = Page::NEW;
                    continue;
                }
                let used = used & bit != 0;
                // What cannot be observed teaches nothing.
                if (blind | self.blind[w]) & bit == 0 {
                    odds.note(kind, page.group(), used);
                }
                page.walked(used);
            }
            sum.present += u64::from(present.count_ones());
            sum.used += u64::from((present & used & !blind).count_ones());
            sum.back += u64::from(back.count_ones());
            sum.fresh += u64::from(fresh.count_ones());
            self.out[w] = known & !present;
            self.present[w] = present;
            self.blind[w] = blind;
            self.used[w] = 0;
        }
    }

    /// Takes over what is in memory and what has been used, without a walk.
    fn look(&mut self, bits: &TableBits) {
        for w in 0..8 {
            let present = bits.present[w];
            let known = self.present[w] | self.out[w];
            let mut fresh = present & !known;
            while fresh != 0 {
                self.pages[w * 64 + fresh.trailing_zeros() as usize] = Page::NEW;
                fresh &= fresh - 1;
            }
            self.used[w] |= bits.accessed[w] | present & self.out[w];
            self.out[w] = (known & !present) | (self.out[w] & !present);
            self.present[w] = present;
        }
    }
}

/// What a walk found, pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Walked {
    /// In memory.
    pub present: u64,
    /// Of these, used since the last walk.
    pub used: u64,
    /// Came back since then, having been out: refaults.
    pub back: u64,
    /// Seen for the first time.
    pub fresh: u64,
    /// Tables read, and tables passed over because of the filter.
    pub tables: (u64, u64),
}

impl Walked {
    /// Adds what another space's walk found.
    pub fn add(&mut self, other: &Self) {
        self.present += other.present;
        self.used += other.used;
        self.back += other.back;
        self.fresh += other.fresh;
        self.tables.0 += other.tables.0;
        self.tables.1 += other.tables.1;
    }
}

/// One address space. A walk is: [`begin_walk`](Self::begin_walk), [`walk`](Self::walk) for every table that the source hands
/// out, [`end_walk`](Self::end_walk).
#[derive(Debug, Clone, Default)]
pub struct Space {
    pub(super) tables: BTreeMap<u64, Table>,
    mappings: Vec<(AddrRange, Backing)>,
    walks: u64,
    /// Tables worth reading: filled by one walk, asked by the next.
    filters: [Bloom; 2],
    sum: Walked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Backing {
    file: bool,
    fixed: bool,
}

impl Space {
    /// The mappings now. What is known of memory that is mapped no more is forgotten.
    pub fn set_mappings(&mut self, mappings: &[Mapping]) {
        let backing = |m: &Mapping| Backing {
            file: m.kind == MappingKind::File,
            fixed: m.locked || matches!(m.kind, MappingKind::Hugetlb | MappingKind::Special),
        };
        let list: Vec<_> = mappings.iter().map(|m| (m.range, backing(m))).collect();
        if list == self.mappings {
            return;
        }
        self.mappings = list;
        let mappings = &self.mappings;
        self.tables.retain(|&base, table| {
            let mapped = set_backing(mappings, base, table);
            for (w, mapped) in mapped.iter().enumerate() {
                table.present[w] &= mapped;
                table.out[w] &= mapped;
            }
            table.present != NONE || table.out != NONE
        });
    }

    /// Addresses that are mapped: sorted, disjoint.
    pub fn mapped(&self) -> Vec<AddrRange> {
        let mut out = Vec::new();
        self.mappings.iter().for_each(|(range, _)| crate::pages::push_range(&mut out, *range));
        out
    }

    /// Addresses of all spans of which something is known.
    pub fn known(&self) -> Vec<AddrRange> {
        let mut out = Vec::new();
        let mapped = self.mapped();
        for &base in self.tables.keys() {
            let span = AddrRange::new(base, base + TABLE_SPAN);
            let from = mapped.partition_point(|r| r.end <= base);
            let parts = mapped[from..].iter().map_while(|r| r.intersect(&span));
            parts.for_each(|part| crate::pages::push_range(&mut out, part));
        }
        out
    }

    /// Begins a walk. Of `populated` (sorted, disjoint), what is to be read: only tables that the filter holds, or all (`None`).
    pub fn begin_walk(&mut self, populated: &[AddrRange], force: bool) -> Option<Vec<AddrRange>> {
        self.walks += 1;
        self.sum = Walked::default();
        self.filters[self.walks as usize % 2].clear();
        if force || self.tables.len() < MANY_TABLES || self.walks % FULL_WALK_EVERY == 1 {
            return None;
        }
        let filter = &self.filters[(self.walks + 1) as usize % 2];
        let mut out = Vec::new();
        for range in populated {
            for base in (range.start / TABLE_SPAN..range.end.div_ceil(TABLE_SPAN)).map(|i| i * TABLE_SPAN) {
                if filter.contains(base) {
                    let part = AddrRange::new(base.max(range.start), (base + TABLE_SPAN).min(range.end));
                    crate::pages::push_range(&mut out, part);
                } else {
                    self.sum.tables.1 += 1;
                }
            }
        }
        Some(out)
    }

    /// Takes over what a walk, which clears the bits that it reads, saw of a table.
    pub fn walk(&mut self, bits: &TableBits, odds: &mut Odds) {
        if bits.leaf_shift > 21 {
            // Memory of files that have pages of 1 GiB: never evicted.
            return;
        }
        let (walks, mappings) = (self.walks, &self.mappings);
        let table = self.tables.entry(bits.base).or_insert_with(|| {
            let mut table = Table::new();
            set_backing(mappings, bits.base, &mut table);
            table
        });
        let before = self.sum.used;
        table.walk(bits, odds, &mut self.sum);
        table.walked = walks;
        self.sum.tables.0 += 1;
        if walks.is_multiple_of(TRY_AGAIN) {
            table.stuck = NONE;
        }
        // As the kernel has it: worth reading again if one page in a cache line's entries was used.
        if (self.sum.used - before) * 8 >= bits.present.iter().map(|w| u64::from(w.count_ones())).sum() {
            self.filters[walks as usize % 2].insert(bits.base);
        }
    }

    /// Ends a walk: what it did not come across has not been used. `read` are the ranges that it read.
    pub fn end_walk(&mut self, read: &[AddrRange], odds: &mut Odds) -> Walked {
        let (walks, mut sum) = (self.walks, self.sum);
        self.tables.retain(|&base, table| {
            if table.walked == walks {
                return true;
            }
            let at = read.partition_point(|r| r.end <= base);
            if read.get(at).is_some_and(|r| r.start < base + TABLE_SPAN) {
                // Its table has gone: nothing of it is in memory.
                let bits = TableBits { base, leaf_shift: 12, present: NONE, accessed: NONE, blind: NONE };
                table.walk(&bits, odds, &mut sum);
                table.walked = walks;
            } else {
                // Passed over: a walk older, as far as is known.
                for page in &mut table.pages {
                    page.age = (page.age + 1).min(super::page::OLDEST);
                }
                sum.present += table.present.iter().map(|w| u64::from(w.count_ones())).sum::<u64>();
            }
            true
        });
        self.sum = sum;
        sum
    }

    /// Takes over what is in memory and what has been used, read without clearing, in `ranges` (sorted, disjoint): `tables` is what
    /// the source handed out for them.
    pub fn look(&mut self, ranges: &[AddrRange], tables: &[TableBits]) {
        for bits in tables {
            if let Some(table) = self.tables.get_mut(&bits.base) {
                // Bits outside the ranges are masked off: what is known there stays.
                let mut bits = *bits;
                let asked = asked_for(bits.base, ranges);
                let present = |w: usize| (bits.present[w] & asked[w]) | (table.present[w] & !asked[w]);
                bits.present = std::array::from_fn(present);
                table.look(&bits);
            }
        }
        // Ranges without any page are not handed out at all.
        for base in bases(ranges) {
            if tables.binary_search_by_key(&base, |b| b.base).is_err()
                && let Some(table) = self.tables.get_mut(&base)
            {
                let asked = asked_for(base, ranges);
                let present = std::array::from_fn(|w| table.present[w] & !asked[w]);
                table.look(&TableBits { base, leaf_shift: 12, present, accessed: NONE, blind: NONE });
            }
        }
    }

    /// The parts of `ranges` (sorted, disjoint) that may be evicted as far as is known now.
    pub fn evictable(&self, ranges: &[AddrRange]) -> Vec<AddrRange> {
        let mut out = Vec::new();
        for base in bases(ranges) {
            let Some(table) = self.tables.get(&base) else { continue };
            let (asked, free) = (asked_for(base, ranges), table.evictable());
            if !table.huge || asked == [u64::MAX; 8] {
                crate::pages::push_runs(base, &std::array::from_fn(|w| asked[w] & free[w]), &mut out);
            }
        }
        out
    }

    /// `cold` (sorted, disjoint) joined over pages that are not in memory, where both sides lie in one mapping: evicting those
    /// changes nothing, and few long ranges cost the kernel less than many short ones.
    pub fn joined(&self, cold: &[AddrRange]) -> Vec<AddrRange> {
        let mut out: Vec<AddrRange> = Vec::with_capacity(cold.len());
        for &range in cold {
            match out.last_mut() {
                Some(last) if self.is_gap(AddrRange::new(last.end, range.start)) => last.end = range.end,
                _ => out.push(range),
            }
        }
        out
    }

    /// Whether `gap` is short, mapped as one with what is around it, and holds no page in memory.
    fn is_gap(&self, gap: AddrRange) -> bool {
        if gap.len() > LONGEST_GAP {
            return false;
        }
        let at = self.mappings.partition_point(|(r, _)| r.end < gap.end + PAGE_SIZE);
        let around = AddrRange::new(gap.start - PAGE_SIZE, gap.end + PAGE_SIZE);
        let inside = self.mappings.get(at).is_some_and(|(r, _)| r.start <= around.start && around.end <= r.end);
        inside
            && bases(&[gap]).into_iter().all(|base| {
                let gap = asked_for(base, &[gap]);
                self.tables.get(&base).is_none_or(|t| (0..8).all(|w| t.present[w] & gap[w] == 0))
            })
    }

    /// After an eviction of `ranges` (sorted, disjoint), once looked at: how many bytes of them are out. What is not, is not tried
    /// again for a while, unless it was used.
    pub fn evicted(&mut self, ranges: &[AddrRange]) -> u64 {
        let mut pages = 0;
        for base in bases(ranges) {
            let Some(table) = self.tables.get_mut(&base) else { continue };
            let asked = asked_for(base, ranges);
            (0..8).for_each(|w| {
                pages += u64::from((asked[w] & table.out[w]).count_ones());
                table.stuck[w] |= asked[w] & table.present[w] & !table.used[w];
            });
        }
        pages * PAGE_SIZE
    }

    /// Bytes in memory of anonymous memory and of files by age: `out[age]`, the last for that age and all above.
    pub fn sizes(&self, out: &mut [[u64; 2]]) {
        let Some(last) = out.len().checked_sub(1) else { return };
        for table in self.tables.values() {
            for w in 0..8 {
                let mut rest = table.present[w];
                while rest != 0 {
                    let i = w * 64 + rest.trailing_zeros() as usize;
                    rest &= rest - 1;
                    out[usize::from(table.pages[i].age).min(last)][table.kind(i) as usize] += PAGE_SIZE;
                }
            }
        }
    }

    /// Bytes that are in memory and may be evicted, and of them those at least `age` walks old.
    pub fn evictable_bytes(&self, age: Option<u8>) -> (u64, u64) {
        let (mut all, mut old) = (0, 0);
        for table in self.tables.values() {
            let free = table.evictable();
            for (w, word) in free.iter().enumerate() {
                all += u64::from(word.count_ones());
                let Some(age) = age else { continue };
                let mut rest = *word;
                while rest != 0 {
                    let i = w * 64 + rest.trailing_zeros() as usize;
                    rest &= rest - 1;
                    old += u64::from(table.pages[i].age >= age);
                }
            }
        }
        (all * PAGE_SIZE, old * PAGE_SIZE)
    }

    /// Bytes that are out, having been in memory.
    pub fn out_bytes(&self) -> u64 {
        self.tables.values().flat_map(|t| t.out).map(|w| u64::from(w.count_ones())).sum::<u64>() * PAGE_SIZE
    }
}

/// Pages of `ranges` in the span at `base`.
fn asked_for(base: u64, ranges: &[AddrRange]) -> TableMask {
    let mut asked = NONE;
    let from = ranges.partition_point(|r| r.end <= base);
    for range in ranges[from..].iter().take_while(|r| r.start < base + TABLE_SPAN) {
        let mask = mask_of(base, *range);
        (0..8).for_each(|w| asked[w] |= mask[w]);
    }
    asked
}

/// Bases of the 2 MiB spans that `ranges` (sorted, disjoint) touch, each once.
fn bases(ranges: &[AddrRange]) -> Vec<u64> {
    let mut out: Vec<u64> = ranges
        .iter()
        .flat_map(|r| (r.start / TABLE_SPAN..r.end.div_ceil(TABLE_SPAN)).map(|i| i * TABLE_SPAN))
        .collect();
    out.dedup();
    out
}

/// Notes what backs the pages of a table; which of them are mapped.
fn set_backing(mappings: &[(AddrRange, Backing)], base: u64, table: &mut Table) -> TableMask {
    (table.file, table.fixed) = (NONE, NONE);
    let mut mapped = NONE;
    let from = mappings.partition_point(|(r, _)| r.end <= base);
    for (range, backing) in mappings[from..].iter().take_while(|(r, _)| r.start < base + TABLE_SPAN) {
        let mask = mask_of(base, *range);
        (0..8).for_each(|w| {
            mapped[w] |= mask[w];
            table.file[w] |= if backing.file { mask[w] } else { 0 };
            table.fixed[w] |= if backing.fixed { mask[w] } else { 0 };
        });
    }
    mapped
}
