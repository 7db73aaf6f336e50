//! Memory that this process has mapped for itself. It never hands out plain references into the memory: the kernel,
//! another process or a child may read and write it at any time, and advice may change what it holds.

use isotherm_core::addr::{AddrRange, PAGE_SIZE};
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap, mmap_anonymous, mprotect, munmap};
use std::io;
use std::os::fd::AsFd;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// Unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory belongs to this value alone and is not tied to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Zeroed memory of our own; nothing is reserved for it.
    pub(crate) fn private(len: usize) -> io::Result<Self> {
        Self::anonymous(len, READ_WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE)
    }

    /// Like [`private`](Self::private), beginning at a multiple of `align` (a power of two, at least a page).
    pub(crate) fn aligned(len: usize, align: usize) -> io::Result<Self> {
        let mut head = Self::private(len.checked_add(align).ok_or(io::ErrorKind::InvalidInput)?)?;
        let mut aligned = head.split_off(head.base.align_offset(align));
        drop(aligned.split_off(len));
        Ok(aligned)
    }

    /// Addresses that nothing else is mapped to, without access to them.
    pub(crate) fn inaccessible(len: usize) -> io::Result<Self> {
        Self::anonymous(len, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE)
    }

    /// Zeroed memory that children see, too.
    pub(crate) fn shared(len: usize) -> io::Result<Self> {
        Self::anonymous(len, READ_WRITE, MapFlags::SHARED)
    }

    fn anonymous(len: usize, access: ProtFlags, flags: MapFlags) -> io::Result<Self> {
        // SAFETY: at an address of the kernel's choice; none of the callers asks for a fixed one.
        Self::made(unsafe { mmap_anonymous(null_mut(), len, access, flags) }?, len)
    }

    /// The first `len` bytes of a file, shared with whoever else has it mapped.
    pub fn of_file(file: impl AsFd, len: usize) -> io::Result<Self> {
        // SAFETY: at an address of the kernel's choice.
        Self::made(unsafe { mmap(null_mut(), len, READ_WRITE, MapFlags::SHARED, file, 0) }?, len)
    }

    fn made(base: *mut std::ffi::c_void, len: usize) -> io::Result<Self> {
        Ok(Self { base: NonNull::new(base.cast()).ok_or(io::ErrorKind::InvalidData)?, len })
    }

    /// Keeps the first `at` bytes, whole pages, and gives the rest.
    fn split_off(&mut self, at: usize) -> Self {
        let rest = Self { base: self.at(at, 0), len: self.len - at };
        self.len = at;
        rest
    }

    /// Where the part of `len` bytes at `at` lies.
    fn at(&self, at: usize, len: usize) -> NonNull<u8> {
        assert!(at.checked_add(len).is_some_and(|end| end <= self.len), "{at}+{len} of {}", self.len);
        // SAFETY: inside the mapping, or at its end, as was just checked.
        unsafe { self.base.add(at) }
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn range(&self) -> AddrRange {
        let start = self.base.as_ptr() as u64;
        AddrRange::new(start, start + self.len as u64)
    }

    /// Reads `out.len()` bytes at `at`; from memory, whatever was read or written before.
    pub(crate) fn read(&self, at: usize, out: &mut [u8]) {
        let from = self.at(at, out.len());
        for (i, byte) in out.iter_mut().enumerate() {
            // SAFETY: inside the mapping, as `at` has checked.
            *byte = unsafe { from.add(i).read_volatile() };
        }
    }

    /// Writes `bytes` at `at`; to memory, even if nobody reads them.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        let to = self.at(at, bytes.len());
        for (i, byte) in bytes.iter().enumerate() {
            // SAFETY: inside the mapping, as `at` has checked. No plain reference leads there, and no other thread has
            // this value.
            unsafe { to.add(i).write_volatile(*byte) };
        }
    }

    /// Writes `byte` to the `len` bytes at `at`.
    pub(crate) fn fill(&self, at: usize, len: usize, byte: u8) {
        // SAFETY: as in `write`.
        unsafe { self.at(at, len).write_bytes(byte, len) };
    }

    /// Reads the word at `at`, a multiple of 8, which others may write at the same time.
    pub(crate) fn load(&self, at: usize, order: Ordering) -> u64 {
        self.word(at).load(order)
    }

    /// Writes the word at `at`, a multiple of 8, which others may read at the same time.
    pub(crate) fn store(&self, at: usize, value: u64, order: Ordering) {
        self.word(at).store(value, order);
    }

    // Not for others: a reference could be used in another thread while this one reads or writes bytes.
    fn word(&self, at: usize) -> &AtomicU64 {
        let word = self.at(at, 8).cast();
        assert!(word.is_aligned(), "word at {at}");
        // SAFETY: inside the mapping, which lives as long as `self`, and aligned, as was just checked.
        unsafe { AtomicU64::from_ptr(word.as_ptr()) }
    }

    /// The offset of a part, which must lie inside, and its length.
    fn part(&self, part: AddrRange) -> (*mut std::ffi::c_void, usize) {
        let len = part.len() as usize;
        let offset = part.start.checked_sub(self.range().start).expect("a part of the mapping");
        (self.at(offset as usize, len).as_ptr().cast(), len)
    }

    pub(crate) fn advise(&self, part: AddrRange, advice: Advice) -> io::Result<()> {
        let (start, len) = self.part(part);
        // SAFETY: our own memory, to whose contents no plain reference leads.
        Ok(unsafe { madvise(start, len, advice) }?)
    }

    pub(crate) fn protect(&self, part: AddrRange, access: MprotectFlags) -> io::Result<()> {
        let (start, len) = self.part(part);
        // SAFETY: our own memory. An access that is not allowed any more ends the process.
        Ok(unsafe { mprotect(start, len, access) }?)
    }

    /// Which pages of a part are in memory.
    pub(crate) fn resident(&self, part: AddrRange) -> io::Result<Vec<bool>> {
        let (start, len) = self.part(part);
        let mut resident = vec![0u8; len.div_ceil(PAGE_SIZE as usize)];
        // SAFETY: the part is mapped, and `resident` has a byte for each of its pages.
        if unsafe { libc::mincore(start, len, resident.as_mut_ptr()) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(resident.iter().map(|page| page & 1 != 0).collect())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own memory; what refers to it has borrowed this value. Without length nothing happens.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aligned_one_is_as_long_as_asked_for() {
        for len in [4096, 3 << 20] {
            let mapping = Mapping::aligned(len, 2 << 20).unwrap();
            assert_eq!((mapping.range().start % (2 << 20), mapping.range().len()), (0, len as u64));
            mapping.write(len - 1, &[7]);
            let mut byte = [0];
            mapping.read(len - 1, &mut byte);
            assert_eq!(byte, [7]);
        }
    }

    #[test]
    #[should_panic(expected = "4095+2 of 4096")]
    fn nothing_is_written_behind_its_end() {
        Mapping::private(4096).unwrap().write(4095, &[1, 2]);
    }

    #[test]
    #[should_panic(expected = "word at 4")]
    fn words_are_aligned() {
        Mapping::private(4096).unwrap().load(4, Ordering::Relaxed);
    }
}
