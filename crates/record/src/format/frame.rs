//! The file header and the headers of frames.

use super::varint::DecodeError;
use super::{HEADER_LEN, MAGIC, MAX_PAYLOAD, VERSION};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// First bytes of a frame.
pub(crate) const MARKER: [u8; 4] = *b"\xf5ISF";
/// Bytes of a frame's header.
pub(crate) const FRAME_HEADER_LEN: usize = 32;

/// Set where the payload is deflated; else it is stored as it is.
const DEFLATED: u8 = 1;

/// What a frame is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// Events.
    Events,
    /// Events that repeat what is in force (run, targets, mappings), for readers that lost frames.
    Context,
    /// The last frame; its payload is empty.
    End,
    /// Of a later version; to be passed over.
    Other(u8),
}

impl FrameKind {
    const fn code(self) -> u8 {
        match self {
            Self::Events => 1,
            Self::Context => 2,
            Self::End => 3,
            Self::Other(code) => code,
        }
    }

    const fn of(code: u8) -> Self {
        match code {
            1 => Self::Events,
            2 => Self::Context,
            3 => Self::End,
            code => Self::Other(code),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) kind: FrameKind,
    deflated: bool,
    /// Bytes of the payload in the file.
    pub(crate) stored_len: u32,
    /// Bytes of the payload unpacked.
    raw_len: u32,
    /// Number of events in the payload.
    pub(crate) events: u32,
    /// Number of the frame since the begin of the record; goes on over the parts of a rotated record.
    pub(crate) sequence: u32,
    /// Checksum of the payload as stored.
    crc: u32,
}

impl FrameHeader {
    fn to_bytes(self) -> [u8; FRAME_HEADER_LEN] {
        let mut b = [0; FRAME_HEADER_LEN];
        b[..4].copy_from_slice(&MARKER);
        b[4] = self.kind.code();
        b[5] = if self.deflated { DEFLATED } else { 0 };
        for (at, value) in
            [(8, self.stored_len), (12, self.raw_len), (16, self.events), (20, self.sequence), (24, self.crc)]
        {
            b[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        let sum = crc32fast::hash(&b[..28]);
        b[28..].copy_from_slice(&sum.to_le_bytes());
        b
    }

    /// The header in `b`; `None` if the marker or the checksum is wrong, or a length is beyond the limits.
    pub(crate) fn parse(b: &[u8; FRAME_HEADER_LEN]) -> Option<Self> {
        let number = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        if b[..4] != MARKER || number(28) != crc32fast::hash(&b[..28]) {
            return None;
        }
        let header = Self {
            kind: FrameKind::of(b[4]),
            deflated: b[5] & DEFLATED != 0,
            stored_len: number(8),
            raw_len: number(12),
            events: number(16),
            sequence: number(20),
            crc: number(24),
        };
        let largest = header.stored_len.max(header.raw_len);
        (usize::try_from(largest).is_ok_and(|len| len <= MAX_PAYLOAD)).then_some(header)
    }

    /// Whether `stored` is the payload that was written.
    pub(crate) fn matches(&self, stored: &[u8]) -> bool {
        stored.len() as u64 == u64::from(self.stored_len) && crc32fast::hash(stored) == self.crc
    }

    /// Unpacks a payload into `raw`, which never grows beyond the length that the header tells.
    pub(crate) fn unpack(&self, stored: &[u8], raw: &mut Vec<u8>) -> Result<(), DecodeError> {
        raw.clear();
        let len = self.raw_len as usize;
        if !self.deflated {
            raw.extend_from_slice(stored);
            return if raw.len() == len { Ok(()) } else { Err(DecodeError::End) };
        }
        // Deflate reaches a ratio of 1032 at most, so a short payload cannot ask for much.
        raw.reserve(len.min(stored.len().saturating_mul(1032)));
        let mut inflate = Decompress::new(false);
        while raw.len() < len {
            if raw.len() == raw.capacity() {
                return Err(DecodeError::End);
            }
            let before = (inflate.total_in(), raw.len());
            let status = inflate
                .decompress_vec(
                    &stored[usize::try_from(inflate.total_in()).unwrap_or(usize::MAX)..],
                    raw,
                    FlushDecompress::None,
                )
                .map_err(|_| DecodeError::End)?;
            if status == Status::StreamEnd || before == (inflate.total_in(), raw.len()) {
                break;
            }
        }
        if raw.len() == len { Ok(()) } else { Err(DecodeError::End) }
    }
}

/// Makes frames. Its buffers are used again, since frames are made all the time.
pub(crate) struct Packer {
    deflate: Compress,
    packed: Vec<u8>,
    frame: Vec<u8>,
}

/// A length as headers have it. What goes into a frame is cut off long before 4 GiB.
pub(crate) fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("frames are bounded")
}

impl Packer {
    /// A packer of a deflate level from 0 to 9.
    pub(crate) fn new(level: u32) -> Self {
        let deflate = Compress::new(Compression::new(level.min(9)), false);
        Self { deflate, packed: Vec::new(), frame: Vec::new() }
    }

    /// The bytes of a whole frame.
    pub(crate) fn pack(&mut self, kind: FrameKind, raw: &[u8], events: u32, sequence: u32) -> &[u8] {
        self.deflate.reset();
        self.packed.clear();
        // Output that does not fit here would be longer than the input, which is then stored as it is.
        self.packed.reserve_exact(raw.len());
        let done = self.deflate.compress_vec(raw, &mut self.packed, FlushCompress::Finish);
        let deflated = matches!(done, Ok(Status::StreamEnd)) && self.packed.len() < raw.len();
        let stored = if deflated { &self.packed[..] } else { raw };
        let header = FrameHeader {
            kind,
            deflated,
            stored_len: length(stored),
            raw_len: length(raw),
            events,
            sequence,
            crc: crc32fast::hash(stored),
        };
        self.frame.clear();
        self.frame.extend_from_slice(&header.to_bytes());
        self.frame.extend_from_slice(stored);
        &self.frame
    }
}

impl std::fmt::Debug for Packer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packer").finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileHeader {
    pub(crate) version: u16,
    /// Number of this part of the record.
    pub(crate) part: u32,
    /// A random number that all parts of a record share.
    pub(crate) id: u64,
}

impl FileHeader {
    pub(crate) fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut b = [0; HEADER_LEN];
        b[..8].copy_from_slice(&MAGIC);
        b[8..10].copy_from_slice(&self.version.to_le_bytes());
        b[12..16].copy_from_slice(&self.part.to_le_bytes());
        b[16..24].copy_from_slice(&self.id.to_le_bytes());
        let sum = crc32fast::hash(&b[..24]);
        b[24..].copy_from_slice(&sum.to_le_bytes());
        b
    }

    /// `None` if the magic or the checksum is wrong.
    pub(crate) fn parse(b: &[u8; HEADER_LEN]) -> Option<Self> {
        let number = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        (b[..8] == MAGIC && number(24) == crc32fast::hash(&b[..24])).then(|| Self {
            version: u16::from_le_bytes([b[8], b[9]]),
            part: number(12),
            id: u64::from(number(16)) | u64::from(number(20)) << 32,
        })
    }
}

/// A record of one frame that holds `raw`, whatever it is, as if it were many events.
pub(crate) fn wrap(raw: &[u8]) -> Vec<u8> {
    let mut out = FileHeader { version: VERSION, part: 0, id: 0 }.to_bytes().to_vec();
    out.extend_from_slice(Packer::new(1).pack(FrameKind::Events, raw, u32::MAX, 0));
    out
}
