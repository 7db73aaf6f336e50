//! Numbers, texts and ranges in payloads.

use super::error::{DecodeError, EncodeError};
use super::limits::MOST_TEXT;
use isotherm_core::addr::AddrRange;

/// Reads a payload from its beginning to its end.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    kind: u8,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) const fn new(kind: u8, payload: &'a [u8]) -> Self {
        Self { kind, rest: payload }
    }

    pub(super) fn bytes(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let Some((taken, rest)) = self.rest.split_at_checked(len) else { return Err(DecodeError::Short(self.kind)) };
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N)?);
        Ok(array)
    }

    pub(super) fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_le_bytes)
    }

    /// An id, a nonce or a tag.
    pub(super) fn id(&mut self) -> Result<[u8; 16], DecodeError> {
        self.array()
    }

    /// A number of things, at most `most`; that many are then known to be small enough to make room for.
    pub(super) fn count(&mut self, most: usize, refusal: &'static str) -> Result<usize, DecodeError> {
        let count = usize::from(self.u16()?);
        if count > most { Err(DecodeError::Value(refusal)) } else { Ok(count) }
    }

    /// A range that is not empty.
    pub(super) fn range(&mut self) -> Result<AddrRange, DecodeError> {
        let (start, end) = (self.u64()?, self.u64()?);
        if start < end {
            Ok(AddrRange { start, end })
        } else {
            Err(DecodeError::Value("a range ends before it begins"))
        }
    }

    pub(super) fn text(&mut self) -> Result<String, DecodeError> {
        let len = self.count(MOST_TEXT, "a text is too long")?;
        let bytes = self.bytes(len)?;
        // It is shown on terminals.
        if !bytes.iter().all(|b| printable(*b)) {
            return Err(DecodeError::Value("a text holds more than printable ASCII"));
        }
        Ok(bytes.iter().map(|b| char::from(*b)).collect())
    }

    /// The payload must be used up.
    pub(super) fn end(self) -> Result<(), DecodeError> {
        match self.rest.len() {
            0 => Ok(()),
            more => Err(DecodeError::Long(self.kind, more)),
        }
    }
}

const fn printable(byte: u8) -> bool {
    matches!(byte, b' '..=b'~')
}

#[derive(Debug, Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(super) fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    pub(super) fn count(&mut self, what: &'static str, count: usize, most: usize) -> Result<(), EncodeError> {
        match u16::try_from(count) {
            Ok(short) if count <= most => {
                self.u16(short);
                Ok(())
            }
            _ => Err(EncodeError::TooMany { what, count, most }),
        }
    }

    pub(super) fn range(&mut self, range: &AddrRange) -> Result<(), EncodeError> {
        if range.start >= range.end {
            return Err(EncodeError::Value("a range ends before it begins"));
        }
        self.u64(range.start);
        self.u64(range.end);
        Ok(())
    }

    /// A text, made fit: what is not printable becomes `?`, what is too long is cut.
    pub(super) fn text(&mut self, text: &str) {
        let fit: Vec<u8> = text
            .chars()
            .take(MOST_TEXT)
            .map(|c| u8::try_from(c).ok().filter(|b| printable(*b)).unwrap_or(b'?'))
            .collect();
        self.u16(fit.len() as u16);
        self.bytes(&fit);
    }
}
