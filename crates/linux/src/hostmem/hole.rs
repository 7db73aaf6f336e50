//! Holes in files: made, and passed over.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Gives the memory or the blocks of a part of the file back; it reads as zeros afterwards. The file keeps its size.
pub fn punch(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let (offset, len) = (signed(offset)?, signed(len)?);
    loop {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: an open descriptor and integers.
        if unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, len) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// The first byte at `offset` or later that is not in a hole; `None` if only holes follow.
pub fn next_data(file: &File, offset: u64) -> io::Result<Option<u64>> {
    // SAFETY: an open descriptor and integers. Its position changes, which nobody relies on: reads name their offsets.
    let found = unsafe { libc::lseek(file.as_raw_fd(), signed(offset)?, libc::SEEK_DATA) };
    if found >= 0 {
        return Ok(Some(found as u64));
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ENXIO) { Ok(None) } else { Err(error) }
}

fn signed(value: u64) -> io::Result<libc::off_t> {
    libc::off_t::try_from(value).map_err(|_| io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileExt, MetadataExt};

    #[test]
    fn a_hole_reads_as_zeros_and_takes_no_room() {
        let memory = crate::hostmem::shared::SharedMemory::new("test", 1 << 20).unwrap();
        let file = memory.file();
        file.write_all_at(&[7; 1 << 20], 0).unwrap();
        let full = file.metadata().unwrap().blocks();
        punch(file, 65536, 131_072).unwrap();
        assert_eq!(full - file.metadata().unwrap().blocks(), 131_072 / 512);
        assert_eq!(file.metadata().unwrap().len(), 1 << 20);
        let mut bytes = [1; 3];
        file.read_exact_at(&mut bytes, 65535).unwrap();
        assert_eq!(bytes, [7, 0, 0]);
        assert_eq!(next_data(file, 65536).unwrap(), Some(65536 + 131_072));
        punch(file, 0, 1 << 20).unwrap();
        assert_eq!(next_data(file, 0).unwrap(), None);
        assert!(punch(file, u64::MAX, 1).is_err());
    }
}
