//! A child process with a little memory, on which advice is tried out before anybody else's memory is touched.

use crate::fork::fork;
use crate::mm::advise::{Advice, advise};
use crate::mm::mapping::Mapping;
use crate::mm::move_pages;
use crate::mm::pagemap::Entry;
use crate::mm::words::read_words;
use crate::proc::{PidFd, Signal};
use isotherm_core::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN};
use rustix::mm::MprotectFlags;
use rustix::process::{Pid, WaitOptions, waitpid};
use std::fs::File;
use std::io::{self, PipeWriter, Read};
use std::os::fd::{AsFd, AsRawFd};

const SMALL: u64 = 64 * PAGE_SIZE;

/// The child. Dropping it ends the child and gives the memory back.
#[derive(Debug)]
pub(super) struct Subject {
    pid: Pid,
    pidfd: PidFd,
    /// The child exits when this is closed, also if we are killed.
    _leash: PipeWriter,
    _reservation: Mapping,
    /// 64 private anonymous pages that the child has written to.
    pub(super) small: AddrRange,
    /// 2 MiB of anonymous memory, aligned, of which the child has written every page.
    pub(super) huge: AddrRange,
}

impl Subject {
    /// Starts the child and waits until it has touched its memory.
    pub(super) fn start() -> io::Result<Self> {
        // Inaccessible pages around each area keep it a mapping of its own.
        let reservation = Mapping::inaccessible(3 * TABLE_SPAN as usize)?;
        let first = reservation.range().start;
        let huge_start = (first + SMALL + 2 * PAGE_SIZE).next_multiple_of(TABLE_SPAN);
        let huge = AddrRange::new(huge_start, huge_start + TABLE_SPAN);
        let small = AddrRange::new(first + PAGE_SIZE, first + PAGE_SIZE + SMALL);
        for area in [small, huge] {
            reservation.protect(area, MprotectFlags::READ | MprotectFlags::WRITE)?;
        }
        // A kernel without huge pages refuses, which is fine.
        let _ = reservation.advise(small, rustix::mm::Advice::LinuxNoHugepage);
        let (mut ready_reader, ready_writer) = io::pipe()?;
        let (leash_reader, leash) = io::pipe()?;

        // SAFETY: between fork and exit the child only writes to memory mapped above and makes system calls, as a child
        // of a process with threads must.
        let forked = unsafe {
            fork(|| {
                // The parent's end, or it would never be cut. Nothing in the child uses it.
                libc::close(leash.as_raw_fd());
                for area in [small, huge] {
                    for page in (area.start..area.end).step_by(PAGE_SIZE as usize) {
                        reservation.write((page - first) as usize, &page.to_ne_bytes());
                    }
                }
                let _ = rustix::io::write(&ready_writer, &[1]);
                // Interrupted by a signal: wait on.
                while rustix::io::read(&leash_reader, &mut [0]).is_err() {}
            })
        };
        let pid = forked?;
        let pidfd = match PidFd::open(pid.as_raw_pid() as u32) {
            Ok(pidfd) => pidfd,
            Err(e) => {
                // It exits because its leash is cut.
                drop(leash);
                let _ = waitpid(Some(pid), WaitOptions::empty());
                return Err(e);
            }
        };
        let subject = Self { pid, pidfd, _leash: leash, _reservation: reservation, small, huge };
        drop(ready_writer);
        ready_reader.read_exact(&mut [0])?;
        Ok(subject)
    }

    /// The handle on the child.
    pub(super) const fn pidfd(&self) -> &PidFd {
        &self.pidfd
    }

    /// Calls process_madvise on the child. Gives the number of bytes advised.
    pub(super) fn advise(&self, range: AddrRange, advice: Advice) -> io::Result<u64> {
        advise(self.pidfd.as_fd(), &[range], advice)
    }

    /// Pages of `range` that are swapped out, from the child's pagemap.
    pub(super) fn swapped_pages(&self, range: AddrRange) -> io::Result<u64> {
        let file = File::open(format!("/proc/{}/pagemap", self.pidfd.pid()))?;
        let mut entries = vec![0; (range.len() / PAGE_SIZE) as usize];
        read_words(&file, range.start / PAGE_SIZE, &mut entries)?;
        Ok(entries.into_iter().filter(|&entry| Entry(entry).is_swapped()).count() as u64)
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
        let text = std::fs::read_to_string(format!("/proc/{}/smaps", self.pidfd.pid()))?;
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
        let mut status = [-1];
        move_pages(self.pidfd.pid(), &[addr], node.as_ref().map(std::slice::from_ref), &mut status)?;
        if status[0] < 0 { Err(io::Error::from_raw_os_error(-status[0])) } else { Ok(status[0]) }
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        let _ = self.pidfd.send_signal(Signal::KILL);
        let _ = waitpid(Some(self.pid), WaitOptions::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_has_touched_its_memory_and_ends_with_the_guard() {
        let subject = Subject::start().unwrap();
        let pid = subject.pidfd.pid();
        assert_eq!(subject.smaps_kib(subject.small, "Rss").unwrap(), SMALL / 1024);
        assert_eq!(subject.smaps_kib(subject.huge, "Rss").unwrap(), TABLE_SPAN / 1024);
        assert_eq!(subject.swapped_pages(subject.small).unwrap(), 0);
        drop(subject);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}
