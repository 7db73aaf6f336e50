//! Records for other tools.
//!
//! What the formats have no place for is dropped; `docs/format.md` says what that is.

mod binary;
mod csv;
mod json;
mod perf_script;

use crate::error::WriteError;
use crate::kind::Format;
use crate::writer::{Options, Writer};
use isotherm_core::event::Event;
use std::io::{self, Write};

/// Takes events in the order of time and writes a record.
pub trait Export {
    /// Writes one event, in the order of the record.
    fn write(&mut self, event: &Event) -> Result<(), WriteError>;
    /// Writes what is left. Without this the record is not complete.
    fn finish(self: Box<Self>) -> Result<(), WriteError>;
}

/// A writer of `format` to `out`, which errors call `origin`.
pub fn exporter(format: Format, origin: &str, out: Box<dyn Write + Send>) -> Result<Box<dyn Export>, WriteError> {
    let out = Out { out, origin: origin.to_owned() };
    Ok(match format {
        Format::Iso => Box::new(Writer::to_stream(origin, Box::new(out), Options::default())?),
        Format::Json => Box::new(json::Json::new(out)),
        Format::JsonCompressed => Box::new(json::Json::compressed(out)),
        Format::PerfScript => Box::new(perf_script::PerfScript::new(out)),
        Format::Csv => Box::new(csv::Csv::new(out)?),
        Format::BinaryV0 => Box::new(binary::Binary::new(out, 0)?),
        Format::BinaryV1 => Box::new(binary::Binary::new(out, 1)?),
        Format::BinaryV2 => Box::new(binary::Binary::new(out, 2)?),
    })
}

impl Export for Writer {
    fn write(&mut self, event: &Event) -> Result<(), WriteError> {
        Self::write(self, event)
    }

    fn finish(self: Box<Self>) -> Result<(), WriteError> {
        Self::finish(*self).map(|_| ())
    }
}

/// An output with a name for errors.
pub(crate) struct Out {
    out: Box<dyn Write + Send>,
    origin: String,
}

impl Out {
    pub(crate) fn error(&self, error: io::Error) -> WriteError {
        WriteError::Io { origin: self.origin.clone(), written: 0, error }
    }

    pub(crate) fn unfit(&self, what: &str) -> WriteError {
        WriteError::Unfit { origin: self.origin.clone(), what: what.to_owned() }
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        self.write_all(bytes).map_err(|e| self.error(e))
    }

    pub(crate) fn finish(mut self) -> Result<(), WriteError> {
        self.flush().map_err(|e| self.error(e))
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
