//! Streams that end at a point in time.

use isotherm_linux::ready::{Interest, wait};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A stream that ends at a point in time, however slowly its peer feeds or drains it.
#[derive(Debug)]
pub(crate) struct UntilDeadline {
    stream: UnixStream,
    deadline: Instant,
}

impl UntilDeadline {
    /// Reading and writing must be over within `limit` from now.
    pub fn new(stream: UnixStream, limit: Duration) -> Self {
        Self { stream, deadline: Instant::now() + limit }
    }

    /// Sets a new end.
    pub fn extend(&mut self, limit: Duration) {
        self.deadline = Instant::now() + limit;
    }

    pub const fn get(&self) -> &UnixStream {
        &self.stream
    }

    /// Waits until a read would not wait: there is something to read, or the end.
    pub fn wait_for_more(&self) -> io::Result<()> {
        // A signal ends a wait early.
        while !wait(&[(self.stream.as_fd(), Interest::Read)], Some(self.left()?))?[0] {}
        Ok(())
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

/// Both kinds of "too late" as one.
fn timed_out(e: io::Error) -> io::Error {
    if e.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { e }
}

impl Read for UntilDeadline {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(buf).map_err(timed_out)
    }
}

impl Write for UntilDeadline {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(buf).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
