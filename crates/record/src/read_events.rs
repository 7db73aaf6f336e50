//! Reads a record of any format.

use crate::error::{ReadError, Warning};
use crate::import;
use crate::input::{Input, Sink};
use crate::kind::Format;
use crate::names::shorten;
use crate::reader::Reader;
use isotherm_core::event::Event;
use isotherm_core::printable::make_printable;
use isotherm_core::snapshot::Snapshot;

/// No machine has more addresses: those of processes with five levels of page tables end at 2^56, physical memory at 2^52.
const ADDRESSES_END: u64 = 1 << 57;
/// Nobody samples once in 35 years, µs.
const LONGEST_US: u64 = 1 << 50;

/// What a reading came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The format it was in.
    pub format: Format,
    /// What was noticed.
    pub warnings: Vec<Warning>,
}

/// Takes regions out and intervals back that no machine has, so that whoever adds figures up need not think of them; whether there were
/// any.
fn leave_out_impossible(snapshot: &mut Snapshot) -> bool {
    let (regions, intervals) = (snapshot.regions.len(), (snapshot.sample_us, snapshot.aggr_us));
    snapshot.regions.retain(|region| region.end <= ADDRESSES_END);
    (snapshot.sample_us, snapshot.aggr_us) = (intervals.0.min(LONGEST_US), intervals.1.min(LONGEST_US));
    snapshot.regions.len() != regions || (snapshot.sample_us, snapshot.aggr_us) != intervals
}

/// Hands all events of `input` to `sink`, in the order of time. `format` overrides what the content tells.
///
/// Names are made [printable](isotherm_core::printable), and cut where they are longer than 4 KiB. Memory is bounded
/// whatever the content: a frame, a snapshot (1 Mi regions) and what is known of each target.
pub fn read_events(input: Input, format: Option<Format>, sink: &mut Sink<'_>) -> Result<Outcome, ReadError> {
    let (mut newest_start_ns, mut out_of_order, mut impossible) = (0, 0, 0);
    let sink: &mut Sink<'_> = &mut |mut event: Event| {
        if let Event::Snapshot(snapshot) = &mut event {
            impossible += u64::from(leave_out_impossible(snapshot));
            out_of_order += u64::from(snapshot.end_ns < newest_start_ns);
            newest_start_ns = newest_start_ns.max(snapshot.start_ns);
        }
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
    let mut warnings = match format {
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
    if impossible > 0 {
        warnings.push(Warning::Impossible { snapshots: impossible });
    }
    if out_of_order > 0 {
        warnings.push(Warning::OutOfOrder { snapshots: out_of_order });
    }
    Ok(Outcome { format, warnings })
}
