//! Rules of `isotherm node` that do more than page out: huge pages, page cache. Needs root and eBPF.

use crate::common::grouped::{Ending, group, within};
use crate::common::nodes::{asked, at, of_group};
use crate::common::{self, Program, Running, isotherm, run, start, wait_until, workload};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

const MIB: u64 = 1 << 20;

/// The group's rule in the node's status.
fn rule_of(folder: &Path, node: &Running, path: &str) -> Value {
    of_group(folder, node, path)["rule"].clone()
}

/// Anonymous memory in huge pages, bytes.
fn huge(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() * 1024
}

#[test]
fn keys_and_actions_that_make_no_sense_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.toml");
    for (text, words) in [
        ("action = \"hint\"", ["node.toml, line 3", "rule.action", "`isotherm hint guest`"]),
        ("action = \"thp\"\nmin_age = \"2m\"", ["node.toml, line 4", "rule.min_age", "action = \"reclaim\""]),
        ("action = \"reclaim\"\nmin_used = \"50%\"", ["node.toml, line 4", "rule.min_used", "action = \"thp\""]),
    ] {
        std::fs::write(&file, format!("[[rule]]\ngroups = \"/a\"\n{text}\n")).unwrap();
        isotherm(["node", "-c", file.to_str().unwrap()]).expect(2, &words);
    }
    std::fs::write(&file, "pace = \"16M/0s\"\n").unwrap();
    isotherm(["node", "-c", file.to_str().unwrap()]).expect(2, &["line 1, pace", "16M/0s", "\"none\""]);
}

#[test]
fn root_a_rule_that_never_counts_is_named_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.toml");
    let rule = |age| format!("[[rule]]\nname = \"x\"\ngroups = \"/none\"\naction = \"reclaim\"\nmin_age = \"{age}\"\n");
    std::fs::write(&file, rule("2m") + &rule("1h")).unwrap();
    let sleeper = Program::sleeper();
    let arguments = ["node", "-c", file.to_str().unwrap(), "--dry-run", "--duration", "1s", "--pid"];
    let done = asked(folder.path(), &[&arguments[..], &[&sleeper.pid().to_string()]].concat());
    done.expect(0, &["'/none' in the rule 'x' never counts", "the first rule counts"]);
}

#[test]
fn root_memory_in_dense_use_becomes_huge_pages_in_the_groups_of_the_rule() {
    let mode = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let (Some((there, path)), Some((spared, _)), true) = (group("huge"), group("base"), mode.contains("[madvise]"))
    else {
        eprintln!("skipped: no control groups for memory, or transparent huge pages are not on madvise");
        return;
    };
    let (there, spared) = (Ending(there), Ending(spared));
    let hotspot = || workload("hotspot --size 64M --hot 50%");
    let dense = start(&mut within(&there.0, &hotspot()));
    // One page in ten, of memory that is there as a whole.
    let sparse = start(&mut within(&there.0, &workload("every --size 64M --hot 10%")));
    let beside = start(&mut within(&spared.0, &hotspot()));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.toml");
    let rule = |more: &str| {
        format!(
            "pace = \"none\"\n[[rule]]\nname = \"huge\"\ngroups = \"{path}\"\naction = \"thp\"\nused_within = \"5s\"\n{more}"
        )
    };
    std::fs::write(&file, rule("dry_run = true\n")).unwrap();
    let node = start(&mut at(folder.path(), &["node", "-c", file.to_str().unwrap(), "--cpu-budget", "20%"]));
    let mut reported = Value::Null;
    wait_until("a dry run finds what is used densely", || {
        reported = rule_of(folder.path(), &node, &path);
        reported["would_collapse"].as_u64().is_some_and(|bytes| bytes >= 28 * MIB)
    });
    assert!(reported["would_collapse"].as_u64().unwrap() <= 36 * MIB, "{reported}");
    assert_eq!((&reported["collapsed"], huge(dense.pid())), (&Value::Null, 0), "{reported}");

    std::fs::write(&file, rule("")).unwrap();
    node.signal("HUP");
    wait_until("what is used densely is in huge pages", || huge(dense.pid()) >= 28 * MIB);
    // What is not to become any does not later either.
    std::thread::sleep(std::time::Duration::from_secs(12));
    assert!(huge(dense.pid()) <= 36 * MIB, "the rest of it is not used: {}", huge(dense.pid()));
    assert_eq!((huge(sparse.pid()), huge(beside.pid())), (0, 0), "sparsely used, and another group");
    let reported = rule_of(folder.path(), &node, &path);
    let collapsed = reported["collapsed"].as_u64().unwrap();
    assert!((28 * MIB..=36 * MIB).contains(&collapsed), "{reported}");
    assert_eq!(reported["idle_code"], "no_dense_block", "{reported}");
    assert_eq!(std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap(), mode);
    let text = run(&mut at(folder.path(), &["ctl", "status", "--pid", &node.pid().to_string()]));
    assert!(text.stdout.contains("became huge pages"), "{}", text.stdout);
    node.signal("TERM");
    node.finish().expect(0, &["1 rule of"]);
    assert!(huge(dense.pid()) >= 28 * MIB, "nothing is undone at the end");
    for program in [dense, sparse, beside] {
        program.signal("KILL");
        program.finish();
    }
}

