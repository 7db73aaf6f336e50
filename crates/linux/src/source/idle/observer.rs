//! Looks at a process's pages and marks them idle.

use super::folios::{Frame, resolve};
use super::marks::ProcessMarks;
use super::physical::PhysicalPages;
use crate::mm::page_flags;
use crate::mm::pagemap::Entry;
use crate::mm::words::read_words;
use isotherm_core::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN};
use isotherm_core::bits::{Seen, TableBits, Window};
use isotherm_core::mask::{self, PageMask};
use isotherm_core::source::Clear;
use std::collections::HashSet;
use std::fs::File;
use std::io;

/// Tables that a scan treats at once: enough to make runs of neighbouring frames long, little memory.
const CHUNK: u64 = 64 * TABLE_SPAN;

/// Why a process's pages cannot be looked at.
#[derive(Debug)]
pub(super) enum ObserveError {
    /// The address space of this pagemap file is gone: the process has exited or executed another program.
    SpaceGone,
    /// pagemap does not show frame numbers to us.
    Hidden,
    /// Reading or writing failed.
    Io(io::Error),
}

impl From<io::Error> for ObserveError {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

/// The page frame of an entry, where a page is present.
fn frame(entry: Entry) -> Result<Option<u64>, ObserveError> {
    match entry.frame() {
        _ if !entry.is_present() => Ok(None),
        0 => Err(ObserveError::Hidden),
        pfn => Ok(Some(pfn)),
    }
}

/// A present page after a look.
#[derive(Debug, Clone, Copy)]
struct Page {
    frame: Frame,
    /// `None`: cannot be observed.
    accessed: Option<bool>,
}

/// Looks and marks, and counts what that comes to.
#[derive(Debug)]
pub(super) struct Observer<P> {
    pages: P,
    frames: Vec<Frame>,
    /// Pages looked at.
    pub(super) pages_read: u64,
    /// Pages marked idle.
    pub(super) pages_marked: u64,
}

impl<P: PhysicalPages> Observer<P> {
    pub(super) const fn new(pages: P) -> Self {
        Self { pages, frames: Vec::new(), pages_read: 0, pages_marked: 0 }
    }

    #[cfg(test)]
    pub(super) const fn pages(&self) -> &P {
        &self.pages
    }

    /// Looks at each window; with `mark`, pages found accessed are marked idle afterwards.
    pub(super) fn windows(
        &mut self,
        pagemap: &File,
        space: &mut ProcessMarks,
        windows: &mut [Window],
        mark: bool,
    ) -> Result<(), ObserveError> {
        let mut frames = std::mem::take(&mut self.frames);
        frames.clear();
        let mut entries = [0u64; 512];
        for (at, window) in windows.iter_mut().enumerate() {
            window.seen = Seen { leaf_shift: 12, ..Seen::default() };
            let entries = &mut entries[..window.pages.into()];
            read_pagemap(pagemap, window.start / PAGE_SIZE, entries)?;
            for &entry in entries.iter() {
                frames.extend(frame(Entry(entry))?.map(|pfn| Frame::new(pfn, at as u32)));
            }
        }
        let result = self.look(space, &mut frames, mark, |page| {
            let seen = &mut windows[page.frame.at as usize].seen;
            seen.present += 1;
            match page.accessed {
                None => seen.blind += 1,
                Some(accessed) => seen.accessed += u16::from(accessed),
            }
            if page.frame.huge {
                seen.leaf_shift = 21;
            }
        });
        self.frames = frames;
        result
    }

    /// Looks at every present page below `ranges` and hands out one entry per table; with `mark`, pages found accessed
    /// are marked idle.
    pub(super) fn scan(
        &mut self,
        pagemap: &File,
        space: &mut ProcessMarks,
        ranges: &[AddrRange],
        clear: &mut Clear<'_>,
        sink: &mut dyn FnMut(&TableBits),
    ) -> Result<(), ObserveError> {
        let mut chunk = Chunk::default();
        for piece in ranges.iter().flat_map(|&r| pieces(r)) {
            if chunk.number != piece.start / CHUNK {
                self.hand_out(space, &mut chunk, clear, sink)?;
                chunk.number = piece.start / CHUNK;
            }
            chunk.add(pagemap, piece)?;
        }
        self.hand_out(space, &mut chunk, clear, sink)
    }

