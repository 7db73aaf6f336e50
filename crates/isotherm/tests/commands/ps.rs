//! `isotherm ps` on real processes that know the truth. Needs root and eBPF.

use crate::common::grouped::{Ending, group, within};
use crate::common::{Done, Running, command, isotherm, resident, run, start, wait_until, workload};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

const MIB: u64 = 1 << 20;
const TEN_S: u64 = 10_000_000_000;

#[test]
fn what_makes_no_sense_is_refused() {
    isotherm(["ps", "--duration", "0"]).expect(2, &["--duration"]);
    isotherm(["ps", "--duration", "500ms"]).expect(2, &["a second at least"]);
    isotherm(["ps", "--physical", "--source", "damon"]).expect(2, &["--physical"]);
    isotherm(["ps", "--by", "colour"]).expect(2, &["process", "cgroup"]);
    isotherm(["ps", "--sort", "size"]).expect(2, &["working-set"]);
}

#[test]
fn sources_that_know_no_single_pages_are_refused_at_once() {
    for command in [&["ps"][..], &["ps", "--duration", "1h"], &["top", "--batch"], &["node", "--no-control"]] {
        for source in ["refs", "damon"] {
            let done = isotherm([command, &["--source", source]].concat());
            done.expect(3, &["single pages", "page tables or idle page tracking", "isotherm doctor"]);
            assert_eq!(done.stdout, "");
        }
    }
    let help = isotherm(["ps", "--help"]).stdout;
    assert!(!help.contains("refs where") && !help.contains("regions"), "{help}");
}

#[test]
fn root_without_rights_it_is_said_at_once_what_is_needed() {
    // A folder and a copy that anybody may reach, for the build's own folder may be closed to others.
    let folder = tempfile::tempdir().unwrap();
    let binary = folder.path().join("isotherm");
    std::fs::copy(env!("CARGO_BIN_EXE_isotherm"), &binary).unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    for arguments in [&["ps", "--duration", "1h"][..], &["top", "--batch"], &["node", "--no-control"]] {
        let mut as_nobody = Command::new(&binary);
        as_nobody.uid(65534).gid(65534).current_dir("/").args(arguments);
        let done = run(&mut as_nobody);
        done.expect(3, &["single pages", "CAP_SYS_NICE", "CAP_DAC_READ_SEARCH"]);
        assert!(!done.stderr.contains("falling back"), "{done:#?}");
    }
}

#[test]
fn root_of_a_command_the_group_the_figures_and_the_status_are_told() {
    let Some((a, path)) = group("ps-command") else { return };
    let a = Ending(a);
    let ps = |arguments: &[&str]| run(&mut within(&a.0, &command(["ps", "--json"].iter().chain(arguments))));
    // It still runs, and is ended.
    let done = ps(&["--duration", "2s", "--", "sleep", "30"]);
    done.expect(0, &["still runs"]);
    assert_eq!(of_kind(&done.json_lines(), "process")[0]["cgroup"], path, "{done:#?}");
    // It ends by itself; what it says is not part of the answer.
    let done = ps(&["--", "sh", "-c", "echo said; sleep 3; exit 7"]);
    assert!(
        done.status == Some(7) && done.stderr.contains("said\n") && done.stderr.contains("known last"),
        "{done:#?}"
    );
    let lines = done.json_lines();
    assert_eq!(of_kind(&lines, "process")[0]["cgroup"], path, "{done:#?}");
    assert!(of_kind(&lines, "total")[0]["rss_bytes"].as_u64() > Some(0), "{done:#?}");
    // Too early for any figure.
    let done = ps(&["--", "sh", "-c", "exit 5"]);
    assert!(done.status == Some(5) && done.stderr.contains("exit status 5"), "{done:#?}");
    ps(&["--", "true"]).expect(1, &["before anything was known", "isotherm record -- COMMAND"]);
}

fn program(group: &Ending, arguments: &str) -> Running {
    start(&mut within(&group.0, &workload(&format!("{arguments} --thp no"))))
}

fn of_kind<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["kind"] == kind).collect()
}

fn at(line: &Value, list: &str, time: &str, ns: u64) -> Option<u64> {
    let entries = line[list].as_array()?;
    entries.iter().find(|entry| entry[time] == ns)?["bytes"].as_u64()
}

