//! Readers of traces: what they take, what they refuse and how, and that nothing makes them panic.

use super::input::from_reader;
use super::*;
use isotherm_core::event::Event;
use isotherm_core::snapshot::{RegionInfo, Snapshot};
use isotherm_record::{Format as RecordFormat, exporter};
use proptest::prelude::*;
use std::io::{Cursor, Write as _};

fn read_bytes(bytes: &[u8], format: Format) -> Result<Trace, TraceError> {
    from_reader("t", Box::new(Cursor::new(bytes.to_vec())), format, Selection::default(), &mut |_| {})
}

#[track_caller]
fn names(bytes: &[u8], format: Format) -> Vec<u64> {
    let trace = read_bytes(bytes, format).expect("reads");
    trace.pages().iter().map(|&p| trace.names()[p as usize]).collect()
}

#[track_caller]
fn refuses(bytes: &[u8], format: Format, words: &[&str]) {
    let error = read_bytes(bytes, format).expect_err("is refused").to_string();
    for word in words {
        assert!(error.contains(word), "{error:?} does not say {word:?}");
    }
}

fn oracle(objects: &[u64]) -> Vec<u8> {
    let next = |i: usize| objects[i + 1..].iter().position(|o| *o == objects[i]).map_or(-1, |n| (i + n + 2) as i64);
    let record = |(i, object): (usize, &u64)| {
        [&0u32.to_le_bytes()[..], &object.to_le_bytes(), &4096u32.to_le_bytes(), &next(i).to_le_bytes()].concat()
    };
    objects.iter().enumerate().flat_map(record).collect()
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

#[test]
fn oracle_general() {
    let bytes = oracle(&[7, 9, 7, u64::MAX, 9]);
    for format in [Format::Auto, Format::Oracle] {
        assert_eq!(names(&bytes, format), [7, 9, 7, u64::MAX, 9]);
    }
    let trace = read_bytes(&bytes, Format::Auto).expect("reads");
    assert_eq!(trace.pages(), [0, 1, 0, 2, 1]);
    assert_eq!(trace.manner(0), Manner::FD);
    refuses(&bytes[..100], Format::Oracle, &["byte 96", "4 of 24 bytes"]);
}

#[test]
fn records_across_buffers() {
    let objects: Vec<u64> = (0..200_000).map(|i| i * 7 % 5000).collect();
    let mut bytes = oracle(&[]);
    for &object in &objects {
        bytes.extend(oracle(&[object]));
    }
    assert_eq!(names(&bytes, Format::Oracle), objects);
}

#[test]
fn packed_with_zstd() {
    let bytes = oracle(&[1, 2, 1, 3]);
    assert_eq!(names(&packed(&bytes), Format::Auto), [1, 2, 1, 3]);
    // Frames one behind the other; the second begins in the middle of a record.
    let frames = [packed(&bytes[..50]), packed(&bytes[50..])].concat();
    assert_eq!(names(&frames, Format::Oracle), [1, 2, 1, 3]);
    assert_eq!(names(&packed(b"page\n4\n4\n"), Format::Auto), [4, 4]);
    let whole = packed(&bytes);
    refuses(&whole[..whole.len() - 3], Format::Oracle, &["t (zstd)"]);
    refuses(&[&whole[..], b"rubbish"].concat(), Format::Oracle, &["t (zstd)"]);
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.write_all(&bytes).unwrap();
    let mut summed = encoder.finish().unwrap();
    assert_eq!(names(&summed, Format::Auto), [1, 2, 1, 3]);
    *summed.last_mut().unwrap() ^= 1;
    refuses(&summed, Format::Oracle, &["t (zstd)", "checksum"]);
}

#[test]
fn csv() {
    let text = b"time, op,page,channel,type,note\r\n1,r,0x10,map,anon,x\r\n\n2,w,17,fd,file,\n3,r,16,map,file,y\n";
    assert_eq!(names(text, Format::Auto), [16, 17, 16]);
    let trace = read_bytes(text, Format::Csv).expect("reads");
    let how = |i| (trace.manner(i).is_write(), trace.manner(i).is_fd(), trace.manner(i).is_file());
    assert_eq!([how(0), how(1), how(2)], [(false, false, false), (true, true, true), (false, false, true)]);

    refuses(b"op,time\nr,1\n", Format::Csv, &["line 1", "'page'"]);
    refuses(b"page,page\n1,2\n", Format::Csv, &["line 1", "one column"]);
    refuses(b"page\n1\nabc\n", Format::Csv, &["t, line 3", "'abc'", "page number"]);
    refuses(b"page\n-1\n", Format::Csv, &["line 2", "'-1'"]);
    refuses(b"page\n18446744073709551616\n", Format::Csv, &["line 2"]);
    refuses(b"page,op\n1\n", Format::Csv, &["line 2", "fewer"]);
    refuses(b"page,op\n1,r,3\n", Format::Csv, &["line 2", "more fields"]);
    refuses(b"page,op\n1,x\n", Format::Csv, &["line 2", "'x'", "op"]);
    refuses(b"page,channel,type\n1,fd,anon\n", Format::Csv, &["line 2", "anonymous"]);
    refuses(b"page\n", Format::Csv, &["no request"]);
    refuses(&[b"page\n".as_slice(), &[b'1'; 5000]].concat(), Format::Csv, &["line 2", "longer"]);
}

#[test]
fn lackey() {
    let text = b"==7== Lackey\nI  04000000,3\n L 1ffe000ffc,8\n S 04001008,4\n M 04001008,4\n";
    assert_eq!(names(text, Format::Auto), [0x4000, 0x1ffe000, 0x1ffe001, 0x4001, 0x4001]);
    let trace = read_bytes(text, Format::Lackey).expect("reads");
    assert!(trace.manner(0).is_file() && !trace.manner(1).is_file() && trace.manner(4).is_write());
    for wrong in ["hello", " L 12", " L xyz,4", " L 1000,0", " L 1000,999999", " L fffffffffffffffff,4", " X 1000,4"] {
        let text = format!("I  04000000,3\n{wrong}\n");
        refuses(text.as_bytes(), Format::Lackey, &["line 2", wrong.trim_end(), "--log-file"]);
    }
}

/// The `i`th snapshot of a target.
fn snapshot(target: u32, i: u64, regions: Vec<RegionInfo>) -> Snapshot {
    Snapshot {
        target,
        pid: Some(1),
        start_ns: i * 100_000_000,
        end_ns: (i + 1) * 100_000_000,
        sample_us: 5000,
        aggr_us: 100_000,
        max_nr_accesses: 20,
        regions,
    }
}

fn exported(format: RecordFormat, snapshots: impl IntoIterator<Item = Snapshot>) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let mut writer = exporter(format, "r", Box::new(file.reopen().expect("opens"))).expect("begins");
    snapshots.into_iter().for_each(|snapshot| writer.write(&Event::Snapshot(snapshot)).expect("writes"));
    writer.finish().expect("finishes");
    std::fs::read(file.path()).expect("is there")
}

