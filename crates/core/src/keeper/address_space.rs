//! The pages of one address space.

use super::backing::{Backed, Backings};
use super::creation_times::CreationTimes;
use super::levels::{Levels, TableWalk};
use super::page::group;
use super::page_kind::PageKind;
use super::reuse::ReuseModel;
use crate::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN, parts_in};
use crate::bits::TableBits;
use crate::history::epoch::{ABSENT, BLIND, STANDING};
use crate::history::pages::PageHistory;
use crate::history::table::Table;
use crate::mapping::Mapping;
use crate::mask::{NO_PAGES, PageMask, and, and_not, count, has, or};
use crate::pages::{PageSet, pages_in, push_range, push_runs};

/// Walks after which a page that the kernel would not evict is tried again.
const TRY_AGAIN: u64 = 16;
/// Pages out of memory that a range to be evicted may reach over.
const LONGEST_GAP: u64 = 32 * PAGE_SIZE;
const ALL: PageMask = [u64::MAX; 8];
/// Bytes of the history by what they say of a page: it has been in memory; its last access is known; its bit was left
/// set.
const KNOWN: [bool; 256] = bytes_from(ABSENT + 1);
const OBSERVED: [bool; 256] = bytes_from(BLIND + 1);
const LEFT_SET: [bool; 256] = bytes_from(STANDING);

const fn bytes_from(first: u8) -> [bool; 256] {
    let mut out = [false; 256];
    let mut byte = first as usize;
    while byte < 256 {
        out[byte] = true;
        byte += 1;
    }
    out
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
    /// Tables read.
    pub tables: u64,
}

impl Walked {
    /// Adds what another space's walk found.
    pub fn add(&mut self, other: &Self) {
        self.present += other.present;
        self.used += other.used;
        self.back += other.back;
        self.fresh += other.fresh;
        self.tables += other.tables;
    }
}

/// One address space. A walk is: [`begin_walk`](Self::begin_walk), [`walk`](Self::walk) for every table that the source
/// hands out, [`end_walk`](Self::end_walk).
///
/// A page's last access is what the page history knows. For the history, a page that went out of memory is still there,
/// and is accessed when it comes back: so its age goes on, and what comes back teaches.
#[derive(Debug, Clone)]
pub struct AddressSpace {
    pub(super) history: PageHistory,
    /// Generations above that of a page, by its byte in the history, at the last walk.
    ages: [u8; 256],
    /// How often pages are used, where that is learnt.
    levels: Option<Levels>,
    /// Known to the history, and not in memory when last looked at.
    pub(super) out: PageSet,
    /// Found used, or come into memory, since the last walk.
    used: PageSet,
    /// The kernel was asked to evict them, and did not.
    stuck: PageSet,
    backings: Backings,
    sum: Walked,
}

impl Default for AddressSpace {
    fn default() -> Self {
        Self::new(false)
    }
}

/// Pages of one table that may be evicted.
#[derive(Debug)]
pub(super) struct Candidates<'a> {
    /// Where the table is.
    pub base: u64,
    /// One entry maps all of it: it goes or stays as a whole.
    pub huge: bool,
    /// Which pages.
    pub pages: PageMask,
    file: PageMask,
    table: &'a Table,
    space: &'a AddressSpace,
}

impl Candidates<'_> {
    /// What page `i` is.
    pub fn kind(&self, i: usize) -> PageKind {
        if has(&self.file, i) { PageKind::File } else { PageKind::Anon }
    }

    /// The group of page `i` for the controller.
    pub fn group(&self, i: usize) -> usize {
        let level = self.space.levels.as_ref().map_or(super::page::NEW, |levels| levels.of(self.base, i));
        group(self.space.ages[usize::from(self.table.code(i))], level)
    }
}

impl AddressSpace {
    /// Nothing is known yet. `learns`: whether to learn how often pages are used.
    pub fn new(learns: bool) -> Self {
        Self {
            history: PageHistory::new(0),
            ages: [0; 256],
            levels: learns.then(Levels::default),
            out: PageSet::default(),
            used: PageSet::default(),
            stuck: PageSet::default(),
            backings: Backings::default(),
            sum: Walked::default(),
        }
    }

    /// What was kept of an earlier one.
    pub(super) fn restore(history: PageHistory, out: PageSet, created: &CreationTimes) -> Self {
        Self { ages: created.ages(&history), history, out, ..Self::new(false) }
    }

    /// The mappings now. What is known of memory that is mapped no more is forgotten.
    pub(crate) fn set_mappings(&mut self, mappings: &[Mapping]) {
        let backings = Backings::of(mappings);
        if backings == self.backings {
            return;
        }
        self.backings = backings;
        let mapped = self.backings.mapped();
        self.history.keep_mapped(&mapped);
        [&mut self.out, &mut self.used, &mut self.stuck].into_iter().for_each(|set| set.keep(&mapped));
        if let Some(levels) = &mut self.levels {
            levels.keep(&mapped);
        }
    }

    /// Addresses that are mapped: sorted, disjoint.
    pub fn mapped(&self) -> Vec<AddrRange> {
        self.backings.mapped()
    }

