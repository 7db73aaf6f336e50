//! A child process with a little memory, on which advice is tried out before anybody else's memory is touched.

use crate::mm::advise::advise;
use crate::proc::PidFd;
use isotherm_core::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::ptr;

const SMALL: u64 = 64 * PAGE_SIZE;

/// The child. Dropping it ends the child and gives the memory back.
#[derive(Debug)]
pub(super) struct Subject {
    pid: libc::pid_t,
    pidfd: PidFd,
    /// The child exits when this is closed, also if we are killed.
    _leash: OwnedFd,
    _reservation: Mapped,
    /// 64 private anonymous pages that the child has written to.
    pub(super) small: AddrRange,
    /// 2 MiB of anonymous memory, aligned, of which the child has written every page.
    pub(super) huge: AddrRange,
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: the array has room for the two descriptors that pipe2 writes.
    check(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: pipe2 succeeded, so both are open and owned by nobody else.
    Ok(unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) })
}

/// A mapping of this process; nothing refers into it.
#[derive(Debug)]
struct Mapped(AddrRange);

impl Mapped {
    fn new(len: u64, prot: libc::c_int, flags: libc::c_int, fd: libc::c_int) -> io::Result<Self> {
        // SAFETY: without MAP_FIXED a new mapping replaces nothing.
        let p = unsafe { libc::mmap(ptr::null_mut(), len as usize, prot, flags, fd, 0) };
        if p == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(AddrRange::new(p as u64, p as u64 + len)))
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new`, and no reference into it exists in this process.
        unsafe { libc::munmap(self.0.start as *mut libc::c_void, self.0.len() as usize) };
    }
}

impl Subject {
    /// Starts the child and waits until it has touched its memory.
    pub(super) fn start() -> io::Result<Self> {
        let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // Inaccessible pages around each area keep it a mapping of its own.
        let reservation = Mapped::new(3 * TABLE_SPAN, libc::PROT_NONE, private, -1)?;
        let huge_start = (reservation.0.start + SMALL + 2 * PAGE_SIZE).next_multiple_of(TABLE_SPAN);
        let huge = AddrRange::new(huge_start, huge_start + TABLE_SPAN);
        let small = AddrRange::new(reservation.0.start + PAGE_SIZE, reservation.0.start + PAGE_SIZE + SMALL);
        for area in [small, huge] {
            let rw = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: the area lies inside our own reservation.
            check(unsafe { libc::mprotect(area.start as *mut libc::c_void, area.len() as usize, rw) })?;
        }
        // SAFETY: small pages are asked for inside our own reservation; a kernel without huge pages refuses, which is
        // fine.
        unsafe { libc::madvise(small.start as *mut libc::c_void, SMALL as usize, libc::MADV_NOHUGEPAGE) };
        let (ready_reader, ready_writer) = pipe()?;
        let (leash_reader, leash) = pipe()?;

        // SAFETY: between fork and exit the child only writes to memory mapped above and calls async-signal-safe
        // functions, as a child of a process with threads must.
        let pid = check(unsafe { libc::fork() })?;
        if pid == 0 {
            // SAFETY: all addresses are in areas mapped writable above, which the child has inherited; the descriptors
            // are open; _exit runs no destructors.
            unsafe {
                libc::close(leash.as_raw_fd());
                for area in [small, huge] {
                    for page in (area.start..area.end).step_by(PAGE_SIZE as usize) {
                        (page as *mut u64).write_volatile(page);
                    }
                }
                let byte = 1u8;
                libc::write(ready_writer.as_raw_fd(), (&raw const byte).cast(), 1);
                let mut end = 0u8;
                while libc::read(leash_reader.as_raw_fd(), (&raw mut end).cast(), 1) < 0 {
                    // Interrupted by a signal: wait on.
                }
                libc::_exit(0);
            }
        }
        let pidfd = match PidFd::open(pid as u32) {
            Ok(pidfd) => pidfd,
            Err(e) => {
                drop(leash);
                // SAFETY: waits for our own child, which exits because its leash is cut.
                unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
                return Err(e);
            }
        };
        let subject = Self { pid, pidfd, _leash: leash, _reservation: reservation, small, huge };
        drop(ready_writer);
        File::from(ready_reader).read_exact(&mut [0])?;
        Ok(subject)
    }

    /// The handle on the child.
    pub(super) const fn pidfd(&self) -> &PidFd {
        &self.pidfd
    }

    /// Calls process_madvise on the child. Gives the number of bytes advised.
    pub(super) fn advise(&self, range: AddrRange, advice: libc::c_int) -> io::Result<u64> {
        advise(self.pidfd.as_fd(), &[range], advice)
    }

    /// Pages of `range` that are swapped out, from the child's pagemap.
    pub(super) fn swapped_pages(&self, range: AddrRange) -> io::Result<u64> {
        let file = File::open(format!("/proc/{}/pagemap", self.pid))?;
        let mut buf = vec![0; (range.len() / PAGE_SIZE * 8) as usize];
        file.read_exact_at(&mut buf, range.start / PAGE_SIZE * 8)?;
        // Bit 62: swapped (Documentation/admin-guide/mm/pagemap.rst).
        Ok(buf.chunks_exact(8).filter(|e| e[7] >> 6 & 1 == 1).count() as u64)
    }

    /// A figure of the mapping that starts at `range`, in KiB, from the child's smaps.
    pub(super) fn smaps_kib(&self, range: AddrRange, field: &str) -> io::Result<u64> {
        let text = self.smaps(range, field)?;
        let value = text.strip_suffix(" kB").and_then(|n| n.parse().ok());
        value.ok_or_else(|| io::Error::other(format!("smaps has '{text}' as {field} of the child's mapping")))
    }

    /// Whether the mapping that starts at `range` has a flag, from the child's smaps.
    pub(super) fn has_flag(&self, range: AddrRange, flag: &str) -> io::Result<bool> {
        Ok(self.smaps(range, "VmFlags")?.split_whitespace().any(|f| f == flag))
    }

    /// A line about the mapping that starts at `range`, from the child's smaps.
    fn smaps(&self, range: AddrRange, field: &str) -> io::Result<String> {
        let text = std::fs::read_to_string(format!("/proc/{}/smaps", self.pid))?;
        let head = format!("{:x}-", range.start);
        let mut lines = text.lines().skip_while(|l| !l.starts_with(&head));
        let value = lines.find_map(|l| Some(l.strip_prefix(field)?.strip_prefix(':')?.trim().to_owned()));
        value.ok_or_else(|| io::Error::other(format!("smaps has no {field} of the child's mapping")))
    }

    /// Asks where a page of the child lies, which needs the same rights as moving it (move_pages without target nodes).
    pub(super) fn node_of(&self, addr: u64) -> io::Result<libc::c_int> {
        self.move_page(addr, None)
    }

    /// Moves a page of the child to a node and gives the node it lies on afterwards.
    pub(super) fn move_to(&self, addr: u64, node: u32) -> io::Result<libc::c_int> {
        self.move_page(addr, Some(node as libc::c_int))
    }

    fn move_page(&self, addr: u64, node: Option<libc::c_int>) -> io::Result<libc::c_int> {
        const MPOL_MF_MOVE: libc::c_int = 2;
        let pages = [addr as *mut libc::c_void];
        let nodes = node.as_ref().map_or(ptr::null(), ptr::from_ref);
        let mut status: libc::c_int = -1;
        // SAFETY: one page address (the child's, not dereferenced here), at most one node, room for one status.
        let r = unsafe {
            libc::syscall(libc::SYS_move_pages, self.pid, 1usize, pages.as_ptr(), nodes, &raw mut status, MPOL_MF_MOVE)
        };
        match (r, status) {
            (..0, _) => Err(io::Error::last_os_error()),
            (_, ..0) => Err(io::Error::from_raw_os_error(-status)),
            _ => Ok(status),
        }
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        // SAFETY: signals and reaps our own child, which cannot have been reaped elsewhere.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, ptr::null_mut(), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_has_touched_its_memory_and_ends_with_the_guard() {
        let subject = Subject::start().unwrap();
        let pid = subject.pid;
        assert_eq!(subject.smaps_kib(subject.small, "Rss").unwrap(), SMALL / 1024);
        assert_eq!(subject.smaps_kib(subject.huge, "Rss").unwrap(), TABLE_SPAN / 1024);
        assert_eq!(subject.swapped_pages(subject.small).unwrap(), 0);
        drop(subject);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}
