//! A private anonymous mapping whose pages are touched on request: the memory of `isotherm workload`.

use isotherm_core::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN};
use isotherm_core::units::format_size;
use std::io;
use std::path::Path;
use std::ptr::NonNull;

/// Why an arena cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    /// Not a whole number of pages, or none.
    #[error("an arena of {0} bytes is not possible; give a multiple of 4096 above 0")]
    BadSize(u64),
    /// More than the machine can hold now.
    #[error(
        "{} do not fit into the {} of memory that are available; give a smaller --size, or use `isotherm sim`",
        format_size(*.asked),
        format_size(*.available)
    )]
    TooLarge {
        /// Bytes asked for.
        asked: u64,
        /// Bytes that /proc/meminfo calls available.
        available: u64,
    },
    #[error("cannot {what} {} of memory: {source}", format_size(*.size))]
    Refused {
        what: &'static str,
        /// Bytes.
        size: u64,
        /// Why.
        source: io::Error,
    },
}

/// Whether the kernel may back an arena by transparent huge pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HugePages {
    /// As the system is set.
    System,
    /// Asked for, where the system lets programs ask.
    Yes,
    /// Never.
    No,
}

/// A mapping of whole pages, aligned to 2 MiB, private to this process and given back when dropped.
#[derive(Debug)]
pub struct Arena {
    base: NonNull<u8>,
    size: usize,
}

impl Arena {
    /// Maps `size` bytes (a multiple of the page size); nothing is populated yet. Refuses more than is available.
    pub fn new(size: u64, huge: HugePages) -> Result<Self, ArenaError> {
        if size == 0 || !size.is_multiple_of(PAGE_SIZE) {
            return Err(ArenaError::BadSize(size));
        }
        if let Some(available) = available_memory(Path::new("/proc"))
            && size > available
        {
            return Err(ArenaError::TooLarge { asked: size, available });
        }
        let refused = |what| ArenaError::Refused { what, size, source: io::Error::last_os_error() };
        let too_long = ArenaError::BadSize(size);
        let Some(reserved) = size.checked_add(TABLE_SPAN).and_then(|n| usize::try_from(n).ok()) else {
            return Err(too_long);
        };
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no memory that exists.
        let raw = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                reserved,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if raw == libc::MAP_FAILED {
            return Err(refused("map"));
        }
        let raw = raw.cast::<u8>();
        // Cut off what lies before the first and behind the last 2 MiB boundary.
        let head = raw.align_offset(TABLE_SPAN as usize);
        let size = size as usize;
        let tail = reserved - head - size;
        let base = raw.wrapping_add(head);
        for (start, len) in [(raw, head), (base.wrapping_add(size), tail)] {
            if len > 0 {
                // SAFETY: the range lies inside the mapping made above, which nothing else knows of yet.
                unsafe { libc::munmap(start.cast(), len) };
            }
        }
        let Some(base) = NonNull::new(base) else {
            return Err(too_long);
        };
        let arena = Self { base, size };
        let advice = match huge {
            HugePages::System => None,
            HugePages::Yes => Some(libc::MADV_HUGEPAGE),
            HugePages::No => Some(libc::MADV_NOHUGEPAGE),
        };
        if let Some(advice) = advice {
            // SAFETY: the range is exactly the mapping that `arena` owns; the advice changes no contents.
            let result = unsafe { libc::madvise(arena.base.as_ptr().cast(), arena.size, advice) };
            // A kernel without transparent huge pages knows neither advice; then there are none to refuse.
            if result != 0 && huge == HugePages::Yes {
                return Err(ArenaError::Refused {
                    what: "ask for huge pages for",
                    size: arena.size as u64,
                    source: io::Error::last_os_error(),
                });
            }
        }
        Ok(arena)
    }

    pub fn range(&self) -> AddrRange {
        let start = self.base.as_ptr() as u64;
        AddrRange::new(start, start + self.size as u64)
    }

    /// Its pages.
    pub const fn pages(&self) -> u64 {
        self.size as u64 / PAGE_SIZE
    }

