//! The system calls that are injected.

use isotherm_core::addr::AddrRange;
use isotherm_core::scheme::action::Action;

/// Lock pages as they are touched: locking does not read anything in, so it is quick.
const MLOCK_ONFAULT: u64 = 1;

/// What is done to each range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::action) struct Call {
    pub action: Action,
    number: u64,
    third: u64,
    /// Most bytes at a time: what takes well below a millisecond.
    pub most: u64,
}

impl Call {
    /// The call for an action that needs injection.
    pub fn of(action: Action) -> Option<Self> {
        let (number, third, most) = match action {
            // Only flags of mappings change, whatever their size.
            Action::HugePage => (libc::SYS_madvise, libc::MADV_HUGEPAGE as u64, 1 << 40),
            Action::NoHugePage => (libc::SYS_madvise, libc::MADV_NOHUGEPAGE as u64, 1 << 40),
            // Every page that is present is visited.
            Action::Lock => (libc::SYS_mlock2, MLOCK_ONFAULT, 8 << 20),
            Action::Unlock => (libc::SYS_munlock, 0, 8 << 20),
            _ => return None,
        };
        Some(Self { action, number: number as u64, third, most })
    }

    /// Number and arguments for a range.
    pub const fn registers(&self, range: AddrRange) -> (u64, [u64; 3]) {
        (self.number, [range.start, range.end - range.start, self.third])
    }
}
