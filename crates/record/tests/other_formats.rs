//! Formats of other tools: what they can carry comes back, and damage costs only what is behind it.
#![allow(missing_docs)]

mod common;

use common::{arb_snapshot, realistic};
use isotherm_core::event::Event;
use isotherm_core::snapshot::{RegionInfo, Snapshot};
use isotherm_core::target::TargetInfo;
use isotherm_core::trace::{TraceEvent, Tracepoint};
use isotherm_record::fuzz::{self, Shared, read};
use isotherm_record::{Format, ReadError, TraceLine, Warning, exporter};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Takes out what only Isotherm's own formats carry.
fn drop_figures(r: &mut RegionInfo) {
    (r.evidence, r.accessed) = (None, None);
}

fn export(format: Format, events: &[Event]) -> Vec<u8> {
    let bytes = Shared::default();
    let mut out = exporter(format, "memory", Box::new(bytes.clone())).unwrap();
    events.iter().for_each(|e| out.write(e).unwrap());
    out.finish().unwrap();
    bytes.take()
}

fn snapshots(events: &[Event]) -> Vec<Snapshot> {
    let of = |e: &Event| if let Event::Snapshot(s) = e { Some(s.clone()) } else { None };
    events.iter().filter_map(of).collect()
}

/// Writes, lets the format be recognized by content, reads.
fn round_trip(format: Format, events: &[Event]) -> Vec<Snapshot> {
    let bytes = export(format, events);
    let reading = read(&bytes, None);
    let outcome = reading.end.unwrap();
    assert_eq!(outcome.format, format);
    assert_eq!(outcome.warnings, []);
    snapshots(&reading.events)
}

/// Snapshots as DAMON makes them: 5 ms / 100 ms, whole microseconds, one after the other, at least one region each.
fn arb_damon(with_pid: bool) -> impl Strategy<Value = Vec<Event>> {
    let lanes = prop::collection::vec(prop::collection::vec(arb_snapshot(), 1..6), 1..4);
    (lanes, 1_000_000u64..1 << 40).prop_map(move |(lanes, first_us)| {
        let mut out: BTreeMap<(u64, usize), Event> = BTreeMap::new();
        for (target, lane) in lanes.into_iter().enumerate() {
            for (i, mut s) in lane.into_iter().filter(|s| !s.regions.is_empty()).enumerate() {
                s.target = target as u32;
                s.pid = with_pid.then_some(100 + target as u32);
                s.start_ns = (first_us + 100_000 * i as u64) * 1000;
                s.end_ns = s.start_ns + 100_000_000;
                (s.sample_us, s.aggr_us, s.max_nr_accesses) = (5000, 100_000, 20);
                for r in &mut s.regions {
                    r.nr_accesses = r.nr_accesses.min(20);
                    drop_figures(r);
                }
                out.insert((s.end_ns, target), Event::Snapshot(s));
            }
        }
        out.into_values().collect()
    })
}

fn without_ages(mut snapshots: Vec<Snapshot>) -> Vec<Snapshot> {
    snapshots.iter_mut().flat_map(|s| &mut s.regions).for_each(|r| r.age = 0);
    snapshots
}

