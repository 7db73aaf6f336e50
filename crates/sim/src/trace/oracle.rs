//! libCacheSim's oracleGeneral: records of 24 bytes without a header, little-endian: time in seconds (u32), object
//! (u64), its size (u32), position of the next request for it (i64; -1: none). Every object counts as one page,
//! whatever its size; time and next request are not used.

use super::ids::TOGETHER;
use super::source::Source;
use super::{Builder, Manner, Next, TraceError};
use std::io::BufRead;

const RECORD: usize = 24;

fn object(record: &[u8; RECORD]) -> u64 {
    let [_, _, _, _, a, b, c, d, e, f, g, h, ..] = *record;
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

/// Farthest next request that is believed: no trace is so long, and any other data, such as a text, is hardly ever below it.
const FARTHEST: i64 = 1 << 40;

/// Whether it may be such a trace: every record's next request lies behind it and not too far away, or there is none, for which
/// libCacheSim reads both -1 and the largest number.
pub(super) fn looks_like(prefix: &[u8]) -> bool {
    let (records, _) = prefix.as_chunks::<RECORD>();
    let sound = |(i, r): (usize, &[u8; RECORD])| {
        let next = r.last_chunk::<8>().map_or(0, |b| i64::from_le_bytes(*b));
        matches!(next, -1 | i64::MAX) || next > i as i64 && next <= FARTHEST
    };
    !records.is_empty() && records.iter().enumerate().all(sound)
}

pub(super) fn read(stream: &mut dyn BufRead, source: &Source<'_>, builder: &mut Builder<'_>) -> Result<(), TraceError> {
    let mut offset = 0;
    // The begin of a record whose end has not come yet.
    let mut part = Vec::with_capacity(RECORD);
    loop {
        let buffer = stream.fill_buf().map_err(|e| source.io(e))?;
        if buffer.is_empty() {
            break;
        }
        let len = buffer.len();
        let missing = (RECORD - part.len()) % RECORD;
        let (head, rest) = buffer.split_at(missing.min(len));
        part.extend_from_slice(head);
        if let Some(record) = part.first_chunk::<RECORD>() {
            if builder.add(object(record), Manner::FD)? == Next::Enough {
                return Ok(());
            }
            part.clear();
        }
        let (records, tail) = rest.as_chunks::<RECORD>();
        let (many, few) = records.as_chunks::<TOGETHER>();
        for records in many {
            let mut objects = [0; TOGETHER];
            for (to, record) in objects.iter_mut().zip(records) {
                *to = object(record);
            }
            if builder.add_all(&objects, Manner::FD)? == Next::Enough {
                return Ok(());
            }
        }
        for record in few {
            if builder.add(object(record), Manner::FD)? == Next::Enough {
                return Ok(());
            }
        }
        part.extend_from_slice(tail);
        offset += len as u64;
        stream.consume(len);
    }
    if part.is_empty() {
        return Ok(());
    }
    let why = format!("the last record is cut off: {} of {RECORD} bytes are there", part.len());
    Err(source.byte(offset - part.len() as u64, why))
}
