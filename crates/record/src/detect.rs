//! The format of a record, recognized by its content.

use crate::error::ReadError;
use crate::format::frame::FrameHeader;
use crate::format::{HEADER_LEN, MAGIC};
use crate::import::binary::{self, BINARY_MAGIC};
use crate::import::{csv, perf_script};
use crate::input::{Input, PREFIX_LEN};
use crate::kind::Format;
use std::io::Read;

impl Input {
    /// The format, recognized by content.
    pub fn format(&self) -> Result<Format, ReadError> {
        of_content(self.prefix(), &|looks_like| ReadError::Foreign { origin: self.origin().to_owned(), looks_like })
    }
}

/// The format of a file that begins with `prefix`, or what it looks like instead.
fn of_content(prefix: &[u8], foreign: &dyn Fn(String) -> ReadError) -> Result<Format, ReadError> {
    if prefix.starts_with(&MAGIC) || iso_frame_follows(prefix) {
        return Ok(Format::Iso);
    }
    if let Some(rest) = prefix.strip_prefix(BINARY_MAGIC) {
        return match rest.first_chunk().map(|b| i32::from_le_bytes(*b)) {
            Some(0) => Ok(Format::BinaryV0),
            Some(1) => Ok(Format::BinaryV1),
            Some(2) => Ok(Format::BinaryV2),
            Some(v) => {
                Err(foreign(format!("an old binary DAMON record of unknown version {v} (0, 1 and 2 are known)")))
            }
            None => Err(foreign("an old binary DAMON record cut off in its header".into())),
        };
    }
    // Before the short magics: it begins with a time, whose low bytes may look like any of them.
    if binary::looks_plausible(prefix) {
        return Ok(Format::BinaryV0);
    }
    if let Some(what) = known_foreigner(prefix) {
        return Err(foreign(what.into()));
    }
    if let Some(first) = first_unpacked(prefix) {
        return if matches!(first, b'[' | b'{') {
            Ok(Format::JsonCompressed)
        } else {
            Err(foreign("zlib-compressed data that is not JSON".into()))
        };
    }
    if let Some(format) = of_text(prefix) {
        return Ok(format);
    }
    Err(foreign(match prefix {
        [] => "it is empty".into(),
        _ if prefix.iter().all(|b| b.is_ascii_graphic() || b.is_ascii_whitespace()) => {
            "a text without damon_aggregated events, and neither JSON nor CSV with our header".into()
        }
        _ => "unknown binary data".into(),
    }))
}

/// Whether the bytes behind a damaged file header are a frame of ours.
fn iso_frame_follows(prefix: &[u8]) -> bool {
    prefix.get(HEADER_LEN..).and_then(|b| b.first_chunk()).and_then(FrameHeader::parse).is_some()
}

/// The first byte that is no blank of zlib-compressed data; `None` if `prefix` is not zlib (RFC 1950: method 8, and the
/// first two bytes are a multiple of 31).
fn first_unpacked(prefix: &[u8]) -> Option<u8> {
    let [cmf, flg, ..] = prefix else { return None };
    if cmf & 0x8f != 8 || !(u16::from(*cmf) << 8 | u16::from(*flg)).is_multiple_of(31) {
        return None;
    }
    let mut begin = [0; 64];
    let got = flate2::read::ZlibDecoder::new(prefix).read(&mut begin).ok()?;
    begin[..got].iter().copied().find(|b| !b.is_ascii_whitespace())
}

fn of_text(prefix: &[u8]) -> Option<Format> {
    let begin = prefix.trim_ascii_start();
    let contains = |needle: &[u8]| prefix.windows(needle.len()).any(|w| w == needle);
    if contains(b"damon_aggregated") {
        // JSON never holds the tracepoint's name outside of damo's newer event logs.
        return (!begin.starts_with(b"[") || !contains(b"\"snapshots\"")).then_some(Format::PerfScript);
    }
    if begin.starts_with(b"[") && begin[1..].trim_ascii_start().starts_with(b"{")
        || begin.starts_with(b"{")
        || begin.starts_with(b"[") && begin[1..].trim_ascii() == b"]"
    {
        return Some(Format::Json);
    }
    let line = begin.split(|&b| b == b'\n').next().unwrap_or_default();
    if csv::is_header(line) {
        return Some(Format::Csv);
    }
    // Other events come first; whether there is one of ours shows when it is read.
    (prefix.len() >= PREFIX_LEN && begins_with_an_event(begin)).then_some(Format::PerfScript)
}

/// Whether the first line of a text that is no comment is a tracepoint's.
fn begins_with_an_event(text: &[u8]) -> bool {
    let mut lines = text.split(|&b| b == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    let first = lines.find(|line| !line.starts_with(b"#"));
    first.and_then(|line| std::str::from_utf8(line).ok()).is_some_and(perf_script::is_event)
}

/// Names well-known formats that are no records.
fn known_foreigner(prefix: &[u8]) -> Option<&'static str> {
    const KNOWN: [(&[u8], &str); 13] = [
        (b"PERFILE2", "a perf.data file; run `perf script -i FILE > FILE.txt` and give that text"),
        (b"\x17\x08\x44tracing", "a trace-cmd file; run `trace-cmd report FILE > FILE.txt` and give that text"),
        (b"\x1f\x8b", "a gzip-compressed file; unpack it with gunzip first"),
        (b"\x28\xb5\x2f\xfd", "a zstd-compressed file; unpack it with unzstd first"),
        (b"\xfd7zXZ", "an xz-compressed file; unpack it with unxz first"),
        (b"BZh", "a bzip2-compressed file; unpack it with bunzip2 first"),
        (b"PK\x03\x04", "a zip archive"),
        (b"\x7fELF", "an ELF program or library"),
        (b"\x89PNG", "a PNG picture"),
        (b"%PDF", "a PDF document"),
        (b"<!DOCTYPE", "an HTML page"),
        (b"<html", "an HTML page"),
        (b"<svg", "an SVG picture"),
    ];
    KNOWN.iter().find(|(magic, _)| prefix.starts_with(magic)).map(|(_, what)| *what)
}
