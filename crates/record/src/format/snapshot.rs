//! Snapshots: boundaries as a difference to the same target's snapshot before, figures as columns of small numbers.

use super::points::{self, Point};
use super::varint::{Cursor, DecodeError, low32, put, put_delta, unzigzag, zigzag};
use super::{MAX_REGIONS, MAX_REMEMBERED, PAGE_SHIFT};
use isotherm_core::snapshot::{Evidence, RegionInfo, Snapshot};
use std::collections::HashMap;

const HAS_PID: u64 = 1;
const SAME_INTERVALS: u64 = 1 << 1;
const PAGED: u64 = 1 << 2;
const ALL_EVIDENCE: u64 = 1 << 3;
const SOME_EVIDENCE: u64 = 1 << 4;
const TELLS_ACCESSED: u64 = 1 << 5;
const KNOWN: u64 = (1 << 6) - 1;

/// Age codes: as expected, zero; larger codes are `AGE_OTHER` plus the zigzag-coded difference to what is expected.
const AGE_EXPECTED: u64 = 0;
const AGE_ZERO: u64 = 1;
const AGE_OTHER: u64 = 2;

/// So many regions take as much memory as what is remembered of a target beside its regions.
const TARGET_COST: usize = 8;

/// Codes of the bytes accessed: not reported, none, all of the region; larger ones are whole pages (even) or bytes
/// (odd).
const ACCESSED_UNTOLD: u64 = 0;
const ACCESSED_NONE: u64 = 1;
const ACCESSED_ALL: u64 = 2;
const ACCESSED_PAGES: u64 = 4;

/// What is remembered of a target's last snapshot.
#[derive(Debug, Default)]
struct Last {
    snapshot: Option<Snapshot>,
    points: Vec<Point>,
}

/// The last snapshot of each target in this frame; writer and reader keep it alike.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    targets: HashMap<u32, Last>,
    /// Regions remembered, each target counting as [`TARGET_COST`].
    regions: usize,
}

impl Memory {
    /// Forgets everything: a frame begins.
    pub(crate) fn clear(&mut self) {
        self.targets.clear();
        self.regions = 0;
    }

    fn remember(&mut self, snapshot: &Snapshot, points: Vec<Point>) -> Result<(), DecodeError> {
        let last = self.targets.entry(snapshot.target).or_default();
        self.regions -= last.snapshot.as_ref().map_or(0, |s| s.regions.len() + TARGET_COST);
        self.regions += snapshot.regions.len() + TARGET_COST;
        // Keeps the memory for the regions, where there is some.
        let mut regions = last.snapshot.take().map_or(Vec::new(), |s| s.regions);
        regions.clone_from(&snapshot.regions);
        last.snapshot = Some(Snapshot { regions, ..*snapshot });
        last.points = points;
        if self.regions > MAX_REMEMBERED { Err(DecodeError::Limit) } else { Ok(()) }
    }
}

/// Walks along the earlier regions to find, for each new region, the first earlier one that overlaps it.
struct Expected<'a> {
    old: &'a [RegionInfo],
    at: usize,
}

impl<'a> Expected<'a> {
    fn new(old: Option<&'a Snapshot>) -> Self {
        Self { old: old.map_or(&[], |s| &s.regions), at: 0 }
    }

    fn next(&mut self, start: u64, end: u64) -> RegionInfo {
        while self.old.get(self.at).is_some_and(|r| r.end <= start) {
            self.at += 1;
        }
        match self.old.get(self.at).filter(|r| r.start < end) {
            Some(r) => RegionInfo { start, end, age: r.age.saturating_add(1), ..*r },
            None => RegionInfo { start, end, nr_accesses: 0, age: 0, evidence: None, accessed: None },
        }
    }
}

