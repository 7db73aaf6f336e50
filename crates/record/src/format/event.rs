//! Events as bytes: kind, length of the body, body. The length lets a reader pass over kinds and trailing fields that
//! it does not know.

use super::pages;
use super::snapshot::{self, Memory};
use super::varint::{Cursor, DecodeError, put, put_delta, put_text, unzigzag, zigzag};
use super::{MAX_MAPPINGS, MAX_NAME_BYTES};
use isotherm_core::addr::AddrRange;
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::event::{Event, Mode, MonitorStats, RunInfo};
use isotherm_core::mapping::{Mapping, MappingKind};
use isotherm_core::target::{Footprint, TargetEnd, TargetInfo};
use std::collections::HashMap;

const RUN: u64 = 1;
const TARGET: u64 = 2;
const MAPPINGS: u64 = 3;
const SNAPSHOT: u64 = 4;
const STATS: u64 = 5;
const FOOTPRINT: u64 = 6;
const END: u64 = 7;
const PAGES: u64 = 8;
const TOGETHER: u64 = 9;

const SHARED: u8 = 1;
const LOCKED: u8 = 1 << 1;

/// What writer and reader remember within a frame.
#[derive(Debug, Default)]
pub(crate) struct FrameState {
    /// Time of the last event that has one, of the kinds that the first readers knew.
    now_ns: u64,
    snapshots: Memory,
}

impl FrameState {
    /// A frame begins: nothing outside it may be referred to.
    pub(crate) fn clear(&mut self) {
        self.now_ns = 0;
        self.snapshots.clear();
    }

    /// Takes the time of an event. Events about pages do not count: readers that pass over them could not follow.
    fn advance(&mut self, event: &Event) {
        if !matches!(event, Event::Pages(_) | Event::Together(_)) {
            self.now_ns = time_ns(event).unwrap_or(self.now_ns);
        }
    }
}

/// The time of an event, if it has one (a snapshot's is its end).
pub(crate) fn time_ns(event: &Event) -> Option<u64> {
    match event {
        Event::Run(_) | Event::Target(_) => None,
        Event::Mappings { time_ns, .. } | Event::End { time_ns, .. } => Some(*time_ns),
        Event::Snapshot(s) => Some(s.end_ns),
        Event::Stats(s) => Some(s.time_ns),
        Event::Footprint(f) => Some(f.time_ns),
        Event::Pages(p) => Some(p.time_ns),
        Event::Together(t) => Some(t.time_ns),
    }
}

/// Appends an event. On failure `out` and the state are void and the frame must not be written.
pub(crate) fn encode(out: &mut Vec<u8>, state: &mut FrameState, event: &Event) -> Result<(), DecodeError> {
    let mut body = Vec::new();
    let now = state.now_ns;
    let kind = match event {
        Event::Run(run) => {
            encode_run(&mut body, run);
            RUN
        }
        Event::Target(t) => {
            put(&mut body, u64::from(t.target));
            put_option(&mut body, t.pid.map(u64::from));
            put_text(&mut body, &t.name);
            TARGET
        }
        Event::Mappings { time_ns, target, mappings } => {
            put_delta(&mut body, *time_ns, now);
            put(&mut body, u64::from(*target));
            encode_mappings(&mut body, mappings)?;
            MAPPINGS
        }
        Event::Snapshot(s) => {
            snapshot::encode(&mut body, &mut state.snapshots, now, s)?;
            SNAPSHOT
        }
        Event::Stats(s) => {
            put_delta(&mut body, s.time_ns, now);
            for value in [s.monitor_ns, s.target_ns, s.checks, s.clears, u64::from(s.nr_regions)] {
                put(&mut body, value);
            }
            body.push(match s.mode {
                Mode::Sample => 0,
                Mode::Scan => 1,
            });
            for value in [s.sample_us, s.aggr_us, s.late_samples] {
                put(&mut body, value);
            }
            STATS
        }
        Event::Footprint(f) => {
            put_delta(&mut body, f.time_ns, now);
            put(&mut body, u64::from(f.target));
            put(&mut body, f.vsz);
            put(&mut body, f.rss);
            put_option(&mut body, f.swap);
            FOOTPRINT
        }
        Event::End { time_ns, target, why } => {
            put_delta(&mut body, *time_ns, now);
            put(&mut body, u64::from(*target));
            body.push(match why {
                TargetEnd::Exited => 0,
                TargetEnd::Replaced => 1,
            });
            END
        }
        Event::Pages(f) => {
            pages::encode(&mut body, now, f)?;
            PAGES
        }
        Event::Together(f) => {
            pages::encode_together(&mut body, now, f)?;
            TOGETHER
        }
    };
    put(out, kind);
    put(out, body.len() as u64);
    out.extend_from_slice(&body);
    state.advance(event);
    Ok(())
}