fn cold(line: &Value) -> u64 {
    at(line, "cold", "for_ns", TEN_S).unwrap_or_else(|| panic!("cold memory is not known: {line}"))
}

fn used(line: &Value) -> u64 {
    at(line, "working_set", "within_ns", TEN_S).unwrap_or_else(|| panic!("use is not known: {line}"))
}

fn is_near(found: u64, truth: u64, slack: u64) -> bool {
    found.abs_diff(truth) <= slack
}

fn ps(arguments: &[&str]) -> Done {
    let done = isotherm(["ps"].iter().chain(arguments));
    done.expect(0, &["cost:"][..usize::from(!arguments.contains(&"--json"))]);
    done
}

#[test]
fn root_groups_add_up_and_figures_are_the_truth() {
    let Some((a, a_path)) = group("ps-a") else { return };
    let Some((b, b_path)) = group("ps-b") else { return };
    let (a, b) = (Ending(a), Ending(b));
    // 64 MiB with a hot quarter; as much, of which every 50th page is hot; 32 MiB that are cold.
    let programs = [
        program(&a, "hotspot --size 64M --hot 25%"),
        program(&a, "every --size 64M --hot 2%"),
        program(&b, "hotspot --size 32M --hot 1%"),
    ];
    let truth = [(64, 48 * MIB), (64, 64 * MIB * 98 / 100), (32, 32 * MIB * 99 / 100)];
    for (program, (size, _)) in programs.iter().zip(truth) {
        wait_until("its memory is there", || resident(program.pid()) >= size * MIB);
    }
    let short = start(&mut within(&b.0, Command::new("sleep").arg("5")));
    let done = ps(&["--json", "--cgroup", &a_path, "--cgroup", &b_path]);
    short.finish().expect(0, &[]);
    let lines = done.json_lines();
    let (processes, groups) = (of_kind(&lines, "process"), of_kind(&lines, "cgroup"));
    assert_eq!((processes.len(), groups.len(), of_kind(&lines, "total").len()), (3, 2, 1), "{done:#?}");
    for (program, (size, cold_bytes)) in programs.iter().zip(truth) {
        let line = processes.iter().find(|line| line["pid"] == program.pid()).unwrap();
        // What a program has beside its pattern, above all its binary, rests.
        let (more, slack) = (line["rss_bytes"].as_u64().unwrap().saturating_sub(size * MIB), size * MIB / 20);
        assert!(cold(line) + slack >= cold_bytes && cold(line) <= cold_bytes + slack + more, "{cold_bytes}: {line}");
        assert!(is_near(used(line), size * MIB - cold_bytes, slack + MIB), "{line}");
    }
    let sum = |name: &str| groups.iter().map(|line| line[name].as_u64().unwrap()).sum::<u64>();
    let total = of_kind(&lines, "total")[0];
    for name in ["rss_bytes", "unobservable_bytes", "unresolved_bytes", "processes"] {
        assert_eq!(total[name], sum(name), "{name}");
    }
    assert_eq!(cold(total), groups.iter().map(|line| cold(line)).sum::<u64>());
    let parts = cold(total) + used(total) + sum("unobservable_bytes") + sum("unresolved_bytes");
    assert!(is_near(parts, sum("rss_bytes"), 16 * 4096), "{parts}: {total}");
    assert_eq!(total["shared"], "counted_once");
    let of_a = groups.iter().find(|line| line["cgroup"] == a_path).unwrap();
    assert_eq!(of_a["processes"], 2);
    // The binary is one, so it counts once in both groups together.
    let text: u64 = processes.iter().map(|line| line["rss_bytes"].as_u64().unwrap()).sum();
    assert!(text > sum("rss_bytes"), "{text}: {total}");
    for program in programs {
        program.signal("KILL");
        program.finish();
    }
}

