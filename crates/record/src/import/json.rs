//! damo's JSON records, plain or compressed with zlib.
//!
//! The root is a list of records (or, in damo's coming layout, an object that holds one below `damo_records`,
//! `damon_records`, `record_list`). A record is of one target and has a list of snapshots. Records are parsed one
//! after the other, so that one snapshot at a time is in memory, put aside, and handed out in the order of time.

use super::json_region::{JsonRegion, RawRegion};
use super::json_text::{Number, TokenLimit};
use super::timeline::intervals;
use super::{Notes, TargetKey, Targets, USUAL_SAMPLES, tidy};
use crate::error::{ReadError, Warning};
use crate::format::MAX_REGIONS;
use crate::input::{Input, Sink};
use crate::names::shorten;
use crate::spool::{LaneReader, Spool};
use flate2::read::ZlibDecoder;
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::event::{Event, RunInfo};
use isotherm_core::snapshot::Snapshot;
use isotherm_core::target::TargetInfo;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fmt;
use std::io::{BufReader, Read};

/// Most records in a file that is read, and so in one that is written. Each takes some memory until the end.
pub(crate) const MAX_RECORDS: usize = 1 << 12;
/// Most regions in one snapshot of each record together: so many are held to put snapshots in the order of time.
const MAX_HELD: usize = 1 << 21;

const LATE_INTERVALS: &str = "`intervals` comes after snapshots whose `percent`, `hz` or `usec` cannot be told without it; put it before `snapshots`";

/// A record without its snapshots, which are in the lane of the same number.
#[derive(Debug, Default)]
struct Head {
    /// As damo tells it.
    target_id: u64,
    kdamond: Option<u32>,
    context: Option<u32>,
    pid: Option<u32>,
    name: String,
    intervals: Option<Intervals>,
    /// Figures of its snapshots were converted without its intervals.
    guessed: bool,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct Intervals {
    sample_us: Number,
    aggr_us: Number,
    #[serde(default)]
    ops_update_us: Option<Number>,
}

impl Intervals {
    fn sample_us(self) -> u64 {
        self.sample_us.ns(1000) / 1000
    }

    fn aggr_us(self) -> u64 {
        self.aggr_us.ns(1000) / 1000
    }

    fn samples(self) -> u32 {
        u32::try_from(self.aggr_us() / self.sample_us().max(1)).unwrap_or(u32::MAX).max(1)
    }
}

/// Hands out the events of such a record.
pub(crate) fn read(input: Input, compressed: bool, sink: &mut Sink<'_>) -> Result<Vec<Warning>, ReadError> {
    let origin = input.origin().to_owned();
    let progress = input.progress();
    let len = input.len();
    let stream = input.into_stream()?;
    let unpacked: Box<dyn Read> = if compressed { Box::new(ZlibDecoder::new(stream)) } else { stream };
    let mut text = serde_json::Deserializer::from_reader(BufReader::new(TokenLimit::new(unpacked)));
    let mut parts = Parts::default();
    let parsed = Root(&mut parts).deserialize(&mut text).and_then(|()| text.end());
    let mut notes = Notes::default();
    if let Err(error) = parsed {
        if let Some(spool) = parts.failure.take() {
            return Err(ReadError::Io { origin: "the temporary file".into(), error: spool });
        }
        if parts.heads.last().is_some_and(|head| head.guessed && head.intervals.is_some()) {
            let position = format!("line {} column {}", error.line(), error.column());
            return Err(ReadError::Malformed { origin, position, what: LATE_INTERVALS.into() });
        }
        let offset = progress.load(std::sync::atomic::Ordering::Relaxed);
        let unexpected_end = error.io_error_kind() == Some(std::io::ErrorKind::UnexpectedEof) || error.is_eof();
        if parts.snapshots == 0 {
            let position = format!("line {} column {}", error.line(), error.column());
            let what = format!("this is no damo record: {error}");
            return Err(ReadError::Malformed { origin, position, what });
        }
        notes.warnings.push(if unexpected_end {
            Warning::Truncated { offset }
        } else {
            let what = format!("what follows snapshot {} cannot be read: {error}", parts.snapshots);
            Warning::Damaged { offset, bytes: len.unwrap_or(offset).saturating_sub(offset), what }
        });
    }
    notes.adjusted = parts.adjusted;
    parts.hand_out(sink, &origin)?;
    Ok(notes.finish())
}

/// What was parsed so far.
#[derive(Debug, Default)]
struct Parts {
    heads: Vec<Head>,
    spool: Spool,
    snapshots: u64,
    adjusted: u64,
    failure: Option<std::io::Error>,
}

impl Parts {
    /// Puts a snapshot aside. Unknown intervals are 0 until the record's end.
    fn put_aside(&mut self, lane: usize, s: Snapshot) -> Result<(), std::io::Error> {
        self.snapshots += 1;
        self.spool.push(lane, &Event::Snapshot(s))
    }

