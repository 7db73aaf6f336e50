//! Private anonymous base pages of our own: what calibration and self-test look at.

use isotherm_core::addr::{PAGE_SIZE, TABLE_SPAN};
use std::io;
use std::ptr::NonNull;

/// Up to 512 pages below one last-level page table, never backed by huge pages, none of them touched yet.
#[derive(Debug)]
pub struct Scratch {
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

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: unmaps what `new` mapped.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.mapped) };
    }
}
