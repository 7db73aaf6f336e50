//! Events for tests: arbitrary ones, and a run like those of a real monitor.
#![allow(dead_code, missing_docs)]

use isotherm_core::addr::AddrRange;
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::event::{Event, Mode, MonitorStats, RunInfo};
use isotherm_core::history::frame::{IdlePages, MappingPages, PageAges, PageFrame, TablePages};
use isotherm_core::history::times::AGES_NS;
use isotherm_core::history::together_frame::TogetherFrame;
use isotherm_core::mapping::{Mapping, MappingKind};
use isotherm_core::snapshot::{Evidence, RegionInfo, Snapshot};
use isotherm_core::target::{Footprint, TargetEnd, TargetInfo};
use proptest::prelude::*;

fn arb_name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["", "[heap]", "/usr/bin/redis-server *:6379", "[anon:größe]", "a\tb\nc,\"d\""])
        .prop_map(str::to_owned)
}

fn arb_evidence() -> impl Strategy<Value = Option<Evidence>> {
    prop::option::of(
        (any::<u32>(), 0u32..600, 0u32..600, 0u32..600).prop_map(|(checks, pages, present, blind)| Evidence {
            checks,
            pages,
            present,
            blind,
        }),
    )
}

/// Sorted, disjoint regions, page aligned or not.
pub fn arb_regions() -> impl Strategy<Value = Vec<RegionInfo>> {
    let gap = prop_oneof![3 => Just(0u64), 1 => 1u64..1000];
    // How much was accessed: untold, nothing, all, some units of the length.
    let accessed = prop_oneof![Just(None), Just(Some(0u64)), Just(Some(u64::MAX)), (0u64..5000).prop_map(Some)];
    let region = (1u64..5000, gap, 0u32..25, 0u32..2000, arb_evidence(), accessed);
    (prop::collection::vec(region, 0..30), prop_oneof![3 => Just(4096u64), 1 => Just(1u64)], 0u64..1 << 34).prop_map(
        |(parts, unit, first)| {
            let mut at = first * unit;
            parts
                .into_iter()
                .map(|(len, gap, nr_accesses, age, evidence, accessed)| {
                    let start = at + gap * unit;
                    at = start + len * unit;
                    let accessed = accessed.map(|units| units.min(len) * unit);
                    RegionInfo { start, end: at, nr_accesses, age, evidence, accessed }
                })
                .collect()
        },
    )
}

pub fn arb_snapshot() -> impl Strategy<Value = Snapshot> {
    (0u32..4, prop::option::of(1u32..1 << 22), any::<u32>(), 0u64..1 << 40, 1u64..10_000, 1u32..40, arb_regions())
        .prop_map(|(target, pid, start, len, sample_us, max_nr_accesses, regions)| Snapshot {
            target,
            pid,
            start_ns: u64::from(start) * 1_000_003,
            end_ns: u64::from(start) * 1_000_003 + len,
            sample_us,
            aggr_us: sample_us * 20,
            max_nr_accesses,
            regions,
        })
}

fn arb_mapping() -> impl Strategy<Value = Mapping> {
    let kind = prop::sample::select(vec![
        MappingKind::Anon,
        MappingKind::File,
        MappingKind::Shmem,
        MappingKind::Hugetlb,
        MappingKind::Special,
    ]);
    (0u64..1 << 47, 0u64..1 << 40, kind, any::<bool>(), any::<bool>(), arb_name()).prop_map(
        |(start, len, kind, shared, locked, name)| Mapping {
            range: AddrRange::new(start, start + len),
            kind,
            shared,
            locked,
            name,
        },
    )
}

/// By how much the pages of a threshold are fewer, and by how much their bounds differ.
type Fall = (u64, u64, u64, u64);