    fn hand_out(self, sink: &mut Sink<'_>, origin: &str) -> Result<(), ReadError> {
        let io_error = |error| ReadError::Io { origin: format!("the temporary copy of {origin}"), error };
        if let Some(run) = self.heads.iter().find_map(|h| h.intervals).map(run_info) {
            sink(Event::Run(run)).map_err(ReadError::Sink)?;
        }
        let (mut targets, mut numbers) = (Targets::default(), Vec::new());
        let mut reported: HashMap<u32, TargetInfo> = HashMap::new();
        // Of those that got other numbers than their own.
        let mut words: HashMap<u32, String> = HashMap::new();
        for head in &self.heads {
            let Head { target_id: id, kdamond, context, .. } = *head;
            let (target, new) = targets.number(TargetKey { kdamond, context, id }, false);
            numbers.push(target);
            if let Some(new) = new {
                words.insert(target, new.name);
            }
            let name = Some(&head.name).filter(|name| !name.is_empty()).or_else(|| words.get(&target));
            let info = TargetInfo { target, pid: head.pid, name: name.cloned().unwrap_or_default() };
            if reported.get(&target) != Some(&info) {
                reported.insert(target, info.clone());
                sink(Event::Target(info)).map_err(ReadError::Sink)?;
            }
        }
        let lanes = self.spool.lanes();
        let stored = self.spool.finish().map_err(io_error)?;
        let mut merge = Merge { readers: (0..lanes).map(|lane| stored.lane(lane)).collect(), ..Merge::default() };
        let advance = |merge: &mut Merge<'_>, lane| {
            merge.advance(lane).map_err(io_error)?;
            if merge.regions <= MAX_HELD {
                return Ok(());
            }
            let what = "the snapshots of all targets together have too many regions".to_owned();
            Err(ReadError::Malformed { origin: origin.to_owned(), position: "records".into(), what })
        };
        for lane in 0..lanes {
            advance(&mut merge, lane)?;
        }
        while let Some((lane, mut snapshot)) = merge.earliest() {
            advance(&mut merge, lane)?;
            complete(&mut snapshot, &self.heads[lane]);
            snapshot.target = numbers[lane];
            sink(Event::Snapshot(snapshot)).map_err(ReadError::Sink)?;
        }
        Ok(())
    }
}

/// The next snapshot of each record, and which comes first.
#[derive(Default)]
struct Merge<'a> {
    readers: Vec<LaneReader<'a>>,
    waiting: HashMap<usize, Snapshot>,
    order: BinaryHeap<Reverse<(u64, usize)>>,
    /// Regions in `waiting`.
    regions: usize,
}

