//! Exit statuses: of what this machine cannot do, and of the command that is watched.

use crate::common::{command, isotherm, run, text};
use std::process::Command;

/// Schemes that no machine can carry out: a node that is not there, and an action that the kernel offers to nobody.
const IMPOSSIBLE: [(&str, &str); 2] = [("migrate_cold\"\ntarget_nid = 4000", "node"), ("lru_prio\"", "lru_deprio")];

#[test]
fn what_is_never_possible_is_refused_before_anything_is_started() {
    let folder = tempfile::tempdir().unwrap();
    let (file, started) = (folder.path().join("s.toml"), folder.path().join("started"));
    for (action, word) in IMPOSSIBLE {
        std::fs::write(&file, format!("[[scheme]]\naction = \"{action}\n")).unwrap();
        let done = isotherm(["schemes", "-c", text(&file), "--", "touch", text(&started)]);
        done.expect(3, &["scheme 0", "not possible here", word]);
        isotherm(["schemes", "--print", "-c", text(&file)]).expect(0, &[]);
    }
    isotherm(["tier", "--slow-node", "4000", "--", "touch", text(&started)]).expect(3, &["node"]);
    assert!(!started.exists());
}

#[test]
fn root_the_commands_own_status_is_passed_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.iso");
    for (script, status, words) in [
        ("sleep 1", 0, &[][..]),
        ("sleep 1; exit 7", 7, &["exit status 7"]),
        ("sleep 1; kill -9 $$", 128 + 9, &["signal 9"]),
    ] {
        let done = isotherm(["record", "-o", text(&file), "--", "sh", "-c", script]);
        assert_eq!(done.status, Some(status), "{done:#?}");
        assert!(words.iter().all(|word| done.stderr.contains(word)), "{done:#?}");
        assert!(done.stderr.contains("recorded"), "the record is whole all the same: {done:#?}");
        isotherm(["report", "summary", text(&file)]).expect(0, &[]);
    }
    // One that we end is no failure of it.
    let done = isotherm(["record", "-o", text(&file), "--duration", "1s", "--", "sleep", "60"]);
    done.expect(0, &["ending 'sleep'"]);
}

#[test]
fn root_what_a_command_says_is_not_in_the_record() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.iso");
    let script = r#""$1" record -o - -- sh -c 'echo said; sleep 1; echo said' >"$2""#;
    let mut shell = Command::new("sh");
    let done = run(shell.args(["-c", script, "sh", env!("CARGO_BIN_EXE_isotherm")]).arg(&file));
    done.expect(0, &["said"]);
    isotherm(["report", "summary", text(&file)]).expect(0, &[]);
}

#[test]
fn root_a_command_too_short_to_be_seen_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.iso");
    let done = isotherm(["record", "-o", text(&file), "--aggr", "1s", "--update", "1s", "--", "true"]);
    done.expect(0, &["nothing was seen", "1.00 s", "--aggr"]);
}

#[test]
fn a_record_does_not_go_to_a_terminal() {
    let isotherm = command::<&str>([]);
    let line = format!("{} record -o - --pid 1 2>&1", isotherm.get_program().display());
    // Gives its command a terminal.
    let Ok(done) = Command::new("script").args(["-qec", &line, "/dev/null"]).output() else {
        eprintln!("skipped: script(1) is missing");
        return;
    };
    assert_eq!(done.status.code(), Some(2), "{done:?}");
    assert!(String::from_utf8_lossy(&done.stdout).contains("terminal"), "{done:?}");
}

#[test]
fn root_where_root_may_not_look_root_is_not_the_remedy() {
    // Whether it may depends on the machine.
    let done = run(&mut command(["record", "-o", "/dev/null", "--duration", "200ms", "--pid", "1"]));
    assert!(!done.stderr.contains("run as root"), "{done:#?}");
}

#[test]
fn root_a_long_aggregation_interval_does_not_outlast_the_time_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.iso");
    let begin = std::time::Instant::now();
    let intervals = ["--sample", "1m", "--aggr", "1h", "--duration", "1s"];
    let done = isotherm([&["record", "-o", text(&file)], &intervals[..], &["--", "sleep", "600"]].concat());
    done.expect(0, &["in 0 snapshots", "nothing is known of regions", "1 h 00 m"]);
    assert!(begin.elapsed().as_secs() < 300, "far less than an interval: {done:#?}");
    assert!(!done.stderr.contains("interrupted"), "{done:#?}");
}

#[test]
fn root_more_regions_than_the_budget_pays_for_are_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.iso");
    let record = |regions: &str| {
        let limits = ["--min-regions", regions, "--max-regions", "1000000"];
        isotherm([&["record", "--duration", "1s", "-o", text(&file)], &limits[..], &["--", "sleep", "60"]].concat())
    };
    record("1000000").expect(0, &["--min-regions 1000000", "1600 % of one core (budget 1 %)"]);
    assert!(!record("100").stderr.contains("--min-regions"));
}
