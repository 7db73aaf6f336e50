//! Capabilities that are left.

use super::ConfineError;
use rustix::thread::{CapabilitySets, capabilities, clear_ambient_capability_set, remove_capability_from_bounding_set};
use rustix::thread::{capability_is_in_bounding_set, set_capabilities};
use std::io;

pub use rustix::thread::CapabilitySet;

/// Takes all others from the calling thread, and from the bounding set where that is allowed. Which are left: fewer
/// than wanted where they were not there.
pub(super) fn keep(wanted: CapabilitySet) -> Result<CapabilitySet, ConfineError> {
    let failed = |e: rustix::io::Errno| ConfineError::Capabilities(io::Error::from(e));
    let before = capabilities(None).map_err(failed)?;
    if before.effective.contains(CapabilitySet::SETPCAP) {
        // Nothing is executed any more, so that this is a second bolt. Kernels know fewer than we.
        for one in CapabilitySet::all().difference(wanted).iter() {
            if capability_is_in_bounding_set(one).unwrap_or(false) {
                remove_capability_from_bounding_set(one).map_err(failed)?;
            }
        }
    }
    // Not known before Linux 4.3, and empty with what it is drawn from.
    let _ = clear_ambient_capability_set();
    let left = before.permitted & wanted;
    let sets = CapabilitySets { effective: left, permitted: left, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).map_err(failed)?;
    Ok(left)
}

/// Whether the calling thread is certainly without one of these.
pub fn lacks(wanted: CapabilitySet) -> bool {
    capabilities(None).is_ok_and(|held| !held.effective.contains(wanted))
}

/// Their names as the kernel's documentation has them, in the kernel's order.
pub fn names(set: CapabilitySet) -> Vec<String> {
    set.iter_names().map(|(name, _)| format!("CAP_{name}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_kernel() {
        assert_eq!(names(CapabilitySet::KILL | CapabilitySet::BPF), ["CAP_KILL", "CAP_BPF"]);
        assert!(names(CapabilitySet::empty()).is_empty());
    }

    #[test]
    fn what_is_not_wanted_is_gone_and_cannot_come_back() {
        // Of a thread: this test's.
        let left = keep(CapabilitySet::KILL).unwrap();
        assert!(CapabilitySet::KILL.contains(left));
        assert!(lacks(CapabilitySet::SYS_PTRACE | CapabilitySet::KILL) && !lacks(CapabilitySet::empty()));
        let now = capabilities(None).unwrap();
        assert_eq!((now.effective, now.permitted, now.inheritable), (left, left, CapabilitySet::empty()));
        let all = CapabilitySets { effective: left | CapabilitySet::CHOWN, ..now };
        assert!(set_capabilities(None, all).is_err());
    }
}
