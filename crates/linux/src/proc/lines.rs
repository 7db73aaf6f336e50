//! Reading files of /proc: whole, or line by line with one buffer for all reads.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read};

/// The kernel hands out such files in pieces of one page or more; a few of them at a time is plenty.
const CHUNK: usize = 16 << 10;

thread_local! {
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Calls `read` with the thread's buffer: one for all processes, of which there may be thousands.
pub(crate) fn with_buffer<T>(read: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    let mut buf = BUFFER.take();
    let result = read(&mut buf);
    BUFFER.set(buf);
    result
}

/// Appends the content of a file whose size the kernel does not know beforehand. `File` asks for it, and for the place in
/// the file, which costs about as much as reading a line.
pub(crate) fn read_unsized(file: &File, buf: &mut Vec<u8>) -> io::Result<()> {
    // Most files of /proc are shorter.
    buf.reserve(512);
    file.take(u64::MAX).read_to_end(buf).map(drop)
}

/// Calls `line` for every line of `reader` (without its newline), reusing `buf`. Returns the number of bytes read.
pub(crate) fn for_each_line(reader: &mut impl Read, buf: &mut Vec<u8>, mut line: impl FnMut(&[u8])) -> io::Result<u64> {
    let (mut filled, mut total) = (0, 0);
    loop {
        if buf.len() < filled + CHUNK {
            buf.resize(filled + CHUNK, 0);
        }
        let got = match reader.read(&mut buf[filled..]) {
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        if got == 0 {
            break;
        }
        total += got as u64;
        filled += got;
        let Some(last) = buf[filled - got..filled].iter().rposition(|&b| b == b'\n') else { continue };
        let last = filled - got + last;
        buf[..last].split(|&b| b == b'\n').for_each(&mut line);
        buf.copy_within(last + 1..filled, 0);
        filled -= last + 1;
    }
    if filled > 0 {
        line(&buf[..filled]);
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Hands out its bytes in pieces of the given sizes.
    struct Pieces<'a>(&'a [u8], Vec<usize>);

    impl Read for Pieces<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let want = self.1.pop().unwrap_or(7).max(1);
            let n = want.min(self.0.len()).min(out.len());
            out[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_how_the_bytes_arrive(
            lines in prop::collection::vec("[a-z ]{0,12}", 0..40),
            ends in any::<bool>(),
            sizes in prop::collection::vec(1usize..30, 0..40),
        ) {
            let mut text = lines.join("\n").into_bytes();
            if ends && !text.is_empty() {
                text.push(b'\n');
            }
            let mut want: Vec<&[u8]> = text.split(|&b| b == b'\n').collect();
            if want.last().is_some_and(|l| l.is_empty()) {
                want.pop();
            }
            let mut got = Vec::new();
            let total = for_each_line(&mut Pieces(&text, sizes), &mut Vec::new(), |l| got.push(l.to_vec())).unwrap();
            prop_assert_eq!(total, text.len() as u64);
            prop_assert_eq!(got, want.iter().map(|l| l.to_vec()).collect::<Vec<_>>());
        }
    }
}
