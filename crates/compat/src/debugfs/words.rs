//! Numbers and words in what was written, read as the kernel's `sscanf` reads them.

use std::str::FromStr;

/// What is left to read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words<'a>(pub(super) &'a str);

impl<'a> Words<'a> {
    /// The next decimal number; `None`, and nothing is taken, where none follows or it does not fit.
    pub(super) fn number<T: FromStr>(&mut self) -> Option<T> {
        let text = self.0.trim_ascii_start();
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let number = text[..end].parse().ok()?;
        self.0 = &text[end..];
        Some(number)
    }

    /// The next word; `None` where there is none.
    pub(super) fn word(&mut self) -> Option<&'a str> {
        let text = self.0.trim_ascii_start();
        let end = text.find(|c: char| c.is_ascii_whitespace()).unwrap_or(text.len());
        self.0 = &text[end..];
        Some(&text[..end]).filter(|word| !word.is_empty())
    }

    /// As many numbers as there are.
    pub(super) fn numbers(&mut self) -> Vec<u64> {
        std::iter::from_fn(|| self.number()).collect()
    }

    /// Whether only white space is left.
    pub(super) fn is_empty(&self) -> bool {
        self.0.trim_ascii().is_empty()
    }
}
