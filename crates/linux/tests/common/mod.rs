//! Processes for the tests to look at.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod group;
pub mod memory;
pub mod servant;
pub mod zram;

use isotherm_linux::fork::fork;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, waitpid};
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A child process in a process group of its own, which is killed as a whole when the test ends, however it ends.
#[derive(Debug)]
pub struct Guard(pub Child);

impl Guard {
    pub fn shell(script: &str) -> Self {
        Self::spawn(Command::new("sh").args(["-c", script]))
    }

    pub fn spawn(command: &mut Command) -> Self {
        Self(
            command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .process_group(0)
                .spawn()
                .expect("the test's child starts"),
        )
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Our own child leads this group; it has not been collected, so the group's number is still its own.
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

/// Waits until `condition` holds; a generous limit only turns a hang into a failure.
pub fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A child made by fork: it runs a closure that shares our memory's contents, and goes on step by step when asked to.
///
/// The harness runs tests in threads, so between fork and exit the closure may only use system calls and memory
/// that exists.
#[derive(Debug)]
pub struct Forked {
    pub pid: u32,
    to: PipeWriter,
    from: PipeReader,
}

#[derive(Debug)]
pub struct Steps {
    from: PipeReader,
    to: PipeWriter,
}

impl Steps {
    /// Tells the parent `answer` and waits for its next order; leaves if the parent has gone.
    pub fn done(&mut self, answer: u64) {
        let ok = self.to.write_all(&answer.to_ne_bytes()).is_ok() && self.from.read_exact(&mut [0]).is_ok();
        if !ok {
            // SAFETY: ends this process at once, without running anything of the test harness.
            unsafe { libc::_exit(0) };
        }
    }
}

impl Forked {
    /// Forks; the child runs `work` up to its first `done`, then waits. Returns the first answer, too.
    pub fn start(work: impl FnOnce(&mut Steps)) -> (Self, u64) {
        let (child_from, to) = std::io::pipe().unwrap();
        let (from, child_to) = std::io::pipe().unwrap();
        let own_end = to.as_raw_fd();
        let child = move || {
            // SAFETY: the parent's end must not stay open in the child, or it would never see the parent go.
            unsafe { libc::close(own_end) };
            let mut steps = Steps { from: child_from, to: child_to };
            work(&mut steps);
            steps.done(0);
        };
        // SAFETY: the child keeps to what the type's description allows.
        let pid = unsafe { fork(child) }.unwrap();
        let mut forked = Self { pid: pid.as_raw_pid() as u32, to, from };
        let first = forked.answer();
        (forked, first)
    }

    /// Lets it take the next step, up to the following `done`.
    pub fn go(&mut self) -> u64 {
        self.order();
        self.answer()
    }

    /// Gives an order without waiting for an answer.
    pub fn order(&mut self) {
        self.to.write_all(&[1]).unwrap();
    }

    pub fn answer(&mut self) -> u64 {
        let mut answer = [0; 8];
        self.from.read_exact(&mut answer).unwrap();
        u64::from_ne_bytes(answer)
    }
}

impl Drop for Forked {
    fn drop(&mut self) {
        let child = Pid::from_raw(self.pid as i32).unwrap();
        let _ = kill_process(child, Signal::KILL);
        let _ = waitpid(Some(child), WaitOptions::empty());
    }
}

/// Runs `work` in a thread without any privilege (uid and gid 65534).
pub fn as_nobody<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    const NOBODY: libc::c_long = 65534;
    let thread = std::thread::spawn(move || {
        // SAFETY: the bare system calls change the identity of this thread only, unlike the C library's functions.
        unsafe {
            assert_eq!(libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()), 0);
            assert_eq!(libc::syscall(libc::SYS_setresgid, NOBODY, NOBODY, NOBODY), 0);
            assert_eq!(libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY), 0);
        }
        work()
    });
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
