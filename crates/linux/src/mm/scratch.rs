//! Private anonymous base pages of our own: what calibration and self-test look at.

use super::mapping::Mapping;
use isotherm_core::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN};
use rustix::mm::Advice;
use std::io;

/// Up to 512 pages below one last-level page table, never backed by huge pages, none of them touched yet.
#[derive(Debug)]
pub(crate) struct Scratch {
    mapping: Mapping,
    pages: usize,
}

impl Scratch {
    /// Maps `pages` (1..=512) fresh pages.
    pub fn new(pages: usize) -> io::Result<Self> {
        if !(1..=512).contains(&pages) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mapping = Mapping::aligned(TABLE_SPAN as usize, TABLE_SPAN as usize)?;
        // The first fails only where huge pages do not exist; the second keeps another thread's fork from sharing the
        // pages, which would make them unobservable.
        for advice in [Advice::LinuxNoHugepage, Advice::LinuxDontFork] {
            let _ = mapping.advise(mapping.range(), advice);
        }
        Ok(Self { mapping, pages })
    }

    /// Address of page `i`.
    pub fn addr(&self, i: usize) -> u64 {
        self.mapping.range().start + i as u64 * PAGE_SIZE
    }

    /// Writes to page `i`.
    pub fn touch(&self, i: usize) {
        assert!(i < self.pages, "page {i} of {}", self.pages);
        self.mapping.write(i * PAGE_SIZE as usize, &[1]);
    }
}

impl Scratch {
    /// Writes to all of page `i`: data that compresses about as well as that of common programs.
    pub fn fill(&self, i: usize) {
        assert!(i < self.pages, "page {i} of {}", self.pages);
        let mut page = [0; PAGE_SIZE as usize];
        let mut state = i as u64 + 1;
        for (at, byte) in page.iter_mut().enumerate() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = if at % 4 == 0 { (state >> 56) as u8 } else { 0 };
        }
        self.mapping.write(i * PAGE_SIZE as usize, &page);
    }

    /// Asks the kernel to page all pages out.
    pub fn page_out(&self) -> io::Result<()> {
        self.mapping.advise(self.range(), Advice::LinuxPageOut)
    }

    /// Which pages are not in memory.
    pub fn absent(&self) -> io::Result<Vec<bool>> {
        Ok(self.mapping.resident(self.range())?.into_iter().map(|resident| !resident).collect())
    }

    fn range(&self) -> AddrRange {
        AddrRange::new(self.addr(0), self.addr(self.pages))
    }
}
