//! Private anonymous base pages of our own: what calibration and self-test look at.

use isotherm_core::addr::{PAGE_SIZE, TABLE_SPAN};
use std::io;
use std::ptr::NonNull;

/// Up to 512 pages below one last-level page table, never backed by huge pages, none of them touched yet.
#[derive(Debug)]
pub(crate) struct Scratch {
    mapping: NonNull<u8>,
    mapped: usize,
    start: NonNull<u8>,
    pages: usize,
}

impl Scratch {
    /// Maps `pages` (1..=512) fresh pages.
    pub fn new(pages: usize) -> io::Result<Self> {
        if !(1..=512).contains(&pages) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mapped = 2 * TABLE_SPAN as usize;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let p = unsafe { libc::mmap(std::ptr::null_mut(), mapped, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if p == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapping = NonNull::new(p.cast::<u8>()).ok_or(io::ErrorKind::InvalidData)?;
        let skip = mapping.as_ptr().align_offset(TABLE_SPAN as usize);
        // SAFETY: twice the alignment is mapped, so an aligned start with one span behind it lies inside.
        let start = unsafe { mapping.add(skip) };
        for advice in [libc::MADV_NOHUGEPAGE, libc::MADV_DONTFORK] {
            // SAFETY: advice on our own mapping. The first fails only where huge pages do not exist; the second keeps
            // another thread's fork from sharing the pages, which would make them unobservable.
            unsafe { libc::madvise(p, mapped, advice) };
        }
        Ok(Self { mapping, mapped, start, pages })
    }

    /// Address of page `i`.
    pub fn addr(&self, i: usize) -> u64 {
        self.start.as_ptr() as u64 + i as u64 * PAGE_SIZE
    }

    /// Writes to page `i`.
    pub fn touch(&self, i: usize) {
        assert!(i < self.pages, "page {i} of {}", self.pages);
        // SAFETY: inside our mapping, which nothing else refers to; volatile, so that the access really happens.
        unsafe { self.start.add(i * PAGE_SIZE as usize).write_volatile(1) };
    }
}

impl Scratch {
    /// Writes to all of page `i`: data that compresses about as well as that of common programs.
    pub fn fill(&self, i: usize) {
        assert!(i < self.pages, "page {i} of {}", self.pages);
        // SAFETY: a whole page inside our mapping, which nothing else refers to while the slice lives.
        let page = unsafe {
            std::slice::from_raw_parts_mut(self.start.add(i * PAGE_SIZE as usize).as_ptr(), PAGE_SIZE as usize)
        };
        let mut state = i as u64 + 1;
        for (at, byte) in page.iter_mut().enumerate() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = if at % 4 == 0 { (state >> 56) as u8 } else { 0 };
        }
    }

    /// Asks the kernel to page all pages out.
    pub fn page_out(&self) -> io::Result<()> {
        let len = self.pages * PAGE_SIZE as usize;
        // SAFETY: advice on our own mapping; contents stay as they are.
        let r = unsafe { libc::madvise(self.start.as_ptr().cast(), len, libc::MADV_PAGEOUT) };
        if r < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Which pages are not in memory.
    pub fn absent(&self) -> io::Result<Vec<bool>> {
        let mut resident = vec![0u8; self.pages];
        let len = self.pages * PAGE_SIZE as usize;
        // SAFETY: the range is mapped, and `resident` has a byte for each of its pages.
        let r = unsafe { libc::mincore(self.start.as_ptr().cast(), len, resident.as_mut_ptr()) };
        if r < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(resident.iter().map(|r| r & 1 == 0).collect())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: unmaps what `new` mapped.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.mapped) };
    }
}
