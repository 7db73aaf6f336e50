//! Files of the kernel's that are arrays of 64-bit words of the machine's byte order: pagemap, kpageflags, the bitmap of
//! idle pages.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Fills `out` with the words from word `first` on; gives how many there were before the end of the file.
pub(crate) fn read_words(file: &File, first: u64, out: &mut [u64]) -> io::Result<usize> {
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
