//! System calls by what they are for.
//!
//! Each group lists what our code and the two C libraries (glibc, musl) call for it on x86-64 and on 64-bit ARM.
//! Numbers that only older interfaces have are x86-64's alone.

use super::filter::{Allowed, Test};
use libc as c;

/// A group of system calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Calls {
    /// What every process needs: memory that is not executable, threads, time, its own signals and children, files that
    /// are open or that it opens.
    Basic,
    /// Connections that come in and those that are there.
    Serve,
    /// New connections on this machine.
    ConnectHere,
    /// New connections to other machines, and between a guest and its host.
    ConnectAway,
    /// To look at other processes and send them signals.
    Processes,
    /// Advice on the memory of other processes, and its migration.
    Advise,
    /// To run eBPF programs that are loaded, also for new processes. None can be loaded.
    RunBpf,
    /// Children that execute nothing.
    Fork,
    /// Calls in the name of other processes, by ptrace.
    Inject,
    /// To stop other processes for a while, by ptrace.
    Pause,
    /// Events of the kernel, by perf.
    Perf,
    /// Holes in files.
    Punch,
    /// Shared memory segments of System V, and timers that interrupt what takes too long.
    Segments,
}

/// Any arguments.
const fn any(number: c::c_long) -> Allowed {
    Allowed { number, tests: &[] }
}

/// Only with one of these tests passed.
const fn only(number: c::c_long, tests: &'static [Test]) -> Allowed {
    Allowed { number, tests }
}

/// Nothing that can be executed is mapped, or becomes executable.
const NOT_EXECUTABLE: &[Test] = &[Test::NoneOf(2, c::PROT_EXEC as u64)];
/// No namespace of its own.
const NO_NAMESPACE: &[Test] = &[Test::NoneOf(
    0,
    (c::CLONE_NEWNS
        | c::CLONE_NEWUTS
        | c::CLONE_NEWIPC
        | c::CLONE_NEWUSER
        | c::CLONE_NEWPID
        | c::CLONE_NEWNET
        | c::CLONE_NEWCGROUP) as u64,
)];
/// To end with a message, not to signal others.
const ABORT_THREAD: &[Test] = &[Test::Is(1, c::SIGABRT as u64)];
const ABORT: &[Test] = &[Test::Is(2, c::SIGABRT as u64)];
/// Names of threads (PR_SET_NAME, PR_GET_NAME) and of allocators' mappings (PR_SET_VMA), and what the kernel gave us at
/// our start (PR_GET_AUXV).
const HARMLESS_PRCTLS: &[Test] = &[
    Test::Is(0, c::PR_SET_NAME as u64),
    Test::Is(0, c::PR_GET_NAME as u64),
    Test::Is(0, 0x5356_4d41),
    Test::Is(0, 0x4155_5856),
];
/// Terminals, sockets that do not block, close-on-exec, and `PAGEMAP_SCAN`.
const HARMLESS_IOCTLS: &[Test] = &[
    Test::Is(1, 0x5401),
    Test::Is(1, 0x5413),
    Test::Is(1, 0x5421),
    Test::Is(1, 0x5450),
    Test::Is(1, 0x5451),
    Test::Is(1, 0xc060_6610),
];
/// PERF_EVENT_IOC_ENABLE and the others without a program to attach.
const PERF_IOCTLS: &[Test] = &[Test::Is(1, 0x2400), Test::Is(1, 0x2401), Test::Is(1, 0x2403)];
/// Its own limits only.
const OF_ITSELF: &[Test] = &[Test::Is(0, 0)];
/// BPF_LINK_CREATE and BPF_ITER_CREATE; neither makes a map nor loads a program.
const RUN_ONLY: &[Test] = &[Test::Is(0, 28), Test::Is(0, 33)];
const LOCAL: &[Test] = &[Test::Is(0, c::AF_UNIX as u64)];
const REMOTE: &[Test] =
    &[Test::Is(0, c::AF_INET as u64), Test::Is(0, c::AF_INET6 as u64), Test::Is(0, c::AF_VSOCK as u64)];
