//! Isotherm's own format: what goes in comes out, damage costs only what is damaged.
#![allow(missing_docs)]

mod common;

use common::{arb_event, realistic};
use isotherm_core::event::{Event, Step, Subscriber};
use isotherm_core::printable::make_printable;
use isotherm_record::fuzz;
use isotherm_record::{
    Options, ReadError, Reader, Record, Rotation, Warning, WriteError, Writer, missing_parts, parts,
};
use proptest::prelude::*;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

fn write_to(path: &Path, events: &[Event], options: Options) {
    let mut writer = Writer::create(path, options).unwrap();
    for event in events {
        writer.write(event).unwrap();
    }
    writer.finish().unwrap();
}

fn bytes_of(events: &[Event], options: Options) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.iso");
    write_to(&path, events, options);
    std::fs::read(path).unwrap()
}

fn read(bytes: &[u8]) -> (Vec<Event>, Vec<Warning>) {
    let mut reader = Reader::new(bytes, "test").unwrap();
    let events = reader.by_ref().map(Result::unwrap).collect();
    (events, reader.warnings().to_vec())
}

/// Frames of about three snapshots each.
fn small_frames() -> Options {
    Options { frame_ns: 300_000_000, ..Options::default() }
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        events in prop::collection::vec(arb_event(), 0..40),
        frame_bytes in prop_oneof![Just(1usize), Just(500), Just(256 << 10)],
        level in prop_oneof![Just(0u32), Just(6)],
    ) {
        let bytes = bytes_of(&events, Options { frame_bytes, level, ..Options::default() });
        let (back, warnings) = read(&bytes);
        prop_assert_eq!(back, events);
        prop_assert_eq!(warnings, vec![]);
    }
}

#[test]
fn snapshots_of_many_targets_share_frames_although_an_interval_is_longer_than_a_frame_may_wait() {
    const INTERVAL_NS: u64 = 3_000_000_000;
    let events = realistic(1, 4, 1);
    let snapshot = events.iter().find_map(|e| if let Event::Snapshot(s) = e { Some(s) } else { None }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(folder.path().join("r.iso"), Options::default()).unwrap();
    for interval in 0..5 {
        for target in 0..20 {
            let mut s = snapshot.clone();
            (s.target, s.start_ns, s.end_ns) = (target, interval * INTERVAL_NS, (interval + 1) * INTERVAL_NS);
            writer.write(&Event::Snapshot(s)).unwrap();
        }
    }
    // A snapshot that comes after a frame's time is its last, and what was kept until the end another frame.
    let summary = writer.finish().unwrap();
    assert_eq!(summary.snapshots, 100);
    assert!(summary.frames <= 7, "{} frames", summary.frames);
}

/// What the decoder finds in an unpacked payload, and whether it found damage.
fn decoded(payload: &[u8]) -> Vec<Event> {
    fuzz::read(&fuzz::framed(payload), None).events
}

/// Event by event: kind and body.
fn split(payload: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let (mut rest, mut parts) = (payload, Vec::new());
    while let Some((&kind, after)) = rest.split_first() {
        let (mut len, mut shift, mut at) = (0usize, 0, 0);
        loop {
            len |= usize::from(after[at] & 0x7f) << shift;
            (shift, at) = (shift + 7, at + 1);
            if after[at - 1] & 0x80 == 0 {
                break;
            }
        }
        parts.push((kind, after[at..at + len].to_vec()));
        rest = &after[at + len..];
    }
    parts
}

proptest! {
    /// Readers of before know neither kind, pass over them by their lengths, and find everything else unchanged.
    #[test]
    fn pages_are_passed_over_by_readers_that_do_not_know_them(events in prop::collection::vec(arb_event(), 0..20)) {
        let mut payload = Vec::new();
        for (kind, body) in split(&fuzz::raw_payload(&events)) {
            let mut len = body.len();
            payload.push(if kind >= 8 { kind + 100 } else { kind });
            while len >= 0x80 {
                payload.push(len as u8 | 0x80);
                len >>= 7;
            }
            payload.push(len as u8);
            payload.extend(body);
        }
        let mut others: Vec<Event> =
            events.into_iter().filter(|e| !matches!(e, Event::Pages(_) | Event::Together(_))).collect();
        others.iter_mut().for_each(|event| event.each_name(make_printable));
        prop_assert_eq!(decoded(&payload), others);
    }

    #[test]
    fn damaged_events_break_no_promise(
        events in prop::collection::vec(arb_event(), 1..6),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut payload = fuzz::raw_payload(&events);
        for (at, byte) in damage {
            let at = at.index(payload.len());
            payload[at] = byte;
        }
        fuzz::payload(&payload);
        fuzz::payload(&payload[..cut.index(payload.len())]);
    }
}

/// Lengths of the file after each frame, and the events whole by then.
fn frame_ends(events: &[Event]) -> Vec<(usize, usize)> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.iso");
    let mut writer = Writer::create(&path, small_frames()).unwrap();
    let mut ends = vec![(28, 0)];
    for (i, event) in events.iter().enumerate() {
        writer.write(event).unwrap();
        let len = std::fs::metadata(&path).unwrap().len() as usize;
        if len != ends.last().unwrap().0 {
            ends.push((len, i + 1));
        }
    }
    ends
}

