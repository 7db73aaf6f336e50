//! The bytes of the kernel's type information: mapped where the kernel has that (6.16), else read. They are several MiB, and to copy
//! them takes longer than to find in them what is needed.

use rustix::fs::fstatfs;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::File;
use std::io::{self, Read};
use std::ops::Deref;
use std::path::Path;
use std::ptr::{NonNull, null_mut};

/// The file system by which the kernel shows itself (SYSFS_MAGIC).
const SYSFS: i64 = 0x6265_6572;

/// Bytes that nobody writes to.
#[derive(Debug)]
pub(super) enum Blob {
    /// The kernel's own memory.
    Mapped { base: NonNull<u8>, len: usize },
    /// A copy.
    Read(Vec<u8>),
}

impl Blob {
    /// Those of file `path`. A file that is not the kernel's may become shorter, so it is copied.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        if is_kernels(&file)
            && let Some(mapped) = Self::map(&file)
        {
            return Ok(mapped);
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(Self::Read(bytes))
    }

    fn map(file: &File) -> Option<Self> {
        let len = usize::try_from(file.metadata().ok()?.len()).ok()?;
        // SAFETY: at an address of the kernel's choice. Refused where it cannot be mapped.
        let base = unsafe { mmap(null_mut(), len, ProtFlags::READ, MapFlags::PRIVATE, file, 0) }.ok()?;
        Some(Self::Mapped { base: NonNull::new(base.cast())?, len })
    }
}

impl Deref for Blob {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            // SAFETY: mapped for so long as `self` lives, and neither we nor the kernel writes to it.
            Self::Mapped { base, len } => unsafe { std::slice::from_raw_parts(base.as_ptr(), *len) },
            Self::Read(bytes) => bytes,
        }
    }
}

impl Drop for Blob {
    fn drop(&mut self) {
        if let Self::Mapped { base, len } = *self {
            // SAFETY: our own mapping; what refers to it has borrowed this value.
            let _ = unsafe { munmap(base.as_ptr().cast(), len) };
        }
    }
}

/// Whether a file is one of those by which the kernel shows itself, whose types never change.
#[allow(clippy::unnecessary_cast, reason = "the types differ between C libraries")]
fn is_kernels(file: &File) -> bool {
    fstatfs(file).is_ok_and(|fs| fs.f_type as i64 == SYSFS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_ours_is_copied_and_the_kernels_is_what_reading_gives() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("types");
        std::fs::write(&path, b"some").unwrap();
        let blob = Blob::open(&path).unwrap();
        assert!(matches!(blob, Blob::Read(_)));
        assert_eq!(&*blob, b"some");
        let kernels = Path::new("/sys/kernel/btf/vmlinux");
        if let Ok(bytes) = std::fs::read(kernels) {
            assert!(*Blob::open(kernels).unwrap() == bytes[..]);
        }
    }
}
