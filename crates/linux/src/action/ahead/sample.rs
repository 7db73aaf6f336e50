//! What part of a huge page was ever written.

use crate::proc::memory::read_memory;
use isotherm_core::addr::{PAGE_SIZE, TABLE_SPAN};
use std::io;

/// One page in so many is read: all 512 take a third of a millisecond, and looks rest for many times what they cost. No
/// power of two, since programs' strides are.
const ONE_IN: usize = 9;
const PAGES: u64 = TABLE_SPAN / PAGE_SIZE;

/// Reads blocks of other processes; keeps the buffer.
#[derive(Debug, Default)]
pub(super) struct Sampler(Vec<u8>);

impl Sampler {
    /// Part of the pages of the block of 2 MiB at `block` that hold nothing but zeros: as good as never written. Fails where
    /// some of it is not mapped any more. The accessed bit of the huge page is set by it.
    pub fn zero_part(&mut self, pid: u32, block: u64) -> io::Result<f64> {
        let page_size = PAGE_SIZE as usize;
        let pages: Vec<u64> = (0..PAGES).step_by(ONE_IN).map(|page| block + page * PAGE_SIZE).collect();
        self.0.resize(pages.len() * page_size, 0);
        if read_memory(pid, &pages, page_size, &mut self.0)? < self.0.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (words, _) = self.0.as_chunks::<8>();
        let zeros = words.chunks(page_size / 8).filter(|page| page.iter().all(|w| *w == [0; 8])).count();
        Ok(zeros as f64 / pages.len() as f64)
    }
}