#[test]
fn a_record_cut_off_anywhere_is_read_up_to_the_last_whole_frame() {
    let events = realistic(3, 60, 7);
    let ends = frame_ends(&events);
    assert!(ends.len() > 5, "the test needs several frames");
    let bytes = bytes_of(&events, small_frames());
    for cut in 0..bytes.len() {
        let (back, warnings) = read(&bytes[..cut]);
        let whole = ends.iter().rev().find(|(len, _)| *len <= cut).map_or(0, |(_, n)| *n);
        assert!(back.len() >= whole, "cut at {cut}: {} of {whole} events", back.len());
        assert_eq!(back, events[..back.len()], "cut at {cut}");
        assert!(warnings.iter().any(|w| matches!(w, Warning::Truncated { .. })), "cut at {cut}: {warnings:?}");
    }
}

#[test]
fn a_flipped_bit_costs_at_most_its_frame() {
    let events = realistic(2, 40, 3);
    let ends = frame_ends(&events);
    let bytes = bytes_of(&events, small_frames());
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        let (back, warnings) = read(&damaged);
        assert!(!warnings.is_empty(), "the flip at {at} goes unnoticed");
        // The frame that holds the byte: its events may be missing, all others are there.
        let frame = ends.iter().position(|(len, _)| *len > at).unwrap_or(ends.len());
        let (from, to) = match frame {
            0 => (0, 0),
            f if f < ends.len() => (ends[f - 1].1, ends[f].1),
            f => (ends[f - 1].1, events.len()),
        };
        let expected: Vec<&Event> = events[..from].iter().chain(&events[to..]).collect();
        let complete: Vec<&Event> = events.iter().collect();
        let got: Vec<&Event> = back.iter().collect();
        assert!(got == expected || got == complete, "flip at {at}: {} of {} events", got.len(), expected.len());
    }
}

#[test]
fn a_reader_that_lost_the_begin_learns_targets_and_mappings_later() {
    let events = realistic(30, 60, 5);
    let mut bytes = bytes_of(&events, small_frames());
    bytes[33] ^= 0xff;
    let record = Record::from_events(read(&bytes).0);
    assert_eq!(record.targets.len(), 1);
    assert_eq!(record.mappings[0].mappings.len(), 4);
    assert!(record.run.is_some());
}

#[test]
fn a_dropped_writer_leaves_a_readable_record() {
    let events = realistic(2, 40, 1);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.iso");
    let mut writer = Writer::create(&path, Options::default()).unwrap();
    events.iter().for_each(|e| writer.write(e).unwrap());
    drop(writer);
    let (back, warnings) = read(&std::fs::read(&path).unwrap());
    assert_eq!(back, events);
    assert!(matches!(warnings[..], [Warning::Truncated { .. }]));
}

#[test]
fn only_its_owner_may_read_a_record() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.iso");
    let options =
        Options { rotation: Some(Rotation { max_bytes: Some(1), max_age_ns: None, keep: None }), ..small_frames() };
    write_to(&path, &realistic(2, 40, 1), options);
    let modes: Vec<u32> =
        std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().metadata().unwrap().mode()).collect();
    assert!(modes.len() > 1 && modes.iter().all(|mode| mode & 0o777 == 0o600), "{modes:?}");
}

#[test]
fn a_frame_is_written_when_its_time_has_come_without_further_events() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.iso");
    let events = realistic(1, 40, 1);
    let mut writer = Writer::create(&path, Options::default()).unwrap();
    events[..5].iter().for_each(|e| writer.event(e).unwrap());
    assert_eq!(read(&std::fs::read(&path).unwrap()).0, []);
    writer.step(Step::AfterSample, 1_000_000_000_000 + 2_000_000_000);
    assert_eq!(read(&std::fs::read(&path).unwrap()).0, events[..5]);
}