fn record(regions: Vec<RegionInfo>, snapshots: u64) -> Vec<u8> {
    exported(RecordFormat::Iso, (0..snapshots).map(|i| snapshot(0, i, regions.clone())))
}

fn region(start: u64, pages: u64, nr_accesses: u32, accessed_pages: Option<u64>) -> RegionInfo {
    let accessed = accessed_pages.map(|n| n << 12);
    RegionInfo { start: start << 12, end: (start + pages) << 12, nr_accesses, age: 0, evidence: None, accessed }
}

/// 16 TiB, of which 200 pages are in use: nobody could look at each page of it, 400 times.
#[test]
fn a_record_of_few_pages_in_a_huge_region() {
    let bytes = record(vec![region(0, 1 << 32, 20, Some(200))], 100);
    let trace = read_bytes(&bytes, Format::Isotherm).expect("reads");
    assert!((120..280).contains(&trace.footprint()), "{}", trace.footprint());
    assert_eq!(trace.seen(), 400 * u64::from(trace.footprint()), "the same pages in every round");
}

#[test]
fn records_of_a_monitor() {
    let regions = vec![region(1000, 100, 20, None), region(5000, 1000, 0, None), region(9000, 1000, 20, Some(100))];
    let bytes = record(regions, 10);
    let trace = read_bytes(&bytes, Format::Auto).expect("reads");
    let of = |from: u64, to: u64| trace.names().iter().filter(|n| (from..to).contains(n)).count();
    assert_eq!(of(1000, 1100), 100, "all pages of a region that was accessed all over");
    assert_eq!(of(5000, 6000), 0, "nothing of an idle one");
    let scattered = of(9000, 10_000);
    assert!((60..140).contains(&scattered), "{scattered}: the tenth that was accessed, the same pages each time");
    let first = trace.pages().iter().filter(|&&p| trace.names()[p as usize] < 1100).count();
    assert_eq!(first, 100 * 4 * 10, "in every round");

    let half = read_bytes(&record(vec![region(0, 1000, 10, None)], 10), Format::Isotherm).expect("reads");
    let share = half.pages().len() as f64 / 40_000.0;
    assert!((share - 0.5).abs() < 0.02, "{share}");

    refuses(&record(vec![region(0, 1 << 40, 20, None)], 1), Format::Auto, &["too large to believe"]);
}

