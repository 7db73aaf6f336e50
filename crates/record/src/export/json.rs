//! damo's JSON, plain or compressed: a list of records, one per target and set of intervals.
//!
//! Two keys are added that damo passes over: a record's `pid` and `name`, and a snapshot's `max_nr_accesses` where it
//! is not the number of sampling intervals in an aggregation.

use super::{Export, Out};
use crate::error::WriteError;
use crate::import::json::MAX_RECORDS;
use crate::spool::Spool;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use isotherm_core::event::Event;
use isotherm_core::snapshot::Snapshot;
use isotherm_core::target::TargetInfo;
use std::collections::HashMap;
use std::io::{self, BufWriter, Write};

/// Interval at which mappings are read that is written where the record does not know: damo's default.
const USUAL_UPDATE_US: u64 = 1_000_000;

/// What damo keeps apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    target: u32,
    pid: Option<u32>,
    sample_us: u64,
    aggr_us: u64,
}

/// Writes damo's JSON. Snapshots wait in a temporary file until the end, since the format stores target by target.
pub(crate) struct Json {
    out: Out,
    compressed: bool,
    spool: Spool,
    lanes: HashMap<Key, usize>,
    keys: Vec<Key>,
    names: HashMap<u32, TargetInfo>,
    update_us: Option<u64>,
}

impl Json {
    pub(crate) fn new(out: Out) -> Self {
        Self {
            out,
            compressed: false,
            spool: Spool::default(),
            lanes: HashMap::new(),
            keys: Vec::new(),
            names: HashMap::new(),
            update_us: None,
        }
    }

    pub(crate) fn compressed(out: Out) -> Self {
        Self { compressed: true, ..Self::new(out) }
    }

    /// The lane of a record's snapshots. Fails where the record would be one more than a reader takes.
    fn lane(&mut self, key: Key) -> Result<usize, WriteError> {
        if let Some(lane) = self.lanes.get(&key) {
            return Ok(*lane);
        }
        let lane = self.keys.len();
        if lane == MAX_RECORDS {
            return Err(self.out.unfit(&format!(
                "a file of damo's JSON has {MAX_RECORDS} records at most, one for each target, pid and pair of intervals, and this \
                 needs more; write csv or iso"
            )));
        }
        self.lanes.insert(key, lane);
        self.keys.push(key);
        Ok(lane)
    }
}

impl Export for Json {
    fn write(&mut self, event: &Event) -> Result<(), WriteError> {
        match event {
            Event::Run(run) => {
                self.update_us.get_or_insert(run.attrs.update_us);
            }
            Event::Target(t) => {
                self.names.insert(t.target, t.clone());
            }
            Event::Snapshot(s) => {
                let key = Key { target: s.target, pid: s.pid, sample_us: s.sample_us, aggr_us: s.aggr_us };
                let lane = self.lane(key)?;
                self.spool.push(lane, event).map_err(|e| self.out.error(e))?;
            }
            Event::Mappings { .. }
            | Event::Stats(_)
            | Event::Footprint(_)
            | Event::End { .. }
            | Event::Pages(_)
            | Event::Together(_) => {}
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), WriteError> {
        let Self { out, compressed, spool, keys, names, update_us, .. } = *self;
        let origin = out.origin.clone();
        let update_us = update_us.filter(|&u| u > 0).unwrap_or(USUAL_UPDATE_US);
        let mut body = Body { spool, keys, names, update_us };
        let written = if compressed {
            let mut packed = ZlibEncoder::new(BufWriter::new(out), Compression::default());
            body.put(&mut packed).and_then(|()| packed.finish()?.flush())
        } else {
            let mut text = BufWriter::new(out);
            body.put(&mut text).and_then(|()| text.flush())
        };
        written.map_err(|error| WriteError::Io { origin, written: 0, error })
    }
}

/// All that is to be written.
struct Body {
    spool: Spool,
    keys: Vec<Key>,
    names: HashMap<u32, TargetInfo>,
    update_us: u64,
}

impl Body {
    fn put(&mut self, w: &mut dyn Write) -> io::Result<()> {
        let stored = std::mem::take(&mut self.spool).finish()?;
        w.write_all(b"[")?;
        for (lane, key) in self.keys.iter().enumerate() {
            w.write_all(if lane > 0 { b",\n" } else { b"\n" })?;
            self.put_head(w, key)?;
            let mut reader = stored.lane(lane);
            let mut first = true;
            while let Some(event) = reader.next_event()? {
                if let Event::Snapshot(s) = event {
                    w.write_all(if first { b"\n" } else { b",\n" })?;
                    put_snapshot(w, &s)?;
                    first = false;
                }
            }
            w.write_all(b"\n        ],\n        \"data_source\": \"unknown\"\n    }")?;
        }
        w.write_all(b"\n]\n")
    }

