//! Files that a process has mapped shared and holds open: the memory of a virtual machine, if it is a VMM.

use crate::folder_lock::FolderLock;
use crate::proc::maps::MapsLine;
use crate::proc::{ProcessDir, ProcessError};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug)]
pub struct RamFile {
    /// Number of the descriptor in the process.
    pub fd: u32,
    /// What its link shows, without ` (deleted)`.
    pub name: String,
    /// Bytes.
    pub size: u64,
    pub identity: (u64, u64),
    /// The same file, opened for reading and writing.
    pub file: File,
}

impl RamFile {
    /// Bytes that it takes now, in memory and swap.
    pub fn resident(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.blocks() * 512)
    }

    /// Keeps others from dropping parts of it at the same time, for as long as the lock lives. Only those who ask for
    /// this lock notice.
    pub fn lock(&self) -> io::Result<FolderLock> {
        FolderLock::take(&PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd())), Duration::ZERO)
    }
}

/// The files of at least `least` bytes that process `pid` has mapped shared and writable and has a writable descriptor
/// for, one a file, by descriptor. On a memory file system only: punching holes into others is not about memory.
///
/// A file is taken for the mapped one by device and inode. Inode numbers alone repeat from one file system to the next,
/// and the device in `maps` can be another than that of `stat` (btrfs), so that `map_files` is asked. A process that
/// may only read a file must not have it emptied through us: its own descriptor has to be writable.
pub fn of_process(pid: u32, least: u64) -> Result<Vec<RamFile>, ProcessError> {
    let dir = ProcessDir::live(pid);
    let mut maps = Vec::new();
    dir.read("maps", &mut maps)?;
    let lines = maps.split(|byte| *byte == b'\n').filter_map(MapsLine::parse).filter(is_shared_and_writable);
    let mapped: BTreeSet<(u64, u64)> =
        lines.filter_map(|line| identity_of(&dir, &line).transpose()).collect::<Result<_, _>>()?;
    let mut fds: Vec<u32> = std::fs::read_dir(dir.file("fd"))
        .map_err(|e| dir.error("fd", e))?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    fds.sort_unstable();
    let mut found: Vec<RamFile> = Vec::new();
    for fd in fds {
        let path = dir.file("fd").join(fd.to_string());
        // Descriptors come and go; one that is gone is none. Nothing is opened before it is known to be a plain file:
        // opening a device or a pipe does things.
        let (Ok(link), Ok(meta)) = (std::fs::read_link(&path), std::fs::metadata(&path)) else { continue };
        let identity = (meta.dev(), meta.ino());
        if !meta.is_file()
            || meta.len() < least
            || !mapped.contains(&identity)
            || found.iter().any(|file| file.identity == identity)
            || !is_writable(&dir, fd)
        {
            continue;
        }
        let file = match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(dir.error(&format!("fd/{fd}"), e)),
        };
        // What was opened is what was looked at, also if the number was given to another file in between.
        let opened = file.metadata().map_err(|e| dir.error(&format!("fd/{fd}"), e))?;
        if (opened.dev(), opened.ino()) == identity
            && is_memory(&file).map_err(|e| dir.error(&format!("fd/{fd}"), e))?
        {
            let name = String::from_utf8_lossy(link.as_os_str().as_bytes()).trim_end_matches(" (deleted)").to_owned();
            found.push(RamFile { fd, name, size: opened.len(), identity, file });
        }
    }
    Ok(found)
}

pub(super) fn is_shared_and_writable(line: &MapsLine<'_>) -> bool {
    line.is_shared() && line.perms[1] == b'w' && line.inode != 0
}

/// Device and inode of what is mapped; `None` where it is mapped no longer.
pub(super) fn identity_of(dir: &ProcessDir, line: &MapsLine<'_>) -> Result<Option<(u64, u64)>, ProcessError> {
    let name = format!("map_files/{:x}-{:x}", line.range.start, line.range.end);
    match std::fs::metadata(dir.file(&name)) {
        Ok(meta) => Ok(Some((meta.dev(), meta.ino()))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(dir.error(&name, e)),
    }
}

/// Whether the process itself may write through its descriptor; one that is gone it may not.
fn is_writable(dir: &ProcessDir, fd: u32) -> bool {
    let info = std::fs::read_to_string(dir.file(&format!("fdinfo/{fd}"))).unwrap_or_default();
    let flags = info.lines().find_map(|line| i32::from_str_radix(line.strip_prefix("flags:")?.trim(), 8).ok());
    flags.is_some_and(|flags| {
        flags & libc::O_PATH == 0 && [libc::O_WRONLY, libc::O_RDWR].contains(&(flags & libc::O_ACCMODE))
    })
}

/// Whether a file is on a file system that is memory: memfds, tmpfs, hugetlbfs.
#[allow(clippy::unnecessary_cast, reason = "the types differ between C libraries")]
fn is_memory(file: &File) -> io::Result<bool> {
    let kind = rustix::fs::fstatfs(file)?.f_type as i64;
    Ok([libc::TMPFS_MAGIC as i64, libc::HUGETLBFS_MAGIC as i64].contains(&kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostmem::shared::SharedMemory;
    use std::time::{Duration, Instant};

    #[test]
    fn our_own_memory_is_found_once_and_can_be_locked() {
        let mut memory = SharedMemory::new("memory-backend-memfd", 4 << 20).unwrap();
        // A second descriptor of the same file.
        let _other = memory.file().try_clone().unwrap();
        memory.fill(0, 8192, 1);
        let ino = memory.file().metadata().unwrap().ino();
        let files = of_process(std::process::id(), 4 << 20).unwrap();
        let ours: Vec<&RamFile> = files.iter().filter(|f| f.identity.1 == ino).collect();
        assert_eq!(ours.len(), 1);
        assert_eq!((ours[0].name.as_str(), ours[0].size), ("/memfd:memory-backend-memfd", 4 << 20));
        assert_eq!(ours[0].resident().unwrap(), 8192);
        let lock = ours[0].lock().unwrap();
        assert_eq!(ours[0].lock().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(lock);
        // A process that another test has just forked may have the descriptor for a moment longer.
        let end = Instant::now() + Duration::from_secs(20);
        while let Err(e) = ours[0].lock() {
            assert!(e.kind() == io::ErrorKind::WouldBlock && Instant::now() < end, "{e}");
            std::thread::yield_now();
        }
        // Not large enough to be asked for.
        assert!(of_process(std::process::id(), 8 << 20).unwrap().iter().all(|f| f.identity.1 != ino));
        assert!(matches!(of_process(u32::MAX, 1), Err(ProcessError::NoSuchProcess { .. })));
    }
}
