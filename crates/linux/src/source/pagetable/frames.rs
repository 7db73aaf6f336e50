//! Which page frames belong to large folios, from the kernel's [descriptors](super::descriptors) or `/proc/kpageflags`.
//!
//! Clearing part of a large folio splits it, so before pages are cleared the folio of each must be known. What is known
//! [already](super::small_pages) is not asked again, and all questions of a walk are asked at once: a run of the program
//! that reads descriptors costs as much as hundreds of them.

use super::descriptors::Descriptors;
use super::plan;
use super::pte;
use super::small_pages::SmallPages;
use super::walker::{Walker, WalkerError};
use crate::mm::page_flags::{COMPOUND_HEAD, COMPOUND_TAIL, HUGE, KPAGEFLAGS, LRU, NOPAGE, ZERO_PAGE};
use crate::mm::words::read_words;
use crate::roots::Roots;
use isotherm_core::addr::PAGE_SIZE;
use isotherm_core::mask::{self, NO_PAGES, PageMask};
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Fewer frames are not worth a run of the BPF program.
const FEW: usize = 8;
/// One read costs as much as this many entries more in another.
const READ_GAP: u64 = 8;
/// From this many pages on a window is remembered as a whole rather than page by page.
const WHOLE_SPAN: usize = 32;

/// Reader of frame flags.
#[derive(Debug)]
pub struct Frames {
    file: File,
    phys_mask: u64,
    descriptors: Option<RefCell<Descriptors>>,
}

/// Which folios some pages of a window or a table are part of, as far as that is not known.
#[derive(Debug)]
pub struct Question<'a> {
    /// Number of the page of the first entry.
    first: u64,
    entries: &'a [u64],
    /// Pages that are known to be folios of their own.
    small: PageMask,
    asked: PageMask,
}

