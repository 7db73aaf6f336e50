//! Comma-separated values: a header that names the columns, then a line per region.

use super::lines::{Lines, TextLine};
use super::timeline::intervals;
use super::{Notes, tidy};
use crate::error::{ReadError, Warning};
use crate::format::MAX_REGIONS;
use crate::input::{Input, Sink};
use isotherm_core::event::{Event, SubscriberError};
use isotherm_core::snapshot::{Evidence, RegionInfo, Snapshot};
use isotherm_core::target::TargetInfo;
use std::collections::HashMap;

/// Columns in the order in which we write them.
pub(crate) const COLUMNS: [&str; 16] = [
    "target",
    "pid",
    "start_ns",
    "end_ns",
    "sample_us",
    "aggr_us",
    "max_nr_accesses",
    "start",
    "end",
    "nr_accesses",
    "age",
    "checks",
    "pages",
    "present",
    "blind",
    "accessed",
];

const TARGET: usize = 0;
const PID: usize = 1;
const START_NS: usize = 2;
const END_NS: usize = 3;
const SAMPLE_US: usize = 4;
const AGGR_US: usize = 5;
const MAX_NR: usize = 6;
const START: usize = 7;
const END: usize = 8;
const NR: usize = 9;
const AGE: usize = 10;
const EVIDENCE: usize = 11;
const ACCESSED: usize = 15;

/// Without these a line says nothing.
const REQUIRED: [usize; 5] = [START_NS, END_NS, START, END, NR];

/// Whether a line is a header that has the columns which are needed.
pub(crate) fn is_header(line: &[u8]) -> bool {
    std::str::from_utf8(line).is_ok_and(|l| header(l).is_some())
}

/// Position of each known column in the file.
fn header(line: &str) -> Option<[Option<usize>; COLUMNS.len()]> {
    let mut places = [None; COLUMNS.len()];
    for (place, name) in line.trim_start_matches('\u{feff}').split(',').enumerate() {
        if let Some(column) = COLUMNS.iter().position(|c| *c == name.trim().trim_matches('"')) {
            places[column] = Some(place);
        }
    }
    REQUIRED.iter().all(|&c| places[c].is_some()).then_some(places)
}

/// A line: the snapshot it belongs to, and its region unless the snapshot is empty.
struct Row {
    target: u32,
    pid: Option<u32>,
    start_ns: u64,
    end_ns: u64,
    /// Sampling interval, aggregation interval, largest count, where the file tells them.
    intervals: Option<(u64, u64, u32)>,
    region: Option<RegionInfo>,
}

/// Hands out the events of such a file.
pub(crate) fn read(input: Input, sink: &mut Sink<'_>) -> Result<Vec<Warning>, ReadError> {
    let origin = input.origin().to_owned();
    let io_error = |error| ReadError::Io { origin: origin.clone(), error };
    let mut lines = Lines::new(input.into_stream()?);
    let places = match lines.next().map_err(io_error)? {
        Some((_, TextLine::Text(text))) => header(&text),
        _ => None,
    };
    let Some(places) = places else {
        let needed: Vec<&str> = REQUIRED.iter().map(|&c| COLUMNS[c]).collect();
        return Err(ReadError::Malformed {
            origin,
            position: "line 1".into(),
            what: format!("the header must name at least {}", needed.join(", ")),
        });
    };
    let mut notes = Notes::default();
    let mut out = Out::default();
    while let Some((number, line)) = lines.next().map_err(io_error)? {
        let row = match line {
            TextLine::Text(text) if text.is_empty() => continue,
            TextLine::Text(text) => parse_row(&text, &places),
            TextLine::TooLong => Err("it is too long"),
        };
        match row {
            Ok(row) => out.add(row, number, &mut notes, sink).map_err(ReadError::Sink)?,
            Err(why) => notes.skip(number, why),
        }
    }
    out.flush(&mut notes, sink).map_err(ReadError::Sink)?;
    Ok(notes.finish())
}

