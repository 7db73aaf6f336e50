//! What a helper is to do.

use super::call::Call;
use super::gadgets::Gadgets;
use isotherm_core::addr::AddrRange;
use std::fs::File;

/// What the helper is to do.
pub(super) struct Plan<'a> {
    pub pid: libc::pid_t,
    /// Its `/proc/PID/status`, opened while it was known to be the target.
    pub status: File,
    pub gadgets: Gadgets,
    pub call: Call,
    pub ranges: &'a [AddrRange],
}
