//! `isotherm-fleet report` as a user calls it: against the truth of made-up fleets, and on files that cannot be used.

mod common;

use common::{files, fleet, json, simulate, window, write_of};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

fn truth(fleet: &Path) -> Value {
    serde_json::from_slice(&fs::read(fleet.join("truth.json")).unwrap()).unwrap()
}

fn of_kind<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["kind"] == kind).collect()
}

#[test]
fn the_whole_is_the_truth_and_its_parts_add_up() {
    let folder = tempfile::tempdir().unwrap();
    let made = simulate(folder.path(), "--hosts 5 --hours 10 --seed 7 --groups 20");
    let lines = json(&["report", made.to_str().unwrap(), "--json"]);
    let (truth, total) = (truth(&made), &lines[0]);
    assert_eq!(total["kind"], "total");
    for field in ["rows", "hosts", "files", "sums"] {
        assert_eq!(total[field], truth[field], "{field}");
    }
    let resident = total["resident_bytes"].as_f64().unwrap();
    for kind in ["cluster", "namespace", "job"] {
        let sum: f64 = of_kind(&lines, kind).iter().map(|part| part["resident_bytes"].as_f64().unwrap()).sum();
        assert!((sum / resident - 1.0).abs() < 1e-6, "{kind}: {sum} of {resident}");
    }
    // All hosts were watched all the time, so that means over time are sums over the number of windows.
    let mean = truth["sums"]["resident_bytes"].as_f64().unwrap() / 120.0;
    assert!((mean / resident - 1.0).abs() < 1e-6, "{mean} {resident}");
    let cold: Vec<_> = total["cold"].as_array().unwrap().iter().map(|entry| entry["bytes"].as_f64().unwrap()).collect();
    assert!(cold.is_sorted_by(|a, b| a >= b) && cold[15] > 0.0, "{cold:?}");
    let known = |i: usize| total["cold"][i]["known_share"].as_f64().unwrap();
    assert!(known(0) > 0.999 && known(15) < 0.3, "8 h are known at the end only: {}", known(15));
    assert_eq!(of_kind(&lines, "hosts")[0]["cold_share"][7]["known_hosts"], 5);
    let agents: u64 = of_kind(&lines, "agents").iter().map(|a| a["hosts"].as_u64().unwrap()).sum();
    assert_eq!(agents, 5);
    assert_eq!(of_kind(&lines, "agents")[0]["cpu_share"], Value::Null, "not known is not zero");
}

/// The hosts of a batch are worked on at a time: what comes out must not depend on how many those are.
#[test]
fn little_memory_and_one_thread_give_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let made = simulate(folder.path(), "--hosts 4 --hours 3 --seed 2 --groups 15");
    let made = made.to_str().unwrap();
    let rounded = |lines: Vec<Value>| lines.into_iter().map(|line| line["resident_bytes"].clone()).collect::<Vec<_>>();
    let usual = rounded(json(&["report", made, "--json"]));
    assert_eq!(rounded(json(&["report", made, "--json", "--memory", "64M", "--threads", "1"])), usual);
}

/// Clusters name their hosts each for itself.
#[test]
fn hosts_of_one_name_in_two_clusters_are_two() {
    let folder = tempfile::tempdir().unwrap();
    for cluster in [Some("eu-1"), Some("us-1"), None] {
        let folder = folder.path().join(cluster.unwrap_or("none"));
        fs::create_dir(&folder).unwrap();
        write_of(&folder, cluster, vec![window(0), window(5)]);
    }
    let lines = json(&["report", folder.path().to_str().unwrap(), "--json"]);
    assert_eq!((&lines[0]["hosts"], &lines[0]["rows"]), (&json!(3), &json!(6)));
    assert_eq!(lines[0]["resident_bytes"], json!(3_000_000.0), "each of them counts");
    assert!(of_kind(&lines, "left_out").is_empty(), "{lines:?}");
}

