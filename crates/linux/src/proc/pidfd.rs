//! A handle on a process that stays with it when its pid is given to another.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

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
        let Ok(raw_pid) = libc::pid_t::try_from(pid) else { return Err(io::Error::from_raw_os_error(libc::ESRCH)) };
        if raw_pid == 0 {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        // SAFETY: the call takes two integers and touches no memory of ours.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, raw_pid, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just returned this descriptor (close-on-exec set); nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
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
            let millis = left.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i32;
            let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: `poll` is one valid pollfd that lives over the call.
            let ready = unsafe { libc::poll(&mut poll, 1, millis) };
            if ready > 0 {
                return true;
            }
            if left.is_zero() {
                return false;
            }
        }
    }

    /// Sends a signal to the process.
    pub fn send_signal(&self, signal: i32) -> io::Result<()> {
        // SAFETY: integers and a null pointer (no siginfo), which the call allows.
        let r = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.fd.as_raw_fd(),
                signal,
                std::ptr::null::<libc::siginfo_t>(),
                0,
            )
        };
        if r < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
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
