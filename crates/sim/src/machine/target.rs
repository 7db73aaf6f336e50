//! What the page tables of a simulated process that is watched say.

use super::cleared::Cleared;
use super::memory::SharedMemory;
use super::process::{Process, Region};
use isotherm_core::addr::{AddrRange, PAGE_SIZE, TABLE_PAGES, parts_in};
use isotherm_core::bits::{Seen, Window};
use std::ops::Range;

/// A process that is watched.
#[derive(Debug)]
pub(super) struct Target {
    pub process: Process,
    pub cleared: Cleared,
    pub announced: bool,
    pub execs_told: usize,
    /// What is in memory and how far the program has come, where that is simulated, too. Then the program's time is not
    /// the clock's: all that is kept about its touches is in its own.
    pub memory: Option<SharedMemory>,
}

pub(super) fn pages_of(range: AddrRange) -> Range<u64> {
    range.start / PAGE_SIZE..range.end / PAGE_SIZE
}

/// Pages of `pages` that `parts` (sorted, disjoint) cover.
pub(super) fn covered<'a>(parts: &'a [AddrRange], pages: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<'a> {
    parts_in(parts, AddrRange::new(pages.start * PAGE_SIZE, pages.end * PAGE_SIZE)).map(pages_of)
}

/// Now, by the clock and in the program's own time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub now_ns: u64,
    pub work_ns: u64,
}

impl Target {
    /// Of which nothing was cleared yet.
    pub fn new(process: Process) -> Self {
        Self { process, cleared: Cleared::default(), announced: false, execs_told: 0, memory: None }
    }

    /// Lets the program go on until now.
    pub fn moment(&self, now_ns: u64) -> Moment {
        let work_ns = self.memory.as_ref().map_or(now_ns, |memory| {
            let mut memory = memory.borrow_mut();
            memory.advance(now_ns);
            memory.work_ns()
        });
        Moment { now_ns, work_ns }
    }

    /// How many of `pages` nobody has cleared so far: their bits are set since they were populated.
    pub fn never_cleared(&self, pages: Range<u64>) -> u64 {
        let mut never = 0;
        self.cleared.for_each(pages, |run, time| never += if time.is_none() { run.end - run.start } else { 0 });
        never
    }

    /// The huge leaf that maps a page.
    pub fn huge_leaf(&self, page: u64, now_ns: u64) -> Option<Range<u64>> {
        match &self.memory {
            None => self.process.huge_leaf(page, now_ns),
            Some(memory) => {
                let first = page / TABLE_PAGES * TABLE_PAGES;
                memory.borrow().is_huge(first * PAGE_SIZE).then_some(first..first + TABLE_PAGES)
            }
        }
    }

    /// What a window holds, and the pages of the huge leaf that maps it, if one does.
    pub fn look(&self, w: &Window, at: Moment) -> (Seen, Option<Range<u64>>) {
        let asked = pages_of(w.range());
        let mut bits = Bits::default();
        let leaf = self.huge_leaf(asked.start, at.now_ns);
        let first = asked.start / TABLE_PAGES * TABLE_PAGES;
        self.process.for_each_populated(asked, at.now_ns, |region, run| {
            self.read_run(region, run, leaf.clone(), first, at.work_ns, &mut bits);
        });
        let count = |b: &[u64; 8]| b.iter().map(|w| w.count_ones() as u16).sum();
        let leaf_shift = if leaf.is_some() { 21 } else { 12 };
        let seen = Seen {
            present: count(&bits.present),
            accessed: count(&bits.accessed),
            blind: count(&bits.blind),
            leaf_shift,
        };
        (seen, leaf)
    }

    /// Sets the bits of the populated pages `run` of `region`, as far as they are in memory; `first` is the first page
    /// of their table.
    pub fn read_run(
        &self,
        region: &Region,
        run: Range<u64>,
        leaf: Option<Range<u64>>,
        first: u64,
        work_ns: u64,
        bits: &mut Bits,
    ) {
        let Some(memory) = &self.memory else { return self.read_mapped(region, run, leaf, first, work_ns, bits) };
        let absent = memory.borrow().absent(first * PAGE_SIZE);
        if absent == [u64::MAX; 8] {
            return;
        }
        self.read_mapped(region, run, leaf, first, work_ns, bits);
        for (i, absent) in absent.into_iter().enumerate() {
            bits.present[i] &= !absent;
            bits.accessed[i] &= !absent;
            bits.blind[i] &= !absent;
        }
    }

    fn read_mapped(
        &self,
        region: &Region,
        run: Range<u64>,
        leaf: Option<Range<u64>>,
        first: u64,
        now: u64,
        bits: &mut Bits,
    ) {
        set(&mut bits.present, first, run.clone());
        if let Some(leaf) = leaf {
            if covered(&region.blind, &leaf).next().is_some() {
                set(&mut bits.blind, first, run);
            } else if self.any_accessed(region, leaf, now) {
                set(&mut bits.accessed, first, run);
            }
            return;
        }
        self.cleared.for_each(run.clone(), |pages, cleared| match cleared.filter(|&c| c >= region.from_ns) {
            None => set(&mut bits.accessed, first, pages),
            Some(since) => {
                self.process.for_each_touched(pages, since, now, |p| set(&mut bits.accessed, first, p));
            }
        });
        for blind in covered(&region.blind, &run) {
            set(&mut bits.blind, first, blind);
        }
        for (accessed, blind) in bits.accessed.iter_mut().zip(bits.blind) {
            *accessed &= !blind;
        }
    }

    pub fn any_accessed(&self, region: &Region, pages: Range<u64>, now: u64) -> bool {
        let mut any = false;
        self.cleared.for_each(pages, |run, cleared| {
            any = any
                || match cleared.filter(|&c| c >= region.from_ns) {
                    None => true,
                    Some(since) => self.process.any_touched(run, since, now),
                };
        });
        any
    }
}

/// Bits of one table.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Bits {
    pub present: [u64; 8],
    pub accessed: [u64; 8],
    pub blind: [u64; 8],
}

/// Sets the bits of `pages`, which lie in the table that begins with page `first`.
fn set(bits: &mut [u64; 8], first: u64, pages: Range<u64>) {
    let (mut at, end) = ((pages.start - first) as usize, (pages.end - first) as usize);
    while at < end {
        let (word, bit) = (at / 64, at % 64);
        let count = (64 - bit).min(end - at);
        bits[word] |= (u64::MAX >> (64 - count)) << bit;
        at += count;
    }
}