/// Appends the body of a snapshot event. Fails if it is beyond the format's limits, its regions are not sorted and
/// disjoint, or it ends before it starts.
pub(crate) fn encode(out: &mut Vec<u8>, memory: &mut Memory, base_ns: u64, s: &Snapshot) -> Result<(), DecodeError> {
    if s.regions.len() > MAX_REGIONS {
        return Err(DecodeError::Limit);
    }
    if !points::is_sorted_disjoint(&s.regions) || s.end_ns < s.start_ns {
        return Err(DecodeError::Order);
    }
    let new_points = points::of_regions(&s.regions);
    let paged = points::paged(&new_points);
    let none = Last::default();
    let last = memory.targets.get(&s.target).unwrap_or(&none);
    let before = last.snapshot.as_ref();
    let same_intervals = before
        .is_some_and(|b| (b.sample_us, b.aggr_us, b.max_nr_accesses) == (s.sample_us, s.aggr_us, s.max_nr_accesses));
    let with_evidence = s.regions.iter().filter(|r| r.evidence.is_some()).count();
    let all_evidence = with_evidence > 0 && with_evidence == s.regions.len();
    let some_evidence = with_evidence > 0 && !all_evidence;
    let tells_accessed = s.regions.iter().any(|r| r.accessed.is_some());
    let mut flags = 0;
    for (bit, on) in [
        (HAS_PID, s.pid.is_some()),
        (SAME_INTERVALS, same_intervals),
        (PAGED, paged),
        (ALL_EVIDENCE, all_evidence),
        (SOME_EVIDENCE, some_evidence),
        (TELLS_ACCESSED, tells_accessed),
    ] {
        flags |= if on { bit } else { 0 };
    }
    put(out, u64::from(s.target));
    put(out, flags);
    if let Some(pid) = s.pid {
        put(out, u64::from(pid));
    }
    put_delta(out, s.start_ns, before.map_or(base_ns, |b| b.end_ns));
    put_delta(out, s.end_ns.wrapping_sub(s.start_ns), s.aggr_us.wrapping_mul(1000));
    if !same_intervals {
        put(out, s.sample_us);
        put(out, s.aggr_us);
        put(out, u64::from(s.max_nr_accesses));
    }
    points::encode(out, &last.points, &new_points, if paged { PAGE_SHIFT } else { 0 });

    let mut expected = Expected::new(before);
    let expected: Vec<RegionInfo> = s.regions.iter().map(|r| expected.next(r.start, r.end)).collect();
    let pairs = || s.regions.iter().zip(&expected);
    for (r, e) in pairs() {
        put_delta(out, u64::from(r.nr_accesses), u64::from(e.nr_accesses));
    }
    for (r, e) in pairs() {
        put(
            out,
            match r.age {
                a if a == e.age => AGE_EXPECTED,
                0 => AGE_ZERO,
                a => AGE_OTHER + zigzag(i64::from(a) - i64::from(e.age)),
            },
        );
    }
    if some_evidence {
        out.extend(s.regions.iter().map(|r| u8::from(r.evidence.is_some())));
    }
    for column in COLUMNS {
        for (r, e) in pairs() {
            if let Some(evidence) = &r.evidence {
                put_delta(out, column(evidence), column(&e.evidence.unwrap_or_default()));
            }
        }
    }
    if tells_accessed {
        for r in &s.regions {
            put(out, accessed_code(r));
        }
    }
    memory.remember(s, new_points)
}

fn accessed_code(r: &RegionInfo) -> u64 {
    match r.accessed {
        None => ACCESSED_UNTOLD,
        Some(0) => ACCESSED_NONE,
        // More than the region has makes no sense, and would not fit.
        Some(bytes) if bytes >= r.len() => ACCESSED_ALL,
        Some(bytes) if bytes.is_multiple_of(1 << PAGE_SHIFT) => ACCESSED_PAGES + (bytes >> PAGE_SHIFT << 1),
        Some(bytes) => ACCESSED_PAGES.saturating_add(bytes.saturating_mul(2)) | 1,
    }
}

fn accessed_of(code: u64, len: u64) -> Result<Option<u64>, DecodeError> {
    let bytes = match code {
        ACCESSED_UNTOLD => return Ok(None),
        ACCESSED_NONE => 0,
        ACCESSED_ALL => len,
        3 => return Err(DecodeError::Number),
        _ if code & 1 == 1 => (code - ACCESSED_PAGES) >> 1,
        _ => ((code - ACCESSED_PAGES) >> 1).checked_mul(1 << PAGE_SHIFT).ok_or(DecodeError::Number)?,
    };
    if bytes > len { Err(DecodeError::Number) } else { Ok(Some(bytes)) }
}

/// The columns of evidence. Pages that are absent are few and steady, so they are stored instead of those present.
const COLUMNS: [fn(&Evidence) -> u64; 4] = [
    |e| u64::from(e.checks),
    |e| u64::from(e.pages),
    |e| u64::from(e.pages).wrapping_sub(u64::from(e.present)),
    |e| u64::from(e.blind),
];

