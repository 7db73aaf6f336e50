//! Pressure stall information: `/proc/pressure/memory`, and `memory.pressure` of a control group.

use std::io;
use std::path::Path;

/// The file for the whole machine.
pub(crate) const FILE: &str = "/proc/pressure/memory";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    Some,
    /// All tasks that are not idle wait.
    Full,
}

impl Share {
    /// How its line begins.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Some => "some",
            Self::Full => "full",
        }
    }
}

/// Microseconds of waiting since boot (or since the group was made).
pub(crate) fn total(text: &str, share: Share) -> Option<u64> {
    let rest = text.lines().find_map(|l| l.strip_prefix(share.name())?.strip_prefix(' '))?;
    rest.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="))?.parse().ok()
}

/// Why the file `path` cannot be read.
pub(crate) fn why(path: &Path, error: &io::Error) -> String {
    // The file is there and cannot be opened or read when PSI is built in and switched off.
    match (error.raw_os_error(), error.kind()) {
        (Some(libc::EOPNOTSUPP), _) => "pressure is built in but switched off".into(),
        (_, io::ErrorKind::NotFound) => format!("{} is missing", path.display()),
        _ => format!("{}: {error}", path.display()),
    }
}

/// What a trigger takes.
pub(crate) const TRIGGER_CAPABILITY: &str = "CAP_SYS_RESOURCE";

/// What helps where no trigger can be set.
pub(crate) fn trigger_remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::InvalidInput => {
            "grant CAP_SYS_RESOURCE: without it kernels from 6.5 on take only windows that are multiples of 2 s"
        }
        _ => remedy(error),
    }
}

/// What helps where its file cannot be read.
pub(crate) fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "run as root, in a container with CAP_SYS_RESOURCE (which a trigger takes before kernel 6.5)"
        }
        _ => "use a kernel with CONFIG_PSI=y; where it is off by default, boot with psi=1",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_of_both_lines() {
        let text =
            "some avg10=0.00 avg60=1.50 avg300=0.48 total=21206895\nfull avg10=0.00 avg60=0.00 avg300=0.48 total=7\n";
        assert_eq!((total(text, Share::Some), total(text, Share::Full)), (Some(21_206_895), Some(7)));
        assert_eq!(total("somewhat total=3\nfull total=x\n", Share::Some), None);
        assert_eq!(total("full total=x\n", Share::Full), None);
    }

    #[test]
    fn switched_off_and_missing_are_told_apart() {
        let why = |e| why(Path::new("/p"), &io::Error::from_raw_os_error(e));
        assert_eq!(why(libc::EOPNOTSUPP), "pressure is built in but switched off");
        assert_eq!(why(libc::ENOENT), "/p is missing");
        assert!(why(libc::EACCES).starts_with("/p: "));
    }

    #[test]
    fn who_may_not_is_not_sent_for_another_kernel() {
        let remedy = |e| remedy(&io::Error::from_raw_os_error(e));
        assert!(remedy(libc::EACCES).contains("CAP_SYS_RESOURCE") && remedy(libc::EPERM).contains("root"));
        assert!(remedy(libc::ENOENT).contains("CONFIG_PSI") && remedy(libc::EOPNOTSUPP).contains("CONFIG_PSI"));
    }
}
