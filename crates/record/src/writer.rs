//! Writes Isotherm's own format.

use crate::error::WriteError;
use crate::format::event::{self, FrameState};
use crate::format::frame::{FileHeader, FrameKind, Packer};
use crate::format::varint::DecodeError;
use crate::format::{MAX_PAYLOAD, VERSION};
use crate::rotation::{Rotation, numbered, part_path, with_suffix};
use isotherm_core::event::{Event, RunInfo, Step, Subscriber, SubscriberError};
use isotherm_core::target::{TargetEnd, TargetInfo};
use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::fs::{File, OpenOptions};
use std::hash::BuildHasher;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// How a record is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// A frame is written when its events take this many bytes before compression (at most 16 MiB).
    pub frame_bytes: usize,
    /// A frame is written when its first event is this old (ns): what a killed recorder loses at most.
    pub frame_ns: u64,
    /// Deflate level, 0 (none) to 9. The higher ones save a tenth of the size for three times the CPU time.
    pub level: u32,
    /// Parts; `None`: one file.
    pub rotation: Option<Rotation>,
}

impl Default for Options {
    fn default() -> Self {
        Self { frame_bytes: 256 << 10, frame_ns: 1_000_000_000, level: 2, rotation: None }
    }
}

/// What was written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Events.
    pub events: u64,
    /// Snapshots among them.
    pub snapshots: u64,
    /// Frames, those that repeat the context included.
    pub frames: u64,
    /// Bytes in all parts.
    pub bytes: u64,
    /// Parts.
    pub parts: u32,
}

/// A context frame is written after so many frames, if it is small beside them.
const FRAMES_PER_CONTEXT: u64 = 64;
/// A context frame may take one part in this many of the bytes.
const CONTEXT_SHARE: u64 = 16;

/// What is in force: what a reader needs that did not see the begin.
#[derive(Debug, Default)]
struct Context {
    run: Option<RunInfo>,
    targets: BTreeMap<u32, TargetInfo>,
    /// Only `Event::Mappings`, and how many mappings each holds.
    mappings: BTreeMap<u32, (usize, Event)>,
    /// Sum of those numbers.
    nr_mappings: usize,
}

/// Most mappings to remember for context; those of further targets are not repeated.
const MAX_CONTEXT_MAPPINGS: usize = 1 << 20;

impl Context {
    fn follow(&mut self, event: &Event) {
        match event {
            Event::Run(run) => self.run = Some(run.clone()),
            Event::Target(t) => {
                self.targets.insert(t.target, t.clone());
            }
            Event::Mappings { target, mappings, .. } => {
                self.forget_mappings(*target);
                if self.nr_mappings + mappings.len() <= MAX_CONTEXT_MAPPINGS {
                    self.nr_mappings += mappings.len();
                    self.mappings.insert(*target, (mappings.len(), event.clone()));
                }
            }
            Event::End { target, why, .. } => {
                self.forget_mappings(*target);
                if *why == TargetEnd::Exited {
                    self.targets.remove(target);
                }
            }
            Event::Snapshot(_) | Event::Stats(_) | Event::Footprint(_) | Event::Pages(_) | Event::Together(_) => {}
        }
    }

    fn forget_mappings(&mut self, target: u32) {
        self.nr_mappings -= self.mappings.remove(&target).map_or(0, |(n, _)| n);
    }

    fn events(&self) -> impl Iterator<Item = Event> {
        let run = self.run.iter().cloned().map(Event::Run);
        let mappings = self.mappings.values().map(|(_, event)| event.clone());
        run.chain(self.targets.values().cloned().map(Event::Target)).chain(mappings)
    }
}

/// Events that are not written yet.
#[derive(Debug, Default)]
struct Frame {
    raw: Vec<u8>,
    events: u32,
    state: FrameState,
    /// When its first event was complete.
    since_ns: Option<u64>,
}

enum Output {
    File { path: PathBuf, file: File },
    Stream { name: String, out: Box<dyn Write + Send> },
}