#[test]
fn root_a_short_look_tells_what_was_not_used_for_a_second() {
    let Some((a, path)) = group("ps-short") else { return };
    let a = Ending(a);
    let program = program(&a, "hotspot --size 64M --hot 25%");
    wait_until("its memory is there", || resident(program.pid()) >= 64 * MIB);
    // Others come and go meanwhile.
    let others = start(&mut within(&a.0, Command::new("sh").args(["-c", "while :; do sleep 1; done"])));
    let done = ps(&["--cgroup", &path, "--duration", "2s"]);
    drop(others);
    assert!(done.stdout.contains("COLD: not accessed for 1 s. USED: accessed within 1 s."), "{done:#?}");
    let pid = program.pid().to_string();
    let row = done.stdout.lines().find(|line| line.split_whitespace().next() == Some(&pid));
    // Of so short a look it may be an estimate.
    let percent = |word: &str| word.trim_start_matches('~').strip_suffix('%')?.parse().ok();
    let share = row.and_then(|row| row.split_whitespace().find_map(percent));
    // 48 MiB of 64, and of what the program has besides.
    assert!(share.is_some_and(|share: u32| (60..=85).contains(&share)), "{done:#?}");
    drop(program);
}

/// After a fork parent and child share all of it.
#[test]
fn root_memory_shared_by_a_fork_counts_once_and_so_says_a_record() {
    let Some((shared, path)) = group("ps-fork") else { return };
    let shared = Ending(shared);
    let script = "import os, time\nheld = bytearray(b'x' * (64 << 20))\nos.fork()\nos.fork()\ntime.sleep(300)\n";
    let mut python = within(&shared.0, Command::new("python3").args(["-c", script])).spawn().unwrap();
    let members = || std::fs::read_to_string(shared.0.0.join("cgroup.procs")).unwrap_or_default().lines().count();
    wait_until("it has forked", || members() == 4 && resident(python.id()) >= 64 * MIB);
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("r.iso");
    // A slow core gets round within 1 % in less than this, a fast one in 25 s.
    let recording = start(command(["record", "--duration", "40s", "--cgroup", &path, "-q", "-o"]).arg(&record));
    let done = ps(&["--json", "--cgroup", &path]);
    let lines = done.json_lines();
    let total = of_kind(&lines, "total")[0];
    let processes = of_kind(&lines, "process");
    assert_eq!(processes.len(), 4, "{done:#?}");
    for line in processes {
        assert!(cold(line) >= 64 * MIB, "each of them has it: {line}");
    }
    assert!((64 * MIB..96 * MIB).contains(&cold(total)), "it is there once: {total}");
    recording.finish().expect(0, &[]);
    let summary = run(command(["report", "summary", "--json"]).arg(&record)).json_lines();
    let recorded = &summary.last().unwrap()["idle"]["cold"][0];
    assert_eq!(recorded["for_ns"], TEN_S);
    let recorded = recorded["bytes"].as_u64().unwrap();
    assert!(is_near(recorded, cold(total), cold(total) / 20), "a record says {recorded}: {total}");
    let _ = python.kill();
    let _ = python.wait();
}

#[test]
fn root_150_small_processes_are_told_within_the_budget() {
    let Some((many, path)) = group("ps-many") else { return };
    let many = Ending(many);
    let script = "for i in $(seq 150); do sleep 200 & done; wait";
    let shell = start(&mut within(&many.0, Command::new("sh").args(["-c", script])));
    let members = || std::fs::read_to_string(many.0.0.join("cgroup.procs")).unwrap_or_default().lines().count();
    wait_until("all run", || members() == 151);
    let done = run(command(["ps", "--cgroup", &path]).env("COLUMNS", "80"));
    done.expect(0, &["cost:", "budget 1 %"]);
    let table: Vec<&str> = done.stdout.lines().take_while(|line| !line.starts_with("COLD:")).collect();
    assert_eq!(table.len(), 153, "{done:#?}");
    assert!(table.iter().all(|line| line.chars().count() <= 80), "{done:#?}");
    let words: Vec<&str> = table[152].split_whitespace().collect();
    assert_eq!(words[..2], ["151", "total"]);
    // "cost: monitor 0.41 % + target 0.12 % of one core": the first seconds may take a little more.
    let cost = done.stderr.split("cost: monitor ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    assert!(cost.parse::<f64>().unwrap() < 2.0, "{done:#?}");
    drop(many);
    shell.finish();
}
