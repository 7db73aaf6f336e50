//! The little of QEMU's machine protocol that is needed: the memory map.

use super::layout::LayoutError;
use super::mtree::{self, Backend, Region};
use isotherm_linux::hostmem::call;
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a conversation may take, from its first byte to its last: a socket that somebody else uses accepts us only
/// when they have gone.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked whether to stop.
const TICK: Duration = Duration::from_millis(100);
/// Parts of memory whose place in the VMM's address space is asked for, at most.
const MOST_REGIONS: usize = 1024;
/// Bytes of a conversation, at most.
const MOST_BYTES: u64 = 16 << 20;

/// Why the VMM does not tell.
#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    /// No conversation.
    #[error("cannot talk to the VMM at {}: {source}", path.display())]
    Io {
        path: PathBuf,
        /// How it failed.
        source: io::Error,
    },
    /// It answers something else.
    #[error("the VMM at {} does not answer as QEMU does: {what}", path.display())]
    Odd { path: PathBuf, what: String },
    /// Its memory map is not understood.
    #[error(transparent)]
    Map(#[from] LayoutError),
}

/// What QEMU says of its memory: the parts of `info mtree -f` that are a backend's, where it has them mapped
/// (`gpa2hva`), and the backends. Ends early once `stop` is set.
pub fn memory_map(path: &Path, stop: &AtomicBool) -> Result<(Vec<Region>, Vec<Backend>), QmpError> {
    let mut talk = Talk::begin(path, stop)?;
    let tree = talk.monitor("info mtree -f")?;
    let mut regions = mtree::parse(&tree)?;
    let backends = talk.ask(json!({"execute": "query-memdev"}))?;
    let backends = backends.as_array().ok_or_else(|| talk.odd("query-memdev"))?;
    let backend = |v: &Value| Some(Backend { id: v["id"].as_str()?.to_owned(), size: v["size"].as_u64()? });
    let backends: Vec<Backend> = backends.iter().filter_map(backend).collect();
    regions.retain(|region| backends.iter().any(|backend| backend.id == region.name));
    for region in regions.iter_mut().take(MOST_REGIONS) {
        let answer = talk.monitor(&format!("gpa2hva {:#x}", region.addr.start))?;
        region.host = host_address(&answer, region);
    }
    Ok((regions, backends))
}

/// Reads `Host virtual address for 0x0 (NAME) is 0x7f…`. Anything else tells nothing.
fn host_address(answer: &str, region: &Region) -> Option<u64> {
    let rest = answer.trim().strip_prefix("Host virtual address for ")?;
    let (what, address) = rest.rsplit_once(" is 0x")?;
    let (start, name) = what.split_once(' ')?;
    let name = name.strip_prefix('(')?.strip_suffix(')')?;
    let right =
        start == format!("{:#x}", region.addr.start) && name.strip_prefix("/objects/").unwrap_or(name) == region.name;
    u64::from_str_radix(address, 16).ok().filter(|_| right)
}

/// A stream that has an end in time, however many bytes come one by one.
struct Timed<'a> {
    stream: UnixStream,
    end: Instant,
    stop: &'a AtomicBool,
}

impl Timed<'_> {
    fn again<T>(&mut self, mut work: impl FnMut(&mut UnixStream) -> io::Result<T>) -> io::Result<T> {
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "this host side is ending"));
            }
            if Instant::now() >= self.end {
                let why =
                    format!("no full answer within {} s; does somebody else use this socket?", PATIENCE.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            match work(&mut self.stream) {
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                result => return result,
            }
        }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.again(|stream| stream.read(bytes))
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.again(|stream| stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Talk<'a> {
    path: &'a Path,
    reader: BufReader<io::Take<Timed<'a>>>,
    writer: Timed<'a>,
}

impl<'a> Talk<'a> {
    fn begin(path: &'a Path, stop: &'a AtomicBool) -> Result<Self, QmpError> {
        let end = Instant::now() + PATIENCE;
        let open = || {
            let stream = call::connect(path, PATIENCE)?;
            stream.set_read_timeout(Some(TICK))?;
            stream.set_write_timeout(Some(TICK))?;
            Ok((stream.try_clone()?, stream))
        };
        let (reader, writer) = open().map_err(|source| QmpError::Io { path: path.to_owned(), source })?;
        let reader = BufReader::new(Timed { stream: reader, end, stop }.take(MOST_BYTES));
        let mut talk = Self { path, reader, writer: Timed { stream: writer, end, stop } };
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

    /// A command of the monitor for people, and what it prints.
    fn monitor(&mut self, command: &str) -> Result<String, QmpError> {
        let answer = self.ask(json!({"execute": "human-monitor-command", "arguments": {"command-line": command}}))?;
        answer.as_str().map(str::to_owned).ok_or_else(|| self.odd(command))
    }

    fn line(&mut self) -> Result<Value, QmpError> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::addr::AddrRange;

    #[test]
    fn only_the_answer_to_the_question_counts() {
        let addr = AddrRange::new(0x1_0000_0000, 0x1_2000_0000);
        let region = Region { addr, name: "more".into(), offset: 0, host: None };
        let reported = |answer: &str| host_address(answer, &region);
        let right = "Host virtual address for 0x100000000 (more) is 0x7fdacbfff000\r\n";
        assert_eq!(reported(right), Some(0x7fda_cbff_f000));
        assert_eq!(reported(&right.replace("more", "/objects/more")), Some(0x7fda_cbff_f000));
        for wrong in [
            "",
            "No memory is mapped at address 0x100000000",
            "Memory at address 0x100000000 is not RAM",
            &right.replace("more", "other"),
            &right.replace("0x100000000", "0x0"),
            &right.replace("0x7fda", "7fda"),
            &right.replace("0x7fda", "0xzz"),
        ] {
            assert_eq!(reported(wrong), None, "{wrong}");
        }
    }
}
