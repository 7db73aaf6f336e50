//! Reads Isotherm's own format.

use crate::error::{ReadError, Warning, Warnings};
use crate::format::event::{self, FrameState};
use crate::format::frame::{FRAME_HEADER_LEN, FileHeader, FrameHeader, FrameKind, MARKER};
use crate::format::varint::Cursor;
use crate::format::{HEADER_LEN, VERSION};
use isotherm_core::event::Event;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Bytes asked of the operating system at once.
const CHUNK: usize = 64 << 10;

/// Reads a record event by event, in bounded memory (one frame: at most 64 MiB stored and 64 MiB unpacked, usually well
/// below 1 MiB; plus the last snapshot of each target).
///
/// Damaged frames are passed over and the end may be missing: [`warnings`](Self::warnings) tells, once the iterator has
/// ended.
pub struct Reader<R> {
    input: R,
    origin: String,
    /// Bytes read and not used yet; `at` is their position in the input.
    buffer: Vec<u8>,
    at: u64,
    eof: bool,
    /// The unpacked frame in hand, how much of it is used, and how many events are left in it.
    raw: Vec<u8>,
    used: usize,
    left: u32,
    frame_at: u64,
    state: FrameState,
    next_sequence: Option<u32>,
    /// Frames were lost: the next context frames are wanted.
    want_context: bool,
    /// The last frame was such a context frame; more may follow.
    in_context: bool,
    /// Position behind the last whole frame.
    whole: u64,
    ended: bool,
    unknown: u64,
    warnings: Warnings,
    done: bool,
}

impl<R> std::fmt::Debug for Reader<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("origin", &self.origin).field("at", &self.at).finish_non_exhaustive()
    }
}

impl Reader<File> {
    /// Opens a record of Isotherm's own format.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ReadError> {
        let path = path.as_ref();
        let origin = path.display().to_string();
        let file = File::open(path).map_err(|error| ReadError::Io { origin: origin.clone(), error })?;
        Self::new(file, &origin)
    }
}

impl<R: Read> Reader<R> {
    /// Reads a record from `input`, which errors call `origin`.
    pub fn new(input: R, origin: &str) -> Result<Self, ReadError> {
        let mut reader = Self {
            input,
            origin: origin.to_owned(),
            buffer: Vec::new(),
            at: 0,
            eof: false,
            raw: Vec::new(),
            used: 0,
            left: 0,
            frame_at: 0,
            state: FrameState::default(),
            next_sequence: None,
            want_context: false,
            in_context: false,
            whole: 0,
            ended: false,
            unknown: 0,
            warnings: Warnings::default(),
            done: false,
        };
        reader.read_header()?;
        Ok(reader)
    }

    /// What was noticed so far; complete when the iterator has ended.
    pub fn warnings(&self) -> &[Warning] {
        self.warnings.as_slice()
    }

    /// Bytes of the input that are used up; for progress.
    pub fn position(&self) -> u64 {
        self.at
    }

    pub(crate) fn into_warnings(self) -> Vec<Warning> {
        self.warnings.into_vec()
    }

    fn io_error(&self, error: io::Error) -> ReadError {
        ReadError::Io { origin: self.origin.clone(), error }
    }

    /// Reads until the buffer holds `len` bytes, or the input ends. Memory grows with what really arrives.
    fn fill(&mut self, len: usize) -> Result<bool, ReadError> {
        while self.buffer.len() < len && !self.eof {
            let before = self.buffer.len();
            self.buffer.resize(before + CHUNK, 0);
            let got = loop {
                match self.input.read(&mut self.buffer[before..]) {
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    other => break other,
                }
            };
            self.buffer.truncate(before + *got.as_ref().unwrap_or(&0));
            self.eof = got.map_err(|e| self.io_error(e))? == 0;
        }
        Ok(self.buffer.len() >= len)
    }

    fn consume(&mut self, len: usize) {
        self.buffer.drain(..len);
        self.at += len as u64;
    }

    fn read_header(&mut self) -> Result<(), ReadError> {
        let whole = self.fill(HEADER_LEN)?;
        let header: Option<[u8; HEADER_LEN]> = self.buffer.get(..HEADER_LEN).and_then(|b| b.try_into().ok());
        match header.as_ref().and_then(FileHeader::parse).map(|h| h.version) {
            Some(version) if version > VERSION => {
                return Err(ReadError::NewerVersion { origin: self.origin.clone(), version, known: VERSION });
            }
            Some(_) => {
                self.consume(HEADER_LEN);
                self.whole = self.at;
            }
            None if whole => {
                // A damaged header is no reason to give up the frames behind it: the search for frames passes over it.
                self.want_context = true;
            }
            None => {}
        }
        Ok(())
    }

