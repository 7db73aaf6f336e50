//! What is wrong with a scheme file, and where.

use std::fmt;
use std::ops::Range;

/// Why a scheme file is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileError {
    /// The file.
    pub file: String,
    /// The line, from 1, where it is known.
    pub line: Option<usize>,
    /// The key, where it is known.
    pub key: Option<String>,
    /// What is wrong, and what would be right.
    pub why: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        if let Some(key) = &self.key {
            write!(f, ", {key}")?;
        }
        write!(f, ": {}", self.why)
    }
}

impl std::error::Error for FileError {}

impl FileError {
    /// An error about a whole file.
    pub fn of(file: &str, why: impl fmt::Display) -> Self {
        Self { file: file.to_owned(), line: None, key: None, why: why.to_string() }
    }

    /// The same about a line of it.
    pub fn at_line(self, line: Option<usize>) -> Self {
        Self { line, ..self }
    }

    /// The same about a key in it.
    pub fn at_key(self, key: &str) -> Self {
        Self { key: Some(key.to_owned()), ..self }
    }
}

/// A file being read.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// Its name, for messages.
    pub name: &'a str,
    /// What is in it.
    pub text: &'a str,
}

impl Source<'_> {
    /// An error about a key whose value stands at `span`.
    pub fn fault(&self, span: &Range<usize>, key: &str, why: impl fmt::Display) -> FileError {
        FileError::of(self.name, why).at_line(Some(self.line_of(span.start))).at_key(key)
    }

    /// The line, from 1, that the byte at `offset` is in.
    pub fn line_of(&self, offset: usize) -> usize {
        self.text.bytes().take(offset).filter(|&b| b == b'\n').count() + 1
    }
}
