//! Which page frames belong to large folios, from the kernel's [descriptors](super::descriptors) or `/proc/kpageflags`.
//!
//! Clearing part of a large folio splits it, so before pages are cleared the folio of each must be known. A page that
//! was found not to be part of one stays so as long as the same frame is mapped at the same address: a folio is made of
//! fresh pages. So results are kept, by address and frame for single pages, and by a hash of all frames for wide
//! windows and whole tables.

use super::descriptors::Descriptors;
use super::plan;
use super::pte;
use super::walker::{Walker, WalkerError};
use crate::mm::page_flags::{COMPOUND_HEAD, COMPOUND_TAIL, HUGE, KPAGEFLAGS, LRU, NOPAGE, ZERO_PAGE};
use crate::mm::words::read_words;
use crate::roots::Roots;
use isotherm_core::addr::PAGE_SIZE;
use isotherm_core::mask::{self, NO_PAGES, PageMask};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Frames in the largest folio that last-level entries can map.
const MAX_FOLIO: u64 = 512;
/// Frames whose flags are read first to find a folio.
const FIRST_BLOCK: u64 = 32;
/// Fewer frames are not worth a run of the BPF program.
const FEW: usize = 8;
/// One read costs as much as this many entries more in another.
const READ_GAP: u64 = 8;
/// Pages and spans remembered; either cache is emptied beyond.
const MAX_PAGES: usize = 1 << 16;
const MAX_SPANS: usize = 1 << 18;
/// From this many pages on a window is remembered as a whole rather than page by page.
const WHOLE_SPAN: usize = 32;

/// Reader of frame flags.
#[derive(Debug)]
pub struct Frames {
    file: File,
    phys_mask: u64,
    descriptors: Option<RefCell<Descriptors>>,
}

/// What is known to be free of large folios, for one address space.
#[derive(Debug, Default)]
pub struct SmallPages {
    /// Frames by page number.
    pages: HashMap<u64, u64>,
    /// Hash of all frames that a span maps, by number of its first page.
    spans: HashMap<u64, u64>,
}

impl SmallPages {
    fn knows_page(&self, page: u64, frame: u64) -> bool {
        self.pages.get(&page) == Some(&frame)
    }

    fn note_page(&mut self, page: u64, frame: u64) {
        if self.pages.len() >= MAX_PAGES {
            self.pages.clear();
        }
        self.pages.insert(page, frame);
    }
}

/// Pages by the size of their folio. A page may be in neither set: then nobody asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Pages in large folios.
    pub large: PageMask,
    /// Pages that are folios of their own.
    pub small: PageMask,
}

/// The large folio around a page, as far as one table maps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folio {
    /// Its pages in the table.
    pub pages: Range<usize>,
    /// Whether the table maps all of it, in order.
    pub whole: bool,
}

impl Frames {
    /// Opens kpageflags. Needs root.
    pub fn open(roots: &Roots) -> io::Result<Self> {
        let file = File::open(roots.path(KPAGEFLAGS))?;
        // It can be opened without CONFIG_PROC_PAGE_MONITOR or the capability on no kernel; still, read one entry.
        file.read_exact_at(&mut [0; 8], 8)?;
        Ok(Self { file, phys_mask: u64::MAX, descriptors: None })
    }

    /// Looks for the kernel's descriptors, by means of a calibrated `walker`. Without them all comes from kpageflags.
    pub(crate) fn find_descriptors(&mut self, walker: &mut Walker) -> Result<(), WalkerError> {
        let found = Descriptors::find(walker, |frames| self.large_by_flags(frames))?;
        self.descriptors = Some(RefCell::new(found));
        Ok(())
    }

    /// Which of `frames` (sorted) are part of a large folio.
    fn large(&self, frames: &[u64]) -> io::Result<Vec<bool>> {
        let descriptors = self.descriptors.as_ref().filter(|_| frames.len() > FEW);
        match descriptors.map(|d| d.borrow_mut().large(frames)) {
            Some(Ok(large)) => Ok(large),
            Some(Err(_)) | None => self.large_by_flags(frames),
        }
    }

    /// The same by kpageflags alone.
    pub(super) fn large_by_flags(&self, frames: &[u64]) -> io::Result<Vec<bool>> {
        Ok(self.flags(frames)?.iter().map(|flags| flags & (COMPOUND_HEAD | COMPOUND_TAIL) != 0).collect())
    }

    /// States which bits of an entry are an address.
    pub(crate) fn set_phys_mask(&mut self, phys_mask: u64) {
        self.phys_mask = phys_mask;
    }

