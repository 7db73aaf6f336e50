//! `/proc/PID/pagemap`: its entries, and which pages are there and whether huge pages map them by `PAGEMAP_SCAN` (Linux 6.7).

use isotherm_core::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN};
use isotherm_core::filling::Populated;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

const PAGEMAP_SCAN: u64 = 0xc060_6610;
/// In memory.
const PAGE_IS_PRESENT: u64 = 1 << 3;
/// Mapped by a page middle directory entry.
const PAGE_IS_HUGE: u64 = 1 << 6;
/// What one call scans at most: the kernel holds the lock of the mappings meanwhile.
const AT_ONCE: u64 = 256 << 20;
/// Regions that one call tells.
const REGIONS: usize = 256;

/// The entry of a page (the kernel's Documentation/admin-guide/mm/pagemap.rst).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry(pub u64);

/// Bits of an entry: in memory; in swap; mapped by nobody else.
pub(crate) const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
pub(crate) const EXCLUSIVE: u64 = 1 << 56;

impl Entry {
    /// Whether it is in memory.
    pub(crate) const fn is_present(self) -> bool {
        self.0 & PRESENT != 0
    }

    /// Whether it is in swap.
    pub(crate) const fn is_swapped(self) -> bool {
        self.0 & SWAPPED != 0
    }

    /// Whether nobody else maps it.
    pub(crate) const fn is_exclusive(self) -> bool {
        self.0 & EXCLUSIVE != 0
    }

    /// The frame of a page that is in memory; 0 is what a reader without CAP_SYS_ADMIN is shown.
    pub(crate) const fn frame(self) -> u64 {
        self.0 & ((1 << 55) - 1)
    }
}

/// struct page_region of include/uapi/linux/fs.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// struct pm_scan_arg of include/uapi/linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// Reads the page table of one process through its pagemap file.
#[derive(Debug)]
pub struct Pagemap(File);

impl Pagemap {
    /// Of process `pid`. The file stays bound to the memory that the process has now.
    pub fn open(pid: u32) -> io::Result<Self> {
        File::open(format!("/proc/{pid}/pagemap")).map(Self)
    }

    /// Adds the pages in `range` that are in memory to `out`, in ascending order, and joined where they touch. Of what
    /// is scattered over more stretches only as much is told as makes `out` hold `most`, or a few more. Fails with
    /// ENOTTY before Linux 6.7.
    pub fn populated(&self, range: AddrRange, most: usize, out: &mut Vec<Populated>) -> io::Result<()> {
        let mut at = range.start / PAGE_SIZE * PAGE_SIZE;
        let mut regions = [Region::default(); REGIONS];
        while at < range.end && out.len() < most {
            let mut scan = Scan {
                size: size_of::<Scan>() as u64,
                start: at,
                end: range.end.min(at + AT_ONCE),
                vec: regions.as_mut_ptr() as u64,
                vec_len: REGIONS as u64,
                category_mask: PAGE_IS_PRESENT,
                return_mask: PAGE_IS_PRESENT | PAGE_IS_HUGE,
                ..Scan::default()
            };
            let told = self.scan(&mut scan)?;
            for region in &regions[..told] {
                let huge = region.categories & PAGE_IS_HUGE != 0;
                match out.last_mut() {
                    Some(last) if last.range.end == region.start && last.huge == huge => last.range.end = region.end,
                    _ => out.push(Populated { range: AddrRange::new(region.start, region.end), huge }),
                }
            }
            if scan.walk_end <= at {
                break;
            }
            at = scan.walk_end;
        }
        Ok(())
    }

    /// Asks the kernel; gives the number of regions that it told.
    fn scan(&self, scan: &mut Scan) -> io::Result<usize> {
        // SAFETY: the argument is a live structure of the size that it names, and its vector has room for as many regions as
        // it says: both callers take them from live arrays.
        let told = unsafe { libc::ioctl(self.0.as_raw_fd(), PAGEMAP_SCAN as _, &raw mut *scan) };
        usize::try_from(told).map_err(|_| io::Error::last_os_error())
    }

    /// Whether a huge page maps `addr`; `None` where the kernel does not tell.
    pub fn maps(&self, addr: u64) -> Option<bool> {
        let start = addr / TABLE_SPAN * TABLE_SPAN;
        let mut region = Region::default();
        let mut scan = Scan {
            size: size_of::<Scan>() as u64,
            start,
            end: start + TABLE_SPAN,
            vec: &raw mut region as u64,
            vec_len: 1,
            category_mask: PAGE_IS_HUGE,
            return_mask: PAGE_IS_HUGE,
            ..Scan::default()
        };
        self.scan(&mut scan).ok().map(|told| told > 0)
    }

    /// Cuts off what would take only a part of a huge page, at both ends of `range`. Empty if nothing else is left.
    pub fn whole(&self, range: AddrRange) -> AddrRange {
        let cuts = |addr: u64| !addr.is_multiple_of(TABLE_SPAN) && self.maps(addr) == Some(true);
        let start = if cuts(range.start) { range.start.next_multiple_of(TABLE_SPAN) } else { range.start };
        let end = if cuts(range.end) { range.end / TABLE_SPAN * TABLE_SPAN } else { range.end };
        AddrRange::new(start, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::{Arena, HugePages};

    #[test]
    fn scattered_pages_are_told_one_by_one() {
        let mut arena = Arena::new(4096 * PAGE_SIZE, HugePages::No).unwrap();
        let start = arena.range().start;
        let touched: Vec<u64> = (0..4096).filter(|i| i % 5 == 0 || (1000..1600).contains(i)).collect();
        arena.touch(&touched);
        let pagemap = Pagemap::open(std::process::id()).unwrap();
        let mut populated = Vec::new();
        if let Err(e) = pagemap.populated(arena.range(), usize::MAX, &mut populated) {
            assert_eq!(e.raw_os_error(), Some(libc::ENOTTY), "before Linux 6.7");
            return;
        }
        assert!(populated.iter().all(|p| !p.huge) && populated.is_sorted_by_key(|p| p.range.start));
        let pages = populated.iter().flat_map(|p| (p.range.start..p.range.end).step_by(PAGE_SIZE as usize));
        assert_eq!(pages.map(|a| (a - start) / PAGE_SIZE).collect::<Vec<_>>(), touched);
        populated.clear();
        pagemap.populated(arena.range(), 1, &mut populated).unwrap();
        assert!(populated.len() < 400, "{} stretches", populated.len());
    }
}