#[test]
fn records_of_every_format_are_recognized() {
    let regions = || vec![region(0x5_6413_0000, 100, 20, None), region(0x7_f000_0000, 900, 7, None)];
    for format in RecordFormat::ALL {
        for count in [1, 2, 50] {
            let bytes = exported(format, (0..count).map(|i| snapshot(7, i, regions())));
            let told = read_bytes(&bytes, Format::Isotherm).expect("reads");
            assert_eq!(read_bytes(&bytes, Format::Auto).expect("is recognized"), told, "{format}");
            assert!(told.seen() >= count * 400, "{format}");
            assert_eq!(read_bytes(&packed(&bytes), Format::Auto).expect("is recognized"), told, "{format}");
        }
    }
}

#[test]
fn pages_of_different_targets_are_different() {
    let few = || vec![region(1, 9, 20, None)];
    // Numbers as other tools give them: a process, or an address.
    let targets = [0, 1, 4096, 8192, 1 << 31, u32::MAX];
    let bytes = exported(RecordFormat::Iso, targets.map(|target| snapshot(target, 0, few())));
    let trace = read_bytes(&bytes, Format::Auto).expect("reads");
    assert_eq!((trace.footprint(), trace.seen()), (9 * 6, 9 * 6 * 4));
    // As many as there are with addresses of processes (47 bits), and as the largest addresses (57 bits) leave room for.
    let last_page = region((1 << 35) - 1, 1, 20, None);
    let bytes = exported(RecordFormat::Iso, (0..50_000).map(|i| snapshot(i, i.into(), vec![last_page])));
    assert_eq!(read_bytes(&bytes, Format::Auto).expect("reads").footprint(), 50_000);
    let top = region((1 << 45) - 1, 1, 20, None);
    let many = |count: u32| {
        let snapshots = (0..count).map(|i| snapshot(i, i.into(), if i == 5 { vec![top] } else { few() }));
        exported(RecordFormat::Iso, snapshots)
    };
    const MOST: u32 = 1 << 19;
    assert_eq!(read_bytes(&many(MOST), Format::Auto).expect("reads").footprint(), (MOST - 1) * 9 + 1);
    refuses(&many(MOST + 1), Format::Auto, &["t, snapshot 524289", "524289 targets", "--limit"]);
}

#[test]
fn what_nobody_knows() {
    refuses(b"", Format::Auto, &["empty"]);
    let words = ["a text", "'page'", "lackey", "record"];
    for text in
        ["hello\nworld\n", "The quick brown fox jumps over the lazy dog, again and again.\n", "Füchse\tlaufen\r\n"]
    {
        for len in [text.len(), 23, 24, 25, 48, 1000, 100_000] {
            // A character may be cut off at the end.
            refuses(&text.repeat(len / text.len() + 1).as_bytes()[..len], Format::Auto, &words);
        }
    }
    refuses(&[0x80; 240], Format::Auto, &["--format"]);
    // A next request that is too far away to be one.
    let far = |next: i64| [&oracle(&[1, 2])[..40], &next.to_le_bytes()].concat();
    assert_eq!([1 << 40, i64::MAX].map(|next| names(&far(next), Format::Auto)), [[1, 2], [1, 2]]);
    refuses(&far((1 << 40) + 1), Format::Auto, &["neither oracleGeneral nor a record"]);
    // Sizes of 0 and small numbers of objects: they could be a time, and a count of targets.
    let mut either = oracle(&[1, 1, 1]);
    [12, 36, 60].into_iter().for_each(|size| either[size..size + 4].fill(0));
    refuses(&either, Format::Auto, &["--format oracle", "--format isotherm"]);
    assert_eq!(names(&either, Format::Oracle), [1, 1, 1]);
    let absent = std::path::Path::new("/no/such/trace");
    let error = read(absent, Format::Auto, Selection::default(), &mut |_| {}).expect_err("is not there");
    assert!(error.to_string().contains("/no/such/trace"));
}