/// The requests of [`crate::action`]'s injection: no PTRACE_ATTACH, TRACEME or POKE.
const PTRACE: &[Test] = &[
    Test::Is(0, 7),
    Test::Is(0, 17),
    Test::Is(0, 24),
    Test::Is(0, 0x4204),
    Test::Is(0, 0x4205),
    Test::Is(0, 0x4206),
    Test::Is(0, 0x4207),
    Test::Is(0, 0x420a),
    Test::Is(0, 0x420b),
    Test::Is(0, 0x420e),
    Test::Is(0, 0x420f),
    Test::Is(0, 0x4211),
];

/// PTRACE_DETACH, SEIZE and INTERRUPT: neither memory nor registers.
const PTRACE_STOP: &[Test] = &[Test::Is(0, 17), Test::Is(0, 0x4206), Test::Is(0, 0x4207)];

impl Calls {
    /// What is allowed; a number may come more than once.
    pub(super) fn allowed(self) -> Vec<Allowed> {
        let (all, old) = match self {
            Self::Basic => (BASIC, OLD_BASIC),
            Self::Serve => (SERVE, CONNECTED),
            Self::ConnectHere => (CONNECT_HERE, CONNECTED),
            Self::ConnectAway => (CONNECT_AWAY, CONNECTED),
            Self::Processes => (PROCESSES, NONE),
            Self::Advise => (ADVISE, NONE),
            Self::RunBpf => (RUN_BPF, NONE),
            Self::Fork => (FORK, OLD_FORK),
            Self::Inject => (INJECT, NONE),
            Self::Pause => (PAUSE, NONE),
            Self::Perf => (PERF, NONE),
            Self::Punch => (PUNCH, NONE),
            Self::Segments => (SEGMENTS, NONE),
        };
        [all, old].concat()
    }
}

const NONE: &[Allowed] = &[];

const BASIC: &[Allowed] = &[
    // Memory.
    any(c::SYS_brk),
    only(c::SYS_mmap, NOT_EXECUTABLE),
    only(c::SYS_mprotect, NOT_EXECUTABLE),
    any(c::SYS_mremap),
    any(c::SYS_munmap),
    any(c::SYS_madvise),
    any(c::SYS_mincore),
    any(c::SYS_membarrier),
    // Threads.
    only(c::SYS_clone, NO_NAMESPACE),
    any(c::SYS_futex),
    any(c::SYS_set_robust_list),
    any(c::SYS_get_robust_list),
    any(c::SYS_rseq),
    any(c::SYS_set_tid_address),
    any(c::SYS_gettid),
    any(c::SYS_getpid),
    any(c::SYS_getppid),
    any(c::SYS_getuid),
    any(c::SYS_geteuid),
    any(c::SYS_getgid),
    any(c::SYS_getegid),
    any(c::SYS_sched_yield),
    any(c::SYS_sched_getaffinity),
    any(c::SYS_sched_setaffinity),
    any(c::SYS_getcpu),
    any(c::SYS_getpriority),
    any(c::SYS_setpriority),
    any(c::SYS_getrusage),
    only(c::SYS_prlimit64, OF_ITSELF),
    only(c::SYS_prctl, HARMLESS_PRCTLS),
    any(c::SYS_exit),
    any(c::SYS_exit_group),
    any(c::SYS_wait4),
    any(c::SYS_waitid),
    // Time, chance, the system's name.
    any(c::SYS_clock_gettime),
    any(c::SYS_clock_getres),
    any(c::SYS_gettimeofday),
    any(c::SYS_nanosleep),
    any(c::SYS_clock_nanosleep),
    any(c::SYS_restart_syscall),
    any(c::SYS_getrandom),
    any(c::SYS_uname),
    any(c::SYS_sysinfo),
    // Its own signals.
    any(c::SYS_rt_sigaction),
    any(c::SYS_rt_sigprocmask),
    any(c::SYS_rt_sigreturn),
    any(c::SYS_sigaltstack),
    only(c::SYS_tkill, ABORT_THREAD),
    only(c::SYS_tgkill, ABORT),
    // Open files.
    any(c::SYS_read),
    any(c::SYS_readv),
    any(c::SYS_pread64),
    any(c::SYS_preadv),
    any(c::SYS_write),
    any(c::SYS_writev),
    any(c::SYS_pwrite64),
    any(c::SYS_pwritev),
    any(c::SYS_lseek),
    any(c::SYS_close),
    any(c::SYS_close_range),
    any(c::SYS_dup),
    any(c::SYS_dup3),
    any(c::SYS_fcntl),
    any(c::SYS_flock),
    any(c::SYS_fsync),
    any(c::SYS_fdatasync),
    any(c::SYS_ftruncate),
    any(c::SYS_fchmod),
    any(c::SYS_ppoll),
    any(c::SYS_pipe2),
    any(c::SYS_eventfd2),
    only(c::SYS_ioctl, HARMLESS_IOCTLS),
    // Files by name.
    any(c::SYS_openat),
    any(c::SYS_statx),
    any(c::SYS_newfstatat),
    any(c::SYS_fstat),
    any(c::SYS_statfs),
    any(c::SYS_fstatfs),
    any(c::SYS_readlinkat),
    any(c::SYS_getdents64),
    any(c::SYS_getcwd),
    any(c::SYS_faccessat),
    any(c::SYS_faccessat2),
    any(c::SYS_mkdirat),
    any(c::SYS_unlinkat),
    any(c::SYS_renameat),
    any(c::SYS_renameat2),
    any(c::SYS_fchmodat),
];

