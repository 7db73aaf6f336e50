//! `isotherm schemes` as people use it.

use crate::common::{Running, isotherm, start, workload};
use serde_json::Value;
use std::path::Path;

const SCHEME: &str = "4K null null 5 1s null pageout";

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e} in {l:?}"))).collect()
}

#[test]
fn nonsense_is_bad_usage_and_starts_nothing() {
    let marker = tempfile::tempdir().unwrap();
    let file = marker.path().join("made");
    let touch = format!("touch {}", file.display());
    for (scheme, words) in [
        ("4K null null 5 5s null page_out", &["page_out", "pageout"][..]),
        ("8K 4K null null null null stat", &["size"]),
        ("4K null null", &["column"]),
        ("x null null null null null stat", &["x"]),
        ("", &[]),
    ] {
        let done = isotherm(["schemes", "--scheme", scheme, "--duration", "1s", "--", "sh", "-c", &touch]);
        done.expect(2, words);
    }
    isotherm(["schemes", "--", "sh", "-c", &touch]).expect(2, &["--scheme"]);
    isotherm(["schemes", "--scheme", SCHEME]).expect(2, &["target"]);
    isotherm(["schemes", "--scheme", SCHEME, "--duration", "0s", "--", "sh", "-c", &touch]).expect(2, &["--duration"]);
    assert!(!file.exists(), "the command was started although the arguments were wrong");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    isotherm(["schemes", "-c", "/no/such/schemes.toml", "--pid", "1"]).expect(1, &["/no/such/schemes.toml"]);
}

#[test]
fn an_unwritable_statistics_file_is_told_before_anything_starts() {
    isotherm(["schemes", "--scheme", SCHEME, "--stats", "/no/such/dir/s.json", "--", "sleep", "9"])
        .expect(1, &["/no/such/dir/s.json"]);
}

/// A program with memory of which a tenth is in use.
fn target() -> Running {
    start(&mut workload("hotspot --size 64M --hot 10%"))
}

#[test]
fn root_a_dry_run_tells_what_would_go_and_changes_nothing() {
    let target = target();
    let pid = target.pid().to_string();
    let done = isotherm(["schemes", "--dry-run", "--json", "--scheme", SCHEME, "--duration", "8s", "--pid", &pid]);
    done.expect(0, &["would apply to"]);
    let line = &done.json_lines()[0];
    let applied = line["sz_applied"].as_u64().unwrap();
    // 64 MiB less the hot tenth; regions need not fall on its borders.
    assert!((40 << 20..80 << 20).contains(&applied), "{done:#?}");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let resident = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap();
    let kib: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kib > 64 << 10, "{kib} KiB resident");
    target.signal("TERM");
    target.finish();
}

#[test]
fn root_apply_intervals_and_statistics_are_as_the_contract_says() {
    let dir = tempfile::tempdir().unwrap();
    let tried = |apply: &str| {
        let (config, stats) = (dir.path().join("s.toml"), dir.path().join("s.json"));
        std::fs::write(&config, format!("[[scheme]]\naction = \"stat\"\napply_interval = \"{apply}\"\n")).unwrap();
        // Within a budget samples may be further apart than 10 ms on a slow machine.
        let args = ["schemes", "-q", "--cpu-budget", "none", "--duration", "5s", "-c"].map(Into::into);
        let target = ["--", env!("CARGO_BIN_EXE_isotherm"), "workload", "idle", "--size", "8M", "--duration", "60s"];
        let rest = [config.clone().into(), "--stats".into(), stats.clone().into()];
        let all: Vec<std::ffi::OsString> = args.into_iter().chain(rest).chain(target.map(Into::into)).collect();
        isotherm(all).expect(0, &[]);
        let lines = lines(&stats);
        assert!(lines.len() >= 4, "a line a second and one at the end: {lines:?}");
        let last = lines.last().unwrap();
        for key in ["scheme", "nr_tried", "sz_tried", "nr_applied", "sz_applied", "qt_exceeds"] {
            assert!(last[key].is_u64(), "{key}: {last}");
        }
        assert_eq!(last["action"], "stat");
        assert!(last["effective_quota"].is_null() && last["idle_reason"].is_null(), "{last}");
        // All memory is tried each time, in however many regions.
        last["sz_tried"].as_f64().unwrap() / last["nr_snapshots"].as_f64().unwrap()
    };
    // By snapshots, so that a machine that is late for both counts for neither.
    let ratio = tried("10ms") / tried("100ms");
    assert!(ratio >= 7.0, "{ratio}");
}

#[test]
fn root_the_last_statistics_are_on_standard_output_once() {
    let target = target();
    let pid = target.pid().to_string();
    let args =
        ["schemes", "--dry-run", "--stats", "-", "--json", "--scheme", SCHEME, "--duration", "3s", "--pid", &pid];
    let done = isotherm(args);
    done.expect(0, &[]);
    let times: Vec<_> = done.json_lines().iter().map(|line| line["time_ns"].as_u64()).collect();
    assert!(times.len() > 1 && times.windows(2).all(|two| two[0] < two[1]), "{times:?}");
    target.signal("TERM");
    target.finish();
}

#[test]
fn root_a_target_that_is_not_there_or_ends_is_no_panic() {
    isotherm(["schemes", "--scheme", SCHEME, "--pid", "4194303"]).expect(1, &["4194303"]);
    let done = isotherm(["schemes", "--scheme", SCHEME, "--", "sleep", "1"]);
    done.expect(0, &[]);
}
