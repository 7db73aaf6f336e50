//! An advisory lock on a folder or a file, so that two instances do not change the same entry of it, or the file, at the same time.

use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often a lock that somebody else holds is asked for again.
const ASK_EVERY: Duration = Duration::from_millis(5);

/// A locked folder or file; dropping it, or the end of the process however it comes, unlocks it. Nothing is written.
#[derive(Debug)]
pub struct FolderLock(File);

impl FolderLock {
    /// Locks `folder`, which must exist and be readable. Fails with [`io::ErrorKind::WouldBlock`] if somebody else
    /// holds it for all of `patience`.
    pub fn take(folder: &Path, patience: Duration) -> io::Result<Self> {
        let file = File::open(folder)?;
        let deadline = Instant::now() + patience;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self(file)),
                Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => std::thread::sleep(ASK_EVERY),
                Err(e) => return Err(e.into()),
            }
        }
    }
}

impl FolderLock {
    /// Processes that are started from now on hold the lock, too: until each of them has ended, or this is dropped.
    pub(crate) fn inherited(self) -> io::Result<Self> {
        fcntl_setfd(&self.0, FdFlags::empty())?;
        Ok(self)
    }
}

impl Drop for FolderLock {
    /// Closing it would do, but for a process that was just forked and has the descriptor until its exec.
    fn drop(&mut self) {
        // Nothing speaks against it; and the descriptor is closed next.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn one_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let first = FolderLock::take(folder.path(), Duration::ZERO).unwrap();
        let second = FolderLock::take(folder.path(), Duration::from_millis(20)).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::WouldBlock);
        let forked = first.0.try_clone().unwrap(); // what a process has that is about to exec
        drop(first);
        FolderLock::take(folder.path(), Duration::ZERO).unwrap();
        drop(forked);
        // One that processes inherit is theirs for as long as they live, if its end is not said: after a kill -9.
        let inherited = FolderLock::take(folder.path(), Duration::ZERO).unwrap().inherited().unwrap();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let inherited = std::mem::ManuallyDrop::new(inherited);
        // SAFETY: nobody uses the descriptor afterwards, since what holds it is never dropped.
        unsafe { rustix::io::close(inherited.0.as_raw_fd()) };
        assert!(FolderLock::take(folder.path(), Duration::ZERO).is_err());
        child.kill().unwrap();
        child.wait().unwrap();
        let missing = FolderLock::take(&folder.path().join("none"), Duration::ZERO).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
