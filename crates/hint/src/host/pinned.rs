//! Memory that processes other than the VMM have pinned for hardware, as far as is known.

use isotherm_linux::hostmem::others::{FileIdentity, Pinner, pinned_files};
use isotherm_linux::roots::Roots;
use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

/// The files that were found when it was looked last; one for all guests, as looking takes all processes.
#[derive(Debug, Default)]
pub struct PinnedFiles(RwLock<BTreeMap<FileIdentity, Pinner>>);

impl PinnedFiles {
    /// What there is now.
    pub fn found() -> Self {
        Self(RwLock::new(pinned_files(&Roots::system())))
    }

    /// Looks again.
    pub(super) fn look(&self) {
        let now = pinned_files(&Roots::system());
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = now;
    }

    /// A process other than `pid` that has one of `files` pinned.
    pub(super) fn other_than(&self, pid: u32, files: &[FileIdentity]) -> Option<Pinner> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        files.iter().filter_map(|file| known.get(file)).find(|pinner| pinner.pid != pid).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::memory::{Memory, MemoryError};
    use crate::host::test_vmm::TestVmm;
    use std::sync::Arc;

    #[test]
    fn a_vmm_is_not_another_process() {
        let pinner = |pid| Pinner { pid, device: "/dev/vfio/12".into() };
        let known = PinnedFiles(RwLock::new([((1, 7), pinner(42)), ((1, 8), pinner(43))].into()));
        assert_eq!(known.other_than(9, &[(1, 6), (1, 7)]), Some(pinner(42)));
        assert_eq!(known.other_than(9, &[(2, 7)]), None, "of another file system");
        assert_eq!(known.other_than(42, &[(1, 7)]), None);
        assert_eq!(known.other_than(42, &[(1, 7), (1, 8)]), Some(pinner(43)));
    }

    #[test]
    fn memory_that_a_backend_has_pinned_is_left_alone() {
        let vmm = TestVmm::start(1, false);
        let pinned = Arc::new(PinnedFiles::default());
        let guest = vmm.guest(Arc::clone(&pinned)).unwrap();
        guest.memory().check_unpinned().unwrap();
        let found = [(vmm.identity(), Pinner { pid: 42, device: "/dev/vfio/12".into() })];
        *pinned.0.write().unwrap() = found.into();
        let refused = |error: MemoryError| {
            assert!(matches!(error, MemoryError::PinnedElsewhere { other: 42, .. }), "{error}");
            assert!(error.to_string().contains("process 42 has the memory of process"), "{error}");
        };
        refused(guest.memory().check_unpinned().unwrap_err());
        refused(guest.memory().layout(&[]).unwrap_err());
        drop(guest);
        refused(vmm.guest(pinned).unwrap_err());
    }
}
