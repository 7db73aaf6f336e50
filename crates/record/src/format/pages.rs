//! What the page history says of a target, and of all targets together, as bytes.
//!
//! Ages are numbers that fall from one threshold to the next, so they are stored as differences, and thresholds alike
//! as their number. Page tables next to one another of which the same is reported are one run.

use super::varint::{Cursor, DecodeError, put, put_delta, unzigzag, zigzag};
use super::{MAX_MAPPINGS, MAX_TABLES, MAX_THRESHOLDS};
use isotherm_core::addr::AddrRange;
use isotherm_core::history::frame::{IdlePages, MappingPages, PageAges, PageFrame, TablePages};
use isotherm_core::history::together_frame::TogetherFrame;

/// Bytes below a page table.
const TABLE: u64 = 2 << 20;
/// Pages below it.
const TABLE_PAGES: u16 = 512;

/// Flags of a threshold.
const BOUNDED: u8 = 1;
const UNRESOLVED: u8 = 1 << 1;

/// Flags of a run of tables.
const LONG: u64 = 1;
const PRESENT: u64 = 1 << 1;
const RUN_FLAGS: u32 = 2;

/// Appends the body of an event about a target's pages. Fails if it is beyond the format's limits, or mappings or
/// tables are not in order.
pub(crate) fn encode(out: &mut Vec<u8>, base_ns: u64, f: &PageFrame) -> Result<(), DecodeError> {
    put_delta(out, f.time_ns, base_ns);
    put(out, u64::from(f.target));
    put_delta(out, f.time_ns, f.since_ns);
    put_delta(out, f.since_ns, f.begin_ns);
    put(out, f.walk_ns);
    put(out, u64::from(f.one_in));
    let thresholds: usize = f.mappings.iter().map(|m| m.ages.idle.len()).sum();
    if f.mappings.len() > MAX_MAPPINGS || thresholds > MAX_THRESHOLDS || f.tables.len() > MAX_TABLES {
        return Err(DecodeError::Limit);
    }
    put(out, f.mappings.len() as u64);
    let mut at = 0;
    for m in &f.mappings {
        if m.range.start < at || m.range.end < m.range.start {
            return Err(DecodeError::Order);
        }
        put(out, m.range.start - at);
        put(out, m.range.len());
        encode_ages(out, &m.ages);
        at = m.range.end;
    }
    encode_tables(out, &f.tables)
}

/// Reads the body of such an event.
pub(crate) fn decode(input: &mut Cursor<'_>, base_ns: u64) -> Result<PageFrame, DecodeError> {
    let time_ns = input.delta(base_ns)?;
    let target = input.number32()?;
    let since_ns = time_ns.wrapping_sub(input.delta(0)?);
    let begin_ns = since_ns.wrapping_sub(input.delta(0)?);
    let walk_ns = input.number()?;
    let one_in = input.number32()?;
    // A mapping takes at least five bytes.
    let count = input.count(MAX_MAPPINGS.min(input.remaining() / 5))?;
    let mut mappings = Vec::with_capacity(count);
    let (mut at, mut thresholds) = (0u64, 0);
    for _ in 0..count {
        let start = at.checked_add(input.number()?).ok_or(DecodeError::Number)?;
        let end = start.checked_add(input.number()?).ok_or(DecodeError::Number)?;
        let ages = decode_ages(input, MAX_THRESHOLDS - thresholds)?;
        thresholds += ages.idle.len();
        mappings.push(MappingPages { range: AddrRange::new(start, end), ages });
        at = end;
    }
    let tables = decode_tables(input)?;
    Ok(PageFrame {
        time_ns,
        since_ns,
        begin_ns,
        walk_ns,
        target,
        one_in,
        mappings,
        tables,
        reaccessed: None,
        forked: false,
    })
}

/// Appends the body of an event about all targets together.
pub(crate) fn encode_together(out: &mut Vec<u8>, base_ns: u64, f: &TogetherFrame) -> Result<(), DecodeError> {
    put_delta(out, f.time_ns, base_ns);
    put(out, u64::from(f.targets));
    put(out, u64::from(f.one_in));
    if f.ages.idle.len() > MAX_THRESHOLDS {
        return Err(DecodeError::Limit);
    }
    encode_ages(out, &f.ages);
    Ok(())
}

