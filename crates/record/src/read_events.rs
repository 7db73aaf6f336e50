//! Reads a record of any format.

use crate::error::{ReadError, Warning};
use crate::import;
use crate::input::{Input, Sink};
use crate::kind::Format;
use crate::reader::Reader;
use isotherm_core::event::Event;
use isotherm_core::printable::make_printable;

/// Bytes of a name, at most: as many as a path has. What we record is shorter.
const MAX_NAME: usize = 4096;

/// Cuts a name that nobody could read, and that would be kept for each target until the end.
pub(crate) fn shorten(name: &mut String) {
    if name.len() > MAX_NAME {
        let end = (0..=MAX_NAME - '…'.len_utf8()).rev().find(|at| name.is_char_boundary(*at));
        name.truncate(end.unwrap_or_default());
        name.push('…');
        name.shrink_to_fit();
    }
}

/// What a reading came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The format it was in.
    pub format: Format,
    /// What was noticed.
    pub warnings: Vec<Warning>,
}

/// Hands all events of `input` to `sink`, in the order of time. `format` overrides what the content tells.
///
/// Names are made [printable](isotherm_core::printable), and cut where they are longer than 4 KiB. Memory is bounded
/// whatever the content: a frame, a snapshot (1 Mi regions) and what is known of each target.
pub fn read_events(input: Input, format: Option<Format>, sink: &mut Sink<'_>) -> Result<Outcome, ReadError> {
    let sink: &mut Sink<'_> = &mut |mut event: Event| {
        event.each_name(|name| {
            make_printable(name);
            shorten(name);
        });
        sink(event)
    };
    let format = match format {
        Some(format) => format,
        None => input.format()?,
    };
    let warnings = match format {
        Format::Iso => {
            let origin = input.origin().to_owned();
            let mut reader = Reader::new(input.into_stream()?, &origin)?;
            for event in reader.by_ref() {
                sink(event?).map_err(ReadError::Sink)?;
            }
            reader.into_warnings()
        }
        Format::Json | Format::JsonCompressed => import::json::read(input, format == Format::JsonCompressed, sink)?,
        Format::PerfScript => import::perf_script::read(input, sink)?,
        Format::Csv => import::csv::read(input, sink)?,
        Format::BinaryV0 | Format::BinaryV1 | Format::BinaryV2 => import::binary::read(input, format, sink)?,
    };
    Ok(Outcome { format, warnings })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_between_characters() {
        for (name, len) in
            [("x".repeat(MAX_NAME), MAX_NAME), ("x".repeat(9999), MAX_NAME), ("€".repeat(9999), MAX_NAME / 3 * 3)]
        {
            let mut short = name.clone();
            shorten(&mut short);
            assert_eq!(short.len(), len);
            assert!(short == name || short.strip_suffix('…').is_some_and(|begin| name.starts_with(begin)));
        }
    }
}
