//! What single page frames are used for: `/proc/kpageflags`, one entry of 8 bytes a frame.
//!
//! A reading costs about the same for 1 entry as for 100: frames are looked at one by one where they were chosen, never all
//! of them (30 ms for 512 MiB under emulation, against 0.5 ms for one of each 2 MiB).

use crate::roots::Roots;
use isotherm_core::addr::PAGE_SIZE;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Flags of a page frame (linux/kernel-page-flags.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flags(u64);

impl Flags {
    const BUDDY: u64 = 1 << 10;

    /// Free, in the hands of the buddy allocator. Free pages in the lists of single CPUs are not.
    pub const fn free(self) -> bool {
        self.0 & Self::BUDDY != 0
    }
}

/// Reads flags.
#[derive(Debug)]
pub struct FlagSampler {
    file: File,
}

impl FlagSampler {
    /// Opens the file; that takes root (CAP_SYS_ADMIN).
    pub fn open(roots: &Roots) -> io::Result<Self> {
        Ok(Self { file: File::open(roots.path("/proc/kpageflags"))? })
    }

    /// The flags of the frame at physical address `addr`; `None` behind the last frame.
    pub fn at(&self, addr: u64) -> io::Result<Option<Flags>> {
        let mut entry = [0u8; 8];
        let Some(offset) = (addr / PAGE_SIZE).checked_mul(8) else { return Ok(None) };
        match self.file.read_at(&mut entry, offset)? {
            8 => Ok(Some(Flags(u64::from_ne_bytes(entry)))),
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::tree;

    #[test]
    fn entries_are_found_by_address() {
        let entries: Vec<u8> = [0u64, Flags::BUDDY].into_iter().flat_map(u64::to_ne_bytes).collect();
        let t = tree(&[("proc/kpageflags", "")]);
        std::fs::write(t.roots.path("/proc/kpageflags"), entries).unwrap();
        let flags = FlagSampler::open(&t.roots).unwrap();
        let at = |page: u64| flags.at(page * PAGE_SIZE).unwrap();
        assert!(!at(0).unwrap().free() && at(1).unwrap().free());
        assert_eq!(at(2), None);
        assert_eq!(flags.at(u64::MAX).unwrap(), None);
    }
}
