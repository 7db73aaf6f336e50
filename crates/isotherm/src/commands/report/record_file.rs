//! A record on disk as a source of events that can be read again and again.

use isotherm_record::{Input, ReadError, parts, read_events};
use isotherm_view::error::ViewError;
use isotherm_view::replay::{Replay, Sink};
use std::cell::Cell;
use std::path::{Path, PathBuf};

/// A record of any supported format with all its parts. What reading it brings up is told on stderr, once.
#[derive(Debug)]
pub struct RecordFile {
    parts: Vec<PathBuf>,
    warned: Cell<bool>,
}

impl RecordFile {
    /// Finds the parts of the record at `path` and checks that the first one is a record.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let mut parts = parts(path);
        if parts.is_empty() {
            // Let reading say why.
            parts.push(path.to_owned());
        }
        Input::open(&parts[0])?.format()?;
        Ok(Self { parts, warned: Cell::new(false) })
    }
}

impl Replay for RecordFile {
    fn replay(&self, sink: &mut Sink) -> Result<(), ViewError> {
        for part in &self.parts {
            // The view's own error must come back as it is.
            let mut failure = None;
            let outcome = Input::open(part).and_then(|input| {
                read_events(input, None, &mut |event| {
                    sink(&event).map_err(|e| {
                        failure = Some(e);
                        "the view failed".into()
                    })
                })
            });
            let outcome = match (outcome, failure) {
                (Err(ReadError::Sink(_)), Some(error)) => return Err(error),
                (outcome, _) => outcome.map_err(|e| ViewError::Read(e.into()))?,
            };
            if !self.warned.get() {
                for warning in &outcome.warnings {
                    eprintln!("isotherm: {}: {warning}", part.display());
                }
            }
        }
        self.warned.set(true);
        Ok(())
    }
}