fn parse_row(line: &str, places: &[Option<usize>; COLUMNS.len()]) -> Result<Row, &'static str> {
    let mut fields: [Option<u64>; COLUMNS.len()] = [None; COLUMNS.len()];
    let mut count = 0;
    for (place, text) in line.split(',').enumerate() {
        count += 1;
        let text = text.trim().trim_matches('"');
        let Some(column) = places.iter().position(|p| *p == Some(place)) else { continue };
        if !text.is_empty() {
            fields[column] = Some(text.parse().map_err(|_| "a field is not a number")?);
        }
    }
    if places.iter().flatten().any(|&p| p >= count) {
        return Err("it has fewer fields than the header");
    }
    let small =
        |column: usize| fields[column].map(|v| u32::try_from(v).map_err(|_| "a field is too large")).transpose();
    let (Some(start_ns), Some(end_ns)) = (fields[START_NS], fields[END_NS]) else { return Err("a time is missing") };
    if end_ns < start_ns {
        return Err("the snapshot ends before it starts");
    }
    let region = match (fields[START], fields[END], small(NR)?) {
        (None, None, None) => None,
        (Some(start), Some(end), Some(nr_accesses)) if start < end => {
            let e = [small(EVIDENCE)?, small(EVIDENCE + 1)?, small(EVIDENCE + 2)?, small(EVIDENCE + 3)?];
            let evidence = match e {
                [Some(checks), Some(pages), Some(present), Some(blind)] => {
                    Some(Evidence { checks, pages, present, blind })
                }
                _ => None,
            };
            let accessed = fields[ACCESSED];
            if accessed.is_some_and(|bytes| bytes > end - start) {
                return Err("more was accessed than the region has");
            }
            Some(RegionInfo { start, end, nr_accesses, age: small(AGE)?.unwrap_or(0), evidence, accessed })
        }
        (Some(_), Some(_), Some(_)) => return Err("the region is empty or ends before it starts"),
        _ => return Err("a figure of the region is missing"),
    };
    let intervals = match (fields[SAMPLE_US], fields[AGGR_US], small(MAX_NR)?) {
        (Some(sample), Some(aggr), Some(max)) => Some((sample, aggr, max)),
        _ => None,
    };
    Ok(Row { target: small(TARGET)?.unwrap_or(0), pid: small(PID)?, start_ns, end_ns, intervals, region })
}

/// Joins lines to snapshots.
#[derive(Default)]
struct Out {
    pids: HashMap<u32, Option<u32>>,
    open: Option<(Snapshot, bool)>,
}

impl Out {
    fn add(&mut self, row: Row, line: u64, notes: &mut Notes, sink: &mut Sink<'_>) -> Result<(), SubscriberError> {
        let same = self.open.as_ref().is_some_and(|(s, _)| {
            (s.target, s.pid, s.start_ns, s.end_ns) == (row.target, row.pid, row.start_ns, row.end_ns)
                && row.intervals.is_none_or(|i| i == (s.sample_us, s.aggr_us, s.max_nr_accesses))
        });
        if !same {
            self.flush(notes, sink)?;
        }
        let (snapshot, _) = self.open.get_or_insert_with(|| {
            let (sample_us, aggr_us, max_nr_accesses) = row.intervals.unwrap_or_default();
            let snapshot = Snapshot {
                target: row.target,
                pid: row.pid,
                start_ns: row.start_ns,
                end_ns: row.end_ns,
                sample_us,
                aggr_us,
                max_nr_accesses,
                regions: Vec::new(),
            };
            (snapshot, row.intervals.is_some())
        });
        if snapshot.regions.len() >= MAX_REGIONS {
            notes.skip(line, "the snapshot has too many regions");
        } else {
            snapshot.regions.extend(row.region);
        }
        Ok(())
    }

    fn flush(&mut self, notes: &mut Notes, sink: &mut Sink<'_>) -> Result<(), SubscriberError> {
        let Some((mut snapshot, intervals_known)) = self.open.take() else { return Ok(()) };
        let target = snapshot.target;
        if self.pids.insert(target, snapshot.pid) != Some(snapshot.pid) {
            sink(Event::Target(TargetInfo { target, pid: snapshot.pid, name: String::new() }))?;
        }
        if tidy(&mut snapshot.regions) {
            notes.adjusted += 1;
        }
        if !intervals_known {
            let length = snapshot.end_ns - snapshot.start_ns;
            (snapshot.sample_us, snapshot.aggr_us, snapshot.max_nr_accesses) =
                intervals(length, None, &snapshot.regions);
        }
        sink(Event::Snapshot(snapshot))
    }
}
