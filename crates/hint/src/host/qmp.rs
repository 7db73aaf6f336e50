//! The little of QEMU's machine protocol that is needed: the memory map.

use super::mtree::Backend;
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a conversation may take: a socket that somebody else uses accepts us only when they have gone.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of a conversation, at most.
const MOST_BYTES: u64 = 16 << 20;

/// Why the VMM does not tell.
#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    /// No conversation.
    #[error("cannot talk to the VMM at {}: {source}", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// How it failed.
        source: io::Error,
    },
    /// It answers something else.
    #[error("the VMM at {} does not answer as QEMU does: {what}", path.display())]
    Odd {
        /// The socket.
        path: PathBuf,
        /// What it said.
        what: String,
    },
}

/// What QEMU says of its memory: the text of `info mtree -f`, and its memory backends.
pub fn memory_map(path: &Path) -> Result<(String, Vec<Backend>), QmpError> {
    let mut talk = Talk::begin(path)?;
    let tree = talk.ask(json!({"execute": "human-monitor-command", "arguments": {"command-line": "info mtree -f"}}))?;
    let tree = tree.as_str().ok_or_else(|| talk.odd("info mtree"))?.to_owned();
    let backends = talk.ask(json!({"execute": "query-memdev"}))?;
    let backends = backends.as_array().ok_or_else(|| talk.odd("query-memdev"))?;
    let backend = |v: &Value| Some(Backend { id: v["id"].as_str()?.to_owned(), size: v["size"].as_u64()? });
    Ok((tree, backends.iter().filter_map(backend).collect()))
}

struct Talk<'a> {
    path: &'a Path,
    reader: BufReader<io::Take<UnixStream>>,
    writer: UnixStream,
    deadline: Instant,
}

impl<'a> Talk<'a> {
    fn begin(path: &'a Path) -> Result<Self, QmpError> {
        let open = || {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            Ok((stream.try_clone()?, stream))
        };
        let (reader, writer) = open().map_err(|source| QmpError::Io { path: path.to_owned(), source })?;
        let reader = BufReader::new(reader.take(MOST_BYTES));
        let mut talk = Self { path, reader, writer, deadline: Instant::now() + PATIENCE };
        let hello = talk.line()?;
        if hello.get("QMP").is_none() {
            return Err(talk.odd("no greeting"));
        }
        talk.ask(json!({"execute": "qmp_capabilities"}))?;
        Ok(talk)
    }

    fn ask(&mut self, question: Value) -> Result<Value, QmpError> {
        let text = format!("{question}\n");
        self.writer.write_all(text.as_bytes()).map_err(|e| self.io(e))?;
        loop {
            let mut answer = self.line()?;
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
            if let Some(error) = answer.get("error") {
                return Err(self.odd(&error.to_string()));
            }
            // Events come in between.
        }
    }

    fn line(&mut self) -> Result<Value, QmpError> {
        if Instant::now() > self.deadline {
            return Err(self.io(io::ErrorKind::TimedOut.into()));
        }
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => Err(self.io(io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => serde_json::from_str(&line).map_err(|e| self.odd(&e.to_string())),
            Err(e) => Err(self.io(e)),
        }
    }

    fn io(&self, source: io::Error) -> QmpError {
        QmpError::Io { path: self.path.to_owned(), source }
    }

    fn odd(&self, what: &str) -> QmpError {
        QmpError::Odd { path: self.path.to_owned(), what: what.to_owned() }
    }
}