    /// Looks at a chunk's pages, marks those to be cleared, hands its tables out, and empties it.
    fn hand_out(
        &mut self,
        space: &mut ProcessMarks,
        chunk: &mut Chunk,
        clear: &mut Clear<'_>,
        sink: &mut dyn FnMut(&TableBits),
    ) -> Result<(), ObserveError> {
        let Chunk { tables, frames, .. } = chunk;
        self.look(space, frames, false, |page| {
            let (table, bit) = (&mut tables[page.frame.at as usize / 512], page.frame.at as usize % 512);
            mask::put(&mut table.present, bit);
            match page.accessed {
                None => mask::put(&mut table.blind, bit),
                Some(true) => mask::put(&mut table.accessed, bit),
                Some(false) => {}
            }
            if page.frame.huge {
                table.leaf_shift = 21;
            }
        })?;
        for table in tables.iter_mut() {
            // A range may end inside a huge page, and a table may hold the ends of two: then bits speak of pages.
            if table.leaf_shift == 21 && table.present != [u64::MAX; 8] {
                table.leaf_shift = 12;
            }
        }
        self.mark_chosen(space, tables, frames, clear)?;
        tables.iter().for_each(sink);
        chunk.tables.clear();
        chunk.frames.clear();
        Ok(())
    }

    /// Marks the folios of the pages that are to be cleared: all of a folio's pages are, then. And at times those that
    /// refused the mark: they are reported as not observable until they take it, so nobody chooses them.
    fn mark_chosen(
        &mut self,
        space: &mut ProcessMarks,
        tables: &mut [TableBits],
        frames: &[Frame],
        clear: &mut Clear<'_>,
    ) -> Result<(), ObserveError> {
        let chosen: Vec<PageMask> = tables.iter().map(|t| clear.choose(t)).collect();
        let place = |frame: &Frame| (frame.at as usize / 512, frame.at as usize % 512);
        let is_chosen = |frame: &&Frame| mask::has(&chosen[place(frame).0], place(frame).1);
        let mut heads: Vec<u64> = frames.iter().filter(is_chosen).filter_map(|f| f.head).collect();
        if clear.any() {
            let mut known: Vec<u64> = frames.iter().filter_map(|f| f.head).filter(|h| space.is_refused(*h)).collect();
            known.dedup();
            heads.extend(known.into_iter().filter(|head| space.is_due_again(*head)));
        }
        if heads.is_empty() {
            return Ok(());
        }
        heads.sort_unstable();
        heads.dedup();
        let refused = self.mark_idle(&heads)?;
        space.note(&heads, &refused);
        for frame in frames {
            let Some(head) = frame.head.filter(|h| heads.binary_search(h).is_ok()) else { continue };
            let (table, bit) = (&mut tables[place(frame).0], place(frame).1);
            if refused.contains(&head) {
                mask::take(&mut table.accessed, bit);
                mask::put(&mut table.blind, bit);
            } else if mask::has(&table.accessed, bit) {
                mask::put(&mut table.cleared, bit);
            }
        }
        Ok(())
    }

    /// Finds out about `frames`, calls `found` for each, and marks the accessed ones.
    fn look(
        &mut self,
        space: &mut ProcessMarks,
        frames: &mut [Frame],
        mark: bool,
        mut found: impl FnMut(Page),
    ) -> Result<(), ObserveError> {
        self.pages_read += frames.len() as u64;
        resolve(&self.pages, frames)?;
        let mut heads: Vec<u64> = frames.iter().filter_map(|f| f.head).collect();
        heads.sort_unstable();
        heads.dedup();
        let idle = self.read_idle(&heads)?;
        let is_idle = |head: u64| heads.binary_search(&head).ok().and_then(|i| idle[i]);
        if mark {
            let is_accessed = |(&head, idle): (&u64, &Option<bool>)| (*idle == Some(false)).then_some(head);
            let accessed: Vec<u64> = heads.iter().zip(&idle).filter_map(is_accessed).collect();
            let refused = self.mark_idle(&accessed)?;
            space.note(&heads, &refused);
        }
        for &frame in frames.iter() {
            let observable = frame.head.filter(|h| !space.is_refused(*h));
            found(Page { frame, accessed: observable.and_then(is_idle).map(|idle| !idle) });
        }
        Ok(())
    }

