//! Where records come from: files and streams.

use crate::error::ReadError;
use isotherm_core::event::{Event, SubscriberError};
use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a file that are looked at to tell its format.
pub(crate) const PREFIX_LEN: usize = 64 << 10;

/// Takes the events of a record; an error ends the reading.
pub type Sink<'a> = dyn FnMut(Event) -> Result<(), SubscriberError> + 'a;

/// A record to be read.
pub struct Input {
    origin: String,
    /// The first bytes, read to tell the format.
    prefix: Vec<u8>,
    rest: Data,
    len: Option<u64>,
    used: Arc<AtomicU64>,
}

enum Data {
    /// A regular file, to be read from its begin.
    File(File),
    /// Anything else; the prefix has been taken out.
    Stream(Box<dyn Read>),
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Input").field("origin", &self.origin).field("len", &self.len).finish_non_exhaustive()
    }
}

impl Input {
    /// Opens a file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ReadError> {
        let path = path.as_ref();
        let origin = path.display().to_string();
        let io_error = |error| ReadError::Io { origin: origin.clone(), error };
        let file = File::open(path).map_err(io_error)?;
        let meta = file.metadata().map_err(io_error)?;
        if !meta.is_file() {
            return Self::from_reader(&origin, Box::new(file));
        }
        let mut prefix = Vec::new();
        (&file).take(PREFIX_LEN as u64).read_to_end(&mut prefix).map_err(io_error)?;
        Ok(Self { origin, prefix, rest: Data::File(file), len: Some(meta.len()), used: Arc::default() })
    }

    /// Reads from a stream, which errors call `origin`.
    pub fn from_reader(origin: &str, mut stream: Box<dyn Read>) -> Result<Self, ReadError> {
        let mut prefix = Vec::new();
        (&mut stream)
            .take(PREFIX_LEN as u64)
            .read_to_end(&mut prefix)
            .map_err(|error| ReadError::Io { origin: origin.to_owned(), error })?;
        Ok(Self { origin: origin.to_owned(), prefix, rest: Data::Stream(stream), len: None, used: Arc::default() })
    }

    /// The first bytes, up to 64 KiB.
    pub(crate) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Length in bytes where it is known.
    pub fn len(&self) -> Option<u64> {
        self.len
    }

    /// Whether the input is known to be empty.
    pub fn is_empty(&self) -> bool {
        self.prefix.is_empty()
    }

    /// A counter of bytes used up, for progress. Formats that are read twice reach twice the length.
    pub fn progress(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.used)
    }

    /// What errors call it: the path, or `standard input`.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    fn io_error(&self, error: io::Error) -> ReadError {
        ReadError::Io { origin: self.origin.clone(), error }
    }

    /// The whole content as a stream.
    pub(crate) fn into_stream(self) -> Result<Box<dyn Read>, ReadError> {
        let used = Arc::clone(&self.used);
        match self.rest {
            Data::File(mut file) => {
                let rewound = file.seek(SeekFrom::Start(0));
                rewound.map_err(|error| ReadError::Io { origin: self.origin, error })?;
                Ok(Box::new(Counted { inner: file, used }))
            }
            Data::Stream(stream) => Ok(Box::new(Counted { inner: Cursor::new(self.prefix).chain(stream), used })),
        }
    }

    /// Makes the content readable more than once; a stream is copied, packed as it is, to a temporary file, which has no
    /// name.
    pub fn make_seekable(mut self) -> Result<Self, ReadError> {
        if let Data::Stream(stream) = &mut self.rest {
            let copied = tempfile::tempfile().and_then(|mut file| {
                io::copy(&mut self.prefix.as_slice().chain(stream), &mut file)?;
                Ok(file)
            });
            let place = std::env::temp_dir();
            self.rest = Data::File(copied.map_err(|error| ReadError::Io {
                origin: format!("{} by a copy in {} (TMPDIR names another folder)", self.origin, place.display()),
                error,
            })?);
        }
        Ok(self)
    }

    /// A further reader of the same file, for use while no other one is; only after
    /// [`make_seekable`](Self::make_seekable).
    pub fn again(&self) -> Result<Self, ReadError> {
        let Data::File(file) = &self.rest else {
            return Err(self.io_error(io::Error::other("the input cannot be read twice")));
        };
        let file = file.try_clone().map_err(|e| self.io_error(e))?;
        let used = Arc::clone(&self.used);
        Ok(Self {
            origin: self.origin.clone(),
            prefix: self.prefix.clone(),
            rest: Data::File(file),
            len: self.len,
            used,
        })
    }
}

/// Counts what is read.
struct Counted<R> {
    inner: R,
    used: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.used.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}
