//! A process that holds what the host has answered for already: the first that the kernel ends when memory runs out.
//!
//! In a pass more and more of the guest's free memory is held, or the kernel would hand out the same pages again. If
//! the guest needs it within milliseconds, neither the agent nor an alarm is fast enough; the kernel's own last resort
//! is. The holder is its first choice (`oom_score_adj` of 1000), and what it has attached returns with its end. That is
//! sound for memory of which no report is on its way; what is reported and not answered belongs to nobody, and stays.

use crate::fork::fork;
use crate::roots::Roots;
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitOptions, waitid, waitpid};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// Our own `oom_score_adj`. A holder gets its score with the fork: who is confined may not open that of a new process.
#[derive(Debug)]
pub(super) struct Score(File);

impl Score {
    /// That below `roots`.
    pub(super) fn open(roots: &Roots) -> io::Result<Self> {
        File::options().read(true).write(true).open(roots.path("/proc/self/oom_score_adj")).map(Self)
    }

    /// Does `work` while we have the highest score. If memory runs out in that moment, we are the first to end, as the
    /// holder would be.
    fn highest<T>(&self, work: impl FnOnce() -> T) -> io::Result<T> {
        let mut before = [0; 16];
        let len = self.0.read_at(&mut before, 0)?;
        self.0.write_all_at(b"1000", 0)?;
        let done = work();
        // Nobody may lower a score below what an administrator gave, and it was not below that.
        self.0.write_all_at(&before[..len], 0)?;
        Ok(done)
    }
}

/// The process; dropping this ends it and waits for its end.
#[derive(Debug)]
pub(super) struct Holder {
    pid: Pid,
    /// Segments to attach; `None` once it is to end.
    orders: Option<File>,
    answers: File,
}

impl Holder {
    /// Starts it. The calling process must have one thread only.
    pub(super) fn start(score: &Score) -> io::Result<Self> {
        let (orders_out, orders_in) = io::pipe()?;
        let (answers_out, answers_in) = io::pipe()?;
        // SAFETY: the child has the one thread that called it, and does nothing but system calls on its stack and
        // descriptors of its own.
        let pid = score.highest(|| unsafe { fork(|| hold(orders_out.as_fd(), answers_in.as_fd())) })?;
        Ok(Self {
            pid: pid?,
            orders: Some(File::from(OwnedFd::from(orders_in))),
            answers: File::from(OwnedFd::from(answers_out)),
        })
    }

    /// Lets it attach a segment. An error means that it has not, or is dead.
    pub(super) fn attach(&mut self, id: i32) -> io::Result<()> {
        let mut answer = [0u8];
        let Some(orders) = &mut self.orders else { return Err(io::ErrorKind::BrokenPipe.into()) };
        orders.write_all(&id.to_ne_bytes())?;
        self.answers.read_exact(&mut answer)?;
        if answer == [1] { Ok(()) } else { Err(io::Error::other("the holder could not attach a segment")) }
    }

    /// Whether it still holds what it has attached.
    pub(super) fn is_alive(&self) -> bool {
        // Nothing is reaped.
        let flags = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        matches!(waitid(WaitId::Pid(self.pid), flags), Ok(None))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // The end of its orders ends it.
        self.orders = None;
        let _ = retry_on_intr(|| waitpid(Some(self.pid), WaitOptions::empty()));
    }
}

/// The child's life: attach what is asked for, until the other end is closed.
fn hold(reader: BorrowedFd<'_>, writer: BorrowedFd<'_>) {
    // What else was open must not stay so: the agent's lock, its port.
    for fd in (0..1024).filter(|fd| *fd != reader.as_raw_fd() && *fd != writer.as_raw_fd()) {
        // SAFETY: this process is nobody else's, and nothing in it uses these descriptors.
        unsafe { libc::close(fd) };
    }
    loop {
        let mut id = [0u8; 4];
        // Orders of four bytes are never split in a pipe.
        match rustix::io::read(reader, &mut id) {
            Ok(4) => {}
            Err(Errno::INTR) => continue,
            _ => return,
        }
        // SAFETY: a new mapping at an address of the kernel's choice, which nothing touches.
        let at = unsafe { libc::shmat(i32::from_ne_bytes(id), std::ptr::null(), libc::SHM_RDONLY) };
        let answer = [u8::from(at as isize != -1)];
        let _ = rustix::io::write(writer, &answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lives_until_it_is_dropped_or_killed() {
        let score = Score::open(&Roots::system()).unwrap();
        let own = || std::fs::read_to_string("/proc/self/oom_score_adj").unwrap();
        let before = own();
        let mut holder = Holder::start(&score).unwrap();
        let its = format!("/proc/{}/oom_score_adj", holder.pid.as_raw_pid());
        assert_eq!((std::fs::read_to_string(its).unwrap().as_str(), own()), ("1000\n", before));
        assert!(holder.is_alive());
        assert!(holder.attach(-1).is_err(), "there is no such segment");
        rustix::process::kill_process(holder.pid, rustix::process::Signal::KILL).unwrap();
        while holder.is_alive() {
            std::thread::yield_now();
        }
        assert!(holder.attach(-1).is_err(), "it is dead");
        drop(holder);
        drop(Holder::start(&score).unwrap());
    }
}
