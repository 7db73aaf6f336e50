//! What a request has achieved so far.

use isotherm_core::addr::AddrRange;
use isotherm_core::pages::push_range;
use isotherm_core::scheme::action::Action;
use isotherm_core::units::format_size;
use std::io;

/// Memory that an action succeeded for, and the first refusal.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Sorted, disjoint.
    pub done: Vec<AddrRange>,
    /// Bytes that it succeeded for; less than the length of `done` where it did for single pages of a range.
    pub applied: u64,
    /// Range, reason, remedy.
    pub error: Option<String>,
}

impl Tally {
    /// Counts a range as a whole. Ranges come in order of address.
    pub fn add(&mut self, range: AddrRange) {
        self.add_partly(range, range.len());
    }

    /// Counts `bytes` of a range.
    pub(crate) fn add_partly(&mut self, range: AddrRange, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.applied += bytes;
        push_range(&mut self.done, range);
    }

    /// Keeps the first refusal.
    pub fn refuse(&mut self, why: impl FnOnce() -> String) {
        self.error.get_or_insert_with(why);
    }

    /// How many of `ranges` (sorted, disjoint) it succeeded for, at least in part.
    pub fn ranges(&self, ranges: &[AddrRange]) -> u64 {
        let touches = |r: &&AddrRange| {
            let i = self.done.partition_point(|d| d.end <= r.start);
            self.done.get(i).is_some_and(|d| d.start < r.end)
        };
        ranges.iter().filter(touches).count() as u64
    }
}

/// The text of a refusal by the kernel.
pub(super) fn refusal(action: Action, pid: u32, range: AddrRange, error: &io::Error) -> String {
    if gone(error) {
        return format!("pid {pid} has exited");
    }
    let why = match (action, error.raw_os_error()) {
        (Action::Lock, Some(libc::EPERM | libc::ENOMEM | libc::EAGAIN)) => {
            "; it exceeds the target's limit: raise it, `prlimit --memlock`"
        }
        (_, Some(libc::EPERM | libc::EACCES)) => "; run as root, or grant CAP_SYS_NICE and CAP_SYS_PTRACE",
        (_, Some(libc::ENOSYS)) => "; use kernel 5.10 or newer with CONFIG_ADVISE_SYSCALLS=y",
        (Action::Collapse, Some(libc::ENOMEM)) => "; no free huge page, or no longer mapped: free some memory",
        (Action::Collapse, Some(libc::EBUSY | libc::EAGAIN)) => {
            "; pages were in use by the kernel, it is tried again later"
        }
        (Action::Collapse, Some(libc::EINVAL)) => {
            "; too little of it is populated, or its kind cannot have huge pages, or the kernel is older than 6.1"
        }
        (Action::HugePage | Action::NoHugePage, Some(libc::EINVAL)) => {
            "; hugetlb and device memory cannot have transparent huge pages: leave it out by a filter"
        }
        (_, Some(libc::ENOMEM)) => "; it is no longer mapped",
        (_, Some(libc::EINVAL)) => "; locked, hugetlb and device memory takes no such advice: leave it out by a filter",
        _ => "",
    };
    format!("{action} of {:x}-{:x} ({}) of pid {pid}: {error}{why}", range.start, range.end, format_size(range.len()))
}

/// Whether the error says that the process is no longer there.
pub(super) fn gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_count_when_a_part_was_done() {
        let r = |s: u64, e: u64| AddrRange::new(s << 12, e << 12);
        let mut tally = Tally::default();
        tally.add(r(0, 2));
        tally.add(r(2, 4));
        tally.add_partly(r(8, 10), 4096);
        tally.add_partly(r(20, 30), 0);
        assert_eq!(tally.applied, 5 << 12);
        assert_eq!(tally.ranges(&[r(0, 1), r(1, 3), r(4, 8), r(9, 12), r(20, 30)]), 3);
    }

    #[test]
    fn refusals_name_range_pid_and_remedy() {
        let text =
            |code| refusal(Action::PageOut, 42, AddrRange::new(0x1000, 0x3000), &io::Error::from_raw_os_error(code));
        assert!(text(libc::EINVAL).starts_with("pageout of 1000-3000 (8"), "{}", text(libc::EINVAL));
        assert!(text(libc::EPERM).contains("CAP_SYS_NICE"));
        assert_eq!(text(libc::ESRCH), "pid 42 has exited");
    }
}
