//! What part of a huge page was ever written.

use isotherm_core::addr::{PAGE_SIZE, TABLE_SPAN};
use std::io;

/// Reads blocks of other processes; keeps the buffer.
#[derive(Debug, Default)]
pub(super) struct Sampler(Vec<u8>);

impl Sampler {
    /// Pages of the block of 2 MiB at `block` that hold nothing but zeros: as good as never written. Fails where some
    /// of it is not mapped any more. The accessed bit of the huge page is set by it.
    pub fn zero_pages(&mut self, pid: u32, block: u64) -> io::Result<u64> {
        self.0.resize(TABLE_SPAN as usize, 0);
        let local = libc::iovec { iov_base: self.0.as_mut_ptr().cast(), iov_len: self.0.len() };
        let remote = libc::iovec { iov_base: block as *mut libc::c_void, iov_len: self.0.len() };
        // SAFETY: one live local buffer of that length; the remote address is another process's and only named here.
        let n = unsafe { libc::process_vm_readv(pid as libc::pid_t, &local, 1, &remote, 1, 0) };
        match usize::try_from(n) {
            Ok(n) if n == self.0.len() => {}
            Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(_) => return Err(io::Error::last_os_error()),
        }
        let (words, _) = self.0.as_chunks::<8>();
        Ok(words.chunks(PAGE_SIZE as usize / 8).filter(|page| page.iter().all(|w| *w == [0; 8])).count() as u64)
    }
}
