//! Schemes in a TOML file. docs/schemes.md lists every key.

mod filter;
mod goal;
mod scheme;
mod settings;
mod tables;
mod write;

pub use write::to_toml;

use super::fault::{FileError, Source};
use super::parsed::Parsed;
use tables::FileTable;

/// Reads a file's text. `name` is what errors call it.
pub fn parse(name: &str, text: &str) -> Result<Parsed, FileError> {
    let source = Source { name, text };
    let file: FileTable = toml::from_str(text).map_err(|e| syntax(source, &e))?;
    Ok(Parsed {
        schemes: file.scheme.iter().map(|table| scheme::read(source, table)).collect::<Result<_, _>>()?,
        monitor: file.monitor.as_ref().map(|table| settings::monitor(source, table)).transpose()?,
        target: file.target.as_ref().map(|table| settings::target(source, table)).transpose()?,
    })
}

/// An error of the TOML reader, with the line as it is written: that names the key.
fn syntax(source: Source, error: &toml::de::Error) -> FileError {
    let line = error.span().map(|span| source.line_of(span.start));
    let written = line.and_then(|n| source.text.lines().nth(n - 1)).map(str::trim).filter(|t| !t.is_empty());
    let why = match written {
        Some(written) => format!("{} (in '{written}')", error.message().trim()),
        None => error.message().trim().to_owned(),
    };
    FileError::of(source.name, why).at_line(line)
}

#[cfg(test)]
mod tests;
