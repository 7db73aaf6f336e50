//! What is wrong with a scheme file, and where.

use std::fmt;

/// Why a scheme file is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileError {
    file: String,
    /// The line, from 1, where it is known.
    line: Option<usize>,
    /// The key, where it is known.
    key: Option<String>,
    /// What is wrong, and what would be right.
    why: String,
}

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
