//! Pages that automatic NUMA balancing has marked (`/proc/sys/kernel/numa_balancing`): they are present, but the next
//! access faults, so that the kernel learns which processor uses them.
//!
//! From 6.1 to 6.4 `move_pages(2)` takes such a page for one that is not there (`follow_page` in mm/gup.c finds nothing
//! for an entry without access rights), and nobody else takes the mark off a page that is cold. Reading a byte of it
//! from outside does.

use crate::mm::advise::{MAX_RANGES, mark_cold};
use crate::mm::pagemap::Entry;
use crate::mm::words::read_words;
use crate::proc::memory::read_memory;
use crate::proc::{PidFd, ProcessDir};
use isotherm_core::addr::{AddrRange, PAGE_SIZE};
use isotherm_core::pages::push_range;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;

/// Takes the mark off those of `pages` (sorted addresses) that are in memory; gives their ranges: none where the
/// target's pagemap or memory cannot be read. Reading sets their accessed bits: see [`forget_reading`].
pub(super) fn take_marks_off(process: &PidFd, pages: &[u64]) -> Vec<AddrRange> {
    let mut read = Vec::new();
    let Ok(pagemap) = ProcessDir::live(process.pid()).open("pagemap") else { return read };
    for some in present(&pagemap, pages).unwrap_or_default().chunks(MAX_RANGES) {
        let mut at = 0;
        while at < some.len() {
            let left = &some[at..];
            let Ok(done) = read_memory(process.pid(), left, 1, &mut vec![0; left.len()]) else { return read };
            some[at..at + done].iter().for_each(|&page| push_range(&mut read, AddrRange::new(page, page + PAGE_SIZE)));
            // The page that ended the call went away meanwhile.
            at += done + 1;
        }
    }
    read
}

/// Clears the accessed bits that [`take_marks_off`] has set, so that nobody takes its reading for an access of the
/// program's.
pub(super) fn forget_reading(process: &PidFd, ranges: &[AddrRange]) {
    for some in ranges.chunks(MAX_RANGES) {
        // Where it is refused, a page may look used once more than it was.
        let _ = mark_cold(process.as_fd(), some);
    }
}

fn present(pagemap: &File, pages: &[u64]) -> io::Result<Vec<u64>> {
    let (Some(&first), Some(&last)) = (pages.first(), pages.last()) else { return Ok(Vec::new()) };
    let count = (last - first) / PAGE_SIZE + 1;
    let mut entries = vec![0; count as usize];
    // What lies behind the end is not there.
    read_words(pagemap, first / PAGE_SIZE, &mut entries)?;
    let entry = |page: u64| Entry(entries[((page - first) / PAGE_SIZE) as usize]);
    Ok(pages.iter().copied().filter(|&page| entry(page).is_present()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mm::mapping::Mapping;

    #[test]
    fn only_what_is_in_memory_is_read() {
        const PAGES: usize = 8;
        let len = PAGES * PAGE_SIZE as usize;
        let memory = Mapping::private(len).unwrap();
        let page = |i: usize| memory.range().start + i as u64 * PAGE_SIZE;
        for i in [1, 2, 5] {
            memory.write(i * PAGE_SIZE as usize, &[1]);
        }
        let own = PidFd::open(std::process::id()).unwrap();
        let all: Vec<u64> = (0..PAGES).map(page).collect();
        let read = take_marks_off(&own, &all);
        let range = |from: usize, to: usize| AddrRange::new(page(from), page(to));
        let pagemap = File::open("/proc/self/pagemap").unwrap();
        let present = present(&pagemap, &all).unwrap();
        assert_eq!(read, [range(1, 3), range(5, 6)]);
        assert_eq!(present, [page(1), page(2), page(5)], "nothing was brought into memory by it");
        assert_eq!(take_marks_off(&own, &[]), []);
    }
}