/// Control groups of version 1 have no memory.reclaim: said in the status, and no error. Version 2 has a guest of its
/// own.
#[test]
fn root_page_cache_is_left_alone_with_a_reason_in_version_1() {
    let setup = isotherm_linux::cgroup::CgroupSetup::read(&isotherm_linux::roots::Roots::system());
    let (Some((there, path)), Some((_, false))) = (group("cached"), setup.memory_mount()) else {
        eprintln!("skipped: memory is not controlled by control groups of version 1 here");
        return;
    };
    let there = Ending(there);
    let folder = tempfile::tempdir().unwrap();
    let (file, data) = (folder.path().join("node.toml"), folder.path().join("data"));
    // Written by a program of the group, so that it is the group's page cache.
    let mut writer = Command::new("sh");
    writer.args(["-c", "head -c 16M /dev/zero >\"$0\" && sync \"$0\" && exec sleep 300"]).arg(&data);
    let program = within(&there.0, &writer).spawn().unwrap();
    let rule = |more: &str| {
        format!("[[rule]]\ngroups = \"{path}\"\naction = \"reclaim\"\nmin_age = \"1s\"\npage_cache = true\n{more}")
    };
    std::fs::write(&file, rule("dry_run = true\n")).unwrap();
    let node = start(&mut at(folder.path(), &["node", "-c", file.to_str().unwrap()]));
    let mut reported = Value::Null;
    let on_disk = !std::fs::read_to_string("/proc/mounts").unwrap().contains(" /tmp tmpfs");
    wait_until("a dry run says what could go", || {
        reported = rule_of(folder.path(), &node, &path);
        reported["page_cache"]["could_go"].as_u64().is_some_and(|bytes| bytes >= 15 * MIB || !on_disk)
    });
    assert_eq!(reported["page_cache"]["page_cache_reclaimed"], Value::Null, "{reported}");
    std::fs::write(&file, rule("")).unwrap();
    node.signal("HUP");
    wait_until("the rule says why it does nothing", || {
        reported = rule_of(folder.path(), &node, &path);
        reported["page_cache"]["idle_code"] == "no_memory_reclaim"
    });
    assert!(reported["page_cache"]["idle_reason"].as_str().unwrap().contains("version 1"), "{reported}");
    assert_eq!(reported["page_cache"]["page_cache_reclaimed"], 0, "{reported}");
    node.signal("TERM");
    node.finish().expect(0, &["1 rule of"]);
    common::send(program.id(), "KILL");
    drop({ program }.wait());
}