#[test]
fn an_existing_file_is_kept_as_old() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.iso");
    std::fs::write(&path, "precious").unwrap();
    write_to(&path, &realistic(1, 40, 1), Options::default());
    assert_eq!(std::fs::read_to_string(folder.path().join("r.iso.old")).unwrap(), "precious");
}

#[test]
fn parts_are_whole_records_in_the_order_of_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.iso");
    let events = realistic(20, 60, 9);
    let stale: PathBuf = folder.path().join("r.iso.99");
    std::fs::write(&stale, "of an earlier run").unwrap();
    let rotation = Rotation { max_age_ns: Some(5_000_000_000), ..Rotation::default() };
    write_to(&path, &events, Options { rotation: Some(rotation), ..small_frames() });
    let parts = parts(&path);
    assert!((4..=6).contains(&parts.len()), "{parts:?}");
    assert!(!stale.exists());
    let mut snapshots = Vec::new();
    for part in &parts {
        let record = Record::load(part).unwrap();
        assert_eq!(record.warnings, []);
        assert!(record.run.is_some() && record.targets.len() == 1 && record.mappings.len() == 1, "{part:?}");
        let (from, to) = record.time_span().unwrap();
        assert!(to - from <= 5_300_000_000, "{part:?} covers {} ns", to - from);
        snapshots.extend(record.snapshots);
    }
    assert_eq!(snapshots, Record::from_events(events.clone()).snapshots);
    // Parts of another record are not taken for this one's.
    write_to(&path, &events, Options::default());
    assert!(folder.path().join("r.iso.1").exists());
    assert_eq!(isotherm_record::parts(&path), [path]);
}

#[test]
fn damaged_and_missing_parts_cost_only_themselves() {
    let folder = tempfile::tempdir().unwrap();
    // Not UTF-8.
    let path = folder.path().join(std::ffi::OsStr::from_bytes(b"r\xff.iso"));
    let events = realistic(20, 60, 9);
    let rotation = Rotation { max_age_ns: Some(5_000_000_000), ..Rotation::default() };
    write_to(&path, &events, Options { rotation: Some(rotation), ..small_frames() });
    let all = parts(&path);
    assert!(all.len() >= 4, "{all:?}");
    let count = || parts(&path).iter().map(|part| Record::load(part).unwrap().snapshots.len()).sum::<usize>();
    let whole = count();
    assert_eq!(whole, Record::from_events(events).snapshots.len());
    // Without their headers, the first and one in the middle still have their frames.
    for damaged in [&all[0], &all[2]] {
        let mut bytes = std::fs::read(damaged).unwrap();
        bytes[..28].fill(0);
        std::fs::write(damaged, bytes).unwrap();
    }
    assert_eq!((parts(&path), missing_parts(&path), count()), (all.clone(), vec![], whole));
    // One that is empty, and one that is gone, are told of.
    let lost = Record::load(&all[1]).unwrap().snapshots.len() + Record::load(&all[2]).unwrap().snapshots.len();
    std::fs::write(&all[1], "").unwrap();
    std::fs::remove_file(&all[2]).unwrap();
    assert_eq!((missing_parts(&path), count()), (vec![1..=2], whole - lost));
}

#[test]
fn rotation_by_size_keeps_the_newest_parts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.iso");
    let rotation = Rotation { max_bytes: Some(8000), keep: Some(2), ..Rotation::default() };
    let events = realistic(30, 100, 9);
    write_to(&path, &events, Options { rotation: Some(rotation), ..small_frames() });
    let parts = parts(&path);
    assert_eq!(parts.len(), 2, "{parts:?}");
    assert!(!path.exists(), "the first part is removed");
    for part in &parts {
        let len = std::fs::metadata(part).unwrap().len();
        assert!(len <= 10_000, "{part:?} has {len} bytes");
    }
    let last = Record::load(&parts[1]).unwrap().snapshots.pop().unwrap();
    assert_eq!(Some(last), Record::from_events(events).snapshots.pop());
}

fn end_ns(event: &Event) -> Option<u64> {
    if let Event::Snapshot(s) = event { Some(s.end_ns) } else { None }
}

