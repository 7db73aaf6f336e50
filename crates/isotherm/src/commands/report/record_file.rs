//! A record of any supported format as a source of events that can be read again and again.

use isotherm_core::event::Event;
use isotherm_record::{Input, ReadError, missing_parts, parts, read_events};
use isotherm_view::error::ViewError;
use isotherm_view::replay::{Replay, Sink};
use std::cell::Cell;
use std::path::{Path, PathBuf};

/// A record with all its parts. What reading it brings up is reported on stderr, once.
#[derive(Debug)]
pub struct RecordFile {
    events: Events,
    /// Whether command lines keep their arguments.
    arguments: bool,
    warned: Cell<bool>,
}

#[derive(Debug)]
enum Events {
    /// Files that are read anew each time.
    Files(Vec<PathBuf>),
    /// What came from a pipe, which can be read only once: a copy of it.
    Copy(Input),
}

impl RecordFile {
    /// Finds the parts of the record at `path` and checks that the first one is a record. `-` is standard input.
    /// Without `arguments` they are left out of command lines.
    pub fn open(path: &Path, arguments: bool) -> Result<Self, ViewError> {
        Self::find(path, arguments).map_err(|e| ViewError::Read(e.into()))
    }

    fn find(path: &Path, arguments: bool) -> Result<Self, ReadError> {
        if path == Path::new("-") {
            return Self::copy(Input::from_reader("standard input", Box::new(std::io::stdin()))?, arguments);
        }
        if path.metadata().is_ok_and(|m| !m.is_file() && !m.is_dir()) {
            return Self::copy(Input::open(path)?, arguments);
        }
        let parts = parts(path);
        warn_of_missing(path);
        Input::open(&parts[0])?.format()?;
        Ok(Self { events: Events::Files(parts), arguments, warned: Cell::new(false) })
    }

    /// On disk and packed as it came: its events can take a thousand times as much, and nobody knows before.
    fn copy(input: Input, arguments: bool) -> Result<Self, ReadError> {
        input.format()?;
        Ok(Self { events: Events::Copy(input.make_seekable()?), arguments, warned: Cell::new(false) })
    }
}

impl RecordFile {
    /// The files that are read. Of what is no plain file, only standard input may have one behind it.
    pub fn files(&self) -> Vec<PathBuf> {
        match &self.events {
            Events::Files(parts) => parts.clone(),
            Events::Copy(_) => vec![PathBuf::from("-")],
        }
    }
}

impl Replay for RecordFile {
    fn replay(&self, sink: &mut Sink) -> Result<(), ViewError> {
        match &self.events {
            Events::Copy(copy) => self.replay_one(copy.again(), sink)?,
            Events::Files(parts) => parts.iter().try_for_each(|part| self.replay_one(Input::open(part), sink))?,
        }
        self.warned.set(true);
        Ok(())
    }
}

impl RecordFile {
    /// Hands out the events of a part.
    fn replay_one(&self, input: Result<Input, ReadError>, sink: &mut Sink) -> Result<(), ViewError> {
        let read_error = |e: ReadError| ViewError::Read(e.into());
        let input = input.map_err(read_error)?;
        let origin = input.origin().to_owned();
        let mut stopped = None;
        let outcome = read_events(input, None, &mut |event| {
            let event = if self.arguments { event } else { bare(event) };
            sink(&event).map_err(|e| {
                stopped = Some(e);
                "the report has failed".into()
            })
        });
        match (stopped, outcome) {
            (Some(error), _) => Err(error),
            (None, Ok(outcome)) => {
                if !self.warned.get() {
                    outcome.warnings.iter().for_each(|w| tracing::warn!("{origin}: {w}"));
                }
                Ok(())
            }
            (None, Err(error)) => Err(read_error(error)),
        }
    }
}

/// Says which parts of a record are left out.
pub fn warn_of_missing(path: &Path) {
    for range in missing_parts(path) {
        let which = if range.start() == range.end() {
            format!("part {} is", range.start())
        } else {
            format!("parts {} to {} are", range.start(), range.end())
        };
        tracing::warn!("{}: {which} missing or cannot be read; what they held is left out", path.display());
    }
}

/// An event without the arguments of command lines.
fn bare(mut event: Event) -> Event {
    if let Event::Target(info) = &mut event {
        info.leave_out_arguments();
    }
    event
}
