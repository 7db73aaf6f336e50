//! Frames: what a message looks like on the wire. All numbers are little-endian.
//!
//! | offset | bytes | what |
//! |---:|---:|---|
//! | 0 | 4 | [`MAGIC`] |
//! | 4 | 1 | form of the frame, [`FORM`] |
//! | 5 | 1 | kind of the message |
//! | 6 | 2 | length of the payload, at most [`MOST_PAYLOAD`] |
//! | 8 | 4 | CRC-32 of the 8 bytes before: garbage is told before it is waited for |
//! | 12 | n | payload |
//! | 12+n | 4 | CRC-32 of all bytes before |

use super::error::DecodeError;
use super::limits::MOST_PAYLOAD;

/// How frames begin.
pub const MAGIC: [u8; 4] = *b"IsoH";
/// The only form that there is.
pub(crate) const FORM: u8 = 1;
/// Bytes of a header.
pub const HEADER: usize = 12;
/// Bytes of the checksum at the end.
pub(crate) const TRAILER: usize = 4;
/// Bytes of a frame, at most.
pub(crate) const MOST_FRAME: usize = HEADER + MOST_PAYLOAD + TRAILER;

/// Kind and payload length, if a valid header is at the beginning of `bytes`; `None` while there are too few bytes to
/// tell.
pub(super) fn header(bytes: &[u8]) -> Result<Option<(u8, usize)>, DecodeError> {
    // What is there already is looked at, so that garbage shorter than a header is told at once.
    let some = bytes.len().min(MAGIC.len());
    if bytes[..some] != MAGIC[..some] {
        return Err(DecodeError::Magic);
    }
    let Some(head) = bytes.get(..HEADER) else { return Ok(None) };
    if crc32fast::hash(&head[..8]) != u32_at(head, 8) {
        return Err(DecodeError::Header);
    }
    if head[4] != FORM {
        return Err(DecodeError::Form(head[4]));
    }
    let len = u16::from_le_bytes([head[6], head[7]]);
    if usize::from(len) > MOST_PAYLOAD {
        return Err(DecodeError::TooLong(u32::from(len)));
    }
    Ok(Some((head[5], usize::from(len))))
}

/// A whole frame at the beginning of some bytes.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    /// Kind of the message.
    pub(super) kind: u8,
    pub(super) payload: &'a [u8],
    /// Bytes of the frame, all of it.
    pub(super) len: usize,
}

/// The first frame of `bytes`; `None` while it is not all there.
pub(super) fn split(bytes: &[u8]) -> Result<Option<Frame<'_>>, DecodeError> {
    let Some((kind, len)) = header(bytes)? else { return Ok(None) };
    let whole = HEADER + len + TRAILER;
    let Some(frame) = bytes.get(..whole) else { return Ok(None) };
    if crc32fast::hash(&frame[..HEADER + len]) != u32_at(frame, HEADER + len) {
        return Err(DecodeError::Checksum);
    }
    Ok(Some(Frame { kind, payload: &frame[HEADER..HEADER + len], len: whole }))
}

/// A frame. The payload must not be longer than [`MOST_PAYLOAD`], which the limits of messages see to.
pub(super) fn join(kind: u8, payload: &[u8]) -> Vec<u8> {
    debug_assert!(payload.len() <= MOST_PAYLOAD);
    let mut frame = Vec::with_capacity(HEADER + payload.len() + TRAILER);
    frame.extend_from_slice(&MAGIC);
    frame.extend_from_slice(&[FORM, kind]);
    frame.extend_from_slice(&(payload.len() as u16).to_le_bytes());
    frame.extend_from_slice(&crc32fast::hash(&frame).to_le_bytes());
    frame.extend_from_slice(payload);
    frame.extend_from_slice(&crc32fast::hash(&frame).to_le_bytes());
    frame
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