    /// Reads the flags of frames from `first` on; 0 behind the end of memory.
    fn read(&self, first: u64, flags: &mut [u64]) -> io::Result<()> {
        let there = read_words(&self.file, first, flags)?;
        flags[there..].fill(0);
        Ok(())
    }

    /// Flags of `frames` (sorted).
    fn flags(&self, frames: &[u64]) -> io::Result<Vec<u64>> {
        let mut out = Vec::with_capacity(frames.len());
        let mut flags = [0; 512];
        for run in plan::runs(frames, READ_GAP, flags.len() as u64) {
            let (first, last) = (run[0], run[run.len() - 1]);
            self.read(first, &mut flags[..(last - first + 1) as usize])?;
            out.extend(run.iter().map(|f| flags[(f - first) as usize]));
        }
        Ok(out)
    }

    /// Which of the pages `asked` the kernel keeps on its LRU lists, or are part of a large folio (which are put there
    /// at once). `first` is the number of the page of `entries[0]`.
    pub(crate) fn on_lru(&self, first: usize, entries: &[u64], asked: &PageMask) -> io::Result<PageMask> {
        self.pages_with(first, entries, asked, |flags| flags & (LRU | COMPOUND_HEAD | COMPOUND_TAIL) != 0)
    }

    /// Which of the pages `asked` are ordinary memory, whose bit `clear_refs` clears whoever else maps it. Parameters
    /// as for [`on_lru`](Self::on_lru).
    pub fn clearable(&self, first: usize, entries: &[u64], asked: &PageMask) -> io::Result<PageMask> {
        self.pages_with(first, entries, asked, |flags| {
            flags & (LRU | COMPOUND_HEAD | COMPOUND_TAIL) != 0 && flags & (HUGE | ZERO_PAGE | NOPAGE) == 0
        })
    }

    fn pages_with(
        &self,
        first: usize,
        entries: &[u64],
        asked: &PageMask,
        wanted: impl Fn(u64) -> bool,
    ) -> io::Result<PageMask> {
        let in_entries = mask::and(asked, &mask::span_mask(first, first + entries.len()));
        let mut pages: Vec<(u64, usize)> =
            mask::iter(&in_entries).map(|i| (pte::frame(entries[i - first], self.phys_mask), i)).collect();
        pages.sort_unstable();
        let frames: Vec<u64> = pages.iter().map(|p| p.0).collect();
        let mut out = NO_PAGES;
        for (flags, &(_, page)) in self.flags(&frames)?.iter().zip(&pages) {
            if wanted(*flags) {
                mask::put(&mut out, page);
            }
        }
        Ok(out)
    }

    /// Which pages are part of a large folio, at least of the pages `wanted`. Bit `i` is the page of `entries[i]`, at
    /// `start` + i pages.
    pub fn sizes(&self, known: &mut SmallPages, start: u64, entries: &[u64], wanted: &PageMask) -> io::Result<Sizes> {
        let first = start / PAGE_SIZE;
        let (present, _) = pte::window_masks(0, entries);
        let frame = |i: usize| (pte::frame(entries[i], self.phys_mask), i);
        let narrow = entries.len() < WHOLE_SPAN;
        if narrow || (mask::count(wanted) as usize) < WHOLE_SPAN {
            let (mut unknown, mut small) = (Vec::new(), NO_PAGES);
            let asked = if narrow { present } else { mask::and(&present, wanted) };
            for (frame, page) in mask::iter(&asked).map(frame) {
                if known.knows_page(first + page as u64, frame) {
                    mask::put(&mut small, page);
                } else if mask::has(wanted, page) {
                    unknown.push((frame, page));
                }
            }
            unknown.sort_unstable();
            let large = self.judge(&unknown, |page, frame| {
                known.note_page(first + page as u64, frame);
                mask::put(&mut small, page);
            })?;
            return Ok(Sizes { large, small });
        }
        let hash = self.frames_hash(entries, &present);
        if known.spans.get(&first) == Some(&hash) {
            return Ok(Sizes { large: NO_PAGES, small: present });
        }
        let mut all: Vec<(u64, usize)> = mask::iter(&present).map(frame).collect();
        all.sort_unstable();
        let large = self.judge(&all, |_, _| {})?;
        if large == NO_PAGES {
            if known.spans.len() >= MAX_SPANS {
                known.spans.clear();
            }
            known.spans.insert(first, hash);
        }
        Ok(Sizes { large, small: mask::and_not(&present, &large) })
    }

