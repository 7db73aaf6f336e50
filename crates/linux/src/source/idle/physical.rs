//! The kernel's files that speak of physical pages: what a page is, and whether it is idle.

use crate::mm::page_flags::{KPAGEFLAGS, NOPAGE};
use crate::mm::words::read_words;
use crate::roots::Roots;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

/// The bitmap: one bit per page frame, in 64-bit words of the machine's byte order, read and written in whole words.
pub(super) const BITMAP: &str = "/sys/kernel/mm/page_idle/bitmap";

/// Physical pages: the kernel's, or simulated ones.
pub(super) trait PhysicalPages {
    /// Fills `out` with the flags of the frames from `first` on; frames that do not exist read as [`NOPAGE`].
    fn flags(&self, first: u64, out: &mut [u64]) -> io::Result<()>;

    /// Fills `out` with the bitmap's words from `first` on, as many as it gives. A set bit: not accessed since it was
    /// set. The kernel gives whole words only: the last frames have none where their number is no multiple of 64.
    fn read_idle(&self, first: u64, out: &mut [u64]) -> io::Result<usize>;

    /// Marks pages idle: those whose bits are set in the words from `first` on. Bits that are 0 change nothing, and
    /// neither do pages that cannot be marked, nor those that have no whole word.
    fn mark_idle(&self, first: u64, words: &[u64]) -> io::Result<()>;
}

/// The running kernel's files.
#[derive(Debug)]
pub(super) struct KernelFiles {
    bitmap: File,
    kpageflags: File,
}

impl KernelFiles {
    /// Opens both. Needs root.
    pub(super) fn open(roots: &Roots) -> io::Result<Self> {
        let named = |path: &str, e: io::Error| io::Error::new(e.kind(), format!("{path}: {e}"));
        let bitmap =
            OpenOptions::new().read(true).write(true).open(roots.path(BITMAP)).map_err(|e| named(BITMAP, e))?;
        let kpageflags = File::open(roots.path(KPAGEFLAGS)).map_err(|e| named(KPAGEFLAGS, e))?;
        Ok(Self { bitmap, kpageflags })
    }
}

impl PhysicalPages for KernelFiles {
    fn flags(&self, first: u64, out: &mut [u64]) -> io::Result<()> {
        let n = read_words(&self.kpageflags, first, out)?;
        out[n..].fill(NOPAGE);
        Ok(())
    }

    fn read_idle(&self, first: u64, out: &mut [u64]) -> io::Result<usize> {
        read_words(&self.bitmap, first, out)
    }

    fn mark_idle(&self, first: u64, words: &[u64]) -> io::Result<()> {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        match self.bitmap.write_all_at(&bytes, first * 8) {
            // A last word that is not whole counts as nothing written; behind it there is nothing.
            Err(e) if e.kind() == io::ErrorKind::WriteZero || e.raw_os_error() == Some(libc::ENXIO) => Ok(()),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::tree;

    #[test]
    fn words_lie_where_the_kernel_has_them() {
        let t = tree(&[("sys/kernel/mm/page_idle/bitmap", ""), ("proc/kpageflags", "")]);
        let flags: Vec<u8> = [1u64, 2, 3].iter().flat_map(|w| w.to_ne_bytes()).collect();
        std::fs::write(t.roots.path(KPAGEFLAGS), flags).unwrap();
        let files = KernelFiles::open(&t.roots).unwrap();
        let mut out = [9; 3];
        files.flags(1, &mut out).unwrap();
        assert_eq!(out, [2, 3, NOPAGE]);
        files.mark_idle(2, &[0b101, 1 << 63]).unwrap();
        let bytes = std::fs::read(t.roots.path(BITMAP)).unwrap();
        assert_eq!(bytes.len(), 32);
        // Frame 2 * 64 + 2.
        assert_eq!(bytes[16], 0b101);
        assert_eq!(bytes[31], 0x80);
        assert_eq!(files.read_idle(2, &mut out).unwrap(), 2);
        assert_eq!(out[..2], [0b101, 1 << 63]);
    }
}
