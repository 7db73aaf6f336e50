//! Physical pages of a simulated kernel, and pagemap files.

use super::physical::PhysicalPages;
use crate::mm::page_flags;
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Write};

#[derive(Debug, Clone, Copy, Default)]
struct Page {
    flags: u64,
    /// Accessed bit in some page table.
    accessed: bool,
    /// Cannot be marked although its flags say so.
    refuses: bool,
}

/// Page frames that take marks as the kernel's do.
#[derive(Debug)]
pub(super) struct SimulatedPages(RefCell<Vec<Page>>);

impl SimulatedPages {
    /// `count` base pages, all on a reclaim list, all accessed.
    pub(super) fn base(count: usize) -> Self {
        Self(RefCell::new(vec![Page { flags: page_flags::LRU, accessed: true, refuses: false }; count]))
    }

    /// Joins `len` frames from `head` on to a folio. Only the head has the flags of the whole.
    pub(super) fn folio(&self, head: usize, len: usize) {
        let mut pages = self.0.borrow_mut();
        pages[head].flags |= page_flags::COMPOUND_HEAD;
        pages[head + 1..head + len].iter_mut().for_each(|p| p.flags = page_flags::COMPOUND_TAIL);
    }

    pub(super) fn set_flags(&self, pfn: usize, flags: u64) {
        self.0.borrow_mut()[pfn].flags = flags;
    }

    pub(super) fn refuse(&self, pfn: usize) {
        self.0.borrow_mut()[pfn].refuses = true;
    }

    /// From now on it can be marked again.
    pub(super) fn accept(&self, pfn: usize) {
        self.0.borrow_mut()[pfn].refuses = false;
    }

    /// Somebody uses a page.
    pub(super) fn access(&self, pfn: usize) {
        let mut pages = self.0.borrow_mut();
        let head = head(&pages, pfn);
        pages[head].accessed = true;
    }
}

fn head(pages: &[Page], pfn: usize) -> usize {
    (0..=pfn).rev().find(|&i| pages[i].flags & page_flags::COMPOUND_TAIL == 0).unwrap()
}

impl<P: PhysicalPages> PhysicalPages for &P {
    fn flags(&self, first: u64, out: &mut [u64]) -> io::Result<()> {
        P::flags(self, first, out)
    }

    fn read_idle(&self, first: u64, out: &mut [u64]) -> io::Result<usize> {
        P::read_idle(self, first, out)
    }

    fn mark_idle(&self, first: u64, words: &[u64]) -> io::Result<()> {
        P::mark_idle(self, first, words)
    }
}

impl PhysicalPages for SimulatedPages {
    fn flags(&self, first: u64, out: &mut [u64]) -> io::Result<()> {
        let pages = self.0.borrow();
        for (i, word) in (first as usize..).zip(out) {
            *word = pages.get(i).map_or(page_flags::NOPAGE, |p| p.flags);
        }
        Ok(())
    }

    fn read_idle(&self, first: u64, out: &mut [u64]) -> io::Result<usize> {
        let mut pages = self.0.borrow_mut();
        // A last word that is not whole is not given.
        let count = (pages.len() / 64).saturating_sub(first as usize).min(out.len());
        for (i, word) in (first as usize..).zip(&mut out[..count]) {
            *word = 0;
            for (bit, page) in pages.iter_mut().skip(i * 64).take(64).enumerate() {
                // The kernel looks up page tables now, and takes the mark from a page that was accessed.
                if std::mem::take(&mut page.accessed) {
                    page.flags &= !page_flags::IDLE;
                }
                *word |= u64::from(page.flags & page_flags::IDLE != 0) << bit;
            }
        }
        Ok(count)
    }

    fn mark_idle(&self, first: u64, words: &[u64]) -> io::Result<()> {
        let mut pages = self.0.borrow_mut();
        for (i, word) in (first as usize..).zip(words) {
            for bit in (0..64).filter(|bit| word >> bit & 1 == 1) {
                let Some(page) = pages.get_mut(i * 64 + bit) else { continue };
                if page.flags & page_flags::LRU != 0 && page.flags & page_flags::COMPOUND_TAIL == 0 && !page.refuses {
                    page.flags |= page_flags::IDLE;
                    page.accessed = false;
                }
            }
        }
        Ok(())
    }
}

/// A pagemap of these pages from address 0 on, as a file.
pub(super) fn pagemap(frames: &[Option<u64>]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    let entries = frames.iter().map(|frame| frame.map_or(0, |pfn| 1 << 63 | pfn));
    file.write_all(&entries.flat_map(|e: u64| e.to_ne_bytes()).collect::<Vec<u8>>()).unwrap();
    file
}
