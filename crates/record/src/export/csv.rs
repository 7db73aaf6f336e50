//! Comma-separated values: the columns of [`COLUMNS`], a line per region.

use super::{Export, Out};
use crate::error::WriteError;
use crate::import::csv::COLUMNS;
use isotherm_core::event::Event;
use isotherm_core::snapshot::Snapshot;
use std::fmt::Write as _;

/// Writes CSV. A snapshot without regions is a line with empty fields for the region.
pub(crate) struct Csv {
    out: Out,
    text: String,
}

impl Csv {
    pub(crate) fn new(mut out: Out) -> Result<Self, WriteError> {
        out.put(format!("{}\n", COLUMNS.join(",")).as_bytes())?;
        Ok(Self { out, text: String::new() })
    }

    fn add(&mut self, s: &Snapshot) {
        let pid = s.pid.map(|p| p.to_string()).unwrap_or_default();
        let Snapshot { target, start_ns, end_ns, sample_us, aggr_us, max_nr_accesses, .. } = s;
        let head = format!("{target},{pid},{start_ns},{end_ns},{sample_us},{aggr_us},{max_nr_accesses}");
        if s.regions.is_empty() {
            let _ = writeln!(self.text, "{head},,,,,,,,,");
        }
        for r in &s.regions {
            let _ = write!(self.text, "{head},{},{},{},{},", r.start, r.end, r.nr_accesses, r.age);
            let _ = match r.evidence {
                Some(e) => write!(self.text, "{},{},{},{}", e.checks, e.pages, e.present, e.blind),
                None => write!(self.text, ",,,"),
            };
            let _ = match r.accessed {
                Some(bytes) => writeln!(self.text, ",{bytes}"),
                None => writeln!(self.text, ","),
            };
        }
    }
}

impl Export for Csv {
    fn write(&mut self, event: &Event) -> Result<(), WriteError> {
        let Event::Snapshot(snapshot) = event else { return Ok(()) };
        self.text.clear();
        self.add(snapshot);
        self.out.put(self.text.as_bytes())
    }

    fn finish(self: Box<Self>) -> Result<(), WriteError> {
        self.out.finish()
    }
}
