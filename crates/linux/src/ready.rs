//! Waiting for several files at a time.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::BorrowedFd;
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
    let mut polls: Vec<PollFd<'_>> = files
        .iter()
        .map(|(fd, interest)| {
            let events = match interest {
                Interest::Read => PollFlags::IN,
                Interest::ReadWrite => PollFlags::IN | PollFlags::OUT,
                Interest::Alarm => PollFlags::PRI,
            };
            PollFd::from_borrowed_fd(*fd, events)
        })
        .collect();
    let timeout = limit.map(|limit| Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    });
    match poll(&mut polls, timeout.as_ref()) {
        Ok(_) => Ok(polls.iter().map(|p| !p.revents().is_empty()).collect()),
        Err(Errno::INTR) => Ok(vec![false; files.len()]),
        Err(e) => Err(e.into()),
    }
}

/// Whether nobody is left at the other end of a terminal, pipe or connection: what is read from it will only ever be the
/// end, or an error.
pub fn is_hung_up(file: BorrowedFd<'_>) -> io::Result<bool> {
    // The kernel tells of these unasked.
    let mut polls = [PollFd::from_borrowed_fd(file, PollFlags::empty())];
    match poll(&mut polls, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(_) => Ok(polls[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)),
        Err(Errno::INTR) => Ok(false),
        Err(e) => Err(e.into()),
    }
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

    #[test]
    fn a_hang_up_is_told_apart_from_something_to_read() {
        let (reader, mut writer) = io::pipe().unwrap();
        assert!(!is_hung_up(reader.as_fd()).unwrap());
        writer.write_all(b"x").unwrap();
        assert!(!is_hung_up(reader.as_fd()).unwrap());
        drop(writer);
        assert!(is_hung_up(reader.as_fd()).unwrap());
    }
}