proptest! {
    #[test]
    fn csv_carries_snapshots_whole(snapshots_in in prop::collection::vec(arb_snapshot(), 1..10)) {
        // Two successive snapshots of the same target and times would be one.
        let mut given = snapshots_in;
        given.sort_by_key(|s| s.end_ns);
        given.dedup_by_key(|s| (s.target, s.start_ns, s.end_ns));
        let events: Vec<Event> = given.iter().cloned().map(Event::Snapshot).collect();
        prop_assert_eq!(round_trip(Format::Csv, &events), given);
    }

    #[test]
    fn json_carries_all_but_evidence(given in prop::collection::vec(arb_snapshot(), 1..10), compressed: bool) {
        let mut given = given;
        given.iter_mut().flat_map(|s| &mut s.regions).for_each(drop_figures);
        // One pid a target: damo knows a target by its number alone.
        given.iter_mut().for_each(|s| s.pid = Some(100 + s.target));
        given.sort_by_key(|s| s.end_ns);
        let events: Vec<Event> = given.iter().cloned().map(Event::Snapshot).collect();
        let format = if compressed { Format::JsonCompressed } else { Format::Json };
        let mut back = round_trip(format, &events);
        let order = |s: &Snapshot| (s.end_ns, s.target, s.start_ns, s.sample_us, s.max_nr_accesses);
        back.sort_by_key(order);
        given.sort_by_key(order);
        prop_assert_eq!(back, given);
    }

    #[test]
    fn perf_script_carries_what_damon_traces(events in arb_damon(false)) {
        prop_assume!(!events.is_empty());
        prop_assert_eq!(round_trip(Format::PerfScript, &events), snapshots(&events));
    }

    #[test]
    fn lines_of_live_tracepoints_are_read_as_the_regions_they_tell(
        events in arb_damon(false), others in prop::collection::vec((any::<[u64; 9]>(), 0..Tracepoint::ALL.len()), 0..20)
    ) {
        let snapshots = snapshots(&events);
        prop_assume!(snapshots.len() > 1);
        let others = others.iter().filter_map(|(fields, which)| {
            let tracepoint = Tracepoint::ALL[*which];
            let event = TraceEvent::from_fields(tracepoint, &fields.map(|f| f % (1 << 31)))?;
            (!matches!(tracepoint, Tracepoint::Aggregated | Tracepoint::IntervalsTune)).then_some(event)
        });
        let mut others = others.collect::<Vec<_>>().into_iter().cycle();
        let mut text = String::new();
        for s in &snapshots {
            for (nth, region) in s.regions.iter().enumerate() {
                // Regions are reported one after the other, and events of schemes come in between.
                let time_ns = s.end_ns + nth as u64 * 1000;
                for event in [Some(TraceEvent::aggregated(s, region)), others.next()].into_iter().flatten() {
                    text += &format!("{}\n", TraceLine { kdamond: 0, tid: 4452, cpu: nth as u32 % 3, time_ns, event });
                }
            }
        }
        let what = |s: &Snapshot| (s.target, s.end_ns, s.regions.clone());
        let reading = read(text.as_bytes(), None);
        prop_assert_eq!(reading.end.unwrap().warnings, []);
        let back: Vec<_> = self::snapshots(&reading.events).iter().map(what).collect();
        prop_assert_eq!(back, snapshots.iter().map(what).collect::<Vec<_>>());
    }

    #[test]
    fn binary_carries_all_but_ages(events in arb_damon(true)) {
        prop_assume!(!events.is_empty());
        let expected = without_ages(snapshots(&events));
        // Version 1 knows pids only: targets are counted as they come.
        let mut by_pid = expected.clone();
        let mut seen = Vec::new();
        for s in &mut by_pid {
            s.target = seen.iter().position(|p| *p == s.pid).unwrap_or_else(|| { seen.push(s.pid); seen.len() - 1 }) as u32;
        }
        prop_assert_eq!(without_ages(round_trip(Format::BinaryV1, &events)), by_pid);
        let mut no_pids = expected;
        no_pids.iter_mut().for_each(|s| s.pid = None);
        prop_assert_eq!(&without_ages(round_trip(Format::BinaryV2, &events)), &no_pids);
        prop_assert_eq!(&without_ages(round_trip(Format::BinaryV0, &events)), &no_pids);
    }

    #[test]
    fn random_bytes_never_break_a_reader(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        fuzz::every_format(&bytes);
        fuzz::payload(&bytes);
    }

    #[test]
    fn damaged_payloads_never_break_a_reader(seed: u64, flips in prop::collection::vec((any::<usize>(), any::<u8>()), 1..6)) {
        let mut raw = fuzz::raw_payload(&realistic(1, 60, seed));
        for (at, bits) in flips {
            let len = raw.len();
            raw[at % len] ^= bits;
        }
        fuzz::payload(&raw);
    }
}

/// Few and small snapshots of two targets, so that each byte can be damaged.
fn small() -> Vec<Event> {
    let mut events = vec![
        Event::Target(TargetInfo { target: 0, pid: Some(7), name: "seven".into() }),
        Event::Target(TargetInfo { target: 1, pid: Some(8), name: "eight \"8\"".into() }),
    ];
    for mut s in snapshots(&realistic(1, 20, 5)).into_iter().take(3) {
        s.regions.truncate(3);
        let other = Snapshot { target: 1, pid: Some(8), ..s.clone() };
        events.extend([Event::Snapshot(Snapshot { pid: Some(7), ..s }), Event::Snapshot(other)]);
    }
    events
}

