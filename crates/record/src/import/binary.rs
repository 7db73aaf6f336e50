//! Old binary records: versions 0, 1 and 2.
//!
//! Little endian and packed. An optional head of 16 bytes `damon_recfmt_ver` and an i32 version (without it: version
//! 0). Then, over and over: i64 seconds, i64 nanoseconds, u32 number of targets; per target its id (version 1: i32 pid,
//! else u64) and u32 number of regions; per region u64 start, u64 end, u32 accesses. Ages are not stored, so they are
//! counted.

use super::timeline::{Ended, Survey, Timeline};
use super::{Notes, TargetKey};
use crate::error::{ReadError, Warning};
use crate::format::MAX_REGIONS;
use crate::input::{Input, Sink};
use crate::kind::Format;
use isotherm_core::snapshot::RegionInfo;
use std::io::{self, BufReader, Read};

/// Magic of the records with a version.
pub(crate) const BINARY_MAGIC: &[u8; 16] = b"damon_recfmt_ver";
/// Bytes of a region.
const REGION_LEN: usize = 20;
/// Most targets that a record of one time is believed to have.
const MAX_TARGETS: u32 = 1 << 16;

/// Why the reading ended.
enum End {
    /// At the end of a whole record.
    Clean,
    /// In the middle of one; the bytes that were whole.
    CutOff(u64),
    /// The content makes no sense from this byte on.
    Senseless(u64, &'static str),
}

/// Hands out the events of a binary record.
pub(crate) fn read(input: Input, format: Format, sink: &mut Sink<'_>) -> Result<Vec<Warning>, ReadError> {
    let input = input.make_seekable()?;
    let is_pid = format == Format::BinaryV1;
    let mut survey = Survey::default();
    parse(input.again()?, is_pid, &mut |e| {
        survey.add(&e);
        Ok(())
    })?;
    let mut timeline = Timeline::new(survey, is_pid).counting_ages();
    let mut notes = Notes::default();
    let origin = input.origin().to_owned();
    let len = input.len();
    let mut count = 0u64;
    let end = parse(input, is_pid, &mut |e| {
        count += 1;
        timeline.add(e, &mut notes, sink).map_err(ReadError::Sink)
    })?;
    match end {
        End::Clean => {}
        End::CutOff(offset) => notes.warnings.push(Warning::Truncated { offset }),
        End::Senseless(offset, what) if count > 0 => {
            let bytes = len.map_or(0, |len| len.saturating_sub(offset));
            notes.warnings.push(Warning::Damaged { offset, bytes, what: what.to_owned() });
        }
        End::Senseless(offset, what) => {
            return Err(ReadError::Malformed { origin, position: format!("byte {offset}"), what: what.to_owned() });
        }
    }
    Ok(notes.finish())
}

fn parse(input: Input, is_pid: bool, each: &mut dyn FnMut(Ended) -> Result<(), ReadError>) -> Result<End, ReadError> {
    let origin = input.origin().to_owned();
    let mut bytes = Bytes { inner: BufReader::with_capacity(64 << 10, input.into_stream()?), at: 0 };
    let result = parse_bytes(&mut bytes, is_pid, each);
    match result {
        Ok(end) => Ok(end),
        Err(Stop::Read(error)) => Err(error),
        Err(Stop::Io(error)) => Err(ReadError::Io { origin, error }),
    }
}

enum Stop {
    Io(io::Error),
    Read(ReadError),
}

struct Bytes<R> {
    inner: R,
    at: u64,
}

impl<R: Read> Bytes<R> {
    /// The next `N` bytes; `None` if fewer are left.
    fn take<const N: usize>(&mut self) -> Result<Option<[u8; N]>, Stop> {
        let mut b = [0; N];
        match self.inner.read_exact(&mut b) {
            Ok(()) => {
                self.at += N as u64;
                Ok(Some(b))
            }
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(e) => Err(Stop::Io(e)),
        }
    }
}

fn parse_bytes<R: Read>(
    bytes: &mut Bytes<R>,
    is_pid: bool,
    each: &mut dyn FnMut(Ended) -> Result<(), ReadError>,
) -> Result<End, Stop> {
    let mut head: Option<[u8; 16]> = bytes.take()?;
    if head.as_ref() == Some(BINARY_MAGIC) {
        let _version: Option<[u8; 4]> = bytes.take()?;
        head = bytes.take()?;
    }
    let mut whole = bytes.at - if head.is_some() { 16 } else { 0 };
    while let Some(time) = head {
        let Some(end_ns) = time_ns(time) else { return Ok(End::Senseless(whole, "it is no time")) };
        let Some(targets) = bytes.take()?.map(u32::from_le_bytes) else { return Ok(End::CutOff(whole)) };
        if targets > MAX_TARGETS {
            return Ok(End::Senseless(whole, "so many targets cannot be"));
        }
        for _ in 0..targets {
            let id = if is_pid {
                // Pids are positive; reading them as unsigned keeps nonsense apart from real ones.
                bytes.take()?.map(|b| u64::from(u32::from_le_bytes(b)))
            } else {
                bytes.take()?.map(u64::from_le_bytes)
            };
            let (Some(id), Some(count)) = (id, bytes.take()?.map(u32::from_le_bytes)) else {
                return Ok(End::CutOff(whole));
            };
            if count as usize > MAX_REGIONS {
                return Ok(End::Senseless(whole, "so many regions cannot be"));
            }
            let mut regions = Vec::new();
            for _ in 0..count {
                let Some(b) = bytes.take::<REGION_LEN>()? else { return Ok(End::CutOff(whole)) };
                let Some(r) = region(&b) else { return Ok(End::Senseless(whole, "a region ends before it starts")) };
                regions.push(r);
            }
            each(Ended { key: TargetKey::of_id(id), end_ns, sample_us: None, regions }).map_err(Stop::Read)?;
            whole = bytes.at;
        }
        whole = bytes.at;
        head = bytes.take()?;
    }
    // A few bytes may be left that are no time.
    Ok(if bytes.take::<1>()?.is_some() { End::CutOff(whole) } else { End::Clean })
}

fn time_ns(b: [u8; 16]) -> Option<u64> {
    let sec = u64::from_le_bytes(b[..8].try_into().ok()?);
    let nsec = u64::from_le_bytes(b[8..].try_into().ok()?);
    if nsec >= 1_000_000_000 {
        return None;
    }
    sec.checked_mul(1_000_000_000)?.checked_add(nsec)
}

fn region(b: &[u8; REGION_LEN]) -> Option<RegionInfo> {
    let start = u64::from_le_bytes(b[..8].try_into().ok()?);
    let end = u64::from_le_bytes(b[8..16].try_into().ok()?);
    let nr_accesses = u32::from_le_bytes(b[16..].try_into().ok()?);
    // The false snapshot counts -1.
    let nr_accesses = if end == 0 { 0 } else { nr_accesses };
    (start <= end).then_some(RegionInfo { start, end, nr_accesses, age: 0, evidence: None, accessed: None })
}

/// Whether `prefix` can be the begin of a record without a head: a sensible time, few targets, and a first region that
/// is one.
pub(crate) fn looks_plausible(prefix: &[u8]) -> bool {
    let field = |at: usize, len: usize| prefix.get(at..at + len);
    let number = |at: usize| field(at, 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
    let Some(end_ns) = field(0, 16).and_then(|b| time_ns(b.try_into().ok()?)) else { return false };
    let (Some(targets), Some(regions)) = (number(16), number(28)) else { return false };
    let first_region = field(32, REGION_LEN).and_then(|b| region(b.try_into().ok()?));
    end_ns > 0
        && (1..=MAX_TARGETS).contains(&targets)
        && regions > 0
        && regions as usize <= MAX_REGIONS
        && first_region.is_some_and(|r| r.start < r.end && r.nr_accesses <= 100_000 || r.end == 0)
}
