//! Where in physical memory huge pages are.

use super::HUGE_PAGE;
use super::segment::Attached;
use crate::roots::Roots;
use isotherm_core::addr::PAGE_SIZE;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const PRESENT: u64 = 1 << 63;
const FRAME: u64 = (1 << 55) - 1;

/// `/proc/self/pagemap` (format: the kernel's Documentation/admin-guide/mm/pagemap.rst).
#[derive(Debug)]
pub(super) struct Pagemap(File);

impl Pagemap {
    /// That below `roots`.
    pub(super) fn open(roots: &Roots) -> io::Result<Self> {
        File::open(roots.path("/proc/self/pagemap")).map(Self)
    }

    /// Physical addresses of the huge pages of a mapping, in the order of the virtual ones; each was touched.
    pub(super) fn huge_pages(&self, attached: &Attached) -> io::Result<Vec<u64>> {
        attached.addresses().map(|addr| self.huge_page(addr)).collect()
    }

    fn huge_page(&self, addr: u64) -> io::Result<u64> {
        let mut entry = [0u8; 8];
        self.0.read_exact_at(&mut entry, addr / PAGE_SIZE * 8)?;
        let entry = u64::from_ne_bytes(entry);
        let start = (entry & FRAME) * PAGE_SIZE;
        // Frame 0 is what a reader without CAP_SYS_ADMIN is shown.
        if entry & PRESENT == 0 || start == 0 || !start.is_multiple_of(HUGE_PAGE) {
            let why = format!("address {addr:#x} is backed by no huge page that can be seen (entry {entry:#x})");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(start)
    }
}
