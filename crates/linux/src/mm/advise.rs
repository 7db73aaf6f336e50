//! `process_madvise(MADV_COLD)`: the way to clear accessed bits of another process's pages on a stock kernel.

use isotherm_core::addr::AddrRange;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Ranges that one call takes (UIO_MAXIOV).
pub const MAX_RANGES: usize = 1024;

/// Asks the kernel to treat the first ranges (at most [`MAX_RANGES`]) of the process behind `pidfd` as cold, in order. Tells how many bytes
/// were done; fewer than asked for means that the range there was refused.
///
/// The kernel clears accessed bits of pages that only this process maps and moves them to the inactive list. Page tables
/// that lie partly in a range are cleared partly; a large folio or huge page that lies partly in it is split.
pub fn mark_cold(pidfd: BorrowedFd<'_>, ranges: &[AddrRange]) -> io::Result<u64> {
    let iov: Vec<libc::iovec> = ranges
        .iter()
        .take(MAX_RANGES)
        .map(|r| libc::iovec { iov_base: r.start as *mut libc::c_void, iov_len: r.len() as usize })
        .collect();
    // SAFETY: the addresses are another process's and only named here; MADV_COLD changes no contents there.
    let n = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            pidfd.as_raw_fd(),
            iov.as_ptr(),
            iov.len(),
            libc::MADV_COLD,
            0 as libc::c_uint,
        )
    };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as u64) }
}