const SERVE: &[Allowed] = &[any(c::SYS_accept), any(c::SYS_accept4)];

const CONNECT_HERE: &[Allowed] = &[only(c::SYS_socket, LOCAL), any(c::SYS_connect)];

// Names of hosts are asked for with sendmmsg, and from a daemon of this machine.
const CONNECT_AWAY: &[Allowed] = &[
    only(c::SYS_socket, REMOTE),
    only(c::SYS_socket, LOCAL),
    any(c::SYS_connect),
    any(c::SYS_bind),
    any(c::SYS_sendmmsg),
];

const CONNECTED: &[Allowed] = &[
    any(c::SYS_recvfrom),
    any(c::SYS_recvmsg),
    any(c::SYS_sendto),
    any(c::SYS_sendmsg),
    any(c::SYS_shutdown),
    any(c::SYS_getsockopt),
    any(c::SYS_setsockopt),
    any(c::SYS_getsockname),
    any(c::SYS_getpeername),
];

const PROCESSES: &[Allowed] = &[
    any(c::SYS_pidfd_open),
    any(c::SYS_pidfd_send_signal),
    any(c::SYS_kcmp),
    any(c::SYS_wait4),
    any(c::SYS_waitid),
    any(c::SYS_epoll_ctl),
    any(c::SYS_epoll_pwait),
];

const ADVISE: &[Allowed] = &[any(c::SYS_process_madvise), any(c::SYS_move_pages)];

const RUN_BPF: &[Allowed] = &[only(c::SYS_bpf, RUN_ONLY)];

const FORK: &[Allowed] = &[any(c::SYS_setsid)];

const INJECT: &[Allowed] = &[only(c::SYS_ptrace, PTRACE), any(c::SYS_process_vm_readv), any(c::SYS_process_vm_writev)];

const PAUSE: &[Allowed] = &[only(c::SYS_ptrace, PTRACE_STOP)];

const PERF: &[Allowed] = &[any(c::SYS_perf_event_open), only(c::SYS_ioctl, PERF_IOCTLS)];

const PUNCH: &[Allowed] = &[any(c::SYS_fallocate)];

const SEGMENTS: &[Allowed] = &[
    any(c::SYS_shmget),
    any(c::SYS_shmat),
    any(c::SYS_shmctl),
    any(c::SYS_shmdt),
    any(c::SYS_timer_create),
    any(c::SYS_timer_settime),
    any(c::SYS_timer_delete),
];