#[test]
fn a_dash_is_standard_output_and_nothing_else_goes_there_then() {
    let folder = tempfile::tempdir().unwrap();
    write_of(folder.path(), None, vec![window(0)]);
    let place = folder.path().to_str().unwrap();
    let report = |more: &[&str]| {
        let program = env!("CARGO_BIN_EXE_isotherm-fleet");
        Command::new(program).current_dir(folder.path()).args(["report", place]).args(more).output().unwrap()
    };
    let done = report(&["--csv", "-"]);
    let text = String::from_utf8(done.stdout).unwrap();
    assert!(done.status.success() && text.starts_with("kind,name,hosts"), "{text}");
    assert!(text.lines().all(|line| line.matches(',').count() > 10), "{text}");
    assert!(!folder.path().join("-").exists());
    let both = report(&["--csv", "-", "--json"]);
    assert_eq!((both.status.code(), both.stdout.len()), (Some(2), 0));
}

#[test]
fn files_that_cannot_be_used_are_named_and_nothing_else_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let made = simulate(folder.path(), "--hosts 3 --hours 4 --seed 9 --groups 10");
    let before = json(&["report", made.to_str().unwrap(), "--json"])[0].clone();
    let first = files(&made)[0].clone();
    let bytes = fs::read(&first).unwrap();
    let beside = |name: &str, bytes: &[u8]| fs::write(first.with_file_name(name), bytes).unwrap();
    beside("cut-off.parquet", &bytes[..bytes.len() / 2]);
    beside("empty-file.parquet", b"");
    beside("no-parquet.parquet", b"PAR1 what is this?");
    beside("copy.parquet", &bytes);
    beside("growing.parquet.part", &bytes[..100]);
    beside("notes.txt", b"nothing of ours");
    // Of a newer schema: the version stands in the file's metadata as text.
    let at = bytes.windows(23).position(|w| w == b"isotherm.schema_version").unwrap() + 23;
    let digit = at + bytes[at..].iter().position(|b| *b == b'1').unwrap();
    let mut newer = bytes.clone();
    newer[digit] = b'9';
    beside("newer.parquet", &newer);
    let lines = json(&["report", made.to_str().unwrap(), "--json"]);
    for field in ["rows", "hosts", "files", "sums", "resident_bytes"] {
        assert_eq!(lines[0][field], before[field], "{field}");
    }
    let mut out: Vec<(String, String)> = of_kind(&lines, "left_out")
        .iter()
        .map(|line| {
            let name = line["file"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
            (name, line["code"].as_str().unwrap().to_owned())
        })
        .collect();
    out.sort();
    let want = [
        ("copy.parquet", "same_time"),
        ("cut-off.parquet", "unreadable"),
        ("empty-file.parquet", "unreadable"),
        ("growing.parquet.part", "unfinished"),
        ("newer.parquet", "newer_schema"),
        ("no-parquet.parquet", "unreadable"),
    ];
    // Of two files with the same rows the first by name counts.
    let out: Vec<_> =
        out.iter().map(|(name, code)| (if code == "same_time" { "copy.parquet" } else { name }, &**code)).collect();
    assert_eq!(out.len(), want.len(), "{out:?}");
    for file in want {
        assert!(out.contains(&file), "{file:?} not in {out:?}");
    }
    assert_eq!(lines[0]["files_left_out"], 6);
    // People are reported, too.
    let text = fleet(&["report", made.to_str().unwrap()]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("left out: 6 files") && text.contains("newer_schema: "), "{text}");
}