/// Ages as they are, or any numbers.
fn arb_ages() -> impl Strategy<Value = PageAges> {
    let threshold = prop_oneof![
        4 => Just((0u64, 0u64, 0u64, 0u64)),
        3 => (0u64..5000, Just(0), Just(0), Just(0)),
        2 => (0u64..5000, 0u64..50, 0u64..50, 0u64..50),
        1 => any::<Fall>(),
    ];
    let of = |(resident, unobservable, falls): (u32, u32, Vec<Fall>)| {
        let (resident, unobservable) = (u64::from(resident), u64::from(unobservable));
        let mut pages = resident.wrapping_sub(unobservable);
        let idle = falls.into_iter().map(|(fall, below, above, unresolved)| {
            pages = pages.wrapping_sub(fall);
            let most = pages.wrapping_add(above).wrapping_add(unresolved);
            IdlePages { pages, least: pages.wrapping_sub(below), most, unresolved }
        });
        PageAges { resident, unobservable, idle: idle.collect(), ..PageAges::default() }
    };
    (any::<u32>(), 0u32..1000, prop::collection::vec(threshold, 0..=AGES_NS.len())).prop_map(of)
}

fn arb_tables() -> impl Strategy<Value = Vec<TablePages>> {
    let run = (0u64..3, 1u64..5, prop_oneof![Just(512u16), 0u16..=512], any::<u16>());
    (prop_oneof![0u64..1 << 26, Just((1u64 << 43) - 40)], prop::collection::vec(run, 0..6)).prop_map(|(first, runs)| {
        let mut next = first;
        let mut tables = Vec::new();
        for (gap, len, present, accessed) in runs {
            let accessed = accessed.checked_rem(present).unwrap_or(0);
            let numbers = next + gap..next + gap + len;
            next = numbers.end;
            tables.extend(numbers.map(|n| TablePages { base: n << 21, present, accessed }));
        }
        tables
    })
}