/// Reads the body of such an event.
pub(crate) fn decode_together(input: &mut Cursor<'_>, base_ns: u64) -> Result<TogetherFrame, DecodeError> {
    Ok(TogetherFrame {
        time_ns: input.delta(base_ns)?,
        targets: input.number32()?,
        one_in: input.number32()?,
        ages: decode_ages(input, MAX_THRESHOLDS)?,
        owned: Vec::new(),
    })
}

/// The threshold in front of the first: all pages that can be observed.
fn before_first(ages: &PageAges) -> IdlePages {
    let pages = ages.resident.wrapping_sub(ages.unobservable);
    IdlePages { pages, least: pages, most: pages, unresolved: 0 }
}

fn encode_ages(out: &mut Vec<u8>, ages: &PageAges) {
    put(out, ages.resident);
    put(out, ages.unobservable);
    put(out, ages.idle.len() as u64);
    let mut before = before_first(ages);
    let mut rest = ages.idle.as_slice();
    while !rest.is_empty() {
        let alike = rest.iter().take_while(|i| **i == before).count();
        put(out, alike as u64);
        rest = &rest[alike..];
        let Some((idle, after)) = rest.split_first() else { break };
        let bounds = (idle.pages.wrapping_sub(idle.least), slack(idle));
        let bounded = bounds != (0, 0);
        out.push(if bounded { BOUNDED } else { 0 } | if idle.unresolved > 0 { UNRESOLVED } else { 0 });
        put(out, zigzag(before.pages.wrapping_sub(idle.pages).cast_signed()));
        if bounded {
            put(out, zigzag(bounds.0.cast_signed()));
            put(out, zigzag(bounds.1.cast_signed()));
        }
        if idle.unresolved > 0 {
            put(out, idle.unresolved);
        }
        before = *idle;
        rest = after;
    }
}

/// What may be idle beyond the figure to show and what is not resolved.
const fn slack(idle: &IdlePages) -> u64 {
    idle.most.wrapping_sub(idle.pages).wrapping_sub(idle.unresolved)
}

fn decode_ages(input: &mut Cursor<'_>, limit: usize) -> Result<PageAges, DecodeError> {
    let mut ages =
        PageAges { resident: input.number()?, unobservable: input.number()?, idle: Vec::new(), ..PageAges::default() };
    let count = input.count(limit)?;
    ages.idle.reserve_exact(count);
    let mut before = before_first(&ages);
    while ages.idle.len() < count {
        let alike = input.count(count - ages.idle.len())?;
        ages.idle.extend(std::iter::repeat_n(before, alike));
        if ages.idle.len() == count {
            break;
        }
        let flags = input.byte()?;
        if flags & !(BOUNDED | UNRESOLVED) != 0 {
            return Err(DecodeError::Unknown);
        }
        let difference = |input: &mut Cursor<'_>| input.number().map(|code| unzigzag(code).cast_unsigned());
        let pages = before.pages.wrapping_sub(difference(input)?);
        let (below, above) = if flags & BOUNDED != 0 { (difference(input)?, difference(input)?) } else { (0, 0) };
        let unresolved = if flags & UNRESOLVED != 0 { input.number()? } else { 0 };
        let most = pages.wrapping_add(unresolved).wrapping_add(above);
        before = IdlePages { pages, least: pages.wrapping_sub(below), most, unresolved };
        ages.idle.push(before);
    }
    Ok(ages)
}

fn encode_tables(out: &mut Vec<u8>, tables: &[TablePages]) -> Result<(), DecodeError> {
    let valid = |t: &TablePages| t.base.is_multiple_of(TABLE) && t.present <= TABLE_PAGES && t.accessed <= t.present;
    if !tables.iter().all(valid) || tables.windows(2).any(|w| w[0].base >= w[1].base) {
        return Err(DecodeError::Order);
    }
    let joins =
        |a: &TablePages, b: &TablePages| b.base - a.base == TABLE && (a.present, a.accessed) == (b.present, b.accessed);
    put(out, tables.len() as u64);
    let (mut next, mut present) = (0, TABLE_PAGES);
    for run in tables.chunk_by(joins) {
        let (number, first) = (run[0].base / TABLE, run[0]);
        let flags = if run.len() > 1 { LONG } else { 0 } | if first.present != present { PRESENT } else { 0 };
        put(out, (number - next) << RUN_FLAGS | flags);
        if run.len() > 1 {
            put(out, run.len() as u64 - 2);
        }
        if first.present != present {
            put(out, u64::from(first.present));
        }
        put(out, u64::from(first.accessed));
        (next, present) = (number + run.len() as u64, first.present);
    }
    Ok(())
}

