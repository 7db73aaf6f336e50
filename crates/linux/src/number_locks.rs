//! Advisory locks on numbers, all in one file: so that two instances do not work on the same process at the same time.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Locks that this process holds on numbers. Dropping it, or the end of the process however it comes, unlocks them.
/// Nothing is written.
///
/// They are the process's: it must have the file open only once, since closing any descriptor of it unlocks all.
#[derive(Debug)]
pub struct NumberLocks(File);

impl NumberLocks {
    /// Opens the file at `path`, and makes it if it is missing.
    ///
    /// # Errors
    ///
    /// The file can be neither opened nor made.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?))
    }

    /// Locks `number`. `Some`: it is another process's, with this id; nothing is waited for.
    ///
    /// # Errors
    ///
    /// The file system has no locks, or the kernel no room for them.
    pub fn take(&self, number: u32) -> io::Result<Option<u32>> {
        loop {
            match self.control(libc::F_SETLK, number) {
                Ok(_) => return Ok(None),
                Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {}
                Err(e) => return Err(e),
            }
            let held = self.control(libc::F_GETLK, number)?;
            if i32::from(held.l_type) != libc::F_UNLCK {
                return Ok(Some(held.l_pid.unsigned_abs()));
            }
            // It has just been unlocked.
        }
    }

    fn control(&self, operation: i32, number: u32) -> io::Result<libc::flock> {
        // SAFETY: flock is plain data for which all zeros is a valid value.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        (lock.l_type, lock.l_whence) = (libc::F_WRLCK as _, libc::SEEK_SET as _);
        (lock.l_start, lock.l_len) = (number.into(), 1);
        // SAFETY: both operations read and write the struct that they are given, which outlives the call.
        match unsafe { libc::fcntl(self.0.as_raw_fd(), operation, &raw mut lock) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(lock),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    #[test]
    fn a_number_is_one_processes_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locks");
        let mut other = Command::new("sleep");
        other.arg("1000");
        let theirs = path.clone();
        let lock = move || {
            let locks = NumberLocks::open(&theirs)?;
            locks.take(7)?;
            // It lasts over the exec.
            rustix::io::fcntl_setfd(&locks.0, rustix::io::FdFlags::empty())?;
            std::mem::forget(locks);
            Ok(())
        };
        // SAFETY: the new process has one thread and a copy of our memory; all that may block it there is the
        // allocator, which the C library makes usable after a fork.
        let mut other = unsafe { other.pre_exec(lock) }.spawn().unwrap();
        let ours = NumberLocks::open(&path).unwrap();
        assert_eq!((ours.take(7).unwrap(), ours.take(8).unwrap()), (Some(other.id()), None));
        assert_eq!(ours.take(8).unwrap(), None, "it is ours already");
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!(ours.take(7).unwrap(), None, "its end has unlocked it");
    }
}