    fn put_head(&self, w: &mut dyn Write, key: &Key) -> io::Result<()> {
        let Key { target, pid, sample_us, aggr_us } = key;
        let update_us = self.update_us;
        writeln!(w, "    {{\n        \"kdamond_idx\": 0,\n        \"context_idx\": 0,")?;
        writeln!(w, "        \"intervals\": {{")?;
        writeln!(w, "            \"sample_us\": {sample_us},\n            \"aggr_us\": {aggr_us},")?;
        writeln!(w, "            \"ops_update_us\": {update_us}\n        }},")?;
        writeln!(w, "        \"scheme_idx\": null,\n        \"target_id\": {target},")?;
        if let Some(pid) = pid {
            writeln!(w, "        \"pid\": {pid},")?;
        }
        if let Some(info) = self.names.get(target).filter(|i| !i.name.is_empty()) {
            writeln!(w, "        \"name\": {},", serde_json::to_string(&info.name)?)?;
        }
        write!(w, "        \"scheme_filters\": [],\n        \"snapshots\": [")
    }
}

fn put_snapshot(w: &mut dyn Write, s: &Snapshot) -> io::Result<()> {
    let Snapshot { start_ns, end_ns, sample_us, aggr_us, max_nr_accesses, .. } = s;
    writeln!(w, "            {{\n                \"start_time\": {start_ns},")?;
    write!(w, "                \"end_time\": {end_ns},\n                \"regions\": [")?;
    for (i, r) in s.regions.iter().enumerate() {
        let comma = if i > 0 { "," } else { "" };
        let percent = f64::from(r.nr_accesses) * 100.0 / f64::from(*max_nr_accesses);
        let usec = u64::from(r.age).saturating_mul(*aggr_us);
        write!(w, "{comma}\n                    {{\n                        \"start\": {},", r.start)?;
        write!(w, "\n                        \"end\": {},", r.end)?;
        write!(w, "\n                        \"nr_accesses\": {{")?;
        write!(w, "\n                            \"samples\": {},", r.nr_accesses)?;
        if percent.is_finite() {
            write!(w, "\n                            \"percent\": {percent}")?;
        } else {
            write!(w, "\n                            \"percent\": null")?;
        }
        write!(w, "\n                        }},\n                        \"age\": {{")?;
        write!(w, "\n                            \"usec\": {usec},")?;
        write!(w, "\n                            \"aggr_intervals\": {}", r.age)?;
        write!(w, "\n                        }},\n                        \"probe_hits\": [],")?;
        write!(w, "\n                        \"sz_filter_passed\": 0\n                    }}")?;
    }
    let total = s.total_len();
    write!(w, "\n                ],\n                \"total_bytes\": {total},")?;
    if u64::from(*max_nr_accesses) != (aggr_us / (*sample_us).max(1)).max(1) {
        write!(w, "\n                \"max_nr_accesses\": {max_nr_accesses},")?;
    }
    write!(w, "\n                \"damos_stats\": null,")?;
    write!(w, "\n                \"sample_interval_us\": {sample_us}\n            }}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::{Shared, read};
    use crate::{Format, exporter};
    use isotherm_core::snapshot::RegionInfo;

    fn snapshot(number: u64) -> Event {
        let region = RegionInfo { start: 4096, end: 8192, nr_accesses: 1, age: 1, evidence: None, accessed: None };
        // The length of an aggregation interval changes each time, as it does where the kernel tunes it.
        let aggr_us = 100_000 + number;
        Event::Snapshot(Snapshot {
            target: 0,
            pid: None,
            start_ns: number * 1_000_000_000,
            end_ns: number * 1_000_000_000 + aggr_us * 1000,
            sample_us: 5000,
            aggr_us,
            max_nr_accesses: 20,
            regions: vec![region],
        })
    }

    #[test]
    fn no_more_records_are_written_than_are_read_back() {
        for format in [Format::Json, Format::JsonCompressed] {
            let bytes = Shared::default();
            let mut out = exporter(format, "tuned.json", Box::new(bytes.clone())).unwrap();
            let most = MAX_RECORDS as u64;
            (0..most).for_each(|number| out.write(&snapshot(number)).unwrap());
            let error = out.write(&snapshot(most)).unwrap_err();
            assert!(matches!(error, WriteError::Unfit { .. }), "{error:?}");
            let error = error.to_string();
            assert!(["tuned.json", "4096 records", "csv or iso"].iter().all(|part| error.contains(part)), "{error}");
            out.write(&snapshot(0)).expect("a further snapshot of a record that there is");
            out.finish().unwrap();
            let reading = read(&bytes.take(), None);
            assert_eq!(reading.end.unwrap().warnings, []);
            let snapshots = reading.events.iter().filter(|event| matches!(event, Event::Snapshot(_))).count();
            assert_eq!(snapshots, MAX_RECORDS + 1);
        }
    }
}
