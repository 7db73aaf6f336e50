//! Where in physical memory huge pages are.

use super::HUGE_PAGE;
use super::segment::Attached;
use crate::mm::pagemap::Entry;
use crate::mm::words::read_words;
use crate::roots::Roots;
use isotherm_core::addr::PAGE_SIZE;
use std::fs::File;
use std::io;

/// `/proc/self/pagemap`.
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
        let mut entry = [0];
        read_words(&self.0, addr / PAGE_SIZE, &mut entry)?;
        let entry = Entry(entry[0]);
        let start = entry.frame() * PAGE_SIZE;
        if !entry.is_present() || start == 0 || !start.is_multiple_of(HUGE_PAGE) {
            let why = format!("address {addr:#x} is backed by no huge page that can be seen ({entry:x?})");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(start)
    }
}