#[test]
fn a_limit_ends_every_format() {
    let selection = Selection { limit: Some(2), ..Selection::default() };
    let lackey = b"I  04000000,3\nI  04001000,3\nI  04002000,3\nbroken\n".to_vec();
    for bytes in
        [oracle(&[1, 2, 3]), b"page\n1\n2\n3\nbroken".to_vec(), lackey, record(vec![region(0, 9, 20, None)], 2)]
    {
        let trace = from_reader("t", Box::new(Cursor::new(bytes)), Format::Auto, selection, &mut |_| {});
        assert_eq!(trace.expect("reads").pages(), [0, 1]);
    }
}

fn made(spec: &str) -> Trace {
    generate(&Generator::parse(spec).expect("a spec"), Selection::default(), &mut |_| {}).expect("made")
}

#[test]
fn generators_do_what_they_say() {
    for name in ["uniform", "exponential", "zipf", "scan", "loop", "phases"]
        .map(str::to_owned)
        .into_iter()
        .chain(["a", "b", "c", "d", "e", "f"].map(|l| format!("ycsb-{l}")))
    {
        let spec = format!("{name}:pages=1000,requests=20000,seed=9");
        let trace = made(&spec);
        assert_eq!(trace.pages().len(), 20_000, "{name}");
        assert!(trace.names().iter().all(|n| *n < 1000), "{name}");
        assert_eq!(trace, made(&spec), "{name} repeats");
        let one = made(&format!("{name}:pages=1,requests=50"));
        assert_eq!(one.footprint(), 1, "{name} with one page");
    }
    let share = |spec: &str, test: &dyn Fn(&Trace, usize) -> bool| {
        let trace = made(spec);
        (0..trace.pages().len()).filter(|i| test(&trace, *i)).count() as f64 / trace.pages().len() as f64
    };
    let name = |t: &Trace, i: usize| t.names()[t.pages()[i] as usize];
    let near = |a: f64, b: f64| assert!((a - b).abs() < 0.02, "{a} is not about {b}");
    near(share("uniform:pages=1000,requests=50000", &|t, i| name(t, i) < 100), 0.1);
    // 95 % of an untruncated distribution go to the first 6/7; 0.95 / (1 - 0.05^(7/6)) of what lies within the pages.
    near(
        share("exponential:pages=7000,requests=50000", &|t, i| name(t, i) < 6000),
        0.95 / (1.0 - 0.05f64.powf(7.0 / 6.0)),
    );
    near(share("zipf:pages=1000,requests=50000,theta=1", &|t, i| name(t, i) == 0), 1.0 / 7.485);
    near(share("ycsb-a:pages=1000,requests=50000", &|t, i| t.manner(i).is_write()), 0.5);
    near(share("ycsb-b:pages=1000,requests=50000", &|t, i| t.manner(i).is_write()), 0.05);
    near(share("ycsb-c:pages=1000,requests=50000", &|t, i| t.manner(i).is_write()), 0.0);
    near(share("ycsb-f:pages=1000,requests=50000", &|t, i| t.manner(i).is_write()), 1.0 / 3.0);
    near(
        share("phases:pages=1000,requests=50000,set=100,period=5000", &|t, i| name(t, i) / 100 == i as u64 / 5000),
        1.0,
    );
    assert_eq!(made("loop:pages=3,requests=7").pages(), [0, 1, 2, 0, 1, 2, 0]);
}