#[test]
fn a_file_that_is_damaged_in_its_middle_is_left_out_too() {
    let folder = tempfile::tempdir().unwrap();
    let made = simulate(folder.path(), "--hosts 2 --hours 3 --seed 9 --groups 10");
    let path = files(&made)[1].clone();
    let (bytes, rows) = (fs::read(&path).unwrap(), |place: &Path| {
        json(&["report", place.to_str().unwrap(), "--json"])[0]["rows"].as_u64()
    });
    let all = rows(&made);
    fs::remove_file(&path).unwrap();
    let (rest, what_if) = (rows(&made), json(&["what-if", made.to_str().unwrap(), "--json"]));
    let mut damaged = bytes;
    damaged[200..400].fill(0xff);
    fs::write(&path, damaged).unwrap();
    let lines = json(&["report", made.to_str().unwrap(), "--json"]);
    let out = of_kind(&lines, "left_out");
    assert_eq!((out.len(), &out[0]["code"]), (1, &json!("damaged")), "{out:?}");
    assert!(path.to_str().unwrap().ends_with(out[0]["file"].as_str().unwrap().rsplit('/').next().unwrap()));
    assert_eq!(
        (lines[0]["rows"].as_u64(), out[0]["rows"].as_u64()),
        (rest, all.zip(rest).map(|(all, rest)| all - rest))
    );
    // The policies' replay leaves out the same.
    let again = json(&["what-if", made.to_str().unwrap(), "--json"]);
    assert_eq!((&again[0]["saved_bytes"], &again[0]["files_left_out"]), (&what_if[0]["saved_bytes"], &json!(1)));
}

#[test]
fn a_page_and_a_table_are_written_whole() {
    let folder = tempfile::tempdir().unwrap();
    let made = simulate(folder.path(), "--hosts 3 --hours 3 --seed 1 --groups 12");
    let (html, csv) = (folder.path().join("r.html"), folder.path().join("r.csv"));
    let done =
        fleet(&["report", made.to_str().unwrap(), "--html", html.to_str().unwrap(), "--csv", csv.to_str().unwrap()]);
    assert!(done.status.success(), "{done:?}");
    // Whoever may read files of ours may read these.
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
    let usual = folder.path().join("usual");
    fs::write(&usual, "").unwrap();
    assert_eq!((mode(&html), mode(&csv)), (mode(&usual), mode(&usual)));
    let page = fs::read_to_string(html).unwrap();
    assert_eq!(page.matches("<svg").count(), 3);
    assert!(!page.contains("http://") || page.matches("http://").count() == page.matches("http://www.w3.org").count());
    assert!(page.contains("web/web-") && page.trim_end().ends_with("</html>"));
    let csv = fs::read_to_string(csv).unwrap();
    let columns: Vec<usize> = csv.lines().map(|line| line.split(',').count()).collect();
    assert!(columns.len() > 10 && columns.iter().all(|n| *n == columns[0]), "{columns:?}");
    for line in String::from_utf8(done.stdout).unwrap().lines() {
        assert!(line.chars().count() <= 110, "{line}");
    }
    // A folder that is not there.
    let done = fleet(&["report", made.to_str().unwrap(), "--csv", "/nowhere/r.csv"]);
    assert_eq!(done.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&done.stderr).contains("cannot write /nowhere/r.csv"), "{done:?}");

    let one = folder.path().join("one");
    let one = one.to_str().unwrap();
    let done = fleet(&["report", made.to_str().unwrap(), "--csv", one, "--html", one]);
    assert_eq!(done.status.code(), Some(2), "{done:?}");
    assert!(String::from_utf8_lossy(&done.stderr).contains("--csv and --html name the same file"), "{done:?}");
    assert!(!Path::new(one).exists());
}

#[test]
fn places_without_files_are_errors_that_say_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let said = |args: &[&str]| {
        let done = fleet(args);
        assert_eq!(done.status.code(), Some(1), "{done:?}");
        String::from_utf8(done.stderr).unwrap()
    };
    let empty = folder.path().to_str().unwrap();
    assert!(said(&["report", empty]).contains("isotherm node --parquet DIR"));
    assert!(said(&["report", "/nowhere"]).contains("/nowhere is not a folder"));
    assert!(said(&["report", "what://is/this"]).contains("s3://BUCKET/PREFIX"));
    fs::write(folder.path().join("x.parquet"), b"no").unwrap();
    assert!(said(&["what-if", empty]).contains("x.parquet"));
    let file = folder.path().join("x.parquet");
    assert!(said(&["report", file.to_str().unwrap()]).contains("x.parquet is not a folder"));
    let bad = fleet(&["report", empty, "--memory", "1M"]);
    assert_eq!((bad.status.code(), json!(bad.stdout.len())), (Some(2), json!(0)));
}