const OTHERS: [Format; 7] = [
    Format::Json,
    Format::JsonCompressed,
    Format::PerfScript,
    Format::Csv,
    Format::BinaryV0,
    Format::BinaryV1,
    Format::BinaryV2,
];

#[test]
fn a_file_cut_off_anywhere_gives_what_was_whole() {
    for format in OTHERS {
        let bytes = export(format, &small());
        let all = snapshots(&read(&bytes, Some(format)).events);
        let mut most = 0;
        for cut in 0..bytes.len() {
            let reading = read(&bytes[..cut], Some(format));
            let got = snapshots(&reading.events);
            // The last one may be cut; targets may come in another order, since JSON stores one after the other.
            let whole =
                got.iter().filter(|s| all.iter().any(|a| a.regions == s.regions && a.target == s.target)).count();
            assert!(whole + 1 >= got.len(), "{format} cut at {cut}: {} snapshots, {whole} as they were", got.len());
            assert!(whole >= most || whole + 1 == most, "{format} cut at {cut}: {whole} after {most}");
            most = most.max(whole);
            fuzz::check(&reading.events);
        }
        assert!(most + 1 >= all.len(), "{format}: {most} of {}", all.len());
    }
}

#[test]
fn a_flipped_bit_never_breaks_a_reader() {
    for format in OTHERS {
        let bytes = export(format, &small());
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            fuzz::check(&read(&damaged, Some(format)).events);
            let _ = read(&damaged[..damaged.len().min(4096)], None);
        }
    }
}

#[test]
fn a_lone_snapshot_keeps_its_interval() {
    let mut lone = snapshots(&small())[0].clone();
    lone.regions.iter_mut().for_each(drop_figures);
    lone.start_ns = 5_000_000_000;
    lone.end_ns = 5_200_000_000;
    (lone.sample_us, lone.aggr_us) = (10_000, 200_000);
    let events = [Event::Snapshot(lone.clone())];
    let perf = round_trip(Format::PerfScript, &events);
    assert_eq!(perf, [Snapshot { pid: None, ..lone.clone() }]);
    assert_eq!(round_trip(Format::BinaryV1, &events), without_ages(vec![lone]));
}

/// What lay idle is not called used because the format has no ages: they are counted again.
#[test]
fn binary_records_get_ages_from_snapshots_in_a_row() {
    let first = snapshots(&small())[0].clone();
    let mut events = Vec::new();
    for i in 1..=5 {
        let mut s = Snapshot { start_ns: i * 1_000_000_000, end_ns: (i + 1) * 1_000_000_000, ..first.clone() };
        s.regions.iter_mut().for_each(|r| (r.nr_accesses, r.age) = (0, 77));
        events.push(Event::Snapshot(s));
    }
    let back = round_trip(Format::BinaryV2, &events);
    assert_eq!(back.len(), 5);
    for (i, snapshot) in back.iter().enumerate() {
        assert!(!snapshot.regions.is_empty() && snapshot.regions.iter().all(|r| r.age == i as u32), "{snapshot:?}");
    }
}

#[test]
fn the_first_layout_of_the_tracepoint_is_read() {
    let text = "# a comment\n\
        kdamond 99 [000] 100.100000: damon:damon_aggregated: pid=4242 nr_regions=2 4096-8192: 3\n\
        kdamond 99 [000] 100.100004: damon:damon_aggregated: pid=4242 nr_regions=2 8192-16384: 0\n\
        kdamond 99 [000] 100.200000: damon:damon_aggregated: pid=4242 nr_regions=1 4096-16384: 1\n\
        kdamond 99 [000] 100.300000: damon:damon_aggregated: pid=4242 nr_regions=2 4096-16384: 1\n";
    let reading = read(text.as_bytes(), None);
    let outcome = reading.end.unwrap();
    assert_eq!(outcome.format, Format::PerfScript);
    assert!(matches!(outcome.warnings[..], [Warning::SkippedLines { count: 1, first: 5, .. }]), "{outcome:?}");
    let s = snapshots(&reading.events);
    let times: Vec<_> = s.iter().map(|s| (s.start_ns, s.end_ns, s.regions.len())).collect();
    assert_eq!(
        times,
        [
            (100_000_000_000, 100_100_000_000, 2),
            (100_100_000_000, 100_200_000_000, 1),
            (100_200_000_000, 100_300_000_000, 1)
        ]
    );
    assert!(s.iter().all(|s| s.pid == Some(4242) && s.target == 0 && s.max_nr_accesses == 20));
}

