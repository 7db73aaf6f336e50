//! What `isotherm node` does by a file of rules, on real processes. Needs root, eBPF, and zram for swap.

use crate::common::grouped::{Ending, group, within};
use crate::common::metrics::metrics;
use crate::common::nodes::{asked, at, of_group};
use crate::common::{isotherm, resident, start, wait_until, workload};
use crate::zram::{self, ZramSwap};
use serde_json::Value;
use std::process::Command;

const MIB: u64 = 1 << 20;
/// What of the programs is never used.
const COLD: u64 = 48 * MIB;

/// A program of which three quarters rest.
fn program() -> Command {
    workload("hotspot --size 64M --hot 25% --thp no")
}

#[test]
fn files_that_make_no_sense_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.toml");
    let path = file.to_str().unwrap();
    isotherm(["node", "-c", path]).expect(1, &["node.toml"]);
    isotherm(["node", "--dry-run"]).expect(2, &["--config"]);
    std::fs::write(&file, "[[rule]]\ngroups = \"/a\"\naction = \"freeze\"\n").unwrap();
    isotherm(["node", "-c", path]).expect(2, &["node.toml, line 3", "'freeze'", "reclaim"]);
}

#[test]
fn root_a_rule_takes_what_rests_in_its_groups_and_nothing_else() {
    let (Some(_swap), Some((there, path)), Some((spared, spared_path))) =
        (ZramSwap::new(512 * MIB), group("ruled"), group("spared"))
    else {
        return;
    };
    let (there, spared) = (Ending(there), Ending(spared));
    let (in_it, beside) = (start(&mut within(&there.0, &program())), start(&mut within(&spared.0, &program())));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.toml");
    let rule = |groups: &str, more: &str| {
        format!(
            "pace = \"64M/s\"\n[[rule]]\nname = \"test\"\ngroups = \"{groups}\"\naction = \"reclaim\"\nmin_age = \"5s\"\n{more}\n"
        )
    };
    std::fs::write(&file, rule(&path, "dry_run = true")).unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let arguments = ["node", "-c", file.to_str().unwrap(), "--metrics", &port.to_string()];
    let node = start(&mut at(folder.path(), &arguments));
    let mut reported = Value::Null;
    wait_until("a dry run says what it would save", || {
        reported = of_group(folder.path(), &node, &path);
        reported["rule"]["would_save"].as_u64().is_some_and(|bytes| bytes > COLD - 4 * MIB)
    });
    assert_eq!(reported["rule"]["reclaimed"], Value::Null, "{reported}");
    assert!(reported["rule"]["would_refault"].as_u64().unwrap() < 2 * MIB, "{reported}");
    let full = resident(in_it.pid());
    assert!(full > 64 * MIB, "nothing was done: {full}");

    std::fs::write(&file, "[[rule]]\ngroups = 7\n").unwrap();
    node.signal("HUP");
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!(of_group(folder.path(), &node, &path)["rule"]["rule"], "test", "what is wrong changes nothing");

    std::fs::write(&file, rule(&path, "")).unwrap();
    node.signal("HUP");
    wait_until("the rule has taken what rests", || resident(in_it.pid()) < full - COLD + 4 * MIB);
    // What is in use stays, also after a while.
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert!(resident(in_it.pid()) > 14 * MIB, "{}", resident(in_it.pid()));
    assert!(resident(beside.pid()) > 64 * MIB, "another group is not meant");
    let after = of_group(folder.path(), &node, &path);
    let reclaimed = after["rule"]["reclaimed"].as_u64().unwrap();
    assert!(reclaimed > COLD - 4 * MIB, "{after}");
    assert!(after["rule"]["refaulted"][1].as_u64().unwrap() < reclaimed / 10, "{after}");
    let other = of_group(folder.path(), &node, &spared_path);
    assert_eq!(other["rule"], Value::Null, "{other}");
    let swapped = |group: &Value| group["swapped"].as_u64().unwrap_or_default();
    assert!(swapped(&after) > COLD - 8 * MIB && swapped(&other) == 0, "{after}\n{other}");

    let samples = metrics(port).unwrap();
    let sample = |name: &str, more: &str| samples.get(&format!("isotherm_{name}{{cgroup=\"{path}\"{more}}}")).copied();
    assert!(sample("reclaimed_bytes_total", "").unwrap() >= reclaimed as f64);
    assert!(sample("refaulted_bytes_total", ",within_seconds=\"60\"").is_some());
    let text = asked(folder.path(), &["ctl", "status", "--pid", &node.pid().to_string()]);
    assert!(text.stdout.contains("1 rule of") && text.stdout.contains("came back within 1 min"), "{}", text.stdout);

    // What a kill leaves changes nothing any more.
    node.signal("KILL");
    node.finish();
    let left = resident(in_it.pid());
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert!(resident(in_it.pid()).abs_diff(left) < MIB);
    for program in [in_it, beside] {
        program.signal("KILL");
        program.finish();
    }
}

/// On a machine without swap the status says why nothing is done.
#[test]
fn root_without_swap_a_rule_says_so() {
    let _turn = zram::turn();
    if std::fs::read_to_string("/proc/swaps").unwrap().lines().count() > 1 {
        eprintln!("skipped: this machine has swap");
        return;
    }
    let Some((there, path)) = group("unswapped") else { return };
    let there = Ending(there);
    let program = start(&mut within(&there.0, &program()));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.toml");
    std::fs::write(&file, format!("[[rule]]\ngroups = \"{path}\"\naction = \"reclaim\"\nmin_age = \"1s\"\n")).unwrap();
    let node = start(&mut at(folder.path(), &["node", "-c", file.to_str().unwrap()]));
    wait_until("the rule says why it does nothing", || {
        let reported = of_group(folder.path(), &node, &path);
        reported["rule"]["idle_reason"].as_str().is_some_and(|why| why.contains("swap"))
    });
    assert_eq!(of_group(folder.path(), &node, &path)["rule"]["reclaimed"], 0);
    node.signal("TERM");
    node.finish().expect(0, &["1 rule of"]);
    program.signal("KILL");
    program.finish();
}
