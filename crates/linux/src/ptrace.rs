//! Threads of other processes, by ptrace. Raw system calls without allocation: injection uses them in a forked child of a
//! process with threads.

use rustix::process::{Pid, WaitOptions, waitpid};
use rustix::thread::{Timespec, nanosleep, sched_yield};
use std::io;
use std::time::{Duration, Instant};

const SETOPTIONS_SYSGOOD: usize = 1;
const CONT: usize = 7;
const DETACH: usize = 17;
const SYSCALL: usize = 24;
const GETREGSET: usize = 0x4204;
const SETREGSET: usize = 0x4205;
const SEIZE: usize = 0x4206;
const INTERRUPT: usize = 0x4207;
const GETSIGMASK: usize = 0x420a;
const SETSIGMASK: usize = 0x420b;
const GET_SYSCALL_INFO: usize = 0x420e;
const GET_RSEQ_CONFIGURATION: usize = 0x420f;
const GET_SYSCALL_USER_DISPATCH_CONFIG: usize = 0x4211;
const NT_PRSTATUS: usize = 1;
const NT_X86_XSTATE: usize = 0x202;
/// PTRACE_EVENT_STOP in the third byte of a wait status.
const EVENT_STOP: i32 = 128;
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The stop that was asked for by [`Tracee::interrupt`].
    Interrupted,
    /// Its process is stopped by this job-control signal.
    Group,
    /// At the entry or exit of a system call.
    Syscall,
    /// A signal is about to be delivered; it must be passed on.
    Signal(i32),
    Gone,
    /// Nothing happened in time.
    Timeout,
}

/// A thread that we trace. Its death or ours ends the tracing; there is nothing to drop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tracee(pub libc::pid_t);

/// As the kernel fills it in for PTRACE_GET_RSEQ_CONFIGURATION.
#[repr(C)]
#[derive(Default)]
struct RseqConfiguration {
    pointer: u64,
    size: u32,
    signature: u32,
    flags: u32,
    pad: u32,
}

impl Tracee {
    fn request(self, request: usize, addr: usize, data: usize) -> io::Result<usize> {
        // SAFETY: every caller passes either integers or the address and length of a live buffer of its own, which the
        // kernel fills or reads within that length.
        let r = unsafe { libc::syscall(libc::SYS_ptrace, request, self.0 as libc::c_long, addr, data) };
        if r < 0 { Err(io::Error::last_os_error()) } else { Ok(r as usize) }
    }

    /// Begins to trace without stopping. Never with PTRACE_O_EXITKILL: our death must not be its death.
    pub(crate) fn seize(self) -> io::Result<()> {
        self.request(SEIZE, 0, SETOPTIONS_SYSGOOD).map(drop)
    }

    /// Asks it to stop.
    pub(crate) fn interrupt(self) -> io::Result<()> {
        self.request(INTERRUPT, 0, 0).map(drop)
    }

    /// Lets it go on.
    pub(crate) fn cont(self) -> io::Result<()> {
        self.request(CONT, 0, 0).map(drop)
    }

    /// Lets it go on to the entry or exit of a system call.
    pub(crate) fn to_syscall(self) -> io::Result<()> {
        self.request(SYSCALL, 0, 0).map(drop)
    }

    /// Ends the tracing; the thread goes on and gets `signal` (0: none).
    pub fn detach(self, signal: i32) -> io::Result<()> {
        self.request(DETACH, 0, signal as usize).map(drop)
    }

    /// Waits for the next stop, however long that takes.
    pub fn wait(self) -> Stop {
        // All signals are blocked, so the call is not interrupted.
        self.next_stop(WaitOptions::empty()).unwrap_or(Stop::Gone)
    }

    /// Waits for the next stop, up to `limit`.
    pub(crate) fn wait_within(self, limit: Duration) -> Stop {
        let begin = Instant::now();
        loop {
            if let Some(stop) = self.stop() {
                return stop;
            }
            let waited = begin.elapsed();
            if waited >= limit {
                return Stop::Timeout;
            }
            // Stops mostly come within microseconds.
            if waited < Duration::from_micros(200) {
                sched_yield();
            } else {
                nap(Duration::from_micros(50));
            }
        }
    }

    /// The next stop, if there was one since the last was seen.
    pub(crate) fn stop(self) -> Option<Stop> {
        self.next_stop(WaitOptions::NOHANG)
    }

    /// `None` if there is none yet.
    fn next_stop(self, options: WaitOptions) -> Option<Stop> {
        let options = options | WaitOptions::from_bits_retain(libc::__WALL as u32);
        match waitpid(Pid::from_raw(self.0), options) {
            Ok(status) => status.map(|(_, status)| stop_of(status.as_raw())),
            Err(_) => Some(Stop::Gone),
        }
    }

    /// Registers; `None` if the thread's are not those of 64-bit code.
    pub(crate) fn regs(self) -> io::Result<Option<libc::user_regs_struct>> {
        // SAFETY: plain integers.
        let mut regs: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        let mut iov = libc::iovec { iov_base: (&raw mut regs).cast(), iov_len: size_of_val(&regs) };
        self.request(GETREGSET, NT_PRSTATUS, &raw mut iov as usize)?;
        // The kernel's selectors for 64-bit user code and its data.
        Ok((iov.iov_len == size_of_val(&regs) && regs.cs == 0x33 && regs.ss == 0x2b).then_some(regs))
    }

