//! Input and output that goes on while the process that asked for it is stopped.

use super::others::links;
use crate::proc::maps::MapsLine;
use crate::proc::{ProcessDir, ProcessError};
use crate::roots::Roots;
use std::fmt;

/// How a process hands requests to the kernel without waiting for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AsyncIo {
    /// io_submit(2).
    Aio,
    /// io_uring(7).
    Uring,
}

impl fmt::Display for AsyncIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Aio => "Linux AIO",
            Self::Uring => "io_uring",
        })
    }
}

const URING: &str = "anon_inode:[io_uring]";

/// Whether process `pid` has made ready for one of them. What it has submitted before it is stopped is written to its
/// memory afterwards: into pages that are pinned meanwhile, so that whoever drops them loses it. Nothing tells from
/// outside whether a request is under way, nor what a ring is used for.
pub fn used_by(pid: u32) -> Result<Option<AsyncIo>, ProcessError> {
    used_in(&Roots::system(), pid)
}

fn used_in(roots: &Roots, pid: u32) -> Result<Option<AsyncIo>, ProcessError> {
    let dir = ProcessDir::of(roots, pid);
    let mut maps = Vec::new();
    dir.read("maps", &mut maps)?;
    // AIO has no descriptor; a ring may be mapped after its descriptor was closed, and need not be mapped.
    let of_maps = maps.split(|byte| *byte == b'\n').filter_map(MapsLine::parse).find_map(|line| match line.name {
        name if name.starts_with(b"/[aio]") => Some(AsyncIo::Aio),
        name if name.starts_with(URING.as_bytes()) => Some(AsyncIo::Uring),
        _ => None,
    });
    Ok(match of_maps {
        None => links(&dir)?.any(|link| link == URING).then_some(AsyncIo::Uring),
        found => found,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::tree;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_kernel_names_what_aio_has_mapped() {
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes the context's number to `context`, which outlives the call.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, 1usize, &raw mut context) };
        assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
        assert_eq!(used_by(std::process::id()).unwrap(), Some(AsyncIo::Aio));
        // SAFETY: it is ours, and nothing was submitted.
        assert_eq!(unsafe { libc::syscall(libc::SYS_io_destroy, context) }, 0);
        assert!(used_by(u32::MAX).is_err());
    }

    #[test]
    fn rings_are_found_open_or_mapped() {
        let used = |maps: &str, open: &str| {
            let tree = tree(&[("proc/7/maps", maps), ("proc/7/fd/nothing", "")]);
            symlink(open, tree.roots.path("/proc/7/fd/3")).unwrap();
            used_in(&tree.roots, 7).unwrap()
        };
        let heap = "1000-2000 rw-p 00000000 00:00 0    [heap]\n";
        let ring = "3000-4000 rw-s 00000000 00:0f 1029    anon_inode:[io_uring]\n";
        assert_eq!(used(heap, "anon_inode:[eventfd]"), None);
        assert_eq!(used(heap, "anon_inode:[io_uring]"), Some(AsyncIo::Uring));
        assert_eq!(used(&format!("{heap}{ring}"), "/dev/null"), Some(AsyncIo::Uring));
        assert_eq!(used("5000-6000 rw-s 00000000 00:10 9    /[aio] (deleted)\n", "/dev/null"), Some(AsyncIo::Aio));
    }
}
