//! Whether addresses of another process are mapped by a huge page: `PAGEMAP_SCAN` (Linux 6.7).

use isotherm_core::addr::{AddrRange, TABLE_SPAN};
use std::fs::File;
use std::os::fd::AsRawFd;

const PAGEMAP_SCAN: u64 = 0xc060_6610;
/// Mapped by a page middle directory entry.
const PAGE_IS_HUGE: u64 = 1 << 6;

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
pub struct HugePages(File);

impl HugePages {
    /// Of process `pid`. The file stays bound to the memory that the process has now.
    pub fn open(pid: u32) -> std::io::Result<Self> {
        File::open(format!("/proc/{pid}/pagemap")).map(Self)
    }

    /// Whether a huge page maps `addr`; `None` where the kernel does not tell.
    pub fn maps(&self, addr: u64) -> Option<bool> {
        let start = addr / TABLE_SPAN * TABLE_SPAN;
        let mut region = [0u64; 3];
        let mut scan = Scan {
            size: size_of::<Scan>() as u64,
            start,
            end: start + TABLE_SPAN,
            vec: region.as_mut_ptr() as u64,
            vec_len: 1,
            category_mask: PAGE_IS_HUGE,
            return_mask: PAGE_IS_HUGE,
            ..Scan::default()
        };
        // SAFETY: the argument is a live structure of the size that it names; its vector has room for one region.
        let r = unsafe { libc::ioctl(self.0.as_raw_fd(), PAGEMAP_SCAN as _, &raw mut scan) };
        (r >= 0).then_some(r > 0)
    }

    /// Cuts off what would take only a part of a huge page, at both ends of `range`. Empty if nothing else is left.
    pub fn whole(&self, range: AddrRange) -> AddrRange {
        let cuts = |addr: u64| !addr.is_multiple_of(TABLE_SPAN) && self.maps(addr) == Some(true);
        let start = if cuts(range.start) { range.start.next_multiple_of(TABLE_SPAN) } else { range.start };
        let end = if cuts(range.end) { range.end / TABLE_SPAN * TABLE_SPAN } else { range.end };
        AddrRange::new(start, end)
    }
}