#[test]
fn every_part_has_a_snapshot_however_the_record_ends() {
    let events = realistic(6, 60, 9);
    let rotation = Rotation { max_age_ns: Some(1_000_000_000), keep: Some(1), ..Rotation::default() };
    // One more event each time: some records end exactly where a part is full, and some with figures after that.
    for len in (1..events.len()).filter(|&n| events[..n].iter().any(|e| end_ns(e).is_some())) {
        for is_finished in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("r.iso");
            let mut writer = Writer::create(&path, Options { rotation: Some(rotation), ..Options::default() }).unwrap();
            events[..len].iter().for_each(|e| writer.write(e).unwrap());
            if is_finished {
                writer.finish().unwrap();
            } else {
                drop(writer);
            }
            let parts = parts(&path);
            assert_eq!(parts.len(), 1, "{parts:?}");
            let record = Record::load(&parts[0]).unwrap();
            let last = events[..len].iter().filter_map(end_ns).next_back();
            assert_eq!(record.snapshots.last().map(|s| s.end_ns), last, "{len} events in {parts:?}");
            assert!(record.run.is_some() && record.targets.len() == 1 && record.mappings.len() == 1, "{parts:?}");
        }
    }
}

#[test]
fn the_oldest_part_goes_only_when_the_newest_has_events() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.iso");
    let rotation = Rotation { max_age_ns: Some(1_000_000_000), keep: Some(1), ..Rotation::default() };
    let mut writer = Writer::create(&path, Options { rotation: Some(rotation), ..Options::default() }).unwrap();
    let mut nr_parts = Vec::new();
    for event in realistic(6, 60, 9) {
        writer.write(&event).unwrap();
        // As a kill at this moment would leave it.
        let parts = parts(&path);
        let snapshots: usize = parts.iter().map(|part| Record::load(part).unwrap().snapshots.len()).sum();
        assert!(snapshots > 0 || writer.summary().frames == 0, "{parts:?}");
        nr_parts.push(parts.len());
    }
    assert_eq!(nr_parts.iter().max(), Some(&2), "{nr_parts:?}");
}

#[test]
fn parts_are_as_long_as_asked_for_although_frames_fill_early() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.iso");
    let rotation = Rotation { max_age_ns: Some(1_000_000_000), ..Rotation::default() };
    // Every event is a frame, although one might wait as long as a part lasts.
    let options = Options { rotation: Some(rotation), frame_bytes: 1, ..Options::default() };
    let events = realistic(6, 60, 9);
    write_to(&path, &events, options);
    let parts = parts(&path);
    let spans = parts.iter().map(|part| Record::load(part).unwrap().time_span().unwrap());
    let spans: Vec<u64> = spans.map(|(from, to)| to - from).collect();
    let (last, whole) = spans.split_last().unwrap();
    assert!(whole.len() >= 5 && whole.iter().all(|ns| (1_000_000_000..1_200_000_000).contains(ns)), "{spans:?}");
    assert!(*last < 1_200_000_000, "{spans:?}");
    let count = |events: &[Event]| events.iter().filter_map(end_ns).count();
    let read_back = parts.iter().map(|part| Record::load(part).unwrap().snapshots.len()).sum::<usize>();
    assert_eq!(read_back, count(&events));
}

#[test]
fn a_full_disk_is_told_with_the_path() {
    let events = realistic(1, 40, 1);
    let mut writer = match Writer::create("/dev/full", Options::default()) {
        Err(error) => {
            assert!(error.to_string().contains("/dev/full"), "{error}");
            return;
        }
        Ok(writer) => writer,
    };
    let error = events.iter().find_map(|e| writer.write(e).err()).unwrap();
    assert!(matches!(error, WriteError::Io { .. }) && error.to_string().contains("/dev/full"), "{error}");
    assert!(matches!(writer.write(&events[0]), Err(WriteError::Failed { .. })));
}

#[test]
fn a_later_version_is_refused_by_name() {
    let mut bytes = bytes_of(&[], Options::default());
    bytes[8] = 2;
    let sum = crc32fast::hash(&bytes[..24]).to_le_bytes();
    bytes[24..28].copy_from_slice(&sum);
    let error = Reader::new(&bytes[..], "new.iso").unwrap_err();
    assert!(matches!(error, ReadError::NewerVersion { version: 2, .. }), "{error}");
}

#[test]
fn snapshots_that_break_the_rules_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let Some(Event::Snapshot(mut s)) = realistic(1, 40, 1).into_iter().find(|e| matches!(e, Event::Snapshot(_))) else {
        panic!("no snapshot");
    };
    s.regions.reverse();
    let mut writer = Writer::create(folder.path().join("r.iso"), Options::default()).unwrap();
    assert!(matches!(writer.write(&Event::Snapshot(s)), Err(WriteError::TooLarge { .. })));
}
