//! A record of any supported format as a source of events that can be read again and again.

use isotherm_core::event::Event;
use isotherm_record::{Input, ReadError, parts, read_events};
use isotherm_view::error::ViewError;
use isotherm_view::replay::{Replay, Sink};
use std::cell::Cell;
use std::path::{Path, PathBuf};

/// A record with all its parts. What reading it brings up is told on stderr, once.
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
    /// What came from a pipe, which can be read only once.
    Memory(Vec<Event>),
}

impl RecordFile {
    /// Finds the parts of the record at `path` and checks that the first one is a record. `-` is standard input. Without
    /// `arguments` they are left out of command lines.
    pub fn open(path: &Path, arguments: bool) -> Result<Self, ViewError> {
        Self::find(path, arguments).map_err(|e| ViewError::Read(e.into()))
    }

    fn find(path: &Path, arguments: bool) -> Result<Self, ReadError> {
        if path == Path::new("-") {
            return Self::load(Input::from_reader("standard input", Box::new(std::io::stdin()))?, arguments);
        }
        if path.metadata().is_ok_and(|m| !m.is_file() && !m.is_dir()) {
            return Self::load(Input::open(path)?, arguments);
        }
        let mut parts = parts(path);
        if parts.is_empty() {
            // Let reading say why.
            parts.push(path.to_owned());
        }
        Input::open(&parts[0])?.format()?;
        Ok(Self { events: Events::Files(parts), arguments, warned: Cell::new(false) })
    }

    fn load(input: Input, arguments: bool) -> Result<Self, ReadError> {
        let mut events = Vec::new();
        let outcome = read_events(input, None, &mut |event| {
            events.push(if arguments { event } else { bare(event) });
            Ok(())
        })?;
        outcome.warnings.iter().for_each(|w| tracing::warn!("{w}"));
        Ok(Self { events: Events::Memory(events), arguments, warned: Cell::new(true) })
    }
}

impl Replay for RecordFile {
    fn replay(&self, sink: &mut Sink) -> Result<(), ViewError> {
        match &self.events {
            Events::Memory(events) => events.replay(sink),
            Events::Files(parts) => {
                for part in parts {
                    let warnings = replay_file(part, self.arguments, sink)?;
                    if !self.warned.get() {
                        warnings.iter().for_each(|w| tracing::warn!("{}: {w}", part.display()));
                    }
                }
                self.warned.set(true);
                Ok(())
            }
        }
    }
}

/// An event without the arguments of command lines.
fn bare(mut event: Event) -> Event {
    if let Event::Target(info) = &mut event {
        info.leave_out_arguments();
    }
    event
}

fn replay_file(path: &Path, arguments: bool, sink: &mut Sink) -> Result<Vec<isotherm_record::Warning>, ViewError> {
    let read_error = |e: ReadError| ViewError::Read(e.into());
    let mut stopped = None;
    let outcome = read_events(Input::open(path).map_err(read_error)?, None, &mut |event| {
        let event = if arguments { event } else { bare(event) };
        sink(&event).map_err(|e| {
            stopped = Some(e);
            "the report has failed".into()
        })
    });
    match (stopped, outcome) {
        (Some(error), _) => Err(error),
        (None, Ok(outcome)) => Ok(outcome.warnings),
        (None, Err(error)) => Err(read_error(error)),
    }
}
