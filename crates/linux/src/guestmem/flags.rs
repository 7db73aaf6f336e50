//! What single page frames are used for: `/proc/kpageflags`, one entry of 8 bytes a frame.
//!
//! A reading costs about the same for 1 entry as for 100: frames are looked at one by one where they were chosen, never
//! all of them (30 ms for 512 MiB under emulation, against 0.5 ms for one of each 2 MiB).

use crate::mm::page_flags::{BUDDY, KPAGEFLAGS};
use crate::mm::words::read_words;
use crate::roots::Roots;
use isotherm_core::addr::PAGE_SIZE;
use std::fs::File;
use std::io;

#[derive(Debug)]
pub struct FlagSampler {
    file: File,
}

impl FlagSampler {
    /// Opens the file; that takes root (CAP_SYS_ADMIN).
    pub fn open(roots: &Roots) -> io::Result<Self> {
        Ok(Self { file: File::open(roots.path(KPAGEFLAGS))? })
    }

    /// Whether the frame at physical address `addr` is free; no frame is behind the last one.
    pub fn is_free(&self, addr: u64) -> io::Result<bool> {
        let mut flags = [0];
        Ok(read_words(&self.file, addr / PAGE_SIZE, &mut flags)? == 1 && flags[0] & BUDDY != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::tree;

    #[test]
    fn entries_are_found_by_address() {
        let entries: Vec<u8> = [0u64, BUDDY].into_iter().flat_map(u64::to_ne_bytes).collect();
        let t = tree(&[("proc/kpageflags", "")]);
        std::fs::write(t.roots.path("/proc/kpageflags"), entries).unwrap();
        let flags = FlagSampler::open(&t.roots).unwrap();
        let is_free: Vec<bool> = (0..3).map(|page| flags.is_free(page * PAGE_SIZE).unwrap()).collect();
        assert_eq!(is_free, [false, true, false]);
        assert!(!flags.is_free(u64::MAX).unwrap());
    }
}
