//! Frames: what a message looks like on the wire. All numbers are little-endian.
//!
//! | offset | bytes | what |
//! |---:|---:|---|
//! | 0 | 4 | [`MAGIC`] |
//! | 4 | 1 | form of the frame: [`PLAIN`], or [`SEALED`] where both sides have [proved](super::auth) that they know a key |
//! | 5 | 1 | kind of the message |
//! | 6 | 2 | length of the payload, at most [`MOST_PAYLOAD`] |
//! | 8 | 4 | CRC-32 of the 8 bytes before: garbage is recognized before it is waited for |
//! | 12 | n | payload |
//! | 12+n | 4 or 16 | CRC-32 of all bytes before, or the [seal](super::auth) |

use super::auth::{Seal, TAG};
use super::error::DecodeError;
use super::limits::MOST_PAYLOAD;

/// How frames begin.
pub const MAGIC: [u8; 4] = *b"IsoH";
/// The form of frames that end with a checksum.
pub const PLAIN: u8 = 1;
/// The form of frames that end with a seal.
pub const SEALED: u8 = 2;
/// Bytes of a header.
pub const HEADER: usize = 12;
/// Bytes of the checksum at the end of a plain frame.
const CHECKSUM: usize = 4;
/// Bytes of a frame, at most.
pub(crate) const MOST_FRAME: usize = HEADER + MOST_PAYLOAD + TAG;

/// What a header says.
#[derive(Debug)]
struct Header {
    sealed: bool,
    kind: u8,
    /// Bytes of the payload.
    len: usize,
}

/// The header at the beginning of `bytes`; `None` while there are too few bytes to tell.
fn header(bytes: &[u8]) -> Result<Option<Header>, DecodeError> {
    // What is there already is looked at, so that garbage shorter than a header is recognized at once.
    let some = bytes.len().min(MAGIC.len());
    if bytes[..some] != MAGIC[..some] {
        return Err(DecodeError::Magic);
    }
    let Some(head) = bytes.get(..HEADER) else { return Ok(None) };
    if crc32fast::hash(&head[..8]) != u32_at(head, 8) {
        return Err(DecodeError::Header);
    }
    let sealed = match head[4] {
        PLAIN => false,
        SEALED => true,
        form => return Err(DecodeError::Form(form)),
    };
    let len = u16::from_le_bytes([head[6], head[7]]);
    if usize::from(len) > MOST_PAYLOAD {
        return Err(DecodeError::TooLong(u32::from(len)));
    }
    Ok(Some(Header { sealed, kind: head[5], len: usize::from(len) }))
}

/// A whole frame at the beginning of some bytes.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    /// Kind of the message.
    pub(super) kind: u8,
    pub(super) payload: &'a [u8],
    /// Bytes of the frame, all of it.
    pub(super) len: usize,
    pub(super) sealed: bool,
}

/// The first frame of `bytes`; `None` while it is not all there. With a `seal` frames must have the next one, but for
/// those of kind `plain_kind`, if given.
pub(super) fn split<'a>(
    bytes: &'a [u8],
    seal: Option<&Seal>,
    plain_kind: Option<u8>,
) -> Result<Option<Frame<'a>>, DecodeError> {
    let Some(Header { sealed, kind, len }) = header(bytes)? else { return Ok(None) };
    // Recognized by the header alone: nobody is listened to for longer than that.
    let seal = match (seal, sealed) {
        (Some(seal), true) => Some(seal),
        (Some(_), false) if plain_kind == Some(kind) => None,
        (Some(_), false) => return Err(DecodeError::Unsealed),
        (None, false) => None,
        (None, true) => return Err(DecodeError::Form(SEALED)),
    };
    let whole = HEADER + len + if sealed { TAG } else { CHECKSUM };
    let Some(frame) = bytes.get(..whole) else { return Ok(None) };
    let (content, trailer) = frame.split_at(HEADER + len);
    match seal {
        Some(seal) if !seal.fits(content, trailer) => return Err(DecodeError::Forged),
        None if crc32fast::hash(content) != u32_at(trailer, 0) => return Err(DecodeError::Checksum),
        _ => {}
    }
    Ok(Some(Frame { kind, payload: &content[HEADER..], len: whole, sealed }))
}

/// A frame, with the next of the seals if there are any. The payload must not be longer than [`MOST_PAYLOAD`], which
/// the limits of messages see to.
pub(super) fn join(kind: u8, payload: &[u8], seal: Option<&mut Seal>) -> Vec<u8> {
    debug_assert!(payload.len() <= MOST_PAYLOAD);
    let mut frame = Vec::with_capacity(HEADER + payload.len() + TAG);
    frame.extend_from_slice(&MAGIC);
    frame.extend_from_slice(&[if seal.is_some() { SEALED } else { PLAIN }, kind]);
    frame.extend_from_slice(&(payload.len() as u16).to_le_bytes());
    frame.extend_from_slice(&crc32fast::hash(&frame).to_le_bytes());
    frame.extend_from_slice(payload);
    match seal {
        Some(seal) => frame.extend_from_slice(&seal.make(&frame)),
        None => frame.extend_from_slice(&crc32fast::hash(&frame).to_le_bytes()),
    }
    frame
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
