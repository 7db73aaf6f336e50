//! The formats by name and by file extension.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// A record format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Isotherm's own.
    Iso,
    /// damo's JSON.
    Json,
    /// damo's JSON, compressed with zlib; damo's default.
    JsonCompressed,
    /// Text of `perf script` with `damon_aggregated` events.
    PerfScript,
    /// Comma-separated values, a line per region.
    Csv,
    /// The old binary record without a version: 64-bit target ids.
    BinaryV0,
    /// The old binary record, version 1: process ids.
    BinaryV1,
    /// The old binary record, version 2: 64-bit target ids.
    BinaryV2,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 8] = [
        Self::Iso,
        Self::Json,
        Self::JsonCompressed,
        Self::PerfScript,
        Self::Csv,
        Self::BinaryV0,
        Self::BinaryV1,
        Self::BinaryV2,
    ];

    /// The name used on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Iso => "iso",
            Self::Json => "json",
            Self::JsonCompressed => "json_compressed",
            Self::PerfScript => "perf_script",
            Self::Csv => "csv",
            Self::BinaryV0 => "binary_v0",
            Self::BinaryV1 => "binary_v1",
            Self::BinaryV2 => "binary_v2",
        }
    }

    /// The format that a file name stands for: `.iso`, `.json`, `.csv`, `.data` or `.zlib` (damo's compressed JSON),
    /// `.perf` or `.txt` (perf-script text), `.bin` (old binary, version 2).
    pub fn of_extension(path: &Path) -> Option<Self> {
        Some(match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "iso" => Self::Iso,
            "json" => Self::Json,
            "data" | "zlib" => Self::JsonCompressed,
            "perf" | "txt" => Self::PerfScript,
            "csv" => Self::Csv,
            "bin" => Self::BinaryV2,
            _ => return None,
        })
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that no format has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a record format; choose one of {names}", names = Format::ALL.map(Format::name).join(", "))]
pub struct UnknownFormat(pub String);

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<Self, UnknownFormat> {
        let name = text.to_ascii_lowercase().replace('-', "_");
        let name = if name == "binary" { "binary_v2" } else { &name };
        Self::ALL.into_iter().find(|f| f.name() == name).ok_or_else(|| UnknownFormat(text.to_owned()))
    }
}