impl Merge<'_> {
    /// Takes the next snapshot of a record.
    fn advance(&mut self, lane: usize) -> std::io::Result<()> {
        if let Some(Event::Snapshot(s)) = self.readers[lane].next_event()? {
            self.order.push(Reverse((s.end_ns, lane)));
            self.regions += s.regions.len();
            self.waiting.insert(lane, s);
        }
        Ok(())
    }

    fn earliest(&mut self) -> Option<(usize, Snapshot)> {
        let Reverse((_, lane)) = self.order.pop()?;
        let snapshot = self.waiting.remove(&lane)?;
        self.regions -= snapshot.regions.len();
        Some((lane, snapshot))
    }
}

/// Fills in what only the record's head tells.
fn complete(s: &mut Snapshot, head: &Head) {
    s.pid = head.pid;
    let tuned = (s.sample_us > 0).then_some(s.sample_us);
    let (sample_us, aggr_us, max) = match head.intervals {
        Some(i) if i.sample_us() > 0 && i.aggr_us() > 0 => match tuned.filter(|&t| t != i.sample_us()) {
            // Tuning keeps the ratio.
            Some(sample) => (sample, sample.saturating_mul(u64::from(i.samples())), i.samples()),
            None => (i.sample_us(), i.aggr_us(), i.samples()),
        },
        _ => intervals(s.end_ns - s.start_ns, tuned, &s.regions),
    };
    (s.sample_us, s.aggr_us) = (sample_us, aggr_us);
    if s.max_nr_accesses == 0 {
        s.max_nr_accesses = max;
    }
}

/// What a damo record tells of the run. Limits of regions are not in it: 0.
fn run_info(i: Intervals) -> RunInfo {
    RunInfo {
        source: String::new(),
        algorithm: String::new(),
        attrs: MonitorAttrs {
            sample_us: i.sample_us(),
            aggr_us: i.aggr_us(),
            update_us: i.ops_update_us.map_or(0, |u| u.ns(1000) / 1000),
            min_regions: 0,
            max_regions: 0,
        },
        cpu_budget: None,
        kernel: String::new(),
        realtime_offset_ns: 0,
    }
}

/// The root: a list of records, or an object on the way to one.
struct Root<'a>(&'a mut Parts);

impl<'de> DeserializeSeed<'de> for Root<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Root<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of damo's records")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(Record(&mut *self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut found = false;
        while let Some(key) = map.next_key::<String>()? {
            if matches!(key.as_str(), "damo_records" | "damon_records" | "record_list") {
                map.next_value_seed(Root(&mut *self.0))?;
                found = true;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        if found { Ok(()) } else { Err(A::Error::custom("the object holds no list of records")) }
    }
}

/// A record: its head is kept, its snapshots go to the spool.
struct Record<'a>(&'a mut Parts);

impl<'de> DeserializeSeed<'de> for Record<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Record<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a record with target_id and snapshots")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let parts = self.0;
        if parts.heads.len() == MAX_RECORDS {
            return Err(A::Error::custom(format_args!("more than {MAX_RECORDS} records")));
        }
        let lane = parts.heads.len();
        parts.heads.push(Head::default());
        let mut has_snapshots = false;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "target_id" => {
                    parts.heads[lane].target_id = map.next_value::<Option<Number>>()?.map_or(0, Number::count);
                }
                "kdamond_idx" => parts.heads[lane].kdamond = small(map.next_value()?),
                "context_idx" => parts.heads[lane].context = small(map.next_value()?),
                "pid" => parts.heads[lane].pid = map.next_value()?,
                "name" => {
                    let mut name = map.next_value()?;
                    shorten(&mut name);
                    parts.heads[lane].name = name;
                }
                "intervals" => {
                    let head = &mut parts.heads[lane];
                    head.intervals = map.next_value()?;
                    if head.guessed && head.intervals.is_some() {
                        return Err(A::Error::custom(LATE_INTERVALS));
                    }
                }
                "snapshots" => {
                    map.next_value_seed(Snapshots { parts, lane })?;
                    has_snapshots = true;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        if has_snapshots { Ok(()) } else { Err(A::Error::missing_field("snapshots")) }
    }
}

