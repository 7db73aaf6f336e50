//! Numbers of variable length: seven bits a byte, lowest first, the high bit set on all but the last byte.
//! Signed numbers are zigzag-coded first (0, -1, 1, -2, … become 0, 1, 2, 3, …).

/// Why a payload cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error("it ends too early")]
    End,
    #[error("a number is too large")]
    Number,
    #[error("a text is not UTF-8")]
    Text,
    #[error("regions or times are not in order")]
    Order,
    #[error("a limit is exceeded")]
    Limit,
    #[error("it refers to a snapshot that is not there")]
    Reference,
    #[error("it uses a feature of a later version")]
    Unknown,
}

/// The low 8 bits.
const fn low8(value: u64) -> u8 {
    value.to_le_bytes()[0]
}

/// The low 32 bits.
pub(crate) const fn low32(value: u64) -> u32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// Appends `value`.
#[inline]
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(low8(value) | 0x80);
        value >>= 7;
    }
    out.push(low8(value));
}

/// Appends `value - base`, zigzag-coded; wraps, so every pair of numbers can be written.
pub(crate) fn put_delta(out: &mut Vec<u8>, value: u64, base: u64) {
    put(out, zigzag(value.wrapping_sub(base).cast_signed()));
}

/// Appends a text: length in bytes, then UTF-8.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Zigzag code of a signed number.
pub(crate) const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

/// The signed number of a zigzag code.
pub(crate) const fn unzigzag(code: u64) -> i64 {
    (code >> 1).cast_signed() ^ -((code & 1).cast_signed())
}

/// Reads from a slice and moves on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) const fn remaining(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn byte(&mut self) -> Result<u8, DecodeError> {
        let (&first, rest) = self.rest.split_first().ok_or(DecodeError::End)?;
        self.rest = rest;
        Ok(first)
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or(DecodeError::End)?;
        self.rest = rest;
        Ok(head)
    }

    #[inline]
    pub(crate) fn number(&mut self) -> Result<u64, DecodeError> {
        // Nearly all numbers are small.
        if let Some((&first, rest)) = self.rest.split_first()
            && first < 0x80
        {
            self.rest = rest;
            return Ok(u64::from(first));
        }
        self.long_number()
    }

    fn long_number(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(DecodeError::Number);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::Number)
    }

    pub(crate) fn number32(&mut self) -> Result<u32, DecodeError> {
        u32::try_from(self.number()?).map_err(|_| DecodeError::Number)
    }

    /// A count of things; `limit` is the most that is believed.
    pub(crate) fn count(&mut self, limit: usize) -> Result<usize, DecodeError> {
        usize::try_from(self.number()?).ok().filter(|&n| n <= limit).ok_or(DecodeError::Limit)
    }

    #[inline]
    pub(crate) fn delta(&mut self, base: u64) -> Result<u64, DecodeError> {
        Ok(base.wrapping_add(unzigzag(self.number()?).cast_unsigned()))
    }

    #[inline]
    pub(crate) fn delta32(&mut self, base: u32) -> Result<u32, DecodeError> {
        u32::try_from(self.delta(u64::from(base))?).map_err(|_| DecodeError::Number)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, DecodeError> {
        let len = self.count(self.rest.len())?;
        std::str::from_utf8(self.bytes(len)?).map_err(|_| DecodeError::Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(value: u64, base: u64) {
            let mut out = Vec::new();
            put(&mut out, value);
            put_delta(&mut out, value, base);
            let mut c = Cursor::new(&out);
            prop_assert_eq!(c.number(), Ok(value));
            prop_assert_eq!(c.delta(base), Ok(value));
            prop_assert_eq!(c.remaining(), 0);
        }
    }

    #[test]
    fn overlong_numbers_are_refused() {
        assert_eq!(Cursor::new(&[0xff; 11]).number(), Err(DecodeError::Number));
        assert_eq!(Cursor::new(&[0x80; 3]).number(), Err(DecodeError::End));
        let mut two_to_the_64th = [0x80; 10];
        two_to_the_64th[9] = 2;
        assert_eq!(Cursor::new(&two_to_the_64th).number(), Err(DecodeError::Number));
    }
}
