//! Small hand-made events for tests.

use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::event::{Event, Footprint, Mode, MonitorStats, RunInfo, TargetInfo};
use isotherm_core::mapping::{Mapping, MappingKind};
use isotherm_core::snapshot::{Evidence, RegionInfo, Snapshot};

pub const MIB: u64 = 1 << 20;
/// Begin of the first snapshot.
pub const BASE_NS: u64 = 61_900_000_000;
pub const AGGR_NS: u64 = 100_000_000;

pub fn region(start: u64, end: u64, nr_accesses: u32, age: u32) -> RegionInfo {
    RegionInfo { start, end, nr_accesses, age, evidence: None, accessed: None }
}

pub fn seen(mut r: RegionInfo, present: u32, blind: u32) -> RegionInfo {
    r.evidence = Some(Evidence { checks: 20, pages: 10, present, blind });
    r
}

/// A region that nobody has looked at yet.
pub fn unvisited(mut r: RegionInfo) -> RegionInfo {
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

pub fn mapping(start: u64, end: u64, kind: MappingKind, name: &str) -> Mapping {
    Mapping { kind, name: name.into(), ..Mapping::anon(start, end) }
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
pub fn small_record(count: u64) -> Vec<Event> {
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