/// Writes a record: events in, frames out. Memory is bounded by one frame, the targets' last snapshots and their
/// mappings.
///
/// A frame is handed to the operating system as soon as it is complete, so a killed process loses at most what
/// [`Options::frame_ns`] and [`Options::frame_bytes`] allow. Dropping the writer writes what is pending but no end
/// mark, as a kill does; [`finish`](Self::finish) writes both.
pub struct Writer {
    output: Output,
    options: Options,
    frame: Frame,
    /// Made with the first frame.
    packer: Option<Packer>,
    context: Context,
    /// Shared by all parts.
    id: u64,
    sequence: u32,
    part: u32,
    /// Bytes of whole frames in this part.
    part_bytes: u64,
    /// From when to when the events of this part are.
    part_span_ns: Option<(u64, u64)>,
    /// This part is full: the next snapshot begins another one.
    rotation_due: bool,
    /// The part to remove once this one has events.
    obsolete: Option<u32>,
    frames_since_context: u64,
    bytes_since_context: u64,
    context_bytes: u64,
    summary: Summary,
    /// An error of [`Subscriber::step`], reported at the next event.
    pending_error: Option<WriteError>,
    failed: bool,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("origin", &self.origin()).field("summary", &self.summary).finish_non_exhaustive()
    }
}

impl Writer {
    /// Begins a record at `path`. A regular file that is there is renamed to `FILE.old` (with rotation also `FILE.1`,
    /// …), replacing an earlier `.old`; a device or pipe is written to.
    pub fn create(path: impl AsRef<Path>, options: Options) -> Result<Self, WriteError> {
        let path = path.as_ref();
        if options.rotation.is_some() {
            for number in numbered(path) {
                keep_old(&part_path(path, number))?;
            }
        }
        let file = open_part(path)?;
        Self::begin(Output::File { path: path.to_owned(), file }, options)
    }

    /// Writes a record to a stream, for example standard output, which `name` names in errors. Rotation is not possible
    /// there and ignored.
    pub fn to_stream(name: &str, out: Box<dyn Write + Send>, options: Options) -> Result<Self, WriteError> {
        Self::begin(Output::Stream { name: name.to_owned(), out }, options)
    }

    fn begin(output: Output, options: Options) -> Result<Self, WriteError> {
        let mut writer = Self {
            output,
            options,
            frame: Frame::default(),
            packer: None,
            context: Context::default(),
            // The hasher's keys are random in each process and differ by call.
            id: RandomState::new().hash_one(std::process::id()),
            sequence: 0,
            part: 0,
            part_bytes: 0,
            part_span_ns: None,
            rotation_due: false,
            obsolete: None,
            frames_since_context: 0,
            bytes_since_context: 0,
            context_bytes: 0,
            summary: Summary { parts: 1, ..Summary::default() },
            pending_error: None,
            failed: false,
        };
        writer.put_file_header()?;
        Ok(writer)
    }

    /// Adds an event; writes a frame if one is complete. A snapshot begins the next part if this one is full. After an
    /// error nothing more is written.
    pub fn write(&mut self, event: &Event) -> Result<(), WriteError> {
        if let Some(error) = self.pending_error.take() {
            return Err(error);
        }
        self.check_alive()?;
        // Not as soon as it is due: no snapshot may follow, and a part without one is of no use.
        if self.rotation_due && matches!(event, Event::Snapshot(_)) {
            self.flush()?;
            self.rotate()?;
        }
        self.context.follow(event);
        let encoded = event::encode(&mut self.frame.raw, &mut self.frame.state, event);
        let too_long = self.frame.raw.len() > MAX_PAYLOAD;
        if let Err(error) = encoded.and(if too_long { Err(DecodeError::Limit) } else { Ok(()) }) {
            self.failed = true;
            return Err(WriteError::TooLarge {
                origin: self.origin(),
                what: format!("an event is not valid: {error}"),
            });
        }
        self.frame.events += 1;
        self.summary.events += 1;
        let (from, complete) = match event {
            Event::Snapshot(s) => {
                self.summary.snapshots += 1;
                (Some(s.start_ns), Some(s.end_ns))
            }
            other => (event::time_ns(other), event::time_ns(other)),
        };
        if let (Some(from), Some(complete)) = (from, complete) {
            let (first, last) = self.part_span_ns.unwrap_or((from, complete));
            self.part_span_ns = Some((first, last.max(complete)));
            // Not by a snapshot's begin: its interval can be longer than a frame may wait.
            let since = *self.frame.since_ns.get_or_insert(complete);
            if complete.saturating_sub(since) >= self.options.frame_ns {
                return self.flush();
            }
        }
        if self.frame.raw.len() >= self.options.frame_bytes.min(MAX_PAYLOAD / 4) { self.flush() } else { Ok(()) }
    }

