//! What part of a huge page was ever written.

use isotherm_core::addr::{PAGE_SIZE, TABLE_SPAN};
use std::io;

/// One page in so many is read: all 512 take a third of a millisecond, and looks rest for many times what they cost. No
/// power of two, since programs' strides are.
const ONE_IN: usize = 9;
const PAGES: usize = (TABLE_SPAN / PAGE_SIZE) as usize;

/// Reads blocks of other processes; keeps the buffer.
#[derive(Debug, Default)]
pub(super) struct Sampler(Vec<u8>);

impl Sampler {
    /// Part of the pages of the block of 2 MiB at `block` that hold nothing but zeros: as good as never written. Fails where
    /// some of it is not mapped any more. The accessed bit of the huge page is set by it.
    pub fn zero_part(&mut self, pid: u32, block: u64) -> io::Result<f64> {
        let page_size = PAGE_SIZE as usize;
        let remote: Vec<libc::iovec> = (0..PAGES)
            .step_by(ONE_IN)
            .map(|page| libc::iovec {
                iov_base: (block as usize + page * page_size) as *mut libc::c_void,
                iov_len: page_size,
            })
            .collect();
        self.0.resize(remote.len() * page_size, 0);
        let local = libc::iovec { iov_base: self.0.as_mut_ptr().cast(), iov_len: self.0.len() };
        // SAFETY: one live local buffer of that length, and as many live entries as are told of; the remote addresses are
        // another process's and only named here.
        let n = unsafe {
            libc::process_vm_readv(pid as libc::pid_t, &local, 1, remote.as_ptr(), remote.len() as libc::c_ulong, 0)
        };
        match usize::try_from(n) {
            Ok(n) if n == self.0.len() => {}
            Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(_) => return Err(io::Error::last_os_error()),
        }
        let (words, _) = self.0.as_chunks::<8>();
        let zeros = words.chunks(page_size / 8).filter(|page| page.iter().all(|w| *w == [0; 8])).count();
        Ok(zeros as f64 / remote.len() as f64)
    }
}