impl Question<'_> {
    /// How many pages have to be asked about.
    pub(crate) fn unknown(&self) -> u32 {
        mask::count(&self.asked)
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

    /// Which of `frames` are part of a large folio.
    fn large(&self, frames: &[u64]) -> io::Result<Vec<bool>> {
        let descriptors = self.descriptors.as_ref().filter(|_| frames.len() > FEW);
        match descriptors.map(|d| d.borrow_mut().large(frames)) {
            Some(Ok(large)) => Ok(large),
            Some(Err(_)) | None => self.large_by_flags(frames),
        }
    }

    /// The same by kpageflags alone.
    pub(super) fn large_by_flags(&self, frames: &[u64]) -> io::Result<Vec<bool>> {
        let mut order: Vec<(u64, usize)> = frames.iter().copied().zip(0..).collect();
        order.sort_unstable();
        let sorted: Vec<u64> = order.iter().map(|(frame, _)| *frame).collect();
        let mut large = vec![false; frames.len()];
        for (flags, (_, at)) in self.flags(&sorted)?.iter().zip(order) {
            large[at] = flags & (COMPOUND_HEAD | COMPOUND_TAIL) != 0;
        }
        Ok(large)
    }

    /// States which bits of an entry are an address.
    pub(crate) fn set_phys_mask(&mut self, phys_mask: u64) {
        self.phys_mask = phys_mask;
    }

    /// Which bits of an entry are an address.
    pub(super) const fn phys_mask(&self) -> u64 {
        self.phys_mask
    }

    /// Reads the flags of frames from `first` on; 0 behind the end of memory.
    pub(super) fn read(&self, first: u64, flags: &mut [u64]) -> io::Result<()> {
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

    /// What there is to ask about the pages `wanted`. Bit `i` is the page of `entries[i]`, at `start` + i pages.
    pub fn question<'a>(&self, known: &SmallPages, start: u64, entries: &'a [u64], wanted: &PageMask) -> Question<'a> {
        let first = start / PAGE_SIZE;
        let (present, _) = pte::window_masks(0, entries);
        let frame = |i: usize| pte::frame(entries[i], self.phys_mask);
        let small = if entries.len() < WHOLE_SPAN {
            let mut small = NO_PAGES;
            mask::iter(&present)
                .filter(|&i| known.knows_page(first + i as u64, frame(i)))
                .for_each(|i| mask::put(&mut small, i));
            small
        } else {
            known.in_span(first, &present, frame)
        };
        Question { first, entries, small, asked: mask::and_not(&mask::and(wanted, &present), &small) }
    }

    /// Finds out the folios' sizes for each of `questions`.
    pub fn answer(&self, known: &mut SmallPages, questions: &[Question<'_>]) -> io::Result<Vec<Sizes>> {
        let asked = |q: &Question<'_>| mask::count(&q.asked) as usize;
        let mut frames = Vec::with_capacity(questions.iter().map(asked).sum());
        for q in questions {
            frames.extend(mask::iter(&q.asked).map(|i| pte::frame(q.entries[i], self.phys_mask)));
        }
        let large = if frames.is_empty() { Vec::new() } else { self.large(&frames)? };
        let mut answers = large.iter().zip(&frames);
        let mut out = Vec::with_capacity(questions.len());
        for q in questions {
            let mut sizes = Sizes { large: NO_PAGES, small: q.small };
            for (i, (is_large, frame)) in mask::iter(&q.asked).zip(&mut answers) {
                if *is_large {
                    mask::put(&mut sizes.large, i);
                    continue;
                }
                mask::put(&mut sizes.small, i);
                if q.entries.len() < WHOLE_SPAN {
                    known.note_page(q.first + i as u64, *frame);
                }
            }
            if q.entries.len() >= WHOLE_SPAN && sizes.small != q.small {
                known.note_span(q.first, sizes.small, |i| pte::frame(q.entries[i], self.phys_mask));
            }
            out.push(sizes);
        }
        Ok(out)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A kpageflags file with a folio of 16 frames at frame 0x230, and one of 4 at 0x240.
    pub fn tree() -> (tempfile::TempDir, Frames) {
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

    pub fn table_with(first_page: usize, frames: impl Iterator<Item = u64>) -> Vec<u64> {
        let mut table = vec![0; 512];
        for (i, f) in frames.enumerate() {
            table[first_page + i] = entry(f);
        }
        table
    }

    fn sizes(frames: &Frames, known: &mut SmallPages, start: u64, entries: &[u64], wanted: &PageMask) -> Sizes {
        let question = frames.question(known, start, entries, wanted);
        frames.answer(known, &[question]).unwrap()[0]
    }

    #[test]
    fn single_pages_and_folios_are_told_apart() {
        let (_dir, frames) = tree();
        let mut small = SmallPages::default();
        let entries = [entry(0x10), entry(0x235), entry(0x244), entry(0x241)];
        let sizes = sizes(&frames, &mut small, 0x5000, &entries, &[0b1011, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!((sizes.large[0], sizes.small[0]), (0b1010, 0b0001));
        assert!(small.knows_page(5, 0x10) && !small.knows_page(6, 0x235) && !small.knows_page(5, 0x11));
    }

    #[test]
    fn a_page_is_remembered_until_a_frame_of_its_table_changes() {
        let (dir, frames) = tree();
        let mut small = SmallPages::default();
        let table = table_with(0, 0x100..0x120);
        let (some, all) = (mask::span_mask(4, 12), mask::span_mask(0, 32));
        let ask =
            |table: &[u64], small: &mut SmallPages, wanted: &PageMask| sizes(&frames, small, 0x20_0000, table, wanted);
        assert_eq!(ask(&table, &mut small, &some), Sizes { large: NO_PAGES, small: some });
        assert_eq!(frames.question(&small, 0x20_0000, &table, &all).unknown(), 24);
        // The frames become a folio; the same frames at the same addresses are not looked at again.
        let path = dir.path().join("proc/kpageflags");
        std::fs::write(&path, vec![0xffu8; 0x400 * 8]).unwrap();
        assert_eq!(ask(&table, &mut small, &all), Sizes { large: mask::and_not(&all, &some), small: some });
        let mut moved = table.clone();
        moved[3] = entry(0x300);
        assert_eq!(ask(&moved, &mut small, &some).large, NO_PAGES, "nothing was known of that page");
        moved[5] = entry(0x301);
        assert_eq!(ask(&moved, &mut small, &some).large, some);
        moved[4] = 0;
        let rest = mask::span_mask(5, 12);
        assert_eq!(ask(&moved, &mut small, &some), Sizes { large: rest, small: NO_PAGES });
    }

    #[test]
    fn the_answers_to_several_questions_are_those_to_each() {
        let (_dir, frames) = tree();
        // The folio of 16 frames in the second table, backwards.
        let tables = [table_with(0, 0x100..0x140), table_with(100, (0x220..0x250).rev()), table_with(7, 0x0..0x0)];
        let wanted = [mask::span_mask(0, 512), mask::span_mask(90, 140), mask::span_mask(0, 512)];
        let base = |i: usize| (i as u64 + 1) << 21;
        let mut small = SmallPages::default();
        let questions: Vec<_> =
            tables.iter().zip(&wanted).enumerate().map(|(i, (t, w))| frames.question(&small, base(i), t, w)).collect();
        let together = frames.answer(&mut small, &questions).unwrap();
        let single: Vec<_> =
            (0..3).map(|i| sizes(&frames, &mut SmallPages::default(), base(i), &tables[i], &wanted[i])).collect();
        assert_eq!(together, single);
        assert_eq!(together.iter().map(|s| mask::count(&s.large)).collect::<Vec<_>>(), [0, 20, 0]);
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
}
