//! `process_madvise(2)`: advice on the memory of another process.

use isotherm_core::addr::AddrRange;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Ranges that one call takes (UIO_MAXIOV).
pub(crate) const MAX_RANGES: usize = 1024;

/// Not in libc for every target; include/uapi/asm-generic/mman-common.h.
pub(crate) const MADV_COLLAPSE: libc::c_int = 25;

/// Asks the kernel to treat the first ranges (at most [`MAX_RANGES`]) of the process behind `pidfd` as cold, in order.
/// Tells how many bytes were done; fewer than asked for means that the range there was refused.
///
/// The kernel clears accessed bits of pages that only this process maps and moves them to the inactive list. Page
/// tables that lie partly in a range are cleared partly; a large folio or huge page that lies partly in it is split.
pub fn mark_cold(pidfd: BorrowedFd<'_>, ranges: &[AddrRange]) -> io::Result<u64> {
    advise(pidfd, ranges, libc::MADV_COLD)
}

/// Gives advice on the first ranges (at most [`MAX_RANGES`]) of the process behind `pidfd`, in order. Tells how many
/// bytes were done; fewer than asked for means that the range there was refused: calling again with it tells why.
///
/// The kernel takes advice for another process only where it cannot change what that process computes, and refuses the
/// rest itself (`process_madvise_remote_valid` in mm/madvise.c).
pub fn advise(pidfd: BorrowedFd<'_>, ranges: &[AddrRange], advice: libc::c_int) -> io::Result<u64> {
    let iov: Vec<libc::iovec> = ranges
        .iter()
        .take(MAX_RANGES)
        .map(|r| libc::iovec { iov_base: r.start as *mut libc::c_void, iov_len: r.len() as usize })
        .collect();
    // SAFETY: the addresses are another process's and only named here. The kernel lets no advice change contents there.
    // On ourselves newer kernels allow every advice, so callers pass cold, pageout, willneed and collapse only.
    let n = unsafe {
        libc::syscall(libc::SYS_process_madvise, pidfd.as_raw_fd(), iov.as_ptr(), iov.len(), advice, 0 as libc::c_uint)
    };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as u64) }
}
