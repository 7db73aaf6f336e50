//! `move_pages(2)`: moves pages of a process to memory nodes, or asks where they are.

use std::io;

/// Only pages that no other process maps.
const MPOL_MF_MOVE: libc::c_int = 2;

/// Moves each of `pages` to its node (without nodes: only asks where it is) and puts the node where it lies, or a
/// negative error number, into `status`; how many did not move.
pub(crate) fn move_pages(pid: u32, pages: &[u64], nodes: Option<&[i32]>, status: &mut [i32]) -> io::Result<u64> {
    assert!(pages.len() == status.len() && nodes.is_none_or(|n| n.len() == pages.len()));
    let nodes = nodes.map_or(std::ptr::null(), <[_]>::as_ptr);
    // SAFETY: addresses, nodes and statuses are arrays of the length that is passed; the addresses are the target's and
    // not dereferenced here.
    let r = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid as libc::pid_t,
            pages.len(),
            pages.as_ptr(),
            nodes,
            status.as_mut_ptr(),
            MPOL_MF_MOVE,
        )
    };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(r as u64) }
}
