//! Small hand-made events for tests.

use crate::overview::TargetOverview;
use isotherm_core::addr::AddrRange;
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::event::{Event, Mode, MonitorStats, RunInfo};
use isotherm_core::history::frame::{IdlePages, MappingPages, PageAges, PageFrame, TablePages, sum};
use isotherm_core::history::times::AGES_NS;
use isotherm_core::history::together_frame::TogetherFrame;
use isotherm_core::mapping::{Mapping, MappingKind};
use isotherm_core::snapshot::{Evidence, RegionInfo, Snapshot};
use isotherm_core::target::{Footprint, TargetInfo};

pub const MIB: u64 = 1 << 20;
/// Begin of the first snapshot.
pub(crate) const BASE_NS: u64 = 61_900_000_000;
pub(crate) const AGGR_NS: u64 = 100_000_000;

pub fn region(start: u64, end: u64, nr_accesses: u32, age: u32) -> RegionInfo {
    RegionInfo { start, end, nr_accesses, age, evidence: None, accessed: None }
}

pub fn seen(mut r: RegionInfo, present: u32, blind: u32) -> RegionInfo {
    r.evidence = Some(Evidence { checks: 20, pages: 10, present, blind });
    r
}

/// A region that nobody has looked at yet.
pub(crate) fn unvisited(mut r: RegionInfo) -> RegionInfo {
    r.evidence = Some(Evidence::default());
    r
}

/// The `index`-th aggregation interval of a target, at the default intervals.
pub fn snapshot(target: u32, index: u64, regions: Vec<RegionInfo>) -> Snapshot {
    let start_ns = BASE_NS + index * AGGR_NS;
    Snapshot {
        target,
        pid: Some(4242 + target),
        start_ns,
        end_ns: start_ns + AGGR_NS,
        sample_us: 5_000,
        aggr_us: 100_000,
        max_nr_accesses: 20,
        regions,
    }
}

/// The target of a snapshot, of which there is no other.
pub(crate) fn overview_of(s: &Snapshot) -> TargetOverview {
    let info = TargetInfo { target: s.target, pid: s.pid, name: String::new() };
    TargetOverview { info, snapshots: 1, start_ns: s.start_ns, end_ns: s.end_ns, ended: None }
}

pub fn mapping(start: u64, end: u64, kind: MappingKind, name: &str) -> Mapping {
    Mapping { kind, name: name.into(), ..Mapping::anon(start, end) }
}

/// Ages of `seen` pages that can be observed and others that cannot: so many idle at each threshold, exactly.
pub fn ages(seen: u64, idle: &[u64], unobservable: u64) -> PageAges {
    let idle = idle.iter().map(|&pages| IdlePages { pages, least: pages, most: pages, unresolved: 0 }).collect();
    PageAges { resident: seen + unobservable, unobservable, idle, ..PageAges::default() }
}

pub fn run_info() -> RunInfo {
    RunInfo {
        source: "sim".into(),
        algorithm: "isotherm".into(),
        attrs: MonitorAttrs::default(),
        cpu_budget: Some(0.01),
        kernel: "6.1.0".into(),
        realtime_offset_ns: 1_700_000_000_000_000_000,
    }
}

pub fn stats(time_ns: u64, monitor_ns: u64, target_ns: u64) -> MonitorStats {
    MonitorStats {
        time_ns,
        monitor_ns,
        target_ns,
        checks: monitor_ns / 100,
        clears: 1000,
        nr_regions: 4,
        mode: Mode::Sample,
        sample_us: 5_000,
        aggr_us: 100_000,
        late_samples: 0,
    }
}