/// Reads the next event. `Ok(None)`: it is of a kind, or uses a word, that this version does not know; it was passed
/// over.
pub(crate) fn decode(input: &mut Cursor<'_>, state: &mut FrameState) -> Result<Option<Event>, DecodeError> {
    let kind = input.number()?;
    let len = input.count(input.remaining())?;
    let mut body = Cursor::new(input.bytes(len)?);
    let now = state.now_ns;
    let event = match kind {
        RUN => Event::Run(decode_run(&mut body)?),
        TARGET => Event::Target(TargetInfo {
            target: body.number32()?,
            pid: option32(&mut body)?,
            name: body.text()?.to_owned(),
        }),
        MAPPINGS => Event::Mappings {
            time_ns: body.delta(now)?,
            target: body.number32()?,
            mappings: decode_mappings(&mut body)?,
        },
        SNAPSHOT => Event::Snapshot(snapshot::decode(&mut body, &mut state.snapshots, now)?),
        STATS => {
            let time_ns = body.delta(now)?;
            let [monitor_ns, target_ns, checks, clears] =
                [body.number()?, body.number()?, body.number()?, body.number()?];
            let nr_regions = body.number32()?;
            let mode = match body.byte()? {
                0 => Some(Mode::Sample),
                1 => Some(Mode::Scan),
                _ => None,
            };
            let [sample_us, aggr_us, late_samples] = [body.number()?, body.number()?, body.number()?];
            state.now_ns = time_ns;
            let Some(mode) = mode else { return Ok(None) };
            Event::Stats(MonitorStats {
                time_ns,
                monitor_ns,
                target_ns,
                checks,
                clears,
                nr_regions,
                mode,
                sample_us,
                aggr_us,
                late_samples,
            })
        }
        FOOTPRINT => Event::Footprint(Footprint {
            time_ns: body.delta(now)?,
            target: body.number32()?,
            vsz: body.number()?,
            rss: body.number()?,
            swap: option(&mut body)?,
        }),
        END => {
            let time_ns = body.delta(now)?;
            let target = body.number32()?;
            state.now_ns = time_ns;
            let why = match body.byte()? {
                0 => TargetEnd::Exited,
                1 => TargetEnd::Replaced,
                _ => return Ok(None),
            };
            Event::End { time_ns, target, why }
        }
        PAGES => Event::Pages(pages::decode(&mut body, now)?),
        TOGETHER => Event::Together(pages::decode_together(&mut body, now)?),
        _ => return Ok(None),
    };
    state.advance(&event);
    Ok(Some(event))
}

fn put_option(out: &mut Vec<u8>, value: Option<u64>) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        put(out, value);
    }
}

fn option(input: &mut Cursor<'_>) -> Result<Option<u64>, DecodeError> {
    if input.byte()? == 0 { Ok(None) } else { input.number().map(Some) }
}

fn option32(input: &mut Cursor<'_>) -> Result<Option<u32>, DecodeError> {
    option(input)?.map(|v| u32::try_from(v).map_err(|_| DecodeError::Number)).transpose()
}

fn encode_run(out: &mut Vec<u8>, run: &RunInfo) {
    put_text(out, &run.source);
    put_text(out, &run.algorithm);
    put_text(out, &run.kernel);
    let a = &run.attrs;
    for value in [a.sample_us, a.aggr_us, a.update_us, u64::from(a.min_regions), u64::from(a.max_regions)] {
        put(out, value);
    }
    put(out, zigzag(run.realtime_offset_ns));
    out.push(u8::from(run.cpu_budget.is_some()));
    out.extend_from_slice(&run.cpu_budget.unwrap_or_default().to_bits().to_le_bytes());
}