/// Messages are lost then, and nothing else.
#[test]
fn a_stderr_that_is_full_or_closed_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("fleet");
    let words = ["simulate", "--hosts", "1", "--hours", "1", "--groups", "2", "--out", out.to_str().unwrap()];
    for (args, code) in [(&["report", "/nowhere"][..], 1), (&words, 0)] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let status = Command::new(env!("CARGO_BIN_EXE_isotherm-fleet")).args(args).stderr(full).status().unwrap();
        assert_eq!(status.code(), Some(code), "{args:?}");
    }
    assert!(out.join("truth.json").exists());
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_isotherm-fleet"));
    assert_eq!(command.args(["report", "/nowhere"]).stderr(writer).status().unwrap().code(), Some(1));
}

/// Links that lead around and names that no object store has.
#[test]
fn strange_names_are_named_and_everything_else_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let made = simulate(folder.path(), "--hosts 2 --hours 1 --seed 3 --groups 4");
    let before = json(&["report", made.to_str().unwrap(), "--json"])[0].clone();
    let first = files(&made)[0].clone();
    fs::copy(&first, first.with_file_name("tab\t.parquet")).unwrap();
    std::os::unix::fs::symlink("..", first.with_file_name("up")).unwrap();
    let lines = json(&["report", made.to_str().unwrap(), "--json"]);
    for field in ["rows", "hosts", "files", "resident_bytes"] {
        assert_eq!(lines[0][field], before[field], "{field}");
    }
    let codes: Vec<&str> = of_kind(&lines, "left_out").iter().map(|line| line["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["bad_name", "unreachable"]);
}

/// A machine whose clock was set back within an hour, and to the hour before.
#[test]
fn a_time_that_a_machine_has_twice_counts_once() {
    use isotherm_record::parquet::files::HourFiles;
    use isotherm_record::parquet::window::{GroupWindow, Origin};
    let folder = tempfile::tempdir().unwrap();
    let origin = Origin { host: "a".into(), boot_id: "b".into(), source: "refs".into(), ..Origin::default() };
    let mut files = HourFiles::new(folder.path(), origin).unwrap();
    // 2026-01-05 01:00 UTC, and minutes after it.
    let begin_us = 1_767_574_800_000_000;
    for minute in [0, 5, 10, 7, 15, 60, 65, 10, 15] {
        let start_us = begin_us + minute * 60_000_000;
        let row = |cgroup: &str| GroupWindow {
            window_start_us: start_us,
            window_s: 300,
            cgroup: cgroup.to_owned(),
            resident_bytes: Some(1 << 20),
            ..GroupWindow::default()
        };
        files.write(start_us, vec![row("/x"), row("/y")]).unwrap();
    }
    files.finish().unwrap();
    let lines = json(&["report", folder.path().to_str().unwrap(), "--json"]);
    // Minutes 0, 5, 10, 15, 60 and 65 stay; minute 7 overlaps; the last two are a file of a time that another one has.
    assert_eq!((&lines[0]["rows"], &lines[0]["rows_left_out"]), (&json!(12), &json!(2 + 4)));
    let mut codes: Vec<&str> = of_kind(&lines, "left_out").iter().map(|line| line["code"].as_str().unwrap()).collect();
    codes.sort_unstable();
    assert_eq!(codes, ["clock_set_back", "same_time"]);
    assert_eq!((&lines[0]["resident_bytes"], &lines[0]["accessed_bytes"]), (&json!(2.0 * 1_048_576.0), &Value::Null));
}
