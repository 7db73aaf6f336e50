//! What readers of traces share: the names of places in errors, and lines of bounded length.

use super::TraceError;
use std::io::{self, BufRead, Read};

/// What errors call a trace.
pub(super) struct Source<'a> {
    pub(super) origin: &'a str,
    io_error: &'a dyn Fn(io::Error) -> TraceError,
}

impl<'a> Source<'a> {
    pub(super) fn new(origin: &'a str, io_error: &'a dyn Fn(io::Error) -> TraceError) -> Self {
        Self { origin, io_error }
    }

    pub(super) fn io(&self, error: io::Error) -> TraceError {
        (self.io_error)(error)
    }

    pub(super) fn line(&self, line: u64, why: impl Into<String>) -> TraceError {
        TraceError::Line { origin: self.origin.to_owned(), line, why: why.into() }
    }

    pub(super) fn byte(&self, offset: u64, why: impl Into<String>) -> TraceError {
        TraceError::Byte { origin: self.origin.to_owned(), offset, why: why.into() }
    }
}

/// Longest line of a text trace.
const LONGEST_LINE: usize = 4096;

/// Calls `each` with every line of a text and its number, from 1, without the end of the line, until it says `false`.
pub(super) fn lines(
    stream: &mut dyn BufRead,
    source: &Source<'_>,
    mut each: impl FnMut(u64, &[u8]) -> Result<bool, TraceError>,
) -> Result<(), TraceError> {
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let mut limited = (&mut *stream).take(LONGEST_LINE as u64 + 1);
        if limited.read_until(b'\n', &mut line).map_err(|e| source.io(e))? == 0 {
            break;
        }
        if line.len() > LONGEST_LINE {
            return Err(source.line(number, format!("longer than {LONGEST_LINE} bytes; is this a text?")));
        }
        if !each(number, line.trim_ascii_end())? {
            break;
        }
    }
    Ok(())
}
