//! `isotherm top` without a terminal. Needs root and eBPF where a test's name says so.

use crate::common::grouped::{group, within};
use crate::common::{self, command, isotherm, resident, start, wait_until, workload};
use serde_json::Value;

const MIB: u64 = 1 << 20;
const TEN_S: u64 = 10_000_000_000;

#[test]
fn what_makes_no_sense_is_refused() {
    isotherm(["top"]).expect(2, &["terminal", "--batch"]);
    isotherm(["top", "--json"]).expect(2, &["--batch"]);
    isotherm(["top", "--batch", "--duration", "0"]).expect(2, &["--duration"]);
    isotherm(["top", "--batch", "--all", "--duration", "500ms", "--cpu-budget", "2%"])
        .expect(2, &["--duration 500 ms", "--delay"]);
    isotherm(["top", "--batch", "--physical", "--source", "damon"]).expect(2, &["--physical"]);
}

#[test]
fn root_a_control_group_that_is_removed_ends_the_watch_and_is_named() {
    let Some((group, path)) = group("top-removed") else { return };
    let program = start(&mut within(&group, std::process::Command::new("sleep").arg("60")));
    let mut top = command(["top", "--batch", "--delay", "200ms", "--cgroup", &path]);
    let running = start(&mut top);
    std::thread::sleep(std::time::Duration::from_secs(2));
    program.signal("KILL");
    program.finish();
    drop(group);
    running.finish().expect(0, &[&format!("control group {path} has been removed"), "every target has ended"]);
}

fn cold(line: &Value) -> Option<u64> {
    line["cold"].as_array()?.iter().find(|cold| cold["for_ns"] == TEN_S)?["bytes"].as_u64()
}

/// The lines between one total and the next, with it.
fn rounds(lines: &[Value]) -> Vec<&[Value]> {
    assert_eq!(lines.last().unwrap()["kind"], "total");
    lines.split_inclusive(|line| line["kind"] == "total").collect()
}

#[test]
fn root_figures_become_known_and_are_the_truth() {
    let Some((group, path)) = group("top") else { return };
    let program = start(&mut within(&group, &workload("hotspot --size 64M --hot 25% --thp no")));
    wait_until("its memory is there", || resident(program.pid()) >= 64 * MIB);
    let done = isotherm(["top", "--batch", "--json", "--cgroup", &path, "--delay", "2s", "--duration", "20s"]);
    done.expect(0, &[]);
    let lines = done.json_lines();
    let rounds = rounds(&lines);
    assert!(rounds.len() >= 5, "{done:#?}");
    assert_eq!(rounds[0].iter().map(cold).collect::<Vec<_>>(), vec![None; rounds[0].len()], "watched for 2 s");
    let last = rounds[rounds.len() - 1];
    let kinds: Vec<&Value> = last.iter().map(|line| &line["kind"]).collect();
    assert_eq!(kinds, ["process", "cgroup", "total"]);
    assert_eq!((&last[0]["pid"], &last[1]["cgroup"]), (&program.pid().into(), &path.as_str().into()));
    // What the program has beside its pattern rests, too.
    let beside = resident(program.pid()) - 64 * MIB;
    for line in last {
        let cold = cold(line).unwrap_or_else(|| panic!("not known: {line}"));
        assert!((48 * MIB * 95 / 100..=48 * MIB * 105 / 100 + beside).contains(&cold), "{cold}: {line}");
    }
    // As a table, and of the whole machine.
    let mut all = command(["top", "--batch", "--delay", "3s", "--duration", "8s"]);
    let done = common::run(all.env("COLUMNS", "80"));
    done.expect(0, &[]);
    let pid = program.pid().to_string();
    assert!(done.stdout.lines().any(|line| line.split_whitespace().next() == Some(&pid)), "{done:#?}");
    let table = done.stdout.lines().filter(|line| line.starts_with("    PID")).count();
    assert!(table >= 2 && done.stdout.lines().all(|line| line.chars().count() <= 120), "{done:#?}");
    assert!(!done.stdout.contains("kthreadd"), "threads of the kernel have no memory: {done:#?}");
    program.signal("KILL");
    program.finish();
}