fn decode_run(input: &mut Cursor<'_>) -> Result<RunInfo, DecodeError> {
    let [source, algorithm, kernel] = [input.text()?.to_owned(), input.text()?.to_owned(), input.text()?.to_owned()];
    let attrs = MonitorAttrs {
        sample_us: input.number()?,
        aggr_us: input.number()?,
        update_us: input.number()?,
        min_regions: input.number32()?,
        max_regions: input.number32()?,
    };
    let realtime_offset_ns = unzigzag(input.number()?);
    let limited = input.byte()? != 0;
    let bits: [u8; 8] = input.bytes(8)?.try_into().map_err(|_| DecodeError::End)?;
    let budget = f64::from_bits(u64::from_le_bytes(bits));
    Ok(RunInfo { source, algorithm, attrs, cpu_budget: limited.then_some(budget), kernel, realtime_offset_ns })
}

/// Names first, each once, then one entry per mapping: distance to the end of the one before, length, kind, flags,
/// name.
fn encode_mappings(out: &mut Vec<u8>, mappings: &[Mapping]) -> Result<(), DecodeError> {
    let name_bytes: usize = mappings.iter().map(|m| m.name.len()).sum();
    if mappings.len() > MAX_MAPPINGS || name_bytes > MAX_NAME_BYTES {
        return Err(DecodeError::Limit);
    }
    let mut index: HashMap<&str, u64> = HashMap::new();
    let mut names: Vec<&str> = Vec::new();
    for m in mappings {
        index.entry(&m.name).or_insert_with(|| {
            names.push(&m.name);
            names.len() as u64 - 1
        });
    }
    put(out, names.len() as u64);
    for name in names {
        put_text(out, name);
    }
    put(out, mappings.len() as u64);
    let mut at = 0;
    for m in mappings {
        put_delta(out, m.range.start, at);
        put(out, m.range.len());
        out.push(kind_code(m.kind));
        out.push(if m.shared { SHARED } else { 0 } | if m.locked { LOCKED } else { 0 });
        put(out, index[m.name.as_str()]);
        at = m.range.end;
    }
    Ok(())
}

fn decode_mappings(input: &mut Cursor<'_>) -> Result<Vec<Mapping>, DecodeError> {
    let count = input.count(MAX_MAPPINGS.min(input.remaining()))?;
    let mut names: Vec<&str> = Vec::with_capacity(count);
    for _ in 0..count {
        names.push(input.text()?);
    }
    // An entry takes at least five bytes.
    let count = input.count(MAX_MAPPINGS.min(input.remaining() / 5))?;
    let mut mappings = Vec::with_capacity(count);
    let (mut at, mut name_bytes) = (0, 0);
    for _ in 0..count {
        let start = input.delta(at)?;
        let end = start.checked_add(input.number()?).ok_or(DecodeError::Number)?;
        let kind = input.byte()?;
        let flags = input.byte()?;
        let name = usize::try_from(input.number()?).ok().and_then(|i| names.get(i)).ok_or(DecodeError::Reference)?;
        name_bytes += name.len();
        if name_bytes > MAX_NAME_BYTES {
            return Err(DecodeError::Limit);
        }
        mappings.push(Mapping {
            range: AddrRange::new(start, end),
            kind: kind_of(kind),
            shared: flags & SHARED != 0,
            locked: flags & LOCKED != 0,
            name: (*name).to_owned(),
        });
        at = end;
    }
    Ok(mappings)
}

const fn kind_code(kind: MappingKind) -> u8 {
    match kind {
        MappingKind::Anon => 0,
        MappingKind::File => 1,
        MappingKind::Shmem => 2,
        MappingKind::Hugetlb => 3,
        MappingKind::Special => 4,
    }
}

/// Kinds of a later version count as special: a reader that does not know them must not promise anything about them.
const fn kind_of(code: u8) -> MappingKind {
    match code {
        0 => MappingKind::Anon,
        1 => MappingKind::File,
        2 => MappingKind::Shmem,
        3 => MappingKind::Hugetlb,
        _ => MappingKind::Special,
    }
}
