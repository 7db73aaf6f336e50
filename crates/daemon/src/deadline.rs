//! Streams that end at a point in time.

use isotherm_linux::ready::{Interest, wait};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// A stream whose reads and writes can be given a time limit.
pub trait Timed: Read + Write {
    /// Limits the next reads.
    fn limit_reads(&self, limit: Duration) -> io::Result<()>;
    /// Limits the next writes.
    fn limit_writes(&self, limit: Duration) -> io::Result<()>;
}

impl Timed for std::os::unix::net::UnixStream {
    fn limit_reads(&self, limit: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(limit))
    }

    fn limit_writes(&self, limit: Duration) -> io::Result<()> {
        self.set_write_timeout(Some(limit))
    }
}

impl Timed for std::net::TcpStream {
    fn limit_reads(&self, limit: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(limit))
    }

    fn limit_writes(&self, limit: Duration) -> io::Result<()> {
        self.set_write_timeout(Some(limit))
    }
}

/// A stream that ends at a point in time, however slowly its peer feeds or drains it.
#[derive(Debug)]
pub(crate) struct UntilDeadline<S> {
    stream: S,
    deadline: Instant,
}

impl<S: Timed> UntilDeadline<S> {
    /// Reading and writing must be over within `limit` from now.
    pub fn new(stream: S, limit: Duration) -> Self {
        Self { stream, deadline: Instant::now() + limit }
    }

    /// Sets a new end.
    pub fn extend(&mut self, limit: Duration) {
        self.deadline = Instant::now() + limit;
    }

    pub const fn get(&self) -> &S {
        &self.stream
    }

    /// Waits until a read would not wait: there is something to read, or the end.
    pub fn wait_for_more(&self) -> io::Result<()>
    where
        S: AsFd,
    {
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

impl<S: Timed> Read for UntilDeadline<S> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.stream.limit_reads(self.left()?)?;
        self.stream.read(buf).map_err(timed_out)
    }
}

impl<S: Timed> Write for UntilDeadline<S> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.stream.limit_writes(self.left()?)?;
        self.stream.write(buf).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
