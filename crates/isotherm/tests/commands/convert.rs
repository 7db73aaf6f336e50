//! `isotherm convert` as a user runs it.

use crate::common::{self, command, isotherm, run, snapshots, start, text};
use isotherm_core::event::Event;
use isotherm_core::history::frame::PageFrame;
use isotherm_core::snapshot::{RegionInfo, Snapshot};
use isotherm_core::target::TargetInfo;
use isotherm_record::{Options, Rotation, Writer};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Two seconds of two processes at 5 ms / 100 ms; `pids`: whether the record knows them.
fn events(pids: bool) -> Vec<Event> {
    let pid = |target: u32| pids.then_some(4000 + target);
    let target = |t| Event::Target(TargetInfo { target: t, pid: pid(t), name: format!("program {t}") });
    let mut events = vec![target(0), target(1)];
    for i in 0..20u64 {
        for t in 0..2u32 {
            let start = 0x7f00_0000_0000 + u64::from(t) * (1 << 30);
            let region = |n: u64, nr_accesses, age| RegionInfo {
                start: start + n * 8192,
                end: start + n * 8192 + 4096 * (1 + i % 2),
                nr_accesses,
                age,
                evidence: None,
                accessed: None,
            };
            events.push(Event::Snapshot(Snapshot {
                target: t,
                pid: pid(t),
                start_ns: 1_000_000_000 + i * 100_000_000,
                end_ns: 1_100_000_000 + i * 100_000_000,
                sample_us: 5000,
                aggr_us: 100_000,
                max_nr_accesses: 20,
                regions: vec![region(0, 20, i as u32), region(1, 0, i as u32), region(2, t, 0)],
            }));
        }
    }
    events
}

fn record(path: &Path, events: &[Event], options: Options) {
    let mut writer = Writer::create(path, options).unwrap();
    events.iter().for_each(|e| writer.write(e).unwrap());
    writer.finish().unwrap();
}

/// Names of the files in a folder.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_record_survives_the_way_through_every_format() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    record(&file("a.iso"), &events(true), Options::default());
    let mut expected = snapshots(&file("a.iso"));
    assert_eq!(expected.len(), 40);
    for name in ["b.json", "b.data", "b.csv", "b.txt", "b.bin"] {
        isotherm(["convert", text(&file("a.iso")), text(&file(name))]).expect(0, &[]);
        isotherm(["convert", text(&file(name)), text(&file("c.iso"))]).expect(0, &[]);
        let mut back = snapshots(&file("c.iso"));
        // Some know a target by its number alone, and the oldest have no ages: these are counted, and here every region
        // is longer in each second snapshot.
        for (b, e) in back.iter_mut().zip(&mut expected) {
            if matches!(name, "b.txt" | "b.bin") {
                b["pid"] = e["pid"].clone();
            }
            if name == "b.bin" {
                for (i, r) in b["regions"].as_array_mut().unwrap().iter_mut().enumerate() {
                    assert!(r["age"].as_u64() <= Some(1), "{r}");
                    r["age"] = e["regions"][i]["age"].clone();
                }
            }
        }
        assert_eq!(back, expected, "{name}");
        // Reports read the format without conversion, too.
        assert_eq!(snapshots(&file(name)).len(), 40, "{name}");
    }
}

#[test]
fn pipes_are_read_and_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.iso");
    record(&file, &events(true), Options::default());
    let script = "cat \"$2\" | \"$1\" convert - - --to json_compressed | \"$1\" convert - - --to csv";
    let done = run(Command::new("sh").args(["-c", script, "sh", env!("CARGO_BIN_EXE_isotherm"), text(&file)]));
    done.expect(0, &[]);
    assert_eq!(done.stdout.lines().count(), 1 + 40 * 3);
    // Whoever reads may go away at any time.
    let script = "\"$1\" convert \"$2\" - --to csv | head -1";
    let done = run(Command::new("sh").args(["-c", script, "sh", env!("CARGO_BIN_EXE_isotherm"), text(&file)]));
    done.expect(0, &[]);
}

#[test]
fn all_parts_of_a_record_are_converted() {
    let folder = tempfile::tempdir().unwrap();
    let (parted, whole) = (folder.path().join("p.iso"), folder.path().join("w.iso"));
    let rotation = Some(Rotation { max_age_ns: Some(500_000_000), ..Rotation::default() });
    record(&parted, &events(true), Options { rotation, frame_ns: 100_000_000, ..Options::default() });
    assert!(folder.path().join("p.iso.1").exists());
    isotherm(["convert", text(&parted), text(&whole)]).expect(0, &[]);
    assert_eq!(snapshots(&whole), snapshots(&parted));
    assert_eq!(snapshots(&whole).len(), 40);
    // All who read it as one read the same.
    let requests = |file: &Path| {
        let done = isotherm(["sim", "lru", "--trace", text(file), "--policy", "lru", "--size", "4", "--json"]);
        done.expect(0, &[]);
        done.json_lines()[0]["requests"].as_u64().unwrap()
    };
    let all = requests(&whole);
    assert!(requests(&parted).abs_diff(all) * 20 < all, "{} of {all} requests", requests(&parted));
    // As `record --keep` leaves it.
    std::fs::remove_file(&parted).unwrap();
    isotherm(["convert", text(&parted), text(&whole)]).expect(0, &[]);
    let rest = snapshots(&whole);
    assert!(rest.len() < 40 && rest == snapshots(&parted), "{} snapshots", rest.len());
    assert!(requests(&parted) < all);
}