#[test]
fn a_trace_may_begin_with_many_other_events() {
    let others = "# a comment\n".to_owned() + &"x 1 [000] 1.000000: sched:sched_switch: a ==> b\n".repeat(2000);
    let ours = "kdamond 99 [000] 100.100000: damon:damon_aggregated: target_id=0 nr_regions=1 4096-8192: 3 1\n\
        kdamond 99 [000] 100.200000: damon:damon_aggregated: target_id=0 nr_regions=1 4096-8192: 0 1\n";
    let reading = read((others.clone() + ours).as_bytes(), None);
    assert_eq!(reading.end.unwrap().format, Format::PerfScript);
    assert_eq!(snapshots(&reading.events).len(), 2);
    for text in [others, "no event at all: of any kind:\n".repeat(4000)] {
        match read(text.as_bytes(), None).end {
            Err(ReadError::Foreign { looks_like, .. }) => {
                assert!(looks_like.contains("damon_aggregated"), "{looks_like}")
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn damos_own_json_is_read() {
    // The layout that damo 3.4 writes, with figures as texts.
    let text = r#"[ { "kdamond_idx": 0, "context_idx": 0, "intervals": {"sample_us": "5000", "aggr_us": "100 ms",
        "ops_update_us": "1000000", "intervals_goal": {"access_bp": "0 %"}}, "scheme_idx": null, "target_id": 0,
        "scheme_filters": [], "snapshots": [
        { "start_time": "1000000000000", "end_time": "1000100300000", "regions": [
          { "start": "139,637,976,727,552", "end": "139,637,989,310,464",
            "nr_accesses": { "samples": 0, "percent": null }, "age": { "usec": null, "aggr_intervals": "31" },
            "probe_hits": [], "sz_filter_passed": "0 B" },
          { "start": "139,637,989,310,464", "end": "139,637,989,376,000",
            "nr_accesses": { "percent": 90 }, "age": { "usec": "700 ms", "aggr_intervals": null },
            "probe_hits": [], "sz_filter_passed": "0 B" } ],
          "total_bytes": "12648448", "damos_stats": null, "sample_interval_us": null },
        { "start_time": "1000100300000", "end_time": "1000200600000", "regions": [
          { "start": 0, "end": 0, "nr_accesses": { "samples": -1, "percent": null },
            "age": { "usec": null, "aggr_intervals": "-1" } } ] } ],
        "data_source": "unknown" } ]"#;
    let reading = read(text.as_bytes(), None);
    assert_eq!(reading.end.unwrap().warnings, []);
    let s = snapshots(&reading.events);
    assert_eq!(s.len(), 1, "the false snapshot is dropped");
    assert_eq!((s[0].start_ns, s[0].end_ns), (1_000_000_000_000, 1_000_100_300_000));
    assert_eq!((s[0].sample_us, s[0].aggr_us, s[0].max_nr_accesses), (5000, 100_000, 20));
    let figures: Vec<_> = s[0].regions.iter().map(|r| (r.start, r.end, r.nr_accesses, r.age)).collect();
    assert_eq!(
        figures,
        [(139_637_976_727_552, 139_637_989_310_464, 0, 31), (139_637_989_310_464, 139_637_989_376_000, 18, 7)]
    );
}

/// Number, name, and (end, start of the first region) of the snapshots.
type OfTarget = (u32, String, Vec<(u64, u64)>);

/// What a record has of each target.
fn by_target(events: &[Event]) -> Vec<OfTarget> {
    let of = |target| snapshots(events).into_iter().filter(move |s| s.target == target);
    let ends = |target| of(target).map(|s| (s.end_ns, s.regions[0].start)).collect();
    let row = |event: &Event| match event {
        Event::Target(info) => Some((info.target, info.name.clone(), ends(info.target))),
        _ => None,
    };
    events.iter().filter_map(row).collect()
}

#[test]
fn targets_of_several_kdamonds_are_not_one() {
    // On several processors their lines stand among each other.
    let perf = "kdamond.0 99 [000] 1.000000: damon:damon_aggregated: target_id=0 nr_regions=2 4096-8192: 3 1\n\
        kdamond.1 98 [001] 1.000001: damon:damon_aggregated: target_id=0 nr_regions=2 65536-69632: 0 1\n\
        kdamond.1 98 [001] 1.000002: damon:damon_aggregated: target_id=0 nr_regions=2 69632-73728: 0 1\n\
        kdamond.0 99 [000] 1.000003: damon:damon_aggregated: target_id=0 nr_regions=2 8192-16384: 0 1\n\
        kdamond.1 98 [001] 1.100000: damon:damon_aggregated: target_id=0 nr_regions=1 65536-73728: 0 1\n\
        kdamond.0 99 [000] 1.100001: damon:damon_aggregated: target_id=0 nr_regions=1 4096-16384: 3 1\n";
    let reading = read(perf.as_bytes(), None);
    assert_eq!(reading.end.unwrap().warnings, []);
    let mut found = by_target(&reading.events);
    found.sort();
    assert_eq!(found[0].2, [(1_000_001_000, 65536), (1_100_000_000, 65536)]);
    assert_eq!(found[1].2, [(1_000_000_000, 4096), (1_100_001_000, 4096)]);
    assert_eq!((found.len(), &found[1].1[..]), (2, "target_id 0 of kdamond 0"), "the other one ended first");

    let record = |kdamond: u32, context: u32, start: u64| {
        format!(
            "{{\"kdamond_idx\": {kdamond}, \"context_idx\": {context}, \"intervals\": {{\"sample_us\": 5000, \"aggr_us\": 100000}}, \
             \"target_id\": 0, \"snapshots\": [{{\"start_time\": 0, \"end_time\": 100000000, \"regions\": [{{\"start\": {start}, \"end\": \
             99999744, \"nr_accesses\": {{\"samples\": 1}}, \"age\": {{\"aggr_intervals\": 1}}}}]}}]}}"
        )
    };
    let json = [record(0, 0, 4096), record(0, 1, 8192), record(1, 0, 12288), record(1, 0, 16384)].join(",");
    let reading = read(format!("[{json}]").as_bytes(), None);
    assert_eq!(reading.end.unwrap().warnings, []);
    let one = |start| vec![(100_000_000, start)];
    assert_eq!(
        by_target(&reading.events),
        [
            (0, String::new(), one(4096)),
            (1, "target_id 0 of context 1 of kdamond 0".to_owned(), one(8192)),
            (2, "target_id 0 of kdamond 1".to_owned(), [one(12288), one(16384)].concat()),
        ]
    );
}

#[test]
fn a_record_without_snapshots_is_read_back() {
    for format in [Format::Json, Format::JsonCompressed, Format::Csv] {
        let reading = read(&export(format, &[]), None);
        assert_eq!((reading.end.unwrap().format, snapshots(&reading.events).len()), (format, 0));
    }
}

#[test]
fn snapshots_out_of_order_are_told_of() {
    let mut of_first = snapshots(&small());
    of_first.retain(|s| s.target == 0);
    let second = |s: &Snapshot| Snapshot { target: s.target + 1, ..s.clone() };
    let by_time: Vec<Snapshot> = of_first.iter().flat_map(|s| [s.clone(), second(s)]).collect();
    let by_target: Vec<Snapshot> = of_first.iter().cloned().chain(of_first.iter().map(second)).collect();
    let warnings = |given: Vec<Snapshot>| {
        let text = export(Format::Csv, &given.into_iter().map(Event::Snapshot).collect::<Vec<_>>());
        read(&text, None).end.unwrap().warnings
    };
    assert_eq!((warnings(by_time), warnings(by_target)), (vec![], vec![Warning::OutOfOrder { snapshots: 1 }]));
}

#[test]
fn units_of_json_are_converted_with_the_intervals_or_not_at_all() {
    let record = |head: &str, tail: &str, region: &str| {
        format!(
            "[{{{head}\"target_id\": 0, \"snapshots\": [{{\"start_time\": 0, \"end_time\": 200000000, \"regions\": [{{\"start\": 0, \
             \"end\": 4096, {region}}}]}}]{tail}}}]"
        )
    };
    let intervals = "\"intervals\": {\"sample_us\": 10000, \"aggr_us\": 100000}";
    let (before, after) = (format!("{intervals}, "), format!(", {intervals}"));
    let of = |text: String| {
        let reading = read(text.as_bytes(), None);
        reading
            .end
            .map(|_| snapshots(&reading.events)[0].regions[0])
            .map(|r| (r.nr_accesses, r.age))
            .map_err(|e| e.to_string())
    };
    let (hz, percent) =
        ("\"nr_accesses\": {\"hz\": 50}", "\"nr_accesses\": {\"percent\": 50}, \"age\": {\"usec\": 400000}");
    assert_eq!((of(record(&before, "", hz)), of(record(&before, "", percent))), (Ok((5, 0)), Ok((5, 4))));
    // Without intervals a snapshot is one, of 20 samples.
    assert_eq!((of(record("", "", hz)), of(record("", "", percent))), (Ok((10, 0)), Ok((10, 2))));
    for region in [hz, percent] {
        let error = of(record("", &after, region)).unwrap_err();
        assert!(error.contains("before `snapshots`"), "{error}");
    }
    // What needs no conversion may come in any order.
    let whole = "\"nr_accesses\": {\"samples\": 7}, \"age\": {\"aggr_intervals\": 3}";
    assert_eq!(of(record("", &after, whole)), Ok((7, 3)));
}

#[test]
fn version_one_needs_pids() {
    let s = Snapshot { pid: None, ..snapshots(&small())[0].clone() };
    let mut out = exporter(Format::BinaryV1, "old.bin", Box::new(Shared::default())).unwrap();
    let error = out.write(&Event::Snapshot(s)).unwrap_err().to_string();
    assert!(error.contains("old.bin") && error.contains("binary_v2"), "{error}");
}

#[test]
fn foreign_files_are_named() {
    for (bytes, word) in [
        (&b"\x7fELF\x02\x01\x01"[..], "ELF"),
        (b"PERFILE2........", "perf script"),
        (b"\x1f\x8b\x08\0", "gunzip"),
        (b"", "empty"),
        (b"hello world\n", "text"),
        (b"\xff\xfe\0\x01\x02", "unknown binary"),
        (b"damon_recfmt_ver\x09\0\0\0", "version 9"),
        (b"\x89PNG\r\n\x1a\n", "PNG"),
    ] {
        match read(bytes, None).end {
            Err(ReadError::Foreign { looks_like, .. }) => assert!(looks_like.contains(word), "{looks_like}"),
            other => panic!("{word}: {other:?}"),
        }
    }
}

#[test]
fn a_compressed_bomb_is_refused() {
    use flate2::{Compression, write::ZlibEncoder};
    use std::io::Write;
    let mut z = ZlibEncoder::new(Vec::new(), Compression::best());
    z.write_all(b"[{\"target_id\":0,\"name\":\"").unwrap();
    let chunk = vec![b'a'; 1 << 20];
    (0..64).for_each(|_| z.write_all(&chunk).unwrap());
    let bomb = z.finish().unwrap();
    assert!(matches!(read(&bomb, None).end, Err(ReadError::Malformed { .. })));
}

#[test]
fn own_format_is_ten_times_smaller_than_damos_json() {
    for (seconds, regions, seed) in [(20, 100, 1), (20, 1000, 2), (60, 300, 3)] {
        let events = realistic(seconds, regions, seed);
        let own = fuzz::write(&events).len();
        let json = export(Format::Json, &events).len();
        let n: usize = snapshots(&events).iter().map(|s| s.regions.len()).sum();
        println!(
            "{seconds} s, up to {regions} regions: {n} regions held, own {own} bytes ({:.2} a region), JSON {json}, ratio {:.1}",
            own as f64 / n as f64,
            json as f64 / own as f64
        );
        assert!(n > 1000 && own * 10 <= json, "own {own}, JSON {json}");
    }
}
