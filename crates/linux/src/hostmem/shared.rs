//! Shared memory of our own: what a VMM's looks like, for tests and measurements without one.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

/// A memfd that is mapped shared.
#[derive(Debug)]
pub struct SharedMemory {
    file: File,
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the value and is only read and written through `&mut self`, or by the kernel through
// the file.
unsafe impl Send for SharedMemory {}

impl SharedMemory {
    /// `len` bytes, named as QEMU names its own: `memfd:NAME`.
    pub fn new(name: &str, len: usize) -> io::Result<Self> {
        let name = CString::new(name).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: a C string that lives over the call.
        let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just returned this descriptor; nobody else owns it.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        file.set_len(len as u64)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { file, base, len })
    }

    /// The file behind it.
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// Fills a part through the mapping, as a guest would.
    pub fn fill(&mut self, at: usize, len: usize, byte: u8) {
        assert!(at.checked_add(len).is_some_and(|end| end <= self.len), "{at}+{len} of {}", self.len);
        // SAFETY: inside our mapping, as was just checked, which nothing in this process refers to.
        unsafe { self.base.add(at).as_ptr().write_bytes(byte, len) };
    }

    /// A byte as the mapping shows it.
    pub fn byte(&self, at: usize) -> u8 {
        assert!(at < self.len, "{at} of {}", self.len);
        // SAFETY: inside our mapping; volatile, since holes punched by others change it.
        unsafe { self.base.add(at).read_volatile() }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: our own mapping, used by nobody any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
