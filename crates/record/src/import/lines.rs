//! Lines of a text in bounded memory.

use std::io::{self, BufRead, BufReader, Read};

/// Longest line that is looked at; longer ones are reported as such and passed over.
const MAX_LINE: usize = 16 << 10;

/// Yields lines with their numbers, counted from 1.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    input: BufReader<R>,
    line: Vec<u8>,
    number: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TextLine<'a> {
    /// Its text, without the line end. Bytes that are no UTF-8 are replaced.
    Text(std::borrow::Cow<'a, str>),
    /// It was too long.
    TooLong,
}

impl<R: Read> Lines<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input: BufReader::with_capacity(64 << 10, input), line: Vec::new(), number: 0 }
    }

    /// The next line and its number.
    pub(crate) fn next(&mut self) -> io::Result<Option<(u64, TextLine<'_>)>> {
        self.line.clear();
        let mut got = 0usize;
        loop {
            let available = match self.input.fill_buf() {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            if available.is_empty() {
                break;
            }
            let end = available.iter().position(|&b| b == b'\n');
            let take = end.map_or(available.len(), |e| e + 1);
            let room = MAX_LINE.saturating_sub(self.line.len());
            self.line.extend_from_slice(&available[..take.min(room)]);
            self.input.consume(take);
            got = got.saturating_add(take);
            if end.is_some() {
                break;
            }
        }
        if got == 0 {
            return Ok(None);
        }
        self.number += 1;
        if got > MAX_LINE {
            return Ok(Some((self.number, TextLine::TooLong)));
        }
        let text = String::from_utf8_lossy(self.line.trim_ascii_end());
        Ok(Some((self.number, TextLine::Text(text))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_passed_over() {
        let mut text = b"one\r\n".to_vec();
        text.extend(vec![b'x'; 200_000]);
        text.extend(b"\nthree");
        let mut lines = Lines::new(&text[..]);
        assert_eq!(lines.next().unwrap(), Some((1, TextLine::Text("one".into()))));
        assert_eq!(lines.next().unwrap(), Some((2, TextLine::TooLong)));
        assert_eq!(lines.next().unwrap(), Some((3, TextLine::Text("three".into()))));
        assert_eq!(lines.next().unwrap(), None);
    }
}