/// Reads the body of a snapshot event.
pub(crate) fn decode(input: &mut Cursor<'_>, memory: &mut Memory, base_ns: u64) -> Result<Snapshot, DecodeError> {
    let target = input.number32()?;
    let flags = input.number()?;
    if flags & !KNOWN != 0 {
        return Err(DecodeError::Unknown);
    }
    let has = |bit: u64| flags & bit != 0;
    let none = Last::default();
    let last = memory.targets.get(&target).unwrap_or(&none);
    let before = last.snapshot.as_ref();
    let pid = if has(HAS_PID) { Some(input.number32()?) } else { None };
    let start_ns = input.delta(before.map_or(base_ns, |b| b.end_ns))?;
    let length_code = unzigzag(input.number()?).cast_unsigned();
    let (sample_us, aggr_us, max_nr_accesses) = if has(SAME_INTERVALS) {
        let b = before.ok_or(DecodeError::Reference)?;
        (b.sample_us, b.aggr_us, b.max_nr_accesses)
    } else {
        (input.number()?, input.number()?, input.number32()?)
    };
    let end_ns = start_ns.wrapping_add(aggr_us.wrapping_mul(1000).wrapping_add(length_code));

    if end_ns < start_ns {
        return Err(DecodeError::Order);
    }

    let new_points = points::decode(input, &last.points, if has(PAGED) { PAGE_SHIFT } else { 0 })?;
    // Each region takes at least a byte in each of two columns.
    if new_points.len() > 2 * MAX_REGIONS || new_points.len() > 1 + 2 * input.remaining() {
        return Err(DecodeError::Limit);
    }
    let mut expected = Expected::new(before);
    let mut regions: Vec<RegionInfo> = Vec::with_capacity(new_points.len());
    points::for_each_range(&new_points, |start, end| regions.push(expected.next(start, end)))?;
    if regions.len() > MAX_REGIONS {
        return Err(DecodeError::Limit);
    }
    for r in &mut regions {
        r.nr_accesses = input.delta32(r.nr_accesses)?;
    }
    for r in &mut regions {
        r.age = match input.number()? {
            AGE_EXPECTED => r.age,
            AGE_ZERO => 0,
            code => i64::from(r.age)
                .checked_add(unzigzag(code - AGE_OTHER))
                .and_then(|age| u32::try_from(age).ok())
                .ok_or(DecodeError::Number)?,
        };
    }
    decode_evidence(input, &mut regions, has(ALL_EVIDENCE), has(SOME_EVIDENCE))?;
    for r in &mut regions {
        r.accessed = if has(TELLS_ACCESSED) { accessed_of(input.number()?, r.len())? } else { None };
    }
    let snapshot = Snapshot { target, pid, start_ns, end_ns, sample_us, aggr_us, max_nr_accesses, regions };
    memory.remember(&snapshot, new_points)?;
    Ok(snapshot)
}

/// The evidence of the regions that have some.
fn given(regions: &mut [RegionInfo]) -> impl Iterator<Item = &mut Evidence> {
    regions.iter_mut().filter_map(|r| r.evidence.as_mut())
}

fn decode_evidence(
    input: &mut Cursor<'_>,
    regions: &mut [RegionInfo],
    all: bool,
    some: bool,
) -> Result<(), DecodeError> {
    let present = if some { Some(input.bytes(regions.len())?) } else { None };
    for (i, r) in regions.iter_mut().enumerate() {
        let given = all || present.is_some_and(|p| p[i] != 0);
        r.evidence = given.then(|| r.evidence.unwrap_or_default());
    }
    for e in given(regions) {
        e.checks = input.delta32(e.checks)?;
    }
    for e in given(regions) {
        // Until the next column is read, the absent pages of the snapshot before stand in place of the present ones.
        e.present = e.pages.wrapping_sub(e.present);
        e.pages = input.delta32(e.pages)?;
    }
    for e in given(regions) {
        // The low 32 bits of a number are those of its difference, so cutting them off here is exact.
        let absent = low32(input.delta(u64::from(e.present))?);
        e.present = e.pages.wrapping_sub(absent);
    }
    for e in given(regions) {
        e.blind = input.delta32(e.blind)?;
    }
    Ok(())
}
