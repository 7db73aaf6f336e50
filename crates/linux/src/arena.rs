//! A private anonymous mapping whose pages are touched on request: the memory of `isotherm workload`.

use crate::facts::meminfo;
use crate::mm::mapping::Mapping;
use crate::roots::Roots;
use isotherm_core::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN};
use isotherm_core::units::format_size;
use rustix::mm::{Advice, MprotectFlags};
use std::io;

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
    memory: Mapping,
}

impl Arena {
    /// Maps `size` bytes (a multiple of the page size); nothing is populated yet. Refuses more than is available.
    pub fn new(size: u64, huge: HugePages) -> Result<Self, ArenaError> {
        if size == 0 || !size.is_multiple_of(PAGE_SIZE) {
            return Err(ArenaError::BadSize(size));
        }
        if let Some(available) = meminfo::available(&Roots::system())
            && size > available
        {
            return Err(ArenaError::TooLarge { asked: size, available });
        }
        let refused = |what| move |source| ArenaError::Refused { what, size, source };
        let len = usize::try_from(size).map_err(|_| ArenaError::BadSize(size))?;
        let memory = Mapping::aligned(len, TABLE_SPAN as usize).map_err(refused("map"))?;
        // A kernel without transparent huge pages knows neither advice; then there are none to refuse.
        match huge {
            HugePages::System => {}
            HugePages::Yes => {
                memory.advise(memory.range(), Advice::LinuxHugepage).map_err(refused("ask for huge pages for"))?
            }
            HugePages::No => drop(memory.advise(memory.range(), Advice::LinuxNoHugepage)),
        }
        Ok(Self { memory })
    }

    pub fn range(&self) -> AddrRange {
        self.memory.range()
    }

    /// Its pages.
    pub fn pages(&self) -> u64 {
        self.range().len() / PAGE_SIZE
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
            self.memory.write(offset as usize, &[page as u8]);
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
            self.memory.read((page * PAGE_SIZE) as usize, &mut [0]);
        }
    }

    /// Makes every CPU forget its translations of these addresses, so that the next access walks the page table. The
    /// pages stay as they are.
    pub fn flush_translations(&mut self) -> io::Result<()> {
        // Taking away a right is what makes the kernel flush; giving it back needs no memory, as the mapping is changed
        // whole.
        self.memory.protect(self.range(), MprotectFlags::READ)?;
        self.memory.protect(self.range(), MprotectFlags::READ | MprotectFlags::WRITE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touching_populates_just_the_pages_asked_for() {
        let mut arena = Arena::new(64 * PAGE_SIZE, HugePages::No).unwrap();
        assert_eq!(arena.range().start % TABLE_SPAN, 0);
        arena.touch(&[0, 7, 63, 7]);
        let resident = arena.memory.resident(arena.range()).unwrap();
        let populated: Vec<usize> = (0..64).filter(|&i| resident[i]).collect();
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
}