/// A place in a list, as far as there is one.
fn small(number: Option<Number>) -> Option<u32> {
    number.map(|number| u32::try_from(number.count()).unwrap_or(u32::MAX))
}

struct Snapshots<'a> {
    parts: &'a mut Parts,
    lane: usize,
}

impl<'de> DeserializeSeed<'de> for Snapshots<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Snapshots<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of snapshots")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let intervals = self.parts.heads[self.lane].intervals;
        while let Some(OneOfThem { mut snapshot, put_right, guessed }) =
            seq.next_element_seed(OneSnapshot { intervals })?
        {
            self.parts.heads[self.lane].guessed |= guessed;
            // damo ends a record of a single snapshot with a false one.
            let is_false = matches!(snapshot.regions[..], [r] if r.end == 0);
            if !is_false {
                let put_right = tidy(&mut snapshot.regions) || put_right;
                self.parts.adjusted += u64::from(put_right);
                if let Err(error) = self.parts.put_aside(self.lane, snapshot) {
                    self.parts.failure = Some(error);
                    return Err(A::Error::custom("the temporary file failed"));
                }
            }
        }
        Ok(())
    }
}

/// Reads a snapshot.
struct OneSnapshot {
    intervals: Option<Intervals>,
}

/// What was read.
struct OneOfThem {
    snapshot: Snapshot,
    /// Its times had to be.
    put_right: bool,
    /// Its figures were converted without the record's intervals.
    guessed: bool,
}

impl<'de> DeserializeSeed<'de> for OneSnapshot {
    type Value = OneOfThem;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for OneSnapshot {
    type Value = OneOfThem;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a snapshot with start_time, end_time and regions")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut start, mut end, mut sample, mut max, mut regions) = (None, None, None, None, None);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "start_time" => start = Some(map.next_value::<Number>()?.ns(1)),
                "end_time" => end = Some(map.next_value::<Number>()?.ns(1)),
                "sample_interval_us" => sample = map.next_value::<Option<Number>>()?.map(|n| n.ns(1000) / 1000),
                "max_nr_accesses" => max = map.next_value::<Option<u32>>()?,
                "regions" => regions = Some(map.next_value_seed(Regions)?),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        let start_ns = start.ok_or_else(|| A::Error::missing_field("start_time"))?;
        let end_ns = end.ok_or_else(|| A::Error::missing_field("end_time"))?;
        let regions: Vec<RawRegion> = regions.ok_or_else(|| A::Error::missing_field("regions"))?;
        let guessed = self.intervals.is_none() && regions.iter().any(RawRegion::needs_intervals);
        let (samples, aggr_us) = match self.intervals {
            Some(intervals) => (intervals.samples(), intervals.aggr_us()),
            None => (USUAL_SAMPLES, end_ns.saturating_sub(start_ns) / 1000),
        };
        let snapshot = Snapshot {
            target: 0,
            pid: None,
            start_ns: start_ns.min(end_ns),
            end_ns,
            sample_us: sample.unwrap_or(0),
            aggr_us: 0,
            max_nr_accesses: max.unwrap_or(0),
            regions: regions.into_iter().map(|region| region.figures(samples, aggr_us)).collect(),
        };
        Ok(OneOfThem { snapshot, put_right: start_ns > end_ns, guessed })
    }
}

struct Regions;

impl<'de> DeserializeSeed<'de> for Regions {
    type Value = Vec<RawRegion>;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Regions {
    type Value = Vec<RawRegion>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of regions")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut regions = Vec::new();
        while let Some(region) = seq.next_element::<JsonRegion>()? {
            if regions.len() == MAX_REGIONS {
                return Err(A::Error::custom("a snapshot of more than 1048576 regions"));
            }
            regions.push(region.into());
        }
        Ok(regions)
    }
}