fn arb_pages() -> impl Strategy<Value = Event> {
    let mapping = (0u64..1 << 20, 0u64..1 << 40, arb_ages());
    let mappings = prop::collection::vec(mapping, 0..5).prop_map(|parts| {
        let mut at = 0;
        let next = |(gap, len, ages): (u64, u64, PageAges)| {
            let range = AddrRange::new(at + gap, at + gap + len);
            at = range.end;
            MappingPages { range, ages }
        };
        parts.into_iter().map(next).collect::<Vec<_>>()
    });
    (any::<[u64; 4]>(), 0u32..4, any::<u32>(), mappings, arb_tables()).prop_map(
        |(n, target, one_in, mappings, tables)| {
            let [time_ns, since_ns, begin_ns, walk_ns] = n;
            Event::Pages(PageFrame {
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
        },
    )
}

pub fn arb_event() -> impl Strategy<Value = Event> {
    let run = (arb_name(), any::<i64>(), prop::option::of(0.0f64..1.0)).prop_map(|(name, offset, cpu_budget)| {
        Event::Run(RunInfo {
            source: "pagetable".into(),
            algorithm: name,
            attrs: MonitorAttrs::default(),
            cpu_budget,
            kernel: "6.1.0-26-amd64".into(),
            realtime_offset_ns: offset,
        })
    });
    let target = (0u32..4, prop::option::of(any::<u32>()), arb_name())
        .prop_map(|(target, pid, name)| Event::Target(TargetInfo { target, pid, name }));
    let mappings = (any::<u64>(), 0u32..4, prop::collection::vec(arb_mapping(), 0..10))
        .prop_map(|(time_ns, target, mappings)| Event::Mappings { time_ns, target, mappings });
    let stats = (any::<[u64; 5]>(), any::<u32>(), any::<bool>()).prop_map(|(n, nr_regions, scan)| {
        Event::Stats(MonitorStats {
            time_ns: n[0],
            monitor_ns: n[1],
            target_ns: n[2],
            checks: n[3],
            clears: n[4],
            nr_regions,
            mode: if scan { Mode::Scan } else { Mode::Sample },
            sample_us: 5000,
            aggr_us: 100_000,
            late_samples: 3,
        })
    });
    let footprint = (any::<u64>(), 0u32..4, any::<u64>(), any::<u64>(), prop::option::of(any::<u64>()))
        .prop_map(|(time_ns, target, vsz, rss, swap)| Event::Footprint(Footprint { time_ns, target, vsz, rss, swap }));
    let end = (any::<u64>(), 0u32..4, any::<bool>()).prop_map(|(time_ns, target, replaced)| Event::End {
        time_ns,
        target,
        why: if replaced { TargetEnd::Replaced } else { TargetEnd::Exited },
    });
    let together =
        (any::<u64>(), any::<u32>(), any::<u32>(), arb_ages()).prop_map(|(time_ns, targets, one_in, ages)| {
            Event::Together(TogetherFrame { time_ns, targets, one_in, ages, owned: Vec::new() })
        });
    prop_oneof![
        1 => run,
        1 => target,
        1 => mappings,
        8 => arb_snapshot().prop_map(Event::Snapshot),
        1 => stats,
        1 => footprint,
        1 => end,
        3 => arb_pages(),
        1 => together,
    ]
}

/// A run like a real one: `seconds` at 5 ms / 100 ms over the mappings of a server with some hundred MiB, a hot window
/// that walks, noise, and regions that are merged and split at random places as DAMON does.
pub fn realistic(seconds: u64, max_regions: usize, seed: u64) -> Vec<Event> {
    let mut rng = Random(seed | 1);
    let page = 4096;
    let areas: [(u64, u64, &str); 4] = [
        (0x5581_0000_0000, 0x5581_0000_0000 + 900 * page, "/usr/bin/server"),
        (0x5581_1000_0000, 0x5581_1000_0000 + 65_000 * page, "[heap]"),
        (0x7f10_0000_0000, 0x7f10_0000_0000 + 130_000 * page, ""),
        (0x7ffd_2000_0000, 0x7ffd_2000_0000 + 33 * page, "[stack]"),
    ];
    let mappings: Vec<Mapping> =
        areas.iter().map(|&(s, e, n)| Mapping { name: n.to_owned(), ..Mapping::anon(s, e) }).collect();
    let first = 1_000_000_000_000u64;
    let mut events = vec![
        Event::Run(RunInfo {
            source: "pagetable".into(),
            algorithm: "damon".into(),
            attrs: MonitorAttrs::default(),
            cpu_budget: Some(0.01),
            kernel: "6.1.0".into(),
            realtime_offset_ns: 1_700_000_000_000_000_000,
        }),
        Event::Target(TargetInfo { target: 0, pid: Some(4242), name: "server --port 1".into() }),
        Event::Mappings { time_ns: first, target: 0, mappings },
    ];
    // (start, end, last nr_accesses, age)
    let mut regions: Vec<(u64, u64, u32, u32)> = areas.iter().map(|&(s, e, _)| (s, e, 0, 0)).collect();
    let mut now = first;
    for step in 0..seconds * 10 {
        let end = now + 100_000_000 + rng.below(300_000);
        let hot_at = 0x7f10_0000_0000 + (step / 20 % 100) * 1000 * page;
        let mut figures: Vec<(u64, u64, u32, u32, u32)> = Vec::new();
        for &(s, e, last, age) in &regions {
            let hot = s < hot_at + 5000 * page && e > hot_at || e - s < 200 * page && s >> 12 & 7 == 0;
            let base = if hot { 12 + (s >> 14 & 7) as u32 } else { u32::from(rng.below(40) == 0) };
            let nr = (base + if hot { rng.below(4) as u32 } else { 0 }).min(20);
            figures.push((s, e, nr, last, if nr.abs_diff(last) > 2 || (nr == 0) != (last == 0) { 0 } else { age + 1 }));
        }
        let mut merged: Vec<(u64, u64, u32, u32)> = Vec::new();
        for (s, e, nr, _, age) in figures {
            match merged.last_mut() {
                Some(m) if m.1 == s && m.2.abs_diff(nr) <= 2 && e - m.0 < 20_000 * page => {
                    let (a, b) = (m.1 - m.0, e - s);
                    *m = (
                        m.0,
                        e,
                        ((u64::from(m.2) * a + u64::from(nr) * b) / (a + b)) as u32,
                        ((u64::from(m.3) * a + u64::from(age) * b) / (a + b)) as u32,
                    );
                }
                _ => merged.push((s, e, nr, age)),
            }
        }
        let snapshot = merged
            .iter()
            .map(|&(start, end, nr_accesses, age)| {
                let pages = 20.min(((end - start) / page) as u32);
                let present = pages - (start >> 20 & 3).min(u64::from(pages)) as u32;
                let evidence = Some(Evidence { checks: pages * 20, pages, present, blind: 0 });
                // Some pages of a warm region, all of a hot one.
                let accessed = Some(if nr_accesses < 5 { ((end - start) / 3) & !4095 } else { end - start });
                RegionInfo { start, end, nr_accesses, age, evidence, accessed }
            })
            .collect();
        events.push(Event::Snapshot(Snapshot {
            target: 0,
            pid: Some(4242),
            start_ns: now,
            end_ns: end,
            sample_us: 5000,
            aggr_us: 100_000,
            max_nr_accesses: 20,
            regions: snapshot,
        }));
        regions.clear();
        let split = merged.len() <= max_regions / 2;
        for (s, e, nr, age) in merged {
            let pages = (e - s) / page;
            let cut = pages * (1 + rng.below(9)) / 10;
            if split && cut > 0 && cut < pages {
                regions.extend([(s, s + cut * page, nr, age), (s + cut * page, e, nr, age)]);
            } else {
                regions.push((s, e, nr, age));
            }
        }
        now = end;
        if step % 10 == 9 {
            events.push(Event::Stats(MonitorStats {
                time_ns: now,
                monitor_ns: step * 1_000_000,
                target_ns: step * 500_000,
                checks: step * 20_000,
                clears: step * 9000,
                nr_regions: regions.len() as u32,
                mode: Mode::Sample,
                sample_us: 5000,
                aggr_us: 100_000,
                late_samples: 0,
            }));
            events.push(pages(now, first, &areas, &mut rng));
            let rss = 700 << 20;
            events.push(Event::Footprint(Footprint { time_ns: now, target: 0, vsz: rss + 4096, rss, swap: Some(0) }));
        }
    }
    events.push(Event::End { time_ns: now, target: 0, why: TargetEnd::Exited });
    events
}

/// The pages of a second: scattered heat of 2 % in the first tables of each area, the rest cold.
fn pages(now: u64, first: u64, areas: &[(u64, u64, &str)], rng: &mut Random) -> Event {
    let watched = AGES_NS.iter().take_while(|age| **age <= now - first).count();
    let mapping = |&(start, end, _): &(u64, u64, &str)| {
        let resident = (end - start) / 4096;
        let idle = |i: usize| {
            let pages = resident * 98 / 100 - (i as u64).min(resident / 2);
            IdlePages { pages, least: pages - pages / 100, most: pages + 2, unresolved: u64::from(i > 3) }
        };
        let ages = PageAges { resident, idle: (0..watched).map(idle).collect(), ..PageAges::default() };
        MappingPages { range: AddrRange::new(start, end), ages }
    };
    let mut tables: Vec<TablePages> = Vec::new();
    for &(start, end, _) in areas {
        for base in (start >> 21 << 21..end).step_by(2 << 20) {
            let accessed = if tables.len() < 60 { rng.below(20) as u16 } else { 0 };
            tables.push(TablePages { base, present: 512, accessed });
        }
    }
    let (since_ns, mappings) = (now - 1_000_000_000, areas.iter().map(mapping).collect());
    let walk_ns = 250_000_000;
    Event::Pages(PageFrame {
        time_ns: now,
        since_ns,
        begin_ns: first,
        walk_ns,
        target: 0,
        one_in: 1,
        mappings,
        tables,
        reaccessed: None,
        forked: false,
    })
}

/// A small generator of pseudo-random numbers (xorshift), so that test data does not change with a library's version.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}