#[test]
fn specs_that_make_no_sense() {
    for (spec, word) in [
        ("polka", "known are"),
        ("zipf:theta", "KEY=VALUE"),
        ("zipf:theta=nan", "theta"),
        ("zipf:theta=-1", "theta"),
        ("zipf:pages=0", "pages"),
        ("zipf:pages=1T", "pages"),
        ("zipf:requests=0", "requests"),
        ("zipf:requests=many", "requests"),
        ("loop:theta=1", "theta"),
        ("zipf:seed=1,seed=2", "seed"),
        ("phases:set=0", "set"),
        ("exponential:fraction=1", "fraction"),
        ("ycsb-g", "known are"),
    ] {
        let error = Generator::parse(spec).expect_err(spec).to_string();
        assert!(error.contains(word) && error.contains(spec), "{error}");
    }
}

#[test]
fn parts_divide_a_trace() {
    let trace = made("ycsb-a:pages=500,requests=5000");
    let parts: Vec<Trace> = (0..8).map(|i| trace.part(i, 8)).collect();
    assert_eq!(parts.iter().map(|p| p.pages().len()).sum::<usize>(), 5000);
    assert_eq!(parts.iter().map(Trace::footprint).sum::<u32>(), trace.footprint());
    for part in &parts {
        let writes = (0..part.pages().len()).filter(|i| part.manner(*i).is_write()).count() as f64;
        assert!((writes / part.pages().len() as f64 - 0.5).abs() < 0.15, "requests keep their manner");
    }
}

#[test]
fn groups() {
    let text = b"group,page\nweb,1\n/system.slice/db:1,1\nweb,2\n";
    let trace = read_bytes(text, Format::Auto).expect("reads");
    assert_eq!(trace.groups().names(), ["web", "/system.slice/db:1"]);
    assert_eq!([0, 1, 2].map(|at| trace.groups().of(at)), [0, 1, 0]);
    assert_eq!(trace.pages(), [0, 0, 1], "a page is a page, whoever asks for it");
    let selection = Selection { sample_rate: Some(0.5), ..Selection::default() };
    let many: String = (0..2000).map(|i| format!("{i},g{}\n", i % 7)).collect();
    let bytes = format!("page,group\n{many}").into_bytes();
    let half = from_reader("t", Box::new(Cursor::new(bytes)), Format::Csv, selection, &mut |_| {}).expect("reads");
    for part in [&half, &half.part(0, 8)] {
        let of = |at: usize| part.names()[part.pages()[at] as usize] % 7;
        let named = |at: usize| part.groups().names()[usize::from(part.groups().of(at))].clone();
        assert!(part.pages().len() > 50 && (0..part.pages().len()).all(|at| named(at) == format!("g{}", of(at))));
    }

    refuses(b"page,group\n1,\n", Format::Csv, &["line 2", "''", "group"]);
    refuses(b"page,group\n1,\xff\n", Format::Csv, &["line 2", "group"]);
    refuses(format!("page,group\n1,{}\n", "g".repeat(256)).as_bytes(), Format::Csv, &["line 2", "255"]);
    let many: String = (0..257).map(|i| format!("1,g{i}\n")).collect();
    refuses(format!("page,group\n{many}").as_bytes(), Format::Csv, &["line 258", "256 groups"]);
}

#[test]
fn requests_can_be_taken_to_be_made_otherwise() {
    let selection = Selection { manner: Some(Manner::FD), ..Selection::default() };
    let bytes = b"page,op\n1,r\n2,w\n".to_vec();
    let trace = from_reader("t", Box::new(Cursor::new(bytes)), Format::Csv, selection, &mut |_| {}).expect("reads");
    assert_eq!([trace.manner(0), trace.manner(1)], [Manner::FD, Manner::FD.with_write(true)]);
    assert_eq!(trace.anonymous_pages(), 0);
    let mixed = b"page,type\n1,anon\n2,file\n1,file\n3,anon\n".to_vec();
    assert_eq!(read_bytes(&mixed, Format::Csv).expect("reads").anonymous_pages(), 2);
    assert_eq!(made("loop:pages=7,requests=9").anonymous_pages(), 7);
}

