//! The error numbers that reads and writes of the files end with.

/// Why a file operation fails, as the kernel would say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Errno {
    /// EPERM: `off` for something that has ended by itself.
    #[error("operation not permitted")]
    NotPermitted,
    /// ENOENT: no such name in that folder.
    #[error("no such file or directory")]
    NoEntry,
    /// ENOMEM: more folders than are sensible.
    #[error("cannot allocate memory")]
    NoMemory,
    /// EACCES: the file's mode has no such right, not even for root.
    #[error("permission denied")]
    Access,
    /// EBUSY: something runs that would be disturbed, or somebody else's command is under way.
    #[error("device or resource busy")]
    Busy,
    /// ENODEV: the file was removed while it was open.
    #[error("no such device")]
    Gone,
    /// ENOTDIR: a folder was expected.
    #[error("not a directory")]
    NotDir,
    /// EINVAL: the text is not what the file takes, or what it asks for cannot be done.
    #[error("invalid argument")]
    Invalid,
    /// ERANGE: the number does not fit.
    #[error("numerical result out of range")]
    Range,
    /// What another file said that a read or a write was passed on to.
    #[error("error {0}")]
    Other(i32),
}

impl Errno {
    /// The number on Linux.
    pub const fn number(self) -> i32 {
        match self {
            Self::NotPermitted => 1,
            Self::NoEntry => 2,
            Self::NoMemory => 12,
            Self::Access => 13,
            Self::Busy => 16,
            Self::Gone => 19,
            Self::NotDir => 20,
            Self::Invalid => 22,
            Self::Range => 34,
            Self::Other(number) => number,
        }
    }
}
