//! Holes in files: made, and passed over.

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::{Errno, retry_on_intr};
use std::fs::File;
use std::io;

/// Gives the memory or the blocks of a part of the file back; it reads as zeros afterwards. The file keeps its size.
pub fn punch(file: &File, offset: u64, len: u64) -> io::Result<()> {
    within(offset)?;
    within(len)?;
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(retry_on_intr(|| fallocate(file, mode, offset, len))?)
}

/// The first byte at `offset` or later that is not in a hole; `None` if only holes follow.
pub fn next_data(file: &File, offset: u64) -> io::Result<Option<u64>> {
    within(offset)?;
    // The file's position changes, which nobody relies on: reads name their offsets.
    match seek(file, SeekFrom::Data(offset)) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NXIO) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Refuses what the kernel would take for a negative number.
fn within(value: u64) -> io::Result<()> {
    i64::try_from(value).map(drop).map_err(|_| io::ErrorKind::InvalidInput.into())
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
