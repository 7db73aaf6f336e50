//! The kernel's files that speak of physical pages: what a page is, and whether it is idle.

use crate::roots::Roots;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

/// The bitmap: one bit per page frame, in 64-bit words of the machine's byte order, read and written in whole words.
pub(super) const BITMAP: &str = "/sys/kernel/mm/page_idle/bitmap";
/// What each page frame is; one 64-bit word a frame.
pub(super) const KPAGEFLAGS: &str = "/proc/kpageflags";

/// Bits of a word of kpageflags (include/uapi/linux/kernel-page-flags.h).
pub(super) mod flag {
    /// On a list from which pages are reclaimed; the others cannot be marked idle.
    pub(crate) const LRU: u64 = 1 << 5;
    /// First page of a folio of several pages.
    pub(crate) const COMPOUND_HEAD: u64 = 1 << 15;
    /// Another page of such a folio.
    pub(crate) const COMPOUND_TAIL: u64 = 1 << 16;
    pub(crate) const HUGE: u64 = 1 << 17;
    /// No page frame.
    pub(crate) const NOPAGE: u64 = 1 << 20;
    /// The page of zeros that all untouched memory shares.
    pub(crate) const ZERO_PAGE: u64 = 1 << 24;
    /// Marked idle. Not looked up in page tables: a page accessed a moment ago may still have it.
    pub(crate) const IDLE: u64 = 1 << 25;
}

/// Physical pages: the kernel's, or simulated ones.
pub(super) trait PhysicalPages {
    /// Fills `out` with the flags of the frames from `first` on; frames that do not exist read as [`flag::NOPAGE`].
    fn flags(&self, first: u64, out: &mut [u64]) -> io::Result<()>;

    /// Fills `out` with the bitmap's words from `first` on, as many as it gives. A set bit: not accessed since it was
    /// set. The kernel gives whole words only: the last frames have none where their number is no multiple of 64.
    fn read_idle(&self, first: u64, out: &mut [u64]) -> io::Result<usize>;

    /// Marks pages idle: those whose bits are set in the words from `first` on. Bits that are 0 change nothing, and
    /// neither do pages that cannot be marked, nor those that have no whole word.
    fn mark_idle(&self, first: u64, words: &[u64]) -> io::Result<()>;
}

impl<P: PhysicalPages> PhysicalPages for &P {
    fn flags(&self, first: u64, out: &mut [u64]) -> io::Result<()> {
        P::flags(self, first, out)
    }

    fn read_idle(&self, first: u64, out: &mut [u64]) -> io::Result<usize> {
        P::read_idle(self, first, out)
    }

    fn mark_idle(&self, first: u64, words: &[u64]) -> io::Result<()> {
        P::mark_idle(self, first, words)
    }
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

/// Reads words from word `first` on; gives how many there were.
pub(super) fn read_words(file: &File, first: u64, out: &mut [u64]) -> io::Result<usize> {
    let mut bytes = vec![0; out.len() * 8];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], first * 8 + filled as u64) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            // Behind the last page frame.
            Err(e) if e.raw_os_error() == Some(libc::ENXIO) => break,
            Err(e) => return Err(e),
        }
    }
    for (word, bytes) in out.iter_mut().zip(bytes[..filled / 8 * 8].as_chunks().0) {
        *word = u64::from_ne_bytes(*bytes);
    }
    Ok(filled / 8)
}

impl PhysicalPages for KernelFiles {
    fn flags(&self, first: u64, out: &mut [u64]) -> io::Result<()> {
        let n = read_words(&self.kpageflags, first, out)?;
        out[n..].fill(flag::NOPAGE);
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
        assert_eq!(out, [2, 3, flag::NOPAGE]);
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
