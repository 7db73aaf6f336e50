//! `isotherm workload` as a user runs it.

use isotherm_sim::workload::truth::Truth;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

fn isotherm(args: &[&str]) -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_isotherm"));
    c.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    c
}

fn refused(args: &[&str]) -> Output {
    let mut full = vec!["workload"];
    full.extend(args);
    isotherm(&full).output().expect("isotherm runs")
}

/// Waits for the line that says that the memory is populated.
fn ready(child: &mut Child) -> serde_json::Value {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
    serde_json::from_str(&line).expect("JSON")
}

/// Asks the workload that said `ready` to stop.
fn end(ready: &serde_json::Value) {
    assert!(Command::new("kill").args(["-TERM", &ready["pid"].to_string()]).status().unwrap().success());
}

fn truth(path: &Path) -> Truth {
    serde_json::from_str(&std::fs::read_to_string(path).expect("a truth file")).expect("a valid truth")
}

#[test]
fn the_truth_lies_in_the_arena_and_follows_the_pattern() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("truth.json");
    // As long as it takes: on a machine that stands still now and then, a stage may pass without a touch.
    let args = ["workload", "alternate", "--size", "8M", "--duration", "1h", "--period", "200ms", "--truth"];
    let mut child = isotherm(&args).arg(&file).spawn().unwrap();
    let ready = ready(&mut child);
    while !truth(&file).slices.iter().any(|s| s.stage == "second") {
        assert!(child.try_wait().unwrap().is_none(), "it ended before its second stage");
        std::thread::sleep(Duration::from_millis(20));
    }
    end(&ready);
    assert!(child.wait().unwrap().success());
    let truth = truth(&file);
    assert!(truth.header.complete);
    let arena = truth.header.arena;
    assert_eq!((ready["start"].as_u64(), ready["end"].as_u64()), (Some(arena.start), Some(arena.end)));
    assert_eq!((ready["pid"].as_u64(), arena.len()), (truth.header.pid.map(u64::from), 8 << 20));
    assert!(truth.slices.windows(2).all(|w| w[0].end_ns == w[1].start_ns));
    assert_eq!(truth.slices[0].stage, "first");
    for slice in &truth.slices {
        let half = if slice.stage == "first" { arena.start } else { arena.start + (4 << 20) };
        assert!(slice.touched.iter().all(|t| t.start == half && t.end == half + (4 << 20) && t.touches > 0));
    }
}

#[test]
fn a_stop_signal_ends_it_in_good_order() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("truth.json");
    let args = ["workload", "hotspot", "--size", "4M", "--duration", "1h", "--rate", "1000", "--truth"];
    let mut child = isotherm(&args).arg(&file).spawn().unwrap();
    let ready = ready(&mut child);
    end(&ready);
    assert!(child.wait().unwrap().success());
    assert!(truth(&file).header.complete);
}

/// Stages end faster than their slices can be told.
#[test]
fn a_stop_signal_ends_a_hurry_of_stages() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("truth.json");
    let args = ["workload", "stairs", "--size", "16M", "--duration", "300s", "--period", "1ms", "--truth"];
    let mut child = isotherm(&args).arg(&file).spawn().unwrap();
    let ready = ready(&mut child);
    while truth(&file).slices.len() < 100 {
        std::thread::sleep(Duration::from_millis(20));
    }
    end(&ready);
    assert!(child.wait().unwrap().success());
    let truth = truth(&file);
    assert!(truth.header.complete);
    assert!(truth.slices.windows(2).all(|w| w[0].end_ns == w[1].start_ns), "no slice is missing");
}

#[test]
fn the_truth_is_valid_even_if_killed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("truth.json");
    let mut child =
        isotherm(&["workload", "scan", "--size", "4M", "--duration", "1h", "--truth"]).arg(&file).spawn().unwrap();
    ready(&mut child);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!truth(&file).header.complete);
}

#[test]
fn phases_come_from_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let (phases, file) = (dir.path().join("phases.toml"), dir.path().join("truth.json"));
    std::fs::write(
        &phases,
        "[[region]]\nname = \"a\"\nsize = \"1M\"\n[[phase]]\nname = \"only\"\nduration = \"1s\"\ntouch = [{ region = \"a\" }]\n",
    )
    .unwrap();
    let mut child = isotherm(&["workload", "phases", "--duration", "100ms"])
        .arg("--file")
        .arg(&phases)
        .arg("--truth")
        .arg(&file)
        .spawn()
        .unwrap();
    assert!(child.wait().unwrap().success());
    let truth = truth(&file);
    assert!(!truth.slices.is_empty() && truth.slices.iter().all(|s| s.stage == "only"));
    std::fs::write(&phases, "[[region]]\nname = \"a\"\nsize = \"1M\"\ncolour = 1\n").unwrap();
    let out = refused(&["phases", "--file", phases.to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("colour"));
}

#[test]
fn nonsense_is_bad_usage() {
    for args in [
        &["hotspot"] as &[&str],
        &["hotspot", "--size", "0"],
        &["hotspot", "--size", "1M", "--duration", "0"],
        &["hotspot", "--size", "1M", "--hot", "0"],
        &["hotspot", "--size", "1M", "--hot", "200%"],
        &["hotspot", "--size", "1M", "--rate", "-1"],
        &["hotspot", "--size", "1M", "--rate", "1", "--tick", "0"],
        &["hotspot", "--size", "1M", "--rate", "1", "--tick", "101ms"],
        &["hotspot", "--size", "1M", "--tick", "10ms"],
        &["hotspot", "--size", "60T"],
        &["hotspot", "--size", "1M", "--file", "x"],
        &["hotspot", "--size", "1M", "--truth", "-"],
        &["scan", "--size", "1M", "--hot", "3%"],
        &["scan", "--size", "1M", "--theta", "0.99"],
        &["stairs", "--size", "1M", "--background", "0"],
        &["alternate", "--size", "1M", "--scattered"],
        &["zipf", "--size", "1M", "--period", "1s"],
        &["stairs", "--size", "1M", "--period", "0"],
        &["zipf", "--size", "1M", "--theta", "nan"],
        &["phases"],
        &["nonsense", "--size", "1M"],
    ] {
        let out = refused(args);
        assert_eq!(out.status.code(), Some(2), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        assert!(out.stdout.is_empty());
    }
    let mut text = String::new();
    let mut child = isotherm(&["workload", "hotspot", "--size", "1M", "--truth", "/nowhere/t.json"]).spawn().unwrap();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(text.contains("/nowhere/t.json"), "{text}");
}
