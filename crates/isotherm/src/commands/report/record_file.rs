//! A record on disk as a source of events that can be read again and again.

use isotherm_record::{Reader, parts};
use isotherm_view::error::ViewError;
use isotherm_view::replay::{Replay, Sink};
use std::cell::Cell;
use std::path::{Path, PathBuf};

/// A record with all its parts. What reading it brings up is told on stderr, once.
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
        Reader::open(&parts[0])?;
        Ok(Self { parts, warned: Cell::new(false) })
    }
}

impl Replay for RecordFile {
    fn replay(&self, sink: &mut Sink) -> Result<(), ViewError> {
        for part in &self.parts {
            let mut reader = Reader::open(part).map_err(|e| ViewError::Read(e.into()))?;
            for event in reader.by_ref() {
                sink(&event.map_err(|e| ViewError::Read(e.into()))?)?;
            }
            if !self.warned.get() {
                for warning in reader.warnings() {
                    eprintln!("isotherm: {}: {warning}", part.display());
                }
            }
        }
        self.warned.set(true);
        Ok(())
    }
}
