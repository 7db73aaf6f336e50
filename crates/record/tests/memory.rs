//! Hostile files must not cost much memory. One test, alone in its process, since the system counts memory by process.
#![allow(missing_docs)]

mod common;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use isotherm_core::addr::AddrRange;
use isotherm_core::event::Event;
use isotherm_core::history::frame::{IdlePages, MappingPages, PageAges, PageFrame, TablePages};
use isotherm_core::snapshot::{RegionInfo, Snapshot};
use isotherm_record::{Format, Input, fuzz, read_events};
use std::io::{Cursor, Write};

const MIB: u64 = 1 << 20;
/// What any of these files may cost.
const LIMIT: u64 = 600 * MIB;

/// The most memory that this process ever held, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// Reads and drops all events; how many there were.
fn drain(bytes: Vec<u8>, format: Format) -> u64 {
    let mut events = 0;
    let input = Input::from_reader("hostile", Box::new(Cursor::new(bytes))).unwrap();
    // Damage is expected; only memory counts here.
    let _ = read_events(input, Some(format), &mut |_| {
        events += 1;
        Ok(())
    });
    events
}

fn snapshot(target: u32, regions: u64) -> Event {
    let region = |i| RegionInfo {
        start: i * 8192,
        end: i * 8192 + 4096,
        nr_accesses: 1,
        age: 1,
        evidence: None,
        accessed: None,
    };
    Event::Snapshot(Snapshot {
        target,
        pid: None,
        start_ns: 0,
        end_ns: 1,
        sample_us: 1,
        aggr_us: 1,
        max_nr_accesses: 1,
        regions: (0..regions).map(region).collect(),
    })
}

/// As many ages and page tables as an event may have, in few bytes.
fn pages() -> Event {
    let ages = PageAges { resident: 0, unobservable: 0, idle: vec![IdlePages::default(); 16], ..PageAges::default() };
    let mapping = |i: u64| MappingPages { range: AddrRange::new(i * 4096, i * 4096 + 4096), ages: ages.clone() };
    Event::Pages(PageFrame {
        time_ns: 0,
        since_ns: 0,
        begin_ns: 0,
        walk_ns: 0,
        target: 0,
        one_in: 1,
        mappings: (0..1 << 18).map(mapping).collect(),
        tables: (0..1 << 22).map(|i| TablePages { base: i << 21, present: 0, accessed: 0 }).collect(),
        reaccessed: None,
        forked: false,
    })
}

#[test]
fn hostile_files_cost_little_memory() {
    // 1 MB that unpacks to 1 GB.
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::best());
    packed.write_all(b"[").unwrap();
    for record in 0..1000 {
        let comma = if record > 0 { "," } else { "" };
        write!(packed, "{comma}{{\"target_id\":{record},\"name\":\"").unwrap();
        packed.write_all(&vec![b'x'; 1_000_000]).unwrap();
        packed.write_all(b"\",\"snapshots\":[{\"start_time\":0,\"end_time\":1,\"regions\":[]}]}").unwrap();
    }
    packed.write_all(b"]").unwrap();
    let names = packed.finish().unwrap();
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(b"[").unwrap();
    for record in 0..20 {
        let comma = if record > 0 { "," } else { "" };
        write!(
            packed,
            "{comma}{{\"target_id\":{record},\"snapshots\":[{{\"start_time\":1,\"end_time\":2,\"regions\":["
        )
        .unwrap();
        for i in 0..150_000 {
            let comma = if i > 0 { "," } else { "" };
            write!(packed, "{comma}{{\"start\":{i},\"end\":{}}}", i + 1).unwrap();
        }
        packed.write_all(b"]}]}").unwrap();
    }
    packed.write_all(b"]").unwrap();
    let json = packed.finish().unwrap();

    let million = fuzz::raw_payload(&[snapshot(0, 1 << 20)]);
    let many_pages = fuzz::raw_payload(&[pages()]);
    let mut many_targets = Vec::new();
    let one = fuzz::raw_payload(&[snapshot(0, 0)]);
    // The target is the first number of the body, which follows kind and length; five bytes hold any.
    for target in 0..4_000_000u32 {
        let body = &one[3..];
        let mut id = Vec::new();
        let mut rest = target;
        while rest >= 0x80 {
            id.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        id.push(rest as u8);
        many_targets.extend_from_slice(&[one[0], (id.len() + body.len()) as u8]);
        many_targets.extend_from_slice(&id);
        many_targets.extend_from_slice(body);
    }
    many_targets.truncate(60 << 20);
    let files = [
        (
            "a million regions, again and again",
            Format::Iso,
            fuzz::framed(&million.repeat(60 * MIB as usize / million.len())),
        ),
        (
            "all the pages that an event may tell of, again and again",
            Format::Iso,
            fuzz::framed(&many_pages.repeat(60 * MIB as usize / many_pages.len())),
        ),
        ("millions of targets", Format::Iso, fuzz::framed(&many_targets)),
        ("events of unknown kinds", Format::Iso, fuzz::framed(&vec![0; 60 << 20])),
        ("JSON with a huge snapshot in each record", Format::JsonCompressed, json),
        ("JSON with a long name in each record", Format::JsonCompressed, names),
        ("JSON with an endless text", Format::Json, [b"[{\"name\":\"".to_vec(), vec![b'x'; 100 << 20]].concat()),
        ("text without lines", Format::PerfScript, vec![b'x'; 100 << 20]),
        (
            "CSV with an endless line",
            Format::Csv,
            [b"start_ns,end_ns,start,end,nr_accesses\n".to_vec(), vec![b'1'; 100 << 20]].concat(),
        ),
    ];
    drop((million, many_pages, many_targets));
    for (what, format, bytes) in files {
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        let before = peak();
        let events = drain(bytes, format);
        // The counters are per CPU and summed up late, so they may seem to shrink.
        let cost = peak().saturating_sub(before);
        println!("{what}: {events} events, {} MiB", cost / MIB);
        assert!(cost < LIMIT, "{what}: {} MiB", cost / MIB);
    }
}