    /// Writes the pending events now.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        self.check_alive()?;
        if self.frame.events == 0 {
            return Ok(());
        }
        let raw = std::mem::take(&mut self.frame.raw);
        let result = self.put_frame(FrameKind::Events, &raw, self.frame.events);
        self.frame = Frame { raw, ..Frame::default() };
        self.frame.raw.clear();
        let len = result?;
        self.frames_since_context += 1;
        self.bytes_since_context += len;
        if let Some(oldest) = self.obsolete.take()
            && let Output::File { path, .. } = &self.output
        {
            // A part that somebody else has removed already is as good.
            let _ = std::fs::remove_file(part_path(path, oldest));
        }
        self.rotation_due |= self.must_rotate(len);
        if !self.rotation_due
            && self.frames_since_context >= FRAMES_PER_CONTEXT
            && self.bytes_since_context >= self.context_bytes.saturating_mul(CONTEXT_SHARE)
        {
            self.put_context(FrameKind::Context)
        } else {
            Ok(())
        }
    }

    /// Writes what is pending and the end mark, and waits until the file is on the disk.
    pub fn finish(mut self) -> Result<Summary, WriteError> {
        if let Some(error) = self.pending_error.take() {
            return Err(error);
        }
        self.flush()?;
        self.put_frame(FrameKind::End, &[], 0)?;
        let synced = match &mut self.output {
            Output::File { file, .. } => match file.sync_data() {
                // Pipes and devices cannot be synced.
                Err(e) if e.kind() == io::ErrorKind::InvalidInput => Ok(()),
                other => other,
            },
            Output::Stream { out, .. } => out.flush(),
        };
        self.failed = true;
        synced.map_err(|error| self.io_error(error))?;
        Ok(self.summary)
    }

    /// What was written so far.
    pub fn summary(&self) -> Summary {
        self.summary
    }

    fn check_alive(&self) -> Result<(), WriteError> {
        if self.failed { Err(WriteError::Failed { origin: self.origin() }) } else { Ok(()) }
    }

    fn origin(&self) -> String {
        match &self.output {
            Output::File { path, .. } => part_path(path, self.part).display().to_string(),
            Output::Stream { name, .. } => name.clone(),
        }
    }

    fn io_error(&self, error: io::Error) -> WriteError {
        WriteError::Io { origin: self.origin(), written: self.part_bytes, error }
    }

    fn put_frame(&mut self, kind: FrameKind, raw: &[u8], events: u32) -> Result<u64, WriteError> {
        let before = self.part_bytes;
        let mut packer = self.packer.take().unwrap_or_else(|| Packer::new(self.options.level));
        let result = self.put(packer.pack(kind, raw, events, self.sequence));
        self.packer = Some(packer);
        result?;
        self.sequence = self.sequence.wrapping_add(1);
        self.summary.frames += 1;
        Ok(self.part_bytes - before)
    }

    /// Writes whole units only: if it fails half-way, the file is cut back to what was whole.
    fn put(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        let result = match &mut self.output {
            Output::File { file, .. } => file.write_all(bytes),
            Output::Stream { out, .. } => out.write_all(bytes).and_then(|()| out.flush()),
        };
        if let Err(error) = result {
            self.failed = true;
            if let Output::File { file, .. } = &self.output {
                // Best effort: readers cope with the half frame, too.
                let _ = file.set_len(self.part_bytes);
            }
            return Err(self.io_error(error));
        }
        self.part_bytes += bytes.len() as u64;
        self.summary.bytes += bytes.len() as u64;
        Ok(())
    }

    fn put_file_header(&mut self) -> Result<(), WriteError> {
        self.put(&FileHeader { version: VERSION, part: self.part, id: self.id }.to_bytes())
    }

    /// Writes what is in force, in frames of the usual size.
    fn put_context(&mut self, kind: FrameKind) -> Result<(), WriteError> {
        self.frames_since_context = 0;
        self.bytes_since_context = 0;
        self.context_bytes = 0;
        let context = std::mem::take(&mut self.context);
        let mut frame = Frame::default();
        let mut result = Ok(());
        for event in context.events() {
            result = event::encode(&mut frame.raw, &mut frame.state, &event).map_err(|e| self.invalid(e));
            frame.events += 1;
            if result.is_ok() && frame.raw.len() >= self.options.frame_bytes.min(MAX_PAYLOAD / 4) {
                result = self.put_context_frame(kind, std::mem::take(&mut frame));
            }
            if result.is_err() {
                break;
            }
        }
        self.context = context;
        result.and_then(|()| if frame.events > 0 { self.put_context_frame(kind, frame) } else { Ok(()) })
    }

    fn put_context_frame(&mut self, kind: FrameKind, frame: Frame) -> Result<(), WriteError> {
        self.context_bytes += self.put_frame(kind, &frame.raw, frame.events)?;
        Ok(())
    }

    fn invalid(&self, error: DecodeError) -> WriteError {
        WriteError::TooLarge { origin: self.origin(), what: format!("an event is not valid: {error}") }
    }

    /// Whether this part is full after a frame of `frame_len` bytes.
    fn must_rotate(&self, frame_len: u64) -> bool {
        let Some(rotation) = self.options.rotation else { return false };
        let age = self.part_span_ns.map_or(0, |(from, to)| to.saturating_sub(from));
        matches!(self.output, Output::File { .. })
            && (rotation.max_bytes.is_some_and(|max| self.part_bytes + frame_len > max)
                || rotation.max_age_ns.is_some_and(|max| age >= max))
    }

    fn rotate(&mut self) -> Result<(), WriteError> {
        self.put_frame(FrameKind::End, &[], 0)?;
        let Output::File { path, file } = &mut self.output else { return Ok(()) };
        let next = part_path(path, self.part + 1);
        match open_part(&next) {
            Ok(opened) => *file = opened,
            Err(error) => {
                self.failed = true;
                return Err(error);
            }
        }
        let keep = self.options.rotation.and_then(|r| r.keep).unwrap_or(0);
        // Only once this part has events: a kill before that must not leave nothing but context.
        self.obsolete = (self.part + 1).checked_sub(keep.max(1)).filter(|_| keep > 0);
        self.rotation_due = false;
        self.part += 1;
        self.summary.parts += 1;
        self.part_bytes = 0;
        self.part_span_ns = None;
        self.put_file_header()?;
        self.put_context(FrameKind::Events)
    }
}