    /// Writes a byte of each of `pages`, counted from the first.
    ///
    /// Which byte differs from page to page, so that the touched lines spread over the cache's sets.
    ///
    /// # Panics
    /// If a page lies outside the arena.
    pub fn touch(&mut self, pages: &[u64]) {
        let limit = self.pages();
        for &page in pages {
            assert!(page < limit, "page {page} of an arena of {limit} pages");
            let offset = page * PAGE_SIZE + (page * 64 + (page >> 6) * 64) % PAGE_SIZE;
            // SAFETY: `page` is below the number of pages and the offset in it below the page size, so the byte lies in
            // the mapping, which is writable, lives as long as `self`, and is reached through `&mut self` only.
            unsafe { self.base.as_ptr().add(offset as usize).write_volatile(page as u8) };
        }
    }

    /// Reads a byte of each of `pages`, counted from the first.
    ///
    /// # Panics
    /// If a page lies outside the arena.
    pub fn read(&self, pages: &[u64]) {
        let limit = self.pages();
        for &page in pages {
            assert!(page < limit, "page {page} of an arena of {limit} pages");
            // SAFETY: `page` is below the number of pages, so the byte lies in the mapping, which is readable and lives
            // as long as `self`.
            unsafe { self.base.as_ptr().add((page * PAGE_SIZE) as usize).read_volatile() };
        }
    }

    /// Makes every CPU forget its translations of these addresses, so that the next access walks the page table. The
    /// pages stay as they are.
    pub fn flush_translations(&mut self) -> io::Result<()> {
        // Taking away a right is what makes the kernel flush; giving it back needs no memory, as the mapping is changed
        // whole.
        for rights in [libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE] {
            // SAFETY: the range is exactly the mapping that `self` owns, and nobody can access it during this call.
            if unsafe { libc::mprotect(self.base.as_ptr().cast(), self.size, rights) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the range is exactly the mapping made in `new`; no pointer into it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.size) };
    }
}

/// Bytes that can be allocated without swapping, as `meminfo` below `proc` tells; `None` if it does not.
pub(crate) fn available_memory(proc: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(proc.join("meminfo")).ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touching_populates_just_the_pages_asked_for() {
        let mut arena = Arena::new(64 * PAGE_SIZE, HugePages::No).unwrap();
        assert_eq!(arena.range().start % TABLE_SPAN, 0);
        arena.touch(&[0, 7, 63, 7]);
        let mut resident = [0u8; 64];
        let base = arena.range().start as *mut libc::c_void;
        // SAFETY: the range is the arena's, and the vector has a byte for each of its pages.
        let result = unsafe { libc::mincore(base, 64 * PAGE_SIZE as usize, resident.as_mut_ptr()) };
        assert_eq!(result, 0);
        let populated: Vec<usize> = (0..64).filter(|&i| resident[i] & 1 != 0).collect();
        assert_eq!(populated, [0, 7, 63]);
    }

    #[test]
    #[should_panic(expected = "page 4 of an arena of 4 pages")]
    fn a_page_outside_is_not_touched() {
        Arena::new(4 * PAGE_SIZE, HugePages::System).unwrap().touch(&[4]);
    }

    #[test]
    fn absurd_sizes_are_refused() {
        assert!(matches!(Arena::new(0, HugePages::No), Err(ArenaError::BadSize(0))));
        assert!(matches!(Arena::new(4095, HugePages::No), Err(ArenaError::BadSize(4095))));
        assert!(matches!(Arena::new(1 << 46, HugePages::No), Err(ArenaError::TooLarge { .. })));
        let error = Arena::new(1 << 46, HugePages::No).unwrap_err().to_string();
        assert!(error.starts_with("64.0 TiB do not fit"), "{error}");
    }

    #[test]
    fn meminfo_may_be_missing_or_odd() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(available_memory(dir.path()), None);
        std::fs::write(dir.path().join("meminfo"), "MemTotal: 5 kB\nMemAvailable:     3 kB\n").unwrap();
        assert_eq!(available_memory(dir.path()), Some(3072));
        std::fs::write(dir.path().join("meminfo"), "MemAvailable: many\n").unwrap();
        assert_eq!(available_memory(dir.path()), None);
    }
}
