//! `isotherm tune` as people use it.

mod common;

use common::isotherm;

const SCHEME: &str = "4K null null 5 1s null stat";

#[test]
fn nonsense_is_bad_usage_and_runs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let marker = folder.path().join("made");
    let touch = format!("touch {}", marker.display());
    let with = |args: &[&str]| isotherm([&["tune"], args, &["--", "sh", "-c", &touch]].concat());
    with(&[]).expect(2, &["--scheme"]);
    with(&["--scheme", "4K null"]).expect(2, &["column"]);
    with(&["--scheme", SCHEME, "--nth", "1"]).expect(2, &["--nth 1"]);
    with(&["--scheme", SCHEME, "--ages", "5"]).expect(2, &["5"]);
    with(&["--scheme", "4K null null 5 1s 2s stat", "--ages", "9s"]).expect(2, &["bounds"]);
    let file = folder.path().join("s.toml");
    std::fs::write(&file, "[target]\npid = [1]\n[[scheme]]\naction = \"stat\"\n").unwrap();
    with(&["-c", file.to_str().unwrap()]).expect(2, &["[target]"]);
    isotherm(["tune", "--scheme", SCHEME]).expect(2, &["COMMAND"]);
    assert!(!marker.exists(), "the command ran although the arguments were wrong");
}

#[test]
fn a_command_that_fails_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    let best = folder.path().join("best.toml");
    let done = isotherm(["tune", "--scheme", SCHEME, "-o", best.to_str().unwrap(), "--", "sh", "-c", "exit 3"]);
    done.expect(1, &["'sh' failed", "3"]);
    assert!(!best.exists());
}

#[test]
fn root_the_best_set_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let (best, svg) = (folder.path().join("best.toml"), folder.path().join("curve.svg"));
    // Bits that were set before the watch began may take 4 s to be cleared.
    let workload = [env!("CARGO_BIN_EXE_isotherm"), "workload", "hotspot", "--size", "64M", "--duration", "8s"];
    let tune = [
        "tune",
        "--json",
        "--scheme",
        SCHEME,
        "--ages",
        "500ms,20s",
        "--rates",
        "5%",
        "--repeats",
        "1",
        // What a loaded machine does to a run of seconds is not what is tested.
        "--max-slowdown",
        "10000%",
        "-o",
        best.to_str().unwrap(),
        "--svg",
        svg.to_str().unwrap(),
        "--",
    ];
    let done = isotherm([&tune[..], &workload[..]].concat());
    done.expect(0, &["run 3 of 3", "the best"]);
    let lines = done.json_lines();
    assert_eq!(lines.len(), 2);
    assert!(lines[0]["sz_applied"].as_u64().unwrap() > 20 << 20, "cold memory is found: {done:#?}");
    assert_eq!(lines[1]["sz_applied"], 0, "nothing is 20 s old");
    assert!(lines[0]["alone_bytes"].as_u64().unwrap() > 60 << 20, "memory was measured: {done:#?}");
    assert_eq!(lines.iter().filter(|l| l["best"] == true).count(), 1);
    assert!(std::fs::read_to_string(&svg).unwrap().contains("(best)"));
    isotherm(["schemes", "--print", "-c", best.to_str().unwrap()]).expect(0, &[]);
}