    pub(crate) fn set_regs(self, regs: &libc::user_regs_struct) -> io::Result<()> {
        let iov = libc::iovec {
            iov_base: (regs as *const libc::user_regs_struct).cast_mut().cast(),
            iov_len: size_of_val(regs),
        };
        self.request(SETREGSET, NT_PRSTATUS, &raw const iov as usize).map(drop)
    }

    /// Extended state (vector registers); the number of bytes.
    pub(crate) fn xstate(self, buf: &mut [u8]) -> io::Result<usize> {
        let mut iov = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
        self.request(GETREGSET, NT_X86_XSTATE, &raw mut iov as usize)?;
        Ok(iov.iov_len)
    }

    pub fn mask(self) -> io::Result<u64> {
        let mut mask = 0u64;
        self.request(GETSIGMASK, 8, &raw mut mask as usize)?;
        Ok(mask)
    }

    pub(crate) fn set_mask(self, mask: u64) -> io::Result<()> {
        self.request(SETSIGMASK, 8, &raw const mask as usize).map(drop)
    }

    /// Whether it makes system calls as 64-bit programs do.
    pub(crate) fn is_x86_64(self) -> io::Result<bool> {
        // struct ptrace_syscall_info: op (1 byte), 3 of padding, arch (4 bytes), ...
        let mut info = [0u32; 32];
        self.request(GET_SYSCALL_INFO, size_of_val(&info), info.as_mut_ptr() as usize)?;
        Ok(info[1] == AUDIT_ARCH_X86_64)
    }

    /// Whether `ip` is in a restartable sequence that the thread has announced. Leaving it for other code would make
    /// the kernel forget it. Kernels before 5.13 do not tell where to look; `false` then.
    pub(crate) fn in_rseq(self, ip: u64) -> bool {
        let mut c = RseqConfiguration::default();
        let size = size_of_val(&c);
        if self.request(GET_RSEQ_CONFIGURATION, size, &raw mut c as usize).is_err() || c.pointer == 0 {
            return false;
        }
        // struct rseq: cpu_id_start, cpu_id (4 bytes each), pointer to struct rseq_cs: version, flags (4 bytes each),
        // start_ip, post_commit_offset, abort_ip.
        let mut word = [0u8; 8];
        let mut sequence = [0u8; 32];
        if !self.read(c.pointer + 8, &mut word) {
            return true;
        }
        let at = u64::from_le_bytes(word);
        if at == 0 {
            return false;
        }
        if !self.read(at, &mut sequence) {
            return true;
        }
        let field = |i: usize| u64::from_le_bytes(std::array::from_fn(|k| sequence[8 * i + k]));
        ip.wrapping_sub(field(1)) < field(2)
    }

    /// Whether the program handles system calls by itself. Kernels before 6.4 do not tell; `false` then.
    pub(crate) fn dispatches_syscalls(self) -> bool {
        // struct ptrace_sud_config: mode, selector, offset, len.
        let mut config = [0u64; 4];
        let got = self.request(GET_SYSCALL_USER_DISPATCH_CONFIG, size_of_val(&config), config.as_mut_ptr() as usize);
        got.is_ok() && config[0] != 0
    }

    /// Reads its memory; whether all of it could be read.
    pub fn read(self, addr: u64, out: &mut [u8]) -> bool {
        let local = libc::iovec { iov_base: out.as_mut_ptr().cast(), iov_len: out.len() };
        let remote = libc::iovec { iov_base: addr as *mut libc::c_void, iov_len: out.len() };
        // SAFETY: one live local buffer; the remote address is another process's.
        let n = unsafe { libc::process_vm_readv(self.0, &local, 1, &remote, 1, 0) };
        n == out.len() as isize
    }

    /// Writes to its memory, where it may write itself; whether all of it was written.
    pub fn write(self, addr: u64, bytes: &[u8]) -> bool {
        let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let remote = libc::iovec { iov_base: addr as *mut libc::c_void, iov_len: bytes.len() };
        // SAFETY: one live local buffer that is only read; the remote address is another process's. What is written
        // there is the business of `thread.rs`.
        let n = unsafe { libc::process_vm_writev(self.0, &local, 1, &remote, 1, 0) };
        n == bytes.len() as isize
    }
}

fn stop_of(status: i32) -> Stop {
    if !libc::WIFSTOPPED(status) {
        return Stop::Gone;
    }
    let signal = libc::WSTOPSIG(status);
    match status >> 16 {
        EVENT_STOP if signal == libc::SIGTRAP => Stop::Interrupted,
        EVENT_STOP => Stop::Group,
        _ if signal == libc::SIGTRAP | 0x80 => Stop::Syscall,
        _ => Stop::Signal(signal),
    }
}

/// Sleeps without anything of the library's that a forked child may not use.
pub(crate) fn nap(time: Duration) {
    // An early end does no harm.
    let _ = nanosleep(&Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_statuses_are_told_apart() {
        let stopped = |signal: i32, event: i32| stop_of(0x7f | signal << 8 | event << 16);
        assert_eq!(stopped(libc::SIGTRAP, EVENT_STOP), Stop::Interrupted);
        assert_eq!(stopped(libc::SIGTSTP, EVENT_STOP), Stop::Group);
        assert_eq!(stopped(libc::SIGTRAP | 0x80, 0), Stop::Syscall);
        assert_eq!(stopped(libc::SIGUSR1, 0), Stop::Signal(libc::SIGUSR1));
        assert_eq!(stop_of(9), Stop::Gone);
        assert_eq!(stop_of(3 << 8), Stop::Gone);
    }
}