#[test]
fn a_pipe_is_read_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    record(&file("a.iso"), &events(true), Options::default());
    assert!(Command::new("mkfifo").arg(file("p.iso")).status().unwrap().success());
    // A second look at the pipe, whose writer has gone, would wait for another one.
    let script = "cat \"$2\" >\"$3\" & timeout 60 \"$1\" convert \"$3\" \"$4\"";
    let mut sh = Command::new("sh");
    sh.args(["-c", script, "sh", env!("CARGO_BIN_EXE_isotherm")]).args([file("a.iso"), file("p.iso"), file("b.csv")]);
    run(&mut sh).expect(0, &[]);
    isotherm(["convert", text(&file("a.iso")), text(&file("c.csv"))]).expect(0, &[]);
    assert_eq!(std::fs::read(file("b.csv")).unwrap(), std::fs::read(file("c.csv")).unwrap());
}

#[test]
fn bad_arguments_have_their_own_status() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.iso");
    record(&file, &events(true), Options::default());
    isotherm(["convert", text(&file), text(&folder.path().join("b"))]).expect(2, &["--to", "perf_script"]);
    isotherm(["convert", text(&file), "-"]).expect(2, &["--to"]);
    isotherm(["convert", text(&file), "b.iso", "--to", "xml"]).expect(2, &["xml", "json_compressed"]);
    isotherm(["convert", text(&file)]).expect(2, &["OUT"]);
    let missing = folder.path().join("missing.iso");
    isotherm(["convert", text(&missing), text(&folder.path().join("b.csv"))]).expect(1, &[text(&missing), "no such"]);
    let nowhere = folder.path().join("no/such/folder.csv");
    isotherm(["convert", text(&file), text(&nowhere)]).expect(1, &[text(&nowhere), "no such"]);
    isotherm(["convert", text(&file), "/dev/full", "--to", "csv"]).expect(1, &["/dev/full", "no space"]);
    assert_eq!(names(folder.path()), ["a.iso"]);
}

#[test]
fn an_output_is_there_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let (file, old) = (folder.path().join("a.iso"), folder.path().join("old.bin"));
    record(&file, &events(false), Options::default());
    std::fs::write(&old, "precious").unwrap();
    // Without pids this version cannot be written, which shows only after some output was made.
    let done = isotherm(["convert", text(&file), text(&old), "--to", "binary_v1"]);
    done.expect(1, &[text(&old), "pid", "binary_v2"]);
    assert_eq!(std::fs::read_to_string(&old).unwrap(), "precious");
    assert_eq!(names(folder.path()), ["a.iso", "old.bin"]);
    // A file may be replaced by its own conversion.
    let before = snapshots(&file);
    isotherm(["convert", text(&file), text(&file), "--to", "csv"]).expect(0, &[]);
    assert_eq!(snapshots(&file), before);
    // It holds command lines, as a record does.
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn damage_is_told_and_the_rest_converted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.iso");
    record(&file, &events(true), Options { frame_ns: 300_000_000, ..Options::default() });
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    bytes.truncate(bytes.len() - 10);
    std::fs::write(&file, &bytes).unwrap();
    let done = isotherm(["convert", text(&file), "-", "--to", "csv"]);
    done.expect(0, &["damaged", "no end", text(&file)]);
    let lines = done.stdout.lines().count();
    assert!((61..121).contains(&lines), "{lines} lines are left of 121");
}

#[test]
fn ctrl_c_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.csv");
    let fifo = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    // The pipe stays open and gives just enough for the begin of a conversion.
    let script = "exec 3<>\"$2\"; \"$1\" convert - \"$3\" --from csv <\"$2\" & pid=$!\n\
        { echo start_ns,end_ns,start,end,nr_accesses; yes 0,1,0,4096,1 | head -c 100000; } >&3\n\
        while ! ls -A \"$4\" | grep -q tmp; do sleep 0.01; done\n\
        kill -INT $pid; wait $pid";
    let mut c = Command::new("bash");
    c.args(["-c", script, "bash", env!("CARGO_BIN_EXE_isotherm"), text(&fifo), text(&out), text(folder.path())]);
    let done = start(&mut c).finish();
    done.expect(1, &["interrupted"]);
    assert_eq!(names(folder.path()), ["fifo"]);
}

#[test]
fn a_stream_that_waits_can_be_interrupted_before_anything_came() {
    let mut child = command(["convert", "-", "-", "--to", "csv"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Before the handler is in place the signal ends it as well; both are fine, hanging is not.
    std::thread::sleep(Duration::from_millis(50));
    common::send(child.id(), "INT");
    common::wait_until("it ends", || child.try_wait().unwrap().is_some());
    assert!(!child.wait().unwrap().success());
}

/// What becomes an estimate is said; a working set that grows by conversion would puzzle whoever does not know why.
#[test]
fn the_loss_of_the_page_history_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (iso, json, again) = (folder.path().join("a.iso"), folder.path().join("a.json"), folder.path().join("b.iso"));
    let with_pages = Event::Pages(PageFrame {
        time_ns: 3_100_000_000,
        since_ns: 1_000_000_000,
        begin_ns: 1_000_000_000,
        walk_ns: 1_000_000_000,
        target: 0,
        one_in: 1,
        mappings: Vec::new(),
        tables: Vec::new(),
        reaccessed: None,
        forked: false,
    });
    record(&iso, &[events(true), vec![with_pages]].concat(), Options::default());
    isotherm(["convert", text(&iso), text(&json)]).expect(0, &["page history of 1 moments", "json", "estimated"]);
    isotherm(["convert", text(&iso), text(&again)]).expect(0, &[]);
    let silent = isotherm(["convert", text(&json), text(&again)]);
    assert!(!silent.stderr.contains("left out"), "{silent:?}");
}