#[cfg(target_arch = "x86_64")]
const OLD_BASIC: &[Allowed] = &[
    any(c::SYS_open),
    any(c::SYS_stat),
    any(c::SYS_lstat),
    any(c::SYS_readlink),
    any(c::SYS_access),
    any(c::SYS_mkdir),
    any(c::SYS_rmdir),
    any(c::SYS_unlink),
    any(c::SYS_rename),
    any(c::SYS_chmod),
    any(c::SYS_poll),
    any(c::SYS_dup2),
    any(c::SYS_pipe),
    any(c::SYS_getrlimit),
    any(c::SYS_time),
];
#[cfg(target_arch = "x86_64")]
const OLD_FORK: &[Allowed] = &[any(c::SYS_fork)];

#[cfg(not(target_arch = "x86_64"))]
const OLD_BASIC: &[Allowed] = &[];
#[cfg(not(target_arch = "x86_64"))]
const OLD_FORK: &[Allowed] = &[];

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Calls; 12] = [
        Calls::Basic,
        Calls::Serve,
        Calls::ConnectHere,
        Calls::ConnectAway,
        Calls::Processes,
        Calls::Advise,
        Calls::RunBpf,
        Calls::Fork,
        Calls::Inject,
        Calls::Perf,
        Calls::Punch,
        Calls::Segments,
    ];

    #[test]
    fn nothing_that_changes_the_system_is_in_any_group() {
        let allowed: Vec<_> = ALL.iter().flat_map(|group| group.allowed()).map(|allowed| allowed.number).collect();
        for number in [
            c::SYS_execve,
            c::SYS_execveat,
            c::SYS_clone3,
            c::SYS_unshare,
            c::SYS_setns,
            c::SYS_mount,
            c::SYS_umount2,
            c::SYS_pivot_root,
            c::SYS_chroot,
            c::SYS_fsopen,
            c::SYS_fsmount,
            c::SYS_move_mount,
            c::SYS_open_tree,
            c::SYS_init_module,
            c::SYS_finit_module,
            c::SYS_delete_module,
            c::SYS_kexec_load,
            c::SYS_reboot,
            c::SYS_swapon,
            c::SYS_swapoff,
            c::SYS_settimeofday,
            c::SYS_clock_settime,
            c::SYS_setuid,
            c::SYS_setresuid,
            c::SYS_setgid,
            c::SYS_capset,
            c::SYS_fchownat,
            c::SYS_kill,
            c::SYS_userfaultfd,
            c::SYS_io_uring_setup,
            c::SYS_keyctl,
            c::SYS_add_key,
            c::SYS_open_by_handle_at,
            c::SYS_pidfd_getfd,
            c::SYS_personality,
            c::SYS_seccomp,
            c::SYS_syslog,
            c::SYS_quotactl,
            c::SYS_acct,
        ] {
            assert!(!allowed.contains(&number), "call {number} is in a group");
        }
    }

    #[test]
    fn dangerous_arguments_are_refused() {
        let tests = |group: Calls, number| {
            let found: Vec<_> = group.allowed().into_iter().filter(|a| a.number == number).collect();
            assert_eq!(found.len(), 1);
            found[0].tests
        };
        assert_eq!(tests(Calls::Basic, c::SYS_mmap), [Test::NoneOf(2, 4)]);
        assert_eq!(tests(Calls::Basic, c::SYS_mprotect), [Test::NoneOf(2, 4)]);
        // BPF_PROG_LOAD is 5, BPF_MAP_CREATE 0.
        assert!(tests(Calls::RunBpf, c::SYS_bpf).iter().all(|t| matches!(t, Test::Is(0, 28 | 33))));
        assert_eq!(tests(Calls::ConnectHere, c::SYS_socket), [Test::Is(0, c::AF_UNIX as u64)]);
        assert!(Calls::ConnectAway.allowed().iter().all(|a| a.number != c::SYS_socket || !a.tests.is_empty()));
        // PTRACE_TRACEME 0, POKETEXT 4, POKEUSER 6, ATTACH 16.
        assert!(tests(Calls::Inject, c::SYS_ptrace).iter().all(|t| matches!(t, Test::Is(0, 7 | 17 | 24 | 0x4204..))));
    }
}
