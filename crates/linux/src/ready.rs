//! Waiting for several files at a time.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// What a file is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Something to read, or the end.
    Read,
    /// That, or room to write.
    ReadWrite,
    /// What the kernel calls exceptional: an alarm of the pressure files.
    Alarm,
}

/// Waits until one of `files` is ready, `limit` has passed, or a signal came; which of them are ready. An error of a
/// file counts as ready, as the next call on it tells.
pub fn wait(files: &[(BorrowedFd<'_>, Interest)], limit: Option<Duration>) -> io::Result<Vec<bool>> {
    let mut polls: Vec<libc::pollfd> = files
        .iter()
        .map(|(fd, interest)| {
            let events = match interest {
                Interest::Read => libc::POLLIN,
                Interest::ReadWrite => libc::POLLIN | libc::POLLOUT,
                Interest::Alarm => libc::POLLPRI,
            };
            libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 }
        })
        .collect();
    let timeout = limit.map(|limit| libc::timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos() as libc::c_long,
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `polls` is as long as is said, its descriptors are borrowed over the call; `timeout` is null or a
    // timespec that lives as long; a null mask leaves the signal mask alone.
    let ready = unsafe { libc::ppoll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, timeout, std::ptr::null()) };
    if ready < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
        return Ok(vec![false; files.len()]);
    }
    Ok(polls.iter().map(|p| p.revents != 0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn the_ready_ones_are_told() {
        let (reader, mut writer) = io::pipe().unwrap();
        let (other, _kept) = io::pipe().unwrap();
        let files = [(reader.as_fd(), Interest::Read), (other.as_fd(), Interest::Read)];
        assert_eq!(wait(&files, Some(Duration::from_millis(1))).unwrap(), [false, false]);
        writer.write_all(b"x").unwrap();
        assert_eq!(wait(&files, None).unwrap(), [true, false]);
        assert!(wait(&[(writer.as_fd(), Interest::ReadWrite)], None).unwrap()[0]);
    }
}