fn decode_tables(input: &mut Cursor<'_>) -> Result<Vec<TablePages>, DecodeError> {
    let count = input.count(MAX_TABLES)?;
    let mut tables = Vec::new();
    let (mut next, mut present) = (0u64, TABLE_PAGES);
    while tables.len() < count {
        let head = input.number()?;
        let len = if head & LONG != 0 { input.count(MAX_TABLES)? + 2 } else { 1 };
        if head & PRESENT != 0 {
            present = pages(input, TABLE_PAGES)?;
        }
        let accessed = pages(input, present)?;
        let first = next.checked_add(head >> RUN_FLAGS).ok_or(DecodeError::Number)?;
        next = first.checked_add(len as u64).filter(|n| *n <= u64::MAX / TABLE).ok_or(DecodeError::Number)?;
        if len > count - tables.len() {
            return Err(DecodeError::Limit);
        }
        tables.extend((first..next).map(|number| TablePages { base: number * TABLE, present, accessed }));
    }
    Ok(tables)
}

fn pages(input: &mut Cursor<'_>, most: u16) -> Result<u16, DecodeError> {
    u16::try_from(input.number()?).ok().filter(|&n| n <= most).ok_or(DecodeError::Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(number: u64, present: u16, accessed: u16) -> TablePages {
        TablePages { base: number * TABLE, present, accessed }
    }

    #[test]
    fn what_is_alike_takes_little_room() {
        let idle = |pages| IdlePages { pages, least: pages, most: pages, unresolved: 0 };
        let ages =
            PageAges { resident: 153_600, unobservable: 0, idle: vec![idle(150_500); 16], ..PageAges::default() };
        let mut out = Vec::new();
        encode_ages(&mut out, &ages);
        assert!(out.len() <= 11, "{} bytes", out.len());
        assert_eq!(decode_ages(&mut Cursor::new(&out), 16), Ok(ages));

        let cold: Vec<TablePages> = (1 << 20..(1 << 20) + 100_000).map(|n| table(n, 512, 0)).collect();
        let mut out = Vec::new();
        assert_eq!(encode_tables(&mut out, &cold), Ok(()));
        assert!(out.len() <= 12, "{} bytes", out.len());
        assert_eq!(decode_tables(&mut Cursor::new(&out)), Ok(cold));
        let scattered: Vec<TablePages> = (0..1000).map(|n| table(n, 512, 5 + n as u16 % 9)).collect();
        let mut out = Vec::new();
        assert_eq!(encode_tables(&mut out, &scattered), Ok(()));
        assert!(out.len() <= 2100, "{} bytes for 1000 tables", out.len());
    }

    #[test]
    fn disorder_is_refused() {
        let mut out = Vec::new();
        for bad in
            [[table(2, 1, 1), table(1, 1, 1)], [table(1, 1, 1), table(1, 1, 1)], [table(1, 1, 2), table(3, 1, 1)]]
        {
            assert_eq!(encode_tables(&mut out, &bad), Err(DecodeError::Order));
        }
    }

    #[test]
    fn lengths_that_a_file_tells_are_not_believed() {
        let mut out = Vec::new();
        put(&mut out, 4);
        put(&mut out, LONG);
        put(&mut out, MAX_TABLES as u64);
        put(&mut out, 0);
        assert_eq!(decode_tables(&mut Cursor::new(&out)), Err(DecodeError::Limit));
        let mut out = Vec::new();
        put(&mut out, 4);
        put(&mut out, !(LONG | PRESENT));
        put(&mut out, 0);
        assert_eq!(decode_tables(&mut Cursor::new(&out)), Err(DecodeError::Number));
    }
}