    /// Addresses of all spans of which something is known.
    pub fn known(&self) -> Vec<AddrRange> {
        let mut out = Vec::new();
        let mapped = self.mapped();
        for (base, _) in self.history.tables() {
            let span = AddrRange::new(base, base + TABLE_SPAN);
            parts_in(&mapped, span).for_each(|part| push_range(&mut out, part));
        }
        out
    }

    /// Begins a walk, at the creation of the youngest generation. `most_level`: see [`PageHistory::set_most_level`].
    pub fn begin_walk(&mut self, created: &CreationTimes, most_level: u8) {
        let now = created.of_age(0);
        if self.history.walks() == 0 {
            self.history = PageHistory::new(now);
        }
        self.history.set_most_level(most_level);
        self.history.begin_walk(&[], now);
        // The new generation is above what was found used by the walk before.
        self.ages = created.ages(&self.history).map(|age| age.saturating_sub(1));
        self.sum = Walked::default();
    }

    /// Of the pages that the walk finds accessed in a table, those that it should clear.
    pub fn wanted(&self, bits: &TableBits) -> PageMask {
        self.history.wanted(bits).all()
    }

    /// Takes over what a walk saw of a table.
    pub fn walk(&mut self, bits: &TableBits, reuse: Option<&mut ReuseModel>) {
        if bits.leaf_shift > 21 {
            // Memory of files that have pages of 1 GiB: never evicted.
            return;
        }
        let base = bits.base;
        let before = self.history.table(base);
        let known = before.map_or(NO_PAGES, |t| t.pages(&KNOWN));
        let (present, out) = (or(&bits.present, &known), self.out.mask(base));
        let back = and(&bits.present, &out);
        let used = or(&or(&bits.accessed, &back), &self.used.mask(base));
        let accessed = and_not(&and(&used, &present), &bits.blind);
        // What was used, and is out or is not set now, will be set again by its next use.
        let cleared = or(&bits.cleared, &and_not(&accessed, &bits.accessed));
        let fresh = and_not(&bits.present, &known);
        if let (Some(levels), Some(reuse)) = (&mut self.levels, reuse) {
            let left_set = and_not(&accessed, &cleared);
            let teaches =
                before.map_or(NO_PAGES, |t| and_not(&t.pages(&OBSERVED), &and(&t.pages(&LEFT_SET), &left_set)));
            let walked = TableWalk {
                base,
                walk: self.history.walks(),
                before,
                ages: &self.ages,
                known,
                fresh,
                used: or(&accessed, &bits.blind),
                silent: or(&bits.blind, &and_not(&ALL, &teaches)),
                file: self.backings.of_table(base).file,
            };
            levels.learn(&walked, reuse);
        }
        let pages = |mask: &PageMask| u64::from(count(mask));
        self.sum.present += pages(&bits.present);
        self.sum.used += pages(&and(&bits.present, &accessed));
        self.sum.back += pages(&back);
        self.sum.fresh += pages(&fresh);
        self.sum.tables += 1;
        self.history.take(&TableBits { present, accessed, cleared, ..*bits });
        self.out.remove_mask(base, &back);
        self.out.insert_mask(base, &and_not(&known, &bits.present));
    }

    /// Ends a walk: what it did not come across is not in memory.
    pub fn end_walk(&mut self, created: &CreationTimes, mut reuse: Option<&mut ReuseModel>) -> Walked {
        let read = self.sum.tables;
        for base in self.history.unseen() {
            self.walk(&TableBits::empty(base), reuse.as_deref_mut());
        }
        self.sum.tables = read;
        self.history.end_walk(created.of_age(0));
        self.used.clear();
        if self.history.walks().is_multiple_of(TRY_AGAIN) {
            self.stuck.clear();
        }
        self.ages = created.ages(&self.history);
        self.sum
    }

    /// Takes over what is in memory and what has been used, read without clearing, in `ranges` (sorted, disjoint):
    /// `tables` is what the source handed out for them.
    pub fn look(&mut self, ranges: &[AddrRange], tables: &[TableBits]) {
        for base in bases(ranges) {
            // Ranges without any page are not handed out at all.
            let found = tables.binary_search_by_key(&base, |bits| bits.base).map(|at| tables[at]);
            let bits = found.unwrap_or(TableBits::empty(base));
            if bits.leaf_shift > 21 {
                continue;
            }
            let asked = pages_in(base, ranges);
            let known = self.history.table(base).map_or(NO_PAGES, |t| t.pages(&KNOWN));
            let present = and(&bits.present, &asked);
            let gone = and_not(&asked, &present);
            let back = and(&present, &self.out.mask(base));
            self.used.remove_mask(base, &and_not(&gone, &known));
            self.used.insert_mask(base, &or(&or(&back, &and(&bits.accessed, &asked)), &and_not(&present, &known)));
            self.out.remove_mask(base, &back);
            self.out.insert_mask(base, &and(&gone, &known));
        }
    }

