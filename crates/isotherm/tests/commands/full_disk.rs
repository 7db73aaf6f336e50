//! A disk that fills up while recording: a clear end, and what was written before stays readable.

use crate::common::run;
use std::process::Command;

/// Runs a script in a mount namespace of its own, where it may mount a small tmpfs at `$2`: gone with its last process, whatever happens. `$1` is
/// the command. What it says, and what it wrote to `$2/../stderr`.
fn on_a_small_disk(script: &str) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let mount = folder.path().join("mount");
    std::fs::create_dir(&mount).unwrap();
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_isotherm")]);
    let done = run(unshare.arg(&mount));
    (done.stdout, std::fs::read_to_string(folder.path().join("stderr")).unwrap())
}

#[test]
fn root_a_full_disk_ends_the_recording_and_keeps_what_was_written() {
    // Filled up but for 16 KiB, so that the disk is full after a few snapshots.
    let script = r#"
        set -e
        mount -t tmpfs -o size=256k tmpfs "$2"
        head -c 240k /dev/zero >"$2/filler"
        sleep 600 & target=$!
        trap 'kill $target' EXIT
        set +e
        timeout 100 "$1" record --pid $target -o "$2/r.iso" --duration 1h --source pagetable \
            --sample 1ms --aggr 2ms --cpu-budget 100% 2>"$2/../stderr"
        echo "status $?"
        "$1" report raw --json "$2/r.iso" 2>/dev/null | wc -l
        kill -0 $target && echo alive
    "#;
    let (said, errors) = on_a_small_disk(script);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], "status 1", "{said}\n{errors}");
    assert!(errors.contains("r.iso"), "the file is not named: {errors}");
    assert!(errors.to_lowercase().contains("no space"), "the reason is not named: {errors}");
    assert!(!errors.contains("panicked"), "{errors}");
    assert!(lines[1].trim().parse::<u32>().unwrap() > 0, "nothing is left of the record: {said}\n{errors}");
    assert_eq!(lines[2], "alive", "the target was harmed");
}

#[test]
fn root_a_full_disk_under_statistics_ends_nothing() {
    // Full at first; with room again later.
    let script = r#"
        set -e
        mount -t tmpfs -o size=64k tmpfs "$2"
        sleep 600 & target=$!
        trap 'kill $target' EXIT
        "$1" schemes --pid $target --scheme "4K null null 5 5s null stat" --stats "$2/s" --no-control --duration 8s -q 2>"$2/../stderr" &
        run=$!
        head -c 1m /dev/zero >"$2/filler" 2>/dev/null || true
        sleep 4
        rm "$2/filler"
        set +e
        wait $run
        echo "status $?"
        wc -l <"$2/s"
        tail -c 1 "$2/s" | od -An -c
        cat "$2/s"
    "#;
    let (said, errors) = on_a_small_disk(script);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], "status 0", "{said}\n{errors}");
    assert_eq!(errors.matches("statistics are lost").count(), 1, "reported once: {errors}");
    let count: usize = lines[1].trim().parse().unwrap();
    assert!((1..8).contains(&count), "some lines are lost, those after the room is there again are not: {said}");
    assert!(lines[3..].iter().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()), "{said}");
}

#[test]
fn root_where_an_answer_cannot_be_written_that_is_said() {
    let script = r#""$1" ps --duration 1s --pid $$ $2 >/dev/full"#;
    for json in ["", "--json"] {
        let done = run(Command::new("sh").args(["-c", script, "sh", env!("CARGO_BIN_EXE_isotherm"), json]));
        done.expect(1, &["cannot write to standard output: No space left on device"]);
    }
}

#[test]
fn where_a_simulation_cannot_be_written_that_is_said() {
    let lru = "sim lru --generate loop:pages=4,requests=40 --size 2";
    let schemes = "sim schemes hotspot --size 16M --rate 1e5 --duration 1s --scheme '4K max 0 0 5s max pageout'";
    let printed = "schemes --scheme '4K max 0 0 5s max pageout' --print";
    for (command, json) in [(lru, true), (schemes, true), (printed, false)] {
        for option in ["", "--json"].iter().take(1 + usize::from(json)) {
            let script = format!("\"$1\" {command} {option} >/dev/full");
            let done = run(Command::new("sh").args(["-c", &script, "sh", env!("CARGO_BIN_EXE_isotherm")]));
            done.expect(1, &["cannot write to standard output: No space left on device"]);
        }
    }
}
