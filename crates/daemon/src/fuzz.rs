//! Bodies for fuzzers and damage tests: each takes bytes from anywhere and panics if a promise of the readers is broken.

use crate::http::{MOST_BODY, parse_response, read_request};
use std::io::{self, Read, Write};

/// A peer that sends some bytes a piece at a time.
struct Peer<'a> {
    unread: &'a [u8],
    piece: usize,
}

impl Read for Peer<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.piece.min(out.len());
        self.unread.read(&mut out[..n])
    }
}

impl Write for Peer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads bytes as a request that comes in pieces, of which the first byte says how long they are, and as an answer.
pub fn http(bytes: &[u8]) {
    let (&first, bytes) = bytes.split_first().unwrap_or((&0, &[]));
    if let Ok(request) = read_request(&mut Peer { unread: bytes, piece: usize::from(first) + 1 }) {
        assert!(request.body.len() <= MOST_BODY && request.body.len() <= bytes.len());
        assert!(!request.path.contains(['?', '#']), "{request:?}");
    }
    if let Ok((_, body)) = parse_response(bytes) {
        // It begins where the headers end, and the first empty line is that end.
        let head = &bytes[..body.as_ptr() as usize - bytes.as_ptr() as usize];
        assert!([&b"\n\n"[..], b"\n\r\n"].iter().any(|end| head.ends_with(end)), "{head:?}");
    }
}