    /// The pages of a table that are in memory as far as is known now.
    fn in_memory(&self, base: u64) -> PageMask {
        let known = self.history.table(base).map_or(NO_PAGES, |t| t.pages(&KNOWN));
        and_not(&or(&known, &self.used.mask(base)), &self.out.mask(base))
    }

    /// The pages of a table that may be evicted as far as is known now.
    fn free(&self, base: u64, table: &Table, fixed: &PageMask) -> PageMask {
        let sets = [&self.out, &self.used, &self.stuck];
        let free =
            sets.iter().fold(and_not(&table.pages(&OBSERVED), fixed), |free, set| and_not(&free, &set.mask(base)));
        if table.huge && free != ALL { NO_PAGES } else { free }
    }

    /// What may be evicted of pages at least `least_age` generations old, table by table.
    pub(super) fn candidates(&self, least_age: u8) -> impl Iterator<Item = Candidates<'_>> {
        self.candidates_of(self.ages.map(|age| age >= least_age))
    }

    /// What may be evicted of pages whose byte in the history is one of `old`, table by table.
    fn candidates_of(&self, old: [bool; 256]) -> impl Iterator<Item = Candidates<'_>> {
        self.history.tables().filter_map(move |(base, table)| {
            let Backed { file, fixed } = self.backings.of_table(base);
            let pages = and(&self.free(base, table, &fixed), &table.pages(&old));
            (pages != NO_PAGES).then_some(Candidates { base, huge: table.huge, pages, file, table, space: self })
        })
    }

    /// The parts of `ranges` (sorted, disjoint) that may be evicted as far as is known now.
    pub fn evictable(&self, ranges: &[AddrRange]) -> Vec<AddrRange> {
        let mut out = Vec::new();
        self.history.each_table_in(ranges, |base, table, asked| {
            if !table.huge || *asked == ALL {
                push_runs(base, &and(asked, &self.free(base, table, &self.backings.of_table(base).fixed)), &mut out);
            }
        });
        out
    }

    /// `cold` (sorted, disjoint) joined over pages that are not in memory, where both sides lie in one mapping:
    /// evicting those changes nothing, and few long ranges cost the kernel less than many short ones.
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
        gap.len() <= LONGEST_GAP
            && self.backings.is_in_one(AddrRange::new(gap.start - PAGE_SIZE, gap.end + PAGE_SIZE))
            && bases(&[gap]).into_iter().all(|base| and(&self.in_memory(base), &pages_in(base, &[gap])) == NO_PAGES)
    }

    /// After an eviction of `ranges` (sorted, disjoint), once looked at: how many bytes of them are out. What is not,
    /// is not tried again for a while, unless it was used.
    pub fn evicted(&mut self, ranges: &[AddrRange]) -> u64 {
        let mut pages = 0;
        for base in bases(ranges) {
            let (asked, out) = (pages_in(base, ranges), self.out.mask(base));
            pages += u64::from(count(&and(&asked, &out)));
            self.stuck.insert_mask(base, &and_not(&and_not(&asked, &out), &self.used.mask(base)));
        }
        pages * PAGE_SIZE
    }

    /// Bytes in memory of anonymous memory and of files by age: `out[age]`, the last for that age and all above.
    pub fn sizes(&self, out: &mut [[u64; 2]]) {
        let Some(last) = out.len().checked_sub(1) else { return };
        for (base, table) in self.history.tables() {
            let (present, used) = (self.in_memory(base), self.used.mask(base));
            let file = self.backings.of_table(base).file;
            for (kind, pages) in [(PageKind::Anon, and_not(&present, &file)), (PageKind::File, and(&present, &file))] {
                table.count_in(&and_not(&pages, &used), |code, pages| {
                    out[usize::from(self.ages[usize::from(code)]).min(last)][kind as usize] += pages * PAGE_SIZE;
                });
                out[0][kind as usize] += u64::from(count(&and(&pages, &used))) * PAGE_SIZE;
            }
        }
    }

    /// Bytes that are in memory and may be evicted, and of them those at least `age` generations old.
    pub(crate) fn evictable_bytes(&self, age: Option<u8>) -> (u64, u64) {
        let all = bytes_of(self.candidates(0));
        (all, age.map_or(0, |age| if age == 0 { all } else { bytes_of(self.candidates(age)) }))
    }

    /// Bytes that are in memory, may be evicted, and have not been used since `limit_ns`.
    pub(crate) fn idle_bytes(&self, limit_ns: u64) -> u64 {
        bytes_of(self.candidates_of(self.history.idle_codes(limit_ns)))
    }

    /// Bytes that are out, having been in memory.
    pub fn out_bytes(&self) -> u64 {
        self.out.len()
    }

    /// Memory that it takes, bytes.
    pub fn memory_bytes(&self) -> usize {
        let sets = [&self.out, &self.used, &self.stuck].map(PageSet::memory_bytes);
        self.history.memory_bytes() + self.levels.as_ref().map_or(0, Levels::memory_bytes) + sets.iter().sum::<usize>()
    }
}

fn bytes_of<'a>(candidates: impl Iterator<Item = Candidates<'a>>) -> u64 {
    candidates.map(|c| u64::from(count(&c.pages)) * PAGE_SIZE).sum()
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