/// A target of four mappings: a heap whose first 4 MiB are hot, cold anonymous memory, a library accessed now and then,
/// and locked memory that cannot be observed. `count` intervals long.
pub(crate) fn small_record(count: u64) -> Vec<Event> {
    let heap = 0x5500_0000_0000;
    let anon = 0x7f00_0000_0000;
    let lib = 0x7f80_0000_0000;
    let locked = 0x7f90_0000_0000;
    let mut events = vec![
        Event::Run(run_info()),
        Event::Target(TargetInfo { target: 0, pid: Some(4242), name: "/usr/bin/server --port 1".into() }),
        Event::Mappings {
            time_ns: BASE_NS,
            target: 0,
            mappings: vec![
                mapping(heap, heap + 16 * MIB, MappingKind::Anon, "[heap]"),
                mapping(anon, anon + 64 * MIB, MappingKind::Anon, ""),
                mapping(lib, lib + 2 * MIB, MappingKind::File, "/usr/lib/libdemo.so.1"),
                mapping(locked, locked + MIB, MappingKind::Anon, "[anon:locked]"),
            ],
        },
    ];
    for i in 0..count {
        let age = i as u32;
        let lib_accesses = u32::from(i % 2 == 1);
        let hot_mib = if i % 4 == 3 { 6 } else { 4 };
        events.push(Event::Snapshot(snapshot(
            0,
            i,
            vec![
                seen(region(heap, heap + hot_mib * MIB, 20, age), 10, 0),
                seen(region(heap + hot_mib * MIB, heap + 16 * MIB, 0, age), 5, 0),
                seen(region(anon, anon + 64 * MIB, 0, age), 10, 0),
                seen(region(lib, lib + 2 * MIB, lib_accesses, 0), 10, 0),
                seen(region(locked, locked + MIB, 0, age), 10, 10),
            ],
        )));
        if (i + 1) % 10 == 0 {
            let time_ns = BASE_NS + (i + 1) * AGGR_NS;
            events.push(Event::Stats(stats(time_ns, (i + 1) * 400_000, (i + 1) * 100_000)));
            events.push(Event::Footprint(Footprint {
                time_ns,
                target: 0,
                vsz: 83 * MIB,
                rss: 77 * MIB,
                swap: Some(0),
            }));
        }
    }
    events
}

/// The pages of the targets of [`small_record`] in its `second`-th second. Of the heap a quarter is hot; of anonymous
/// memory 10 pages in each table, scattered; of the library half is used every other second.
pub(crate) fn page_frame(target: u32, second: u64) -> PageFrame {
    let watched = AGES_NS.iter().take_while(|age| **age <= (second + 1) * 1_000_000_000).count();
    let mapping = |start: u64, mib: u64, hot: u64, blind: u64| {
        let ages = ages(mib * 256 - blind, &vec![mib * 256 - hot - blind; watched], blind);
        MappingPages { range: AddrRange::new(start, start + mib * MIB), ages }
    };
    let (heap, anon, lib, locked) = (0x5500_0000_0000, 0x7f00_0000_0000, 0x7f80_0000_0000, 0x7f90_0000_0000u64);
    let lib_hot = if second % 2 == 1 { 256 } else { 0 };
    let table = |base, present, accessed| TablePages { base, present, accessed };
    let mut tables: Vec<TablePages> =
        (0..8).map(|i| table(heap + i * 2 * MIB, 512, if i < 2 { 512 } else { 0 })).collect();
    tables.extend((0..32).map(|i| table(anon + i * 2 * MIB, 512, 10)));
    tables.push(table(lib, 512, lib_hot as u16));
    PageFrame {
        time_ns: BASE_NS + (second + 1) * 1_000_000_000,
        since_ns: BASE_NS + second * 1_000_000_000,
        begin_ns: BASE_NS,
        walk_ns: 250_000_000,
        target,
        one_in: 1,
        mappings: vec![
            mapping(heap, 16, 1024, 0),
            mapping(anon, 64, 320, 0),
            mapping(lib, 2, lib_hot, 0),
            mapping(locked, 1, 0, 256),
        ],
        tables,
        reaccessed: None,
        forked: false,
    }
}

/// Several targets like that of [`small_record`], with their pages.
pub(crate) fn paged_record(targets: u32, seconds: u64) -> Vec<Event> {
    let mut all = Vec::new();
    for target in 0..targets {
        for mut event in small_record(seconds * 10) {
            match &mut event {
                Event::Target(t) => (t.target, t.pid) = (target, Some(4242 + target)),
                Event::Mappings { target: t, .. } => *t = target,
                Event::Snapshot(s) => (s.target, s.pid) = (target, Some(4242 + target)),
                Event::Footprint(f) => f.target = target,
                Event::Run(_) | Event::Stats(_) if target > 0 => continue,
                _ => {}
            }
            all.push(event);
        }
        all.extend((0..seconds).map(|second| Event::Pages(page_frame(target, second))));
    }
    let time = |e: &Event| match e {
        Event::Snapshot(s) => s.end_ns,
        Event::Stats(s) => s.time_ns,
        Event::Footprint(f) => f.time_ns,
        Event::Pages(f) => f.time_ns,
        _ => 0,
    };
    all.sort_by_key(time);
    all
}

/// All targets of [`paged_record`] together, each page of which the other ones map, too.
pub fn together(targets: u32, second: u64) -> Event {
    let frame = page_frame(0, second);
    let ages = sum(frame.mappings.iter().map(|m| &m.ages));
    Event::Together(TogetherFrame { time_ns: frame.time_ns, targets, one_in: 1, ages, owned: Vec::new() })
}