    /// Pages of `pages` (sorted pairs of frame and index) in large folios; the others are passed to `note_small`.
    fn judge(&self, pages: &[(u64, usize)], mut note_small: impl FnMut(usize, u64)) -> io::Result<PageMask> {
        let mut large = NO_PAGES;
        if pages.is_empty() {
            return Ok(large);
        }
        let mut frames: Vec<u64> = pages.iter().map(|p| p.0).collect();
        frames.dedup();
        let is_large = self.large(&frames)?;
        for &(frame, i) in pages {
            match frames.binary_search(&frame) {
                Ok(at) if !is_large[at] => note_small(i, frame),
                _ => mask::put(&mut large, i),
            }
        }
        Ok(large)
    }

    /// A hash over which frame is mapped where (FNV-1a on words).
    fn frames_hash(&self, entries: &[u64], present: &PageMask) -> u64 {
        mask::iter(present).fold(0xcbf2_9ce4_8422_2325 ^ entries.len() as u64, |h, i| {
            let word = pte::frame(entries[i], self.phys_mask) << 9 | i as u64;
            (h ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23)
        })
    }

    /// Finds folios that `table` maps.
    pub fn folios<'a>(&'a self, table: &'a [u64]) -> FolioFinder<'a> {
        FolioFinder { frames: self, table, block: 0..0, flags: Box::new([0; MAX_FOLIO as usize]) }
    }
}

/// Finds the folios that a whole table maps; keeps the frame flags it read last.
#[derive(Debug)]
pub struct FolioFinder<'a> {
    frames: &'a Frames,
    table: &'a [u64],
    /// The aligned block of frames whose flags were read last.
    block: Range<u64>,
    flags: Box<[u64; MAX_FOLIO as usize]>,
}

impl FolioFinder<'_> {
    fn frame(&self, page: usize) -> Option<u64> {
        let entry = self.table[page];
        pte::is_present(entry).then(|| pte::frame(entry, self.frames.phys_mask))
    }

    /// The folio that `page` is part of; `None` if it is not (any more) part of a large one.
    pub fn around(&mut self, page: usize) -> io::Result<Option<Folio>> {
        let Some(frame) = self.frame(page) else { return Ok(None) };
        // Folios are aligned to their size, so the aligned block around the frame holds all of it, if it is as large.
        // Most are small, and each frame's flags take their time.
        let mut frames = FIRST_BLOCK;
        if !self.block.contains(&frame) {
            self.read_around(frame, frames)?;
        }
        while !self.is_whole_in_block(frame) {
            frames = (self.block.end - self.block.start).max(frames) * 2;
            self.read_around(frame, frames)?;
        }
        let flags = &self.flags[..(self.block.end - self.block.start) as usize];
        Ok(folio_in(flags, self.block.start, |i| self.frame(i), page, frame))
    }

    fn read_around(&mut self, frame: u64, frames: u64) -> io::Result<()> {
        let first = frame / frames * frames;
        self.block = 0..0;
        self.frames.read(first, &mut self.flags[..frames as usize])?;
        self.block = first..first + frames;
        Ok(())
    }

    /// Whether the block is as large as folios can be, or shows both ends of the one around `frame`.
    fn is_whole_in_block(&self, frame: u64) -> bool {
        let frames = self.block.end - self.block.start;
        let (at, len) = ((frame - self.block.start) as usize, frames as usize);
        let head = self.flags[..=at].iter().rposition(|f| f & COMPOUND_TAIL == 0);
        let ends = self.flags[at + 1..len].iter().any(|f| f & COMPOUND_TAIL == 0);
        frames >= MAX_FOLIO || self.flags[at] & (COMPOUND_HEAD | COMPOUND_TAIL) == 0 || head.is_some() && ends
    }
}

