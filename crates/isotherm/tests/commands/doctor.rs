//! What `isotherm doctor` prints, and that the other commands agree with it.

use crate::common::{self, Program, isotherm};
use crate::zram::ZramSwap;
use serde_json::Value;

fn doctor() -> Value {
    let done = isotherm(["doctor", "--json"]);
    done.expect(0, &[]);
    assert_eq!(done.stderr, "");
    serde_json::from_str(&done.stdout).unwrap()
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|e| e["name"].as_str().unwrap()).collect()
}

#[test]
fn json_lists_everything_with_reason_and_remedy() {
    let doctor = doctor();
    assert!(doctor["kernel"].as_str().is_some_and(|k| k.contains('.')), "{doctor}");
    assert_eq!(names(&doctor["sources"]), ["pagetable", "idle", "damon", "refs"]);
    let actions = [
        "stat",
        "willneed",
        "cold",
        "pageout",
        "hugepage",
        "nohugepage",
        "collapse",
        "lru_prio",
        "lru_deprio",
        "migrate_hot",
        "migrate_cold",
        "lock",
        "unlock",
    ];
    assert_eq!(names(&doctor["actions"]), actions);
    let meters = [
        "some_mem_psi",
        "full_mem_psi",
        "free_mem_rate",
        "node_mem_used",
        "node_mem_free",
        "cgroup_mem_used",
        "cgroup_mem_free",
        "active_mem",
        "inactive_mem",
        "target_rss",
        "target_major_faults",
        "target_stall",
        "swap_in",
        "refault",
        "user_input",
    ];
    assert_eq!(names(&doctor["meters"]), meters);
    for entry in ["sources", "actions", "meters"].iter().flat_map(|l| doctor[l].as_array().unwrap()) {
        let usable = entry["usable"].as_bool().unwrap();
        assert_eq!(entry["reason"].as_str().unwrap().is_empty(), usable, "{entry}");
        assert!(entry["remedy"].is_string() && entry["detail"].is_string(), "{entry}");
    }
    // Needs neither privilege nor a special kernel.
    let stat = &doctor["actions"][0];
    assert_eq!(stat["usable"], true);
}

#[test]
fn root_what_pageout_sends_to_swap_is_no_reason_not_to_migrate() {
    let Some(_swap) = ZramSwap::new(64 << 20) else { return };
    let doctor = doctor();
    for action in doctor["actions"].as_array().unwrap() {
        let (name, reason) = (action["name"].as_str().unwrap(), action["reason"].as_str().unwrap());
        if name == "pageout" {
            assert_eq!(action["detail"], "seen in swap", "{action}");
        }
        if name.starts_with("migrate_") && action["usable"] == false {
            // As root nothing but the number of nodes and what is free on them can be in the way.
            assert!(reason.contains("only one memory node") || reason.contains("node "), "{action}");
            assert!(!reason.contains("No such file"), "{action}");
        }
    }
}

#[test]
fn text_is_a_table_without_colour_when_it_is_not_for_a_terminal() {
    let done = isotherm(["doctor"]);
    done.expect(0, &[]);
    assert!(!done.stdout.contains('\x1b'), "{}", done.stdout);
    let rows: Vec<&str> = done.stdout.lines().filter(|l| l.starts_with("  ") && !l.contains("-> ")).collect();
    assert_eq!(rows.len(), 4 + 13 + 15, "{}", done.stdout);
    for row in rows {
        let verdict = row.split_whitespace().nth(1);
        assert!(matches!(verdict, Some("yes" | "no")), "{row}");
    }
}

#[test]
fn what_doctor_refuses_is_refused_by_record_too() {
    let program = Program::sleeper();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.iso");
    for source in doctor()["sources"].as_array().unwrap().iter().filter(|s| s["usable"] == false) {
        let name = source["name"].as_str().unwrap();
        let pid = program.pid().to_string();
        let done = isotherm(["record", "--source", name, "--pid", &pid, "--duration", "1s", "-o", common::text(&file)]);
        done.expect(3, &[]);
        assert!(!done.stderr.trim().is_empty());
        assert!(!file.exists(), "{name} left a record behind");
    }
}