    /// Makes the next frame of events the one in hand; `false` at the end.
    fn next_frame(&mut self) -> Result<bool, ReadError> {
        loop {
            let Some(header) = self.find_header()? else {
                if !self.ended {
                    self.warnings.push(Warning::Truncated { offset: self.whole });
                }
                return Ok(false);
            };
            let len = FRAME_HEADER_LEN + header.stored_len as usize;
            if !self.fill(len)? {
                // The length is checksummed, so this is a cut-off end and not a damaged length.
                self.warnings.push(Warning::Truncated { offset: self.whole });
                return Ok(false);
            }
            self.frame_at = self.at;
            if !header.matches(&self.buffer[FRAME_HEADER_LEN..len]) {
                self.damaged(self.at, len as u64, "the checksum of a frame is wrong");
                self.next_sequence = Some(header.sequence.wrapping_add(1));
                self.consume(len);
                continue;
            }
            self.follow_sequence(header.sequence);
            if header.kind == FrameKind::Context {
                self.in_context = self.want_context;
            } else if std::mem::take(&mut self.in_context) {
                self.want_context = false;
            }
            let wanted = match header.kind {
                FrameKind::Events => true,
                FrameKind::Context => self.want_context,
                FrameKind::End => {
                    self.ended = true;
                    false
                }
                FrameKind::Other(_) => false,
            };
            let mut usable = wanted;
            if wanted {
                let mut raw = std::mem::take(&mut self.raw);
                if let Err(error) = header.unpack(&self.buffer[FRAME_HEADER_LEN..len], &mut raw) {
                    self.damaged(self.at, len as u64, &format!("a frame cannot be unpacked: {error}"));
                    usable = false;
                }
                self.raw = raw;
            }
            self.consume(len);
            self.whole = self.at;
            if usable {
                self.used = 0;
                self.left = header.events;
                self.state.clear();
                return Ok(true);
            }
        }
    }

    /// Finds the next frame header, passing over damaged bytes; `None` at the end of the input.
    fn find_header(&mut self) -> Result<Option<FrameHeader>, ReadError> {
        let (from, mut skipped) = (self.at, 0u64);
        loop {
            let whole = self.fill(FRAME_HEADER_LEN)?;
            let head: Option<&[u8; FRAME_HEADER_LEN]> = self.buffer.first_chunk();
            if let Some(header) = head.and_then(FrameHeader::parse) {
                if skipped > 0 {
                    self.damaged(from, skipped, "no frame begins here");
                }
                return Ok(Some(header));
            }
            if !whole {
                // Less than a header is left: a cut-off end, unless whole frames' worth of garbage came before it.
                if skipped > 0 {
                    self.damaged(from, skipped + self.buffer.len() as u64, "no frame begins here");
                }
                return Ok(None);
            }
            let next = self.buffer[1..].windows(MARKER.len()).position(|w| w == MARKER).map(|p| p + 1);
            // Without a marker all goes but the last bytes, which may be the begin of one.
            let step = next.unwrap_or(self.buffer.len() - (MARKER.len() - 1));
            self.consume(step);
            skipped += step as u64;
        }
    }

    fn damaged(&mut self, offset: u64, bytes: u64, what: &str) {
        self.warnings.push(Warning::Damaged { offset, bytes, what: what.to_owned() });
        self.want_context = true;
    }

    fn follow_sequence(&mut self, sequence: u32) {
        if let Some(expected) = self.next_sequence {
            let lost = sequence.wrapping_sub(expected);
            // A number that goes back means records written one behind the other, not loss.
            if lost > 0 && lost < u32::MAX / 2 {
                self.warnings.push(Warning::LostFrames { frames: u64::from(lost) });
                self.want_context = true;
            }
        }
        self.next_sequence = Some(sequence.wrapping_add(1));
    }

    fn next_event(&mut self) -> Result<Option<Event>, ReadError> {
        loop {
            if self.left == 0 {
                if !self.next_frame()? {
                    return Ok(None);
                }
                continue;
            }
            let rest = &self.raw[self.used..];
            let mut cursor = Cursor::new(rest);
            let event = event::decode(&mut cursor, &mut self.state);
            self.used += rest.len() - cursor.remaining();
            self.left -= 1;
            match event {
                Ok(Some(event)) => return Ok(Some(event)),
                Ok(None) => self.unknown += 1,
                Err(error) => {
                    // The checksum was right, so a writer made this; later events of the frame may build on it.
                    let bytes = self.at - self.frame_at;
                    self.damaged(self.frame_at, bytes, &format!("an event cannot be decoded: {error}"));
                    self.left = 0;
                }
            }
        }
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Event, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = self.next_event();
        if !matches!(next, Ok(Some(_))) {
            self.done = true;
            if self.unknown > 0 {
                self.warnings.push(Warning::UnknownEvents { count: self.unknown });
            }
        }
        next.transpose()
    }
}
