//! `isotherm tune` as people use it.

use crate::common::{isotherm, run};

const SCHEME: &str = "4K null null 5 1s null stat";

/// The command that is tuned for: it runs for so long, and leaves the processors to others.
const fn workload(duration: &str) -> [&str; 9] {
    let isotherm = env!("CARGO_BIN_EXE_isotherm");
    [isotherm, "workload", "hotspot", "--size", "64M", "--rate", "1000000", "--duration", duration]
}

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
    with(&["--scheme", "4K null 0 5 5s null pageout", "--rates", "0%,5%"]).expect(2, &["--rates", "mean nothing"]);
    let file = folder.path().join("s.toml");
    std::fs::write(&file, "[target]\npid = [1]\n[[scheme]]\naction = \"stat\"\n").unwrap();
    with(&["-c", file.to_str().unwrap()]).expect(2, &["[target]"]);
    isotherm(["tune", "--scheme", SCHEME]).expect(2, &["COMMAND"]);
    assert!(!marker.exists(), "the command ran although the arguments were wrong");
}

#[test]
fn options_that_contradict_each_other_are_bad_usage() {
    let with = |args: &[&str]| isotherm([&["tune", "--scheme", SCHEME], args, &["--", "true"]].concat());
    with(&["--runs", "5", "--ages", "5s"]).expect(2, &["--runs", "--ages"]);
    with(&["--runs", "1"]).expect(2, &["--runs"]);
    with(&["--runtime-weight", "101%"]).expect(2, &["--runtime-weight"]);
    with(&["--propose"]).expect(2, &["--history"]);
    with(&["--record", "1,5M"]).expect(2, &["--propose"]);
    let folder = tempfile::tempdir().unwrap();
    let history = folder.path().join("h.jsonl");
    let with = |args: &[&str]| with(&[&["--history", history.to_str().unwrap(), "--propose"], args].concat());
    with(&["--record", "1"]).expect(2, &["--record"]);
    with(&["--record", "0,5M"]).expect(2, &["above 0"]);
    with(&["--ran", "x.toml"]).expect(2, &["--record"]);
    assert!(!history.exists());
}

/// A program that the tests drive themselves: slower and smaller the shorter the age, beyond 5 % below 2 s.
fn driven(age_us: Option<u64>) -> String {
    match age_us.map(|us| us as f64 / 1e6) {
        None => "10.0,1000M".to_owned(),
        Some(age) => format!("{},{}M", if age < 2.0 { 12.0 } else { 10.1 }, 400 + (10.0 * age) as u64),
    }
}

#[test]
fn what_the_user_runs_is_tuned_by_proposals_and_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (history, next) = (path("h.jsonl"), path("next.toml"));
    let line = "4K null 0 5 5s null pageout";
    let propose = |scheme: &str, args: &[&str]| {
        let all = ["tune", "--scheme", scheme, "--history", &history, "-o", &next, "--propose"];
        isotherm([&all[..], args, &["--", "my server"]].concat())
    };
    let mut answer = propose(line, &[]).expect(0, &["0 runs are known"]).json_lines().remove(0);
    let mut tried = 0;
    for run in 1..=10 {
        assert_eq!((&answer["run"], &answer["runs"]), (&run.into(), &10.into()), "{answer}");
        let figures = driven(answer["parameters"]["min_age_us"].as_u64());
        let mut args = vec!["--record", &figures];
        if answer["do"] == "try" {
            tried += 1;
            isotherm(["schemes", "--print", "-c", &next]).expect(0, &[]);
            args.extend(["--ran", &next]);
        }
        answer = propose(line, &args).expect(0, &[]).json_lines().remove(0);
    }
    assert_eq!(tried, 7);
    assert_eq!(answer["do"], "done");
    let age = answer["parameters"]["min_age_us"].as_u64().unwrap();
    assert!((2_000_000..4_000_000).contains(&age), "{answer}");
    assert_eq!(std::fs::read_to_string(&history).unwrap().lines().count(), 10);
    let best = isotherm(["schemes", "--print", "-c", &next]);
    assert!(format!("{best:?}").contains("pageout"));

    // What was recorded of other schemes does not count, and a file of other schemes is refused.
    propose("4K null 0 5 5s null cold", &[]).expect(0, &["0 runs are known; 10 of another scheme ignored"]);
    propose("4K null 0 5 9s null pageout", &[]).expect(0, &["10 runs are known\n"]);
    let other = path("other.toml");
    std::fs::write(&other, "[[scheme]]\naction = \"cold\"\n").unwrap();
    propose(line, &["--record", "1,5M", "--ran", &other]).expect(2, &["other schemes"]);
    // Where the scheme cannot be written the run is not added, so that the call can be repeated.
    let nowhere = path("none/next.toml");
    let again = ["tune", "--scheme", line, "--history", &history, "-o", &nowhere, "--propose", "--record", "1,5M"];
    isotherm([&again[..], &["--", "my server"]].concat()).expect(1, &["cannot write", &nowhere]);
    assert_eq!(std::fs::read_to_string(&history).unwrap().lines().count(), 10);
    // A damaged line is named; the file stays as it is.
    let damaged = std::fs::read_to_string(&history).unwrap() + "{\"command\":";
    std::fs::write(&history, &damaged).unwrap();
    propose(line, &["--record", "1,5M"]).expect(1, &["h.jsonl:11: "]);
    assert_eq!(std::fs::read_to_string(&history).unwrap(), damaged);
}

#[test]
fn an_answer_that_cannot_be_written_is_an_error_that_tells_of_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"cd "$2" && exec "$1" tune --scheme "4K null 0 5 5s null pageout" --history h --propose --record 10,1000M -- x >/dev/full"#;
    let mut shell = std::process::Command::new("sh");
    let done = run(shell.args(["-c", script, "sh", env!("CARGO_BIN_EXE_isotherm")]).arg(folder.path()));
    done.expect(1, &["cannot write to standard output", "in the history", "without --record", "No space left"]);
    assert_eq!(std::fs::read_to_string(folder.path().join("h")).unwrap().lines().count(), 1);
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
    let workload = workload("8s");
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
        // What a loaded machine does to a run of seconds is not what is tested, nor what the monitor's start costs on it.
        "--max-slowdown",
        "10000%",
        "--cpu-budget",
        "none",
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

#[test]
fn root_ten_runs_at_most_and_the_next_tuning_begins_with_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (history, best) = (path("h.jsonl"), path("best.toml"));
    let workload = workload("6s");
    let tune = |runs: &str| {
        let tune = ["tune", "--json", "--scheme", SCHEME, "--runs", runs, "--history", &history, "-o", &best];
        let any = ["--max-slowdown", "10000%", "--cpu-budget", "none", "--"];
        isotherm([&tune[..], &any, &workload[..]].concat())
    };
    let done = tune("3");
    done.expect(0, &["0 runs are known", "run 3 of 3", "the best", "to be expected"]);
    let lines = done.json_lines();
    assert!(lines.len() == 1 || lines.len() == 2, "{lines:?}");
    assert!(lines.iter().any(|l| l["min_age_us"] == 1_000_000), "its own age comes first: {lines:?}");
    let done = tune("2");
    done.expect(0, &["3 runs are known", "run 2 of 2"]);
    let lines = done.json_lines();
    assert_eq!(lines.iter().map(|l| l["runs"].as_u64().unwrap()).sum::<u64>(), 3, "{lines:?}");
    assert_eq!(std::fs::read_to_string(&history).unwrap().lines().count(), 5);
    isotherm(["schemes", "--print", "-c", &best]).expect(0, &[]);
}
