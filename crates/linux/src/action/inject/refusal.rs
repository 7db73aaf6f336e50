//! Why a thread was left alone.

/// What the helper found; also what it reports through shared memory, as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Refusal {
    None = 0,
    Gone,
    NotPermitted,
    Stopped,
    NoStop,
    OtherArchitecture,
    NotOnStack,
    NoRoom,
    OtherCode,
    CriticalSection,
    Signals,
    UserDispatch,
    Sandboxed,
    ShadowStack,
    Unexpected,
}

impl Refusal {
    const ALL: [Self; 15] = [
        Self::None,
        Self::Gone,
        Self::NotPermitted,
        Self::Stopped,
        Self::NoStop,
        Self::OtherArchitecture,
        Self::NotOnStack,
        Self::NoRoom,
        Self::OtherCode,
        Self::CriticalSection,
        Self::Signals,
        Self::UserDispatch,
        Self::Sandboxed,
        Self::ShadowStack,
        Self::Unexpected,
    ];

    pub(crate) fn from_number(number: u32) -> Self {
        Self::ALL.into_iter().find(|r| *r as u32 == number).unwrap_or(Self::Unexpected)
    }

    /// Whether another moment may suit.
    pub const fn passes(self) -> bool {
        matches!(self, Self::NotOnStack | Self::NoRoom | Self::CriticalSection | Self::Signals)
    }

    /// The reason, to follow "pid N ".
    pub const fn text(self) -> &'static str {
        match self {
            Self::None => "was left alone because a stop was asked for",
            Self::Gone => "has exited",
            Self::NotPermitted => {
                "may not be traced, or is traced by a debugger: run as root (CAP_SYS_PTRACE; with Yama, \
                 kernel.yama.ptrace_scope below 3), end the debugger"
            }
            Self::Stopped => "is stopped; let it go on (SIGCONT)",
            Self::NoStop => {
                "could not be stopped within 100 ms: it waits in the kernel for a device; it is tried again later"
            }
            Self::OtherArchitecture => "runs code that is not 64-bit x86; only that is supported",
            Self::NotOnStack => {
                "runs on a stack that its program made itself (coroutines), below which nothing may be put; have the program call \
                 madvise or mlock itself"
            }
            Self::NoRoom => "has no room left on its stack; it is tried again later",
            Self::OtherCode => "changed its code meanwhile; it is tried again later",
            Self::CriticalSection => "is in a restartable sequence all the time; it is tried again later",
            Self::Signals => "gets signals all the time; it is tried again later",
            Self::UserDispatch => {
                "handles system calls by itself (syscall user dispatch, as Wine does), which is not supported"
            }
            Self::Sandboxed => {
                "has its system calls filtered (seccomp), so that a new one could kill it; run it without the filter (systemd: \
                 SystemCallFilter=)"
            }
            Self::ShadowStack => "uses a shadow stack; start it with GLIBC_TUNABLES=glibc.cpu.x86_shstk=off",
            Self::Unexpected => "did something unexpected while it was stopped; it was let go",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_back() {
        for refusal in Refusal::ALL {
            assert_eq!(Refusal::from_number(refusal as u32), refusal);
            assert!(!refusal.text().is_empty());
        }
        assert_eq!(Refusal::from_number(999), Refusal::Unexpected);
    }
}
