//! A handle on a process that stays with it when its pid is given to another.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

pub use rustix::process::Signal;

/// A process file descriptor (`pidfd_open(2)`, Linux 5.3).
#[derive(Debug)]
pub struct PidFd {
    fd: OwnedFd,
    pid: u32,
}

impl PidFd {
    /// Opens process `pid`. Fails with ESRCH where there is none, and with EINVAL (or ENOENT, on newer kernels) for the
    /// id of a thread that does not lead its process.
    pub fn open(pid: u32) -> io::Result<Self> {
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
        // The kernel sets close-on-exec.
        Ok(Self { fd: pidfd_open(raw, PidfdFlags::empty())?, pid })
    }

    /// Of a descriptor that the kernel gave for a process. Fails with ESRCH if the process has ended and was collected,
    /// or has no number here, as it is of another pid namespace.
    pub(crate) fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd()))?;
        let pid = info.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse::<i32>().ok());
        let pid = pid.and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0).ok_or(Errno::SRCH)?;
        Ok(Self { fd, pid })
    }

    /// The process's id, as given to [`open`](Self::open).
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether the process has exited, all its threads included. True for a zombie.
    pub fn has_exited(&self) -> bool {
        self.wait_exit(Duration::ZERO)
    }

    /// Whether the process has exited, or all its threads are about to: its memory may be gone already, and what is
    /// seen of it then says nothing about it.
    pub(crate) fn is_ending(&self) -> bool {
        // A name need not be UTF-8.
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let stats = || -> io::Result<Vec<String>> {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid))?;
            // A thread that has gone meanwhile has exited.
            let read = |task: io::Result<std::fs::DirEntry>| match std::fs::read(task?.path().join("stat")) {
                Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => Ok(None),
                stat => stat.map(text).map(Some),
            };
            tasks.filter_map(|task| read(task).transpose()).collect()
        };
        self.has_exited() || stats().is_ok_and(|stats| stats.iter().all(|stat| is_exiting(stat))) || self.has_exited()
    }

    /// Waits up to `timeout` for the process to exit; whether it has.
    pub fn wait_exit(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let limit = Timespec::try_from(left).ok();
            if poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], limit.as_ref()).is_ok_and(|ready| ready > 0) {
                return true;
            }
            if left.is_zero() {
                return false;
            }
        }
    }

    /// Sends a signal to the process.
    pub fn send_signal(&self, signal: Signal) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.fd, signal)?)
    }
}

/// Whether a thread is on its way out, by its line in /proc/PID/task/TID/stat (proc_pid_stat(5)): its flags, the ninth
/// field, have PF_EXITING of the kernel's sched.h, or SIGKILL is among its own pending signals, the 31st: a group that
/// is ended gets it thread by thread, and the main thread may be gone before the others have run.
fn is_exiting(stat: &str) -> bool {
    const PF_EXITING: u64 = 4;
    const KILLED: u64 = 1 << (libc::SIGKILL - 1);
    let Some((_, fields)) = stat.rsplit_once(')') else { return false };
    let has = |field: usize, bit: u64| {
        fields.split_whitespace().nth(field - 3).and_then(|f| f.parse::<u64>().ok()).is_some_and(|f| f & bit != 0)
    };
    has(9, PF_EXITING) || has(31, KILLED)
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Whether two processes share one address space at present (vfork before exec, or clone with CLONE_VM). `None` where
/// the kernel does not tell (no CONFIG_KCMP, no permission, one of them gone).
pub(crate) fn share_memory(a: u32, b: u32) -> Option<bool> {
    const KCMP_VM: i32 = 1;
    let (a, b) = (libc::pid_t::try_from(a).ok()?, libc::pid_t::try_from(b).ok()?);
    // SAFETY: the call takes integers only and touches no memory of ours.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, a, b, KCMP_VM, 0, 0) };
    (order >= 0).then_some(order == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_on_the_way_out_is_seen() {
        assert!(!PidFd::open(std::process::id()).unwrap().is_ending());
        assert!(is_exiting("12 (a) b) Z 1 12 12 0 -1 4194308 0 0"));
        assert!(!is_exiting("12 (a) b) S 1 12 12 0 -1 4194304 0 0"));
        let pending = |signals: u64| format!("12 (a) S{} {signals} 0 0", " 0".repeat(27));
        assert!(is_exiting(&pending(1 << 8)) && !is_exiting(&pending(1 << 14)));
        assert!(!is_exiting("") && !is_exiting("12 (a"));
    }
}
