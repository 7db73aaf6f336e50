//! Opens traces: unpacks them, tells their format, hands them to its reader.

use super::ahead::ReadAhead;
use super::source::Source;
use super::{Builder, Selection, Trace, TraceError, csv, lackey, oracle, record};
use isotherm_record::{Format as RecordFormat, Input};
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};

/// A format of trace files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Recognized by its content.
    Auto,
    /// Comma-separated values with a header line.
    Csv,
    Oracle,
    /// `valgrind --tool=lackey --trace-mem=yes`.
    Lackey,
    /// A record of a monitor.
    Isotherm,
}

/// Bytes looked at to tell the format.
const PREFIX: usize = 64 << 10;
const BUFFER: usize = 1 << 20;
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Reads a trace; it may be packed with zstd, and a record may have parts. `progress` gets how many requests were read so far.
pub fn read(
    path: &Path,
    format: Format,
    selection: Selection,
    progress: &mut dyn FnMut(u64),
) -> Result<Trace, TraceError> {
    let origin = path.display().to_string();
    let parts = isotherm_record::parts(path);
    let file = File::open(&parts[0]).map_err(|error| TraceError::Io { origin: origin.clone(), error })?;
    read_parts(&origin, Box::new(file), &parts[1..], format, selection, progress)
}

/// Reads a trace from a stream, which errors call `origin`.
pub(crate) fn from_reader(
    origin: &str,
    stream: Box<dyn Read + Send>,
    format: Format,
    selection: Selection,
    progress: &mut dyn FnMut(u64),
) -> Result<Trace, TraceError> {
    read_parts(origin, stream, &[], format, selection, progress)
}

/// `further`: files with the rest of a record.
fn read_parts(
    origin: &str,
    stream: Box<dyn Read + Send>,
    further: &[PathBuf],
    format: Format,
    selection: Selection,
    progress: &mut dyn FnMut(u64),
) -> Result<Trace, TraceError> {
    let io_error = |error: io::Error| match error.downcast::<Unpacking>() {
        Ok(why) => TraceError::Packed { origin: origin.to_owned(), why: why.to_string() },
        Err(error) => TraceError::Io { origin: origin.to_owned(), error },
    };
    let (prefix, mut stream) = peek(stream).map_err(io_error)?;
    let packed = prefix.starts_with(&ZSTD_MAGIC);
    let (prefix, stream) = if packed {
        stream = Box::new(Unpack::new(stream).map_err(io_error)?);
        peek(stream).map_err(io_error)?
    } else {
        (prefix, stream)
    };
    let format = match format {
        Format::Auto => {
            detect(&prefix).map_err(|why| TraceError::Unknown { origin: origin.to_owned(), why: why.to_owned() })?
        }
        format => format,
    };
    let mut builder = Builder::new(selection, progress);
    let mut stream = ReadAhead::new(stream).map_err(io_error)?;
    let source = Source::new(origin, &io_error);
    match format {
        Format::Oracle => oracle::read(&mut stream, &source, &mut builder)?,
        Format::Csv => csv::read(&mut stream, &source, &mut builder)?,
        Format::Lackey => lackey::read(&mut stream, &source, &mut builder)?,
        Format::Isotherm | Format::Auto => {
            record::read(Input::from_reader(origin, Box::new(stream))?, further, &mut builder)?;
        }
    }
    let trace = builder.finish();
    if trace.seen() == 0 {
        return Err(TraceError::Unknown { origin: origin.to_owned(), why: "there is no request in it".into() });
    }
    Ok(trace)
}

/// Reads the first bytes and puts them back.
fn peek(mut stream: Box<dyn Read + Send>) -> io::Result<(Vec<u8>, Box<dyn Read + Send>)> {
    let mut prefix = Vec::new();
    (&mut stream).take(PREFIX as u64).read_to_end(&mut prefix)?;
    let all = Cursor::new(prefix.clone()).chain(stream);
    Ok((prefix, Box::new(all)))
}

fn detect(prefix: &[u8]) -> Result<Format, &'static str> {
    if prefix.is_empty() {
        return Err("it is empty");
    }
    if csv::looks_like(prefix) {
        return Ok(Format::Csv);
    }
    if lackey::looks_like(prefix) {
        return Ok(Format::Lackey);
    }
    let record = Input::from_reader("", Box::new(Cursor::new(prefix.to_vec()))).and_then(|i| i.format());
    match (record, oracle::looks_like(prefix)) {
        // Neither has a head that would tell.
        (Ok(RecordFormat::BinaryV0), true) => {
            Err("it may be oracleGeneral or an old binary record; say with --format oracle or --format isotherm which")
        }
        (Ok(_), _) => Ok(Format::Isotherm),
        (Err(_), true) => Ok(Format::Oracle),
        (Err(_), false) if is_text(prefix) => Err(
            "a text, but neither a CSV file whose header line names a column 'page', nor lines of valgrind's lackey, nor a record",
        ),
        (Err(_), false) => {
            Err("neither oracleGeneral nor a record of Isotherm; if you know what it is, say so with --format")
        }
    }
}

/// Whether it is UTF-8 without control characters, the last character perhaps cut off.
fn is_text(prefix: &[u8]) -> bool {
    let valid = std::str::from_utf8(prefix).map_or_else(|error| error.error_len().is_none(), |_| true);
    valid && prefix.iter().all(|b| !b.is_ascii_control() || b.is_ascii_whitespace())
}

/// Why packed data does not unpack; travels inside of an [`io::Error`].
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Unpacking(String);

/// Unpacks zstd frames, one behind the other.
struct Unpack(zstd::Decoder<'static, BufReader<Box<dyn Read + Send>>>);

impl Unpack {
    fn new(stream: Box<dyn Read + Send>) -> io::Result<Self> {
        let source = BufReader::with_capacity(BUFFER, stream);
        Ok(Self(zstd::Decoder::with_buffer(source).map_err(Self::failed)?))
    }

    /// The library's own errors have no number of the system's.
    fn failed(error: io::Error) -> io::Error {
        match error.raw_os_error() {
            Some(_) => error,
            None => io::Error::new(io::ErrorKind::InvalidData, Unpacking(error.to_string())),
        }
    }
}

impl Read for Unpack {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).map_err(Self::failed)
    }
}