    /// Whether each of `heads` (sorted) is idle; `None`: the bitmap does not give its word. Looks in the page tables of
    /// everybody who maps them.
    fn read_idle(&self, heads: &[u64]) -> io::Result<Vec<Option<bool>>> {
        let mut idle = Vec::with_capacity(heads.len());
        let mut words = Vec::new();
        for run in word_runs(heads) {
            let first = run[0] / 64;
            words.clear();
            words.resize((run[run.len() - 1] / 64 - first + 1) as usize, 0);
            let count = self.pages.read_idle(first, &mut words)?;
            let given = &words[..count];
            idle.extend(run.iter().map(|h| given.get((h / 64 - first) as usize).map(|word| word >> (h % 64) & 1 == 1)));
        }
        Ok(idle)
    }

    /// Marks `heads` (sorted) idle and gives those that did not take the mark: not (or not yet) on a reclaim list.
    fn mark_idle(&mut self, heads: &[u64]) -> io::Result<HashSet<u64>> {
        let mut words = Vec::new();
        for run in word_runs(heads) {
            let first = run[0] / 64;
            words.clear();
            words.resize((run[run.len() - 1] / 64 - first + 1) as usize, 0u64);
            run.iter().for_each(|h| words[(h / 64 - first) as usize] |= 1 << (h % 64));
            self.pages.mark_idle(first, &words)?;
        }
        // The mark itself is looked up, not the page tables: a page that is used all the time keeps it until the next
        // look.
        let mut refused = HashSet::new();
        let mut flags = [0];
        for &head in heads {
            self.pages.flags(head, &mut flags)?;
            if flags[0] & page_flags::IDLE == 0 {
                refused.insert(head);
            }
        }
        self.pages_marked += (heads.len() - refused.len()) as u64;
        Ok(refused)
    }
}

/// The tables of one aligned stretch of the address space, and their pages.
#[derive(Debug, Default)]
struct Chunk {
    number: u64,
    tables: Vec<TableBits>,
    /// `at` counts pages over `tables`.
    frames: Vec<Frame>,
    entries: Vec<u64>,
}

impl Chunk {
    /// Adds the present pages of `piece`, which follows those added before.
    fn add(&mut self, pagemap: &File, piece: AddrRange) -> Result<(), ObserveError> {
        self.entries.clear();
        self.entries.resize((piece.len() / PAGE_SIZE) as usize, 0);
        read_pagemap(pagemap, piece.start / PAGE_SIZE, &mut self.entries)?;
        for (i, &entry) in self.entries.iter().enumerate() {
            let Some(pfn) = frame(Entry(entry))? else { continue };
            let addr = piece.start + i as u64 * PAGE_SIZE;
            let base = addr / TABLE_SPAN * TABLE_SPAN;
            if self.tables.last().is_none_or(|t| t.base != base) {
                self.tables.push(TableBits::empty(base));
            }
            let at = (self.tables.len() - 1) as u64 * 512 + (addr - base) / PAGE_SIZE;
            self.frames.push(Frame::new(pfn, at as u32));
        }
        Ok(())
    }
}

/// `range`, cut where chunks begin.
fn pieces(range: AddrRange) -> impl Iterator<Item = AddrRange> {
    let mut start = range.start;
    std::iter::from_fn(move || {
        let end = range.end.min((start / CHUNK + 1) * CHUNK);
        let piece = AddrRange::new(start, end);
        start = end;
        (!piece.is_empty()).then_some(piece)
    })
}

/// `heads` (sorted) in runs whose words of the bitmap are neighbours: words in between would look up pages that nobody
/// asked about.
fn word_runs(heads: &[u64]) -> impl Iterator<Item = &[u64]> {
    heads.chunk_by(|a, b| b / 64 - a / 64 <= 1)
}

fn read_pagemap(pagemap: &File, first: u64, entries: &mut [u64]) -> Result<(), ObserveError> {
    let n = read_words(pagemap, first, entries)?;
    if n == 0 && !entries.is_empty() {
        return Err(ObserveError::SpaceGone);
    }
    // Addresses behind the end of user space.
    entries[n..].fill(0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::idle::simulated::{SimulatedPages, pagemap};

    const SPAN: u64 = TABLE_SPAN;

    fn window(page: u64, pages: u16) -> Window {
        Window::new(page * PAGE_SIZE, pages)
    }

    #[test]
    fn touched_pages_are_seen_and_idle_ones_stay_idle() {
        // Pages 0..4 lie in frames 70, 3, none, 64.
        let (map, mut o) = (pagemap(&[Some(70), Some(3), None, Some(64)]), Observer::new(SimulatedPages::base(200)));
        let mut space = ProcessMarks::default();
        let mut all = [window(0, 4), window(1, 1)];
        o.windows(&map, &mut space, &mut all, true).unwrap();
        // Nothing was marked before, so everything present counts as accessed.
        assert_eq!(all[0].seen, Seen { present: 3, accessed: 3, blind: 0, leaf_shift: 12 });
        assert_eq!((o.pages_read, o.pages_marked), (4, 3));
        o.windows(&map, &mut space, &mut all, false).unwrap();
        assert_eq!((all[0].seen.accessed, all[1].seen.accessed), (0, 0));
        o.pages().access(3);
        o.windows(&map, &mut space, &mut all, false).unwrap();
        assert_eq!((all[0].seen.accessed, all[1].seen.accessed), (1, 1));
        // A look changes nothing; arming marks it again.
        o.windows(&map, &mut space, &mut all, true).unwrap();
        assert_eq!(all[1].seen.accessed, 1);
        o.windows(&map, &mut space, &mut all, false).unwrap();
        assert_eq!(all[1].seen.accessed, 0);
    }

    #[test]
    fn pages_off_the_reclaim_lists_are_blind_never_hot() {
        let pages = SimulatedPages::base(200);
        pages.set_flags(5, 0);
        pages.set_flags(6, page_flags::LRU | page_flags::ZERO_PAGE);
        pages.set_flags(7, page_flags::LRU | page_flags::HUGE);
        // Looks as if it were on a list but is taken off before it is marked.
        pages.refuse(8);
        let (map, mut o) = (pagemap(&[Some(5), Some(6), Some(7), Some(8), Some(9), Some(900)]), Observer::new(pages));
        let mut space = ProcessMarks::default();
        let mut all = [window(0, 6)];
        for mark in [true, false] {
            o.windows(&map, &mut space, &mut all, mark).unwrap();
            let Seen { present, accessed, blind, .. } = all[0].seen;
            assert_eq!((present, accessed, blind), (6, u16::from(mark), 5));
        }
        assert_eq!(o.pages_marked, 1);
    }

    #[test]
    fn a_page_that_refused_the_mark_is_tried_again_by_scans() {
        let pages = SimulatedPages::base(200);
        pages.refuse(5);
        let (map, mut o) = (pagemap(&[Some(5), Some(9)]), Observer::new(pages));
        let mut space = ProcessMarks::default();
        let mut scan = |o: &mut Observer<_>, clear: Clear<'_>| {
            let mut seen = (0, 0);
            let ranges = [AddrRange::new(0, 2 * PAGE_SIZE)];
            let (mut clear, mut sink) = (clear, |t: &TableBits| seen = (t.accessed[0], t.blind[0]));
            o.scan(&map, &mut space, &ranges, &mut clear, &mut sink).unwrap();
            seen
        };
        // As a history does that clears what it finds accessed.
        let mut accessed = |t: &TableBits| t.accessed;
        assert_eq!(scan(&mut o, Clear::Chosen(&mut accessed)), (0b10, 0b01));
        o.pages().accept(5);
        for _ in 0..20 {
            assert_eq!(scan(&mut o, Clear::Nothing), (0, 0b01), "a scan that clears nothing marks nothing");
        }
        for _ in 0..20 {
            scan(&mut o, Clear::Chosen(&mut accessed));
        }
        assert_eq!(scan(&mut o, Clear::Nothing), (0, 0), "it took the mark");
        o.pages().access(5);
        assert_eq!(scan(&mut o, Clear::Chosen(&mut accessed)), (0b01, 0));
    }

    #[test]
    fn the_last_frames_are_blind_where_the_bitmap_ends_before_them() {
        // 200 frames are three words and eight frames.
        let (map, mut o) = (pagemap(&[Some(191), Some(192), Some(199)]), Observer::new(SimulatedPages::base(200)));
        let mut space = ProcessMarks::default();
        for accessed in [1, 0] {
            let mut all = [window(0, 3)];
            o.windows(&map, &mut space, &mut all, true).unwrap();
            assert_eq!(all[0].seen, Seen { present: 3, accessed, blind: 2, leaf_shift: 12 });
        }
        let mut tables = Vec::new();
        let ranges = [AddrRange::new(0, 3 * PAGE_SIZE)];
        o.scan(&map, &mut space, &ranges, &mut Clear::All, &mut |t| tables.push(*t)).unwrap();
        assert_eq!((tables[0].present[0], tables[0].accessed[0], tables[0].blind[0]), (0b111, 0, 0b110));
    }

    #[test]
    fn a_folio_has_one_mark_at_its_head() {
        let pages = SimulatedPages::base(2048);
        pages.folio(16, 16);
        pages.folio(512, 512);
        // Four pages in the middle of a small folio, then a huge page.
        let mut frames: Vec<Option<u64>> = (20..24).map(Some).collect();
        frames.resize(512, None);
        frames.extend((512..1024).map(Some));
        let (map, mut o) = (pagemap(&frames), Observer::new(pages));
        let mut space = ProcessMarks::default();
        let mut all = [window(0, 4), window(512 + 100, 3)];
        o.windows(&map, &mut space, &mut all, true).unwrap();
        assert_eq!((all[0].seen.leaf_shift, all[1].seen.leaf_shift), (12, 21));
        assert_eq!(o.pages_marked, 2);
        o.pages().access(31);
        o.windows(&map, &mut space, &mut all, false).unwrap();
        assert_eq!((all[0].seen.accessed, all[1].seen.accessed), (4, 0));
        let mut tables = Vec::new();
        let ranges = [AddrRange::new(0, 4 * PAGE_SIZE), AddrRange::new(SPAN, 2 * SPAN)];
        o.scan(&map, &mut space, &ranges, &mut Clear::All, &mut |t| tables.push(*t)).unwrap();
        assert_eq!((tables[0].base, tables[0].leaf_shift, tables[0].accessed[0]), (0, 12, 0xf));
        assert_eq!((tables[1].base, tables[1].leaf_shift, tables[1].accessed), (SPAN, 21, [0; 8]));
        assert_eq!(tables[1].present, [u64::MAX; 8]);
    }

    #[test]
    fn scan_shows_every_present_page_of_the_ranges_once() {
        let frames: Vec<Option<u64>> = (0..2048).map(|i| (i % 3 != 0).then_some(4096 - i)).collect();
        let (map, mut o) = (pagemap(&frames), Observer::new(SimulatedPages::base(8192)));
        let mut space = ProcessMarks::default();
        let ranges = [AddrRange::new(PAGE_SIZE, 5 * PAGE_SIZE), AddrRange::new(9 * PAGE_SIZE, 3 * SPAN + PAGE_SIZE)];
        let mut scan = |o: &mut Observer<_>, mark: bool| {
            let mut seen = Vec::new();
            let mut accessed = 0;
            let mut clear = if mark { Clear::All } else { Clear::Nothing };
            o.scan(&map, &mut space, &ranges, &mut clear, &mut |t| {
                accessed += t.accessed.iter().map(|w| w.count_ones()).sum::<u32>();
                seen.extend(
                    (0..512).filter(|i| t.present[i / 64] >> (i % 64) & 1 == 1).map(|i| t.base / 4096 + i as u64),
                );
            })
            .unwrap();
            (seen, accessed)
        };
        let want: Vec<u64> = (1..5).chain(9..1537).filter(|i| i % 3 != 0).collect();
        assert_eq!(scan(&mut o, true), (want.clone(), want.len() as u32));
        assert_eq!(scan(&mut o, false), (want, 0));
        o.pages().access(4096 - 100);
        assert_eq!(scan(&mut o, true).1, 1);
    }

    #[test]
    fn long_ranges_are_cut_at_chunks() {
        let range = AddrRange::new(CHUNK - PAGE_SIZE, 2 * CHUNK + PAGE_SIZE);
        let cut: Vec<_> = pieces(range).collect();
        assert_eq!(cut.iter().map(AddrRange::len).collect::<Vec<_>>(), [PAGE_SIZE, CHUNK, PAGE_SIZE]);
    }

    #[test]
    fn a_gone_address_space_and_hidden_frames_are_told_apart() {
        let mut o = Observer::new(SimulatedPages::base(10));
        let mut space = ProcessMarks::default();
        let gone = o.windows(&pagemap(&[]), &mut space, &mut [window(0, 1)], false);
        assert!(matches!(gone, Err(ObserveError::SpaceGone)));
        let hidden = o.windows(&pagemap(&[Some(0)]), &mut space, &mut [window(0, 1)], false);
        assert!(matches!(hidden, Err(ObserveError::Hidden)));
    }
}