impl Subscriber for Writer {
    fn event(&mut self, event: &Event) -> Result<(), SubscriberError> {
        Ok(self.write(event)?)
    }

    /// Writes a frame whose time has come although no event came.
    fn step(&mut self, _step: Step, now_ns: u64) {
        let due = self.frame.since_ns.is_some_and(|since| now_ns.saturating_sub(since) >= self.options.frame_ns);
        if due && !self.failed {
            self.pending_error = self.flush().err();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.failed {
            // Nobody is left to learn of an error.
            let _ = self.flush();
        }
    }
}

fn open_part(path: &Path) -> Result<File, WriteError> {
    keep_old(path)?;
    let is_special = std::fs::metadata(path).is_ok_and(|m| !m.is_file());
    let mut open = OpenOptions::new();
    // It holds command lines and where memory lies.
    open.write(true).mode(0o600);
    if !is_special {
        // Appending lets a reader follow and makes cutting back to whole frames safe.
        open.append(true).create_new(true);
    }
    open.open(path).map_err(|error| WriteError::Io { origin: path.display().to_string(), written: 0, error })
}

fn keep_old(path: &Path) -> Result<(), WriteError> {
    if !std::fs::metadata(path).is_ok_and(|m| m.is_file()) {
        return Ok(());
    }
    let to = with_suffix(path, ".old");
    std::fs::rename(path, &to).map_err(|error| WriteError::KeepOld {
        from: path.display().to_string(),
        to: to.display().to_string(),
        error,
    })
}