/// The folio around `frame`, which `page` maps, given the flags of the aligned block of frames from `block` on.
fn folio_in(
    flags: &[u64],
    block: u64,
    frame_of: impl Fn(usize) -> Option<u64>,
    page: usize,
    frame: u64,
) -> Option<Folio> {
    let at = (frame - block) as usize;
    if flags[at] & (COMPOUND_HEAD | COMPOUND_TAIL) == 0 {
        return None;
    }
    // Without a head in the block the folio is larger than any that last-level entries map: cannot be covered.
    let head = (0..=at).rev().find(|&i| flags[i] & COMPOUND_HEAD != 0);
    let Some(head) = head.filter(|&h| (h + 1..=at).all(|i| flags[i] & COMPOUND_TAIL != 0)) else {
        return Some(Folio { pages: page..page + 1, whole: false });
    };
    let len = 1 + flags[head + 1..].iter().take_while(|f| **f & COMPOUND_TAIL != 0).count();
    let (before, after) = (at - head, len - (at - head));
    let whole = page >= before
        && page + after <= 512
        && (0..len).all(|k| frame_of(page - before + k) == Some(block + (head + k) as u64));
    let pages = page.saturating_sub(before)..(page + after).min(512);
    Some(Folio { pages, whole })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kpageflags file with a folio of 16 frames at frame 0x230, and one of 4 at 0x240.
    fn tree() -> (tempfile::TempDir, Frames) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("proc")).unwrap();
        let mut flags = vec![0u64; 0x400];
        for (head, n) in [(0x230, 16), (0x240, 4)] {
            flags[head] = COMPOUND_HEAD;
            flags[head + 1..head + n].fill(COMPOUND_TAIL);
        }
        let bytes: Vec<u8> = flags.iter().flat_map(|f| f.to_ne_bytes()).collect();
        std::fs::write(dir.path().join("proc/kpageflags"), bytes).unwrap();
        let frames = Frames::open(&Roots::captured(dir.path())).unwrap();
        (dir, frames)
    }

    fn entry(frame: u64) -> u64 {
        frame << 12 | 1
    }

    fn table_with(first_page: usize, frames: impl Iterator<Item = u64>) -> Vec<u64> {
        let mut table = vec![0; 512];
        for (i, f) in frames.enumerate() {
            table[first_page + i] = entry(f);
        }
        table
    }

    #[test]
    fn single_pages_and_folios_are_told_apart() {
        let (_dir, frames) = tree();
        let mut small = SmallPages::default();
        let entries = [entry(0x10), entry(0x235), entry(0x244), entry(0x241)];
        let sizes = frames.sizes(&mut small, 0x5000, &entries, &[0b1011, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        assert_eq!((sizes.large[0], sizes.small[0]), (0b1010, 0b0001));
        assert!(small.knows_page(5, 0x10) && !small.knows_page(6, 0x235) && !small.knows_page(5, 0x11));
    }

    #[test]
    fn a_clean_table_is_remembered_until_a_frame_changes() {
        let (dir, frames) = tree();
        let mut small = SmallPages::default();
        let table = table_with(0, 0x100..0x120);
        let (present, _) = pte::table_masks(&table);
        let ask =
            |table: &[u64], small: &mut SmallPages| frames.sizes(small, 0x20_0000, table, &present).unwrap().large;
        assert_eq!(ask(&table, &mut small), NO_PAGES);
        // The frames become a folio; the same frames at the same addresses are not looked at again.
        let path = dir.path().join("proc/kpageflags");
        std::fs::write(&path, vec![0xffu8; 0x400 * 8]).unwrap();
        assert_eq!(ask(&table, &mut small), NO_PAGES);
        let mut moved = table.clone();
        moved[3] = entry(0x300);
        assert_eq!(ask(&moved, &mut small), present);
    }

    #[test]
    fn pages_that_wait_for_the_lru_lists_are_found() {
        let (dir, frames) = tree();
        let path = dir.path().join("proc/kpageflags");
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(&LRU.to_ne_bytes(), 0x11 * 8).unwrap();
        let entries = [entry(0x10), entry(0x11), entry(0x235), entry(0x12)];
        let asked = mask::span_mask(100, 103);
        assert_eq!(frames.on_lru(100, &entries, &asked).unwrap(), mask::span_mask(101, 103));
    }

    #[test]
    fn folios_are_whole_only_if_mapped_completely_and_in_order() {
        let (_dir, frames) = tree();
        let whole = table_with(32, 0x230..0x240);
        assert_eq!(frames.folios(&whole).around(37).unwrap(), Some(Folio { pages: 32..48, whole: true }));
        // Neighbouring folio does not count as part of it.
        let two = table_with(32, 0x230..0x244);
        assert_eq!(frames.folios(&two).around(48).unwrap(), Some(Folio { pages: 48..52, whole: true }));
        let cut = table_with(32, 0x230..0x23c);
        assert_eq!(frames.folios(&cut).around(37).unwrap(), Some(Folio { pages: 32..48, whole: false }));
        let at_edge = table_with(0, 0x238..0x240);
        assert_eq!(frames.folios(&at_edge).around(2).unwrap(), Some(Folio { pages: 0..8, whole: false }));
        let at_end = table_with(504, 0x230..0x238);
        assert_eq!(frames.folios(&at_end).around(505).unwrap(), Some(Folio { pages: 504..512, whole: false }));
        let small = table_with(0, 0x10..0x20);
        assert_eq!(frames.folios(&small).around(3).unwrap(), None);
    }
}
