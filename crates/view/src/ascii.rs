//! Text for terminals that show ASCII only.

use std::io::{self, Write};

/// The ASCII character that stands for `c`: one for one, so that columns stay where they are.
pub fn ascii(c: char) -> char {
    match c {
        _ if c.is_ascii() => c,
        '│' | '┊' => '|',
        '─' | '–' | '—' | '−' => '-',
        '└' | '┬' => '+',
        '≈' | '…' => '~',
        '·' => '.',
        '█' | '▀' | '▄' => '#',
        '▁'..='▃' => '_',
        '▅'..='▇' => '=',
        _ => '?',
    }
}

/// Writes UTF-8 text as ASCII. Bytes that are no UTF-8 become `?`.
#[derive(Debug)]
pub struct AsciiWriter<W> {
    inner: W,
    /// The begin of a character whose other bytes have not come yet.
    begun: Vec<u8>,
}

impl<W: Write> AsciiWriter<W> {
    pub const fn new(inner: W) -> Self {
        Self { inner, begun: Vec::new() }
    }
}

impl<W: Write> Write for AsciiWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.begun.extend_from_slice(bytes);
        let mut out = String::with_capacity(self.begun.len());
        let mut rest = self.begun.as_slice();
        for chunk in rest.utf8_chunks() {
            out.extend(chunk.valid().chars().map(ascii));
            rest = &rest[chunk.valid().len()..];
            let invalid = chunk.invalid();
            // At the end it may be a character whose other bytes are still to come.
            let cut_short =
                invalid.len() == rest.len() && std::str::from_utf8(invalid).is_err_and(|e| e.error_len().is_none());
            if !invalid.is_empty() && !cut_short {
                out.push('?');
                rest = &rest[invalid.len()..];
            }
        }
        self.begun = rest.to_vec();
        self.inner.write_all(out.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(parts: &[&[u8]]) -> String {
        let mut out = Vec::new();
        let mut writer = AsciiWriter::new(&mut out);
        parts.iter().for_each(|p| writer.write_all(p).unwrap());
        writer.flush().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn one_character_for_each_wherever_writes_are_cut() {
        let text = "anon │▀█ 1 … 100 Hz ≈ gap ┊ 漢\n";
        let expected = "anon |## 1 ~ 100 Hz ~ gap | ?\n";
        for cut in 0..text.len() {
            let (a, b) = text.as_bytes().split_at(cut);
            assert_eq!(written(&[a, b]), expected, "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(written(&bytes), expected);
        assert_eq!(written(&[b"a\xffb\xe2\x82", b"c"]), "a?b?c");
    }
}
