//! `process_madvise(2)`: advice on the memory of another process.

use isotherm_core::addr::AddrRange;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Ranges that one call takes (UIO_MAXIOV).
pub(crate) const MAX_RANGES: usize = 1024;

/// What may be advised for another process. None of it changes what that process computes, so that it does no harm on
/// ourselves either, where newer kernels allow every advice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Advice {
    Cold,
    PageOut,
    WillNeed,
    Collapse,
}

impl Advice {
    const fn number(self) -> libc::c_int {
        match self {
            Self::Cold => libc::MADV_COLD,
            Self::PageOut => libc::MADV_PAGEOUT,
            Self::WillNeed => libc::MADV_WILLNEED,
            // Not in libc for every target; include/uapi/asm-generic/mman-common.h.
            Self::Collapse => 25,
        }
    }
}

/// Asks the kernel to treat the first ranges (at most [`MAX_RANGES`]) of the process behind `pidfd` as cold, in order.
/// Tells how many bytes were done; fewer than asked for means that the range there was refused.
///
/// The kernel clears accessed bits of pages that only this process maps and moves them to the inactive list. Page
/// tables that lie partly in a range are cleared partly; a large folio or huge page that lies partly in it is split.
pub fn mark_cold(pidfd: BorrowedFd<'_>, ranges: &[AddrRange]) -> io::Result<u64> {
    advise(pidfd, ranges, Advice::Cold)
}

/// Gives advice on the first ranges (at most [`MAX_RANGES`]) of the process behind `pidfd`, in order. Tells how many
/// bytes were done; fewer than asked for means that the range there was refused: calling again with it tells why.
///
/// The kernel takes advice for another process only where it cannot change what that process computes, and refuses the
/// rest itself (`process_madvise_remote_valid` in mm/madvise.c).
pub(crate) fn advise(pidfd: BorrowedFd<'_>, ranges: &[AddrRange], advice: Advice) -> io::Result<u64> {
    let iov: Vec<libc::iovec> = ranges
        .iter()
        .take(MAX_RANGES)
        .map(|r| libc::iovec { iov_base: r.start as *mut libc::c_void, iov_len: r.len() as usize })
        .collect();
    // SAFETY: `iov` is a live list as long as stated. The addresses are only named here, and no [`Advice`] changes
    // contents.
    let n = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            pidfd.as_raw_fd(),
            iov.as_ptr(),
            iov.len(),
            advice.number(),
            0 as libc::c_uint,
        )
    };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as u64) }
}