#[test]
fn what_is_saved_reads_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.oracleGeneral");
    let trace = made("zipf:pages=500,requests=3000");
    save_oracle(&trace, &path).expect("writes");
    let again = read(&path, Format::Auto, Selection::default(), &mut |_| {}).expect("reads");
    assert_eq!((again.pages(), again.names()), (trace.pages(), trace.names()));
    let objects: Vec<u64> = trace.pages().iter().map(|&p| trace.names()[p as usize]).collect();
    let next = |bytes: &[u8]| {
        let records = bytes.as_chunks::<24>().0;
        records.iter().map(|r| i64::from_le_bytes(*r.last_chunk().expect("8"))).collect::<Vec<i64>>()
    };
    assert_eq!(next(&std::fs::read(&path).expect("is there")), next(&oracle(&objects)));
    let error = save_oracle(&trace, &folder.path().join("no/such")).expect_err("cannot be written");
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn the_largest_names_are_names() {
    let last = u64::MAX;
    let text = format!("page\n{last}\n0x{last:x}\n0\n");
    assert_eq!(names(text.as_bytes(), Format::Auto), [last, last, 0]);
    assert_eq!(names(&oracle(&[last, 0, last]), Format::Auto), [last, 0, last]);
    assert_eq!(names(b" L ffffffffffffffff,1\n", Format::Auto), [last >> 12]);
    refuses(b" L ffffffffffffffff,2\n", Format::Lackey, &["line 1"]);
    let trace = read_bytes(&record(vec![region((1 << 45) - 3, 3, 20, None)], 1), Format::Isotherm);
    assert!(trace.is_ok_and(|t| t.footprint() == 3));
    // A size of nothing.
    let mut sizeless = oracle(&[5, 6]);
    sizeless[12..16].fill(0);
    assert_eq!(names(&sizeless, Format::Auto), [5, 6]);
    refuses(&record(vec![region(7, 5, 0, None)], 1), Format::Isotherm, &["no request"]);
}

#[test]
fn packed_data_that_promises_too_much() {
    // A frame that wants a window of more memory than there is, and nothing behind it.
    refuses(&[0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xff, 0x01, 0x00, 0x00], Format::Oracle, &["zstd"]);
    let bytes = oracle(&(0..5000).map(|i| i * i % 1013).collect::<Vec<u64>>());
    let whole = packed(&bytes);
    for cut in (1..whole.len()).step_by(7) {
        assert!(read_bytes(&whole[..cut], Format::Oracle).is_err(), "cut off after {cut} of {} bytes", whole.len());
    }
}

#[test]
fn cut_anywhere_nothing_panics() {
    for bytes in good() {
        for cut in 0..bytes.len() {
            for format in [Format::Auto, Format::Csv, Format::Oracle, Format::Lackey, Format::Isotherm] {
                _ = read_bytes(&bytes[..cut], format);
            }
        }
    }
}

/// Good traces of every format, to be damaged.
fn good() -> Vec<Vec<u8>> {
    let objects: Vec<u64> = (0..40).map(|i| i * i % 13).collect();
    let csv = b"page,op,channel,type,group\n1,r,map,anon,a\n0x2,w,fd,file,b\n3,r,map,file,a\n".to_vec();
    let lackey = b"==1== x\nI  04000000,3\n L 1ffe000ffc,8\n S 04001008,4\n".to_vec();
    vec![oracle(&objects), packed(&oracle(&objects)), csv, lackey, record(vec![region(3, 5, 20, Some(2))], 3)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_makes_a_reader_panic(
        which in 0usize..5,
        cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        end in any::<prop::sample::Index>(),
        keep in any::<bool>(),
        format in prop::sample::select(vec![Format::Auto, Format::Csv, Format::Oracle, Format::Lackey, Format::Isotherm]),
    ) {
        let mut bytes = good()[which].clone();
        for (at, value) in &cuts {
            let at = at.index(bytes.len());
            bytes[at] = *value;
        }
        if !keep {
            bytes.truncate(end.index(bytes.len()) + 1);
        }
        if let Ok(trace) = read_bytes(&bytes, format) {
            prop_assert!(trace.pages().iter().all(|p| *p < trace.footprint()));
            prop_assert!(trace.seen() > 0);
        }
    }

    #[test]
    fn nor_does_noise(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for format in [Format::Auto, Format::Csv, Format::Oracle, Format::Lackey, Format::Isotherm] {
            _ = read_bytes(&bytes, format);
        }
    }

    #[test]
    fn specs_never_panic(spec in "[a-z:=,0-9.\\-]{0,30}") {
        _ = Generator::parse(&spec);
    }
}
