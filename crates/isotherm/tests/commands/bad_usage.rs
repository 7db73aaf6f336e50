//! Arguments that make no sense: exit status 2 and a sentence that names what is wrong. No privilege needed.

use crate::common::{Program, isotherm, text};

/// Runs `record --pid OWN-PROCESS ARGS -o FILE`; checks status 2, the words, and that no file was made.
#[track_caller]
fn refuses(args: &[&str], words: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.iso");
    let program = Program::sleeper();
    let pid = program.pid().to_string();
    let all = [&["record", "--pid", &pid, "-o", text(&file), "--duration", "1s"], args].concat();
    isotherm(all).expect(2, words);
    assert!(!file.exists(), "a refused command made {}", file.display());
}

#[test]
fn help_names_what_counts() {
    // As one line: where lines break depends on the width.
    let help = |words: &[&str]| {
        let text = isotherm([words, &["--help"]].concat()).stdout;
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    for command in [["sim", "monitor"], ["sim", "schemes"]] {
        let text = help(&command);
        assert!(text.contains("--cpu-budget") && text.contains("--seed"), "{text}");
        for absent in ["--source", "--physical", "--nice"] {
            assert!(!text.contains(absent), "{absent} means nothing in {command:?}: {text}");
        }
    }
    let text = help(&["report", "schemes"]);
    assert!(text.contains("of several schemes, one file each") && !text.contains("several targets"), "{text}");
    assert!(help(&["report", "heatmap"]).contains("of several targets, one file each"));
    assert!(help(&["hint", "host"]).contains("vsock (port 7482)"));
    assert!(help(&["node"]).contains("two clear each other's bits"));
}

#[test]
fn intervals_that_contradict_each_other() {
    refuses(&["--sample", "10ms", "--aggr", "5ms"], &["aggregation", "sampling"]);
    refuses(&["--update", "10ms"], &["update", "aggregation"]);
}

#[test]
fn intervals_of_zero_or_absurd_length() {
    refuses(&["--sample", "0"], &["sampl"]);
    refuses(&["--sample", "0s"], &["sampl"]);
    refuses(&["--sample", "1us"], &["sampl"]);
    refuses(&["--aggr", "0ms"], &["aggregation"]);
    refuses(&["--aggr", "1000h", "--update", "1000h"], &["day"]);
    refuses(&["--aggr", "99999999999999999999h"], &["--aggr"]);
    refuses(&["--aggr=-5ms"], &["--aggr"]);
    refuses(&["--aggr", "fast"], &["fast"]);
}

#[test]
fn region_counts_that_make_no_sense() {
    refuses(&["--min-regions", "2000", "--max-regions", "100"], &["2000", "100"]);
    refuses(&["--min-regions", "0"], &["regions"]);
    refuses(&["--max-regions", "4294967295"], &["4294967295"]);
    refuses(&["--max-regions", "99999999999999999999"], &["max-regions"]);
    refuses(&["--min-regions=-1"], &["min-regions"]);
}

#[test]
fn budgets_that_make_no_sense() {
    refuses(&["--cpu-budget", "0%"], &["budget"]);
    refuses(&["--cpu-budget=-1%"], &["budget"]);
    refuses(&["--cpu-budget", "nan%"], &["budget"]);
    refuses(&["--cpu-budget", "much"], &["much"]);
}

#[test]
fn unknown_words() {
    refuses(&["--source", "crystal-ball"], &["crystal-ball"]);
    refuses(&["--mode", "psychic"], &["psychic"]);
    refuses(&["--algorithm", "guess"], &["guess"]);
    refuses(&["--frobnicate"], &["--frobnicate"]);
}

#[test]
fn rules_of_an_algorithm_that_does_not_run() {
    refuses(&["--damon-rules", "v12"], &["--damon-rules", "--algorithm damon"]);
}

#[test]
fn targets_that_are_missing_or_contradict_each_other() {
    isotherm(["record"]).expect(2, &["--pid"]);
    isotherm(["record", "--pid", "0"]).expect(2, &["0"]);
    isotherm(["record", "--pid", "99999999999"]).expect(2, &["99999999999"]);
    isotherm(["record", "--pid", "nginx"]).expect(2, &["nginx"]);
    isotherm(["record", "--pid", "1", "--cgroup", "/x"]).expect(2, &["--cgroup"]);
    isotherm(["record", "--pid", "1", "--", "true"]).expect(2, &["--pid"]);
}

#[test]
fn files_and_commands_that_do_not_exist_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let absent = folder.path().join("absent");
    let out = folder.path().join("out.iso");
    isotherm(["report", "heatmap"]).expect(2, &[]);
    isotherm(["report", "heatmap", text(&absent)]).expect(1, &[text(&absent)]);
    isotherm(["convert", text(&absent), text(&out)]).expect(1, &[text(&absent)]);
    isotherm(["record", "-o", text(&out), "--", text(&absent)]).expect(1, &[text(&absent)]);
    isotherm(["record", "-o", text(&out), "--cgroup", text(&absent)]).expect(1, &[text(&absent)]);
    assert!(!out.exists(), "a failed command left a file behind");
}

#[test]
fn a_place_that_cannot_be_written_is_named_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("no/such/folder/r.iso");
    let started = folder.path().join("started");
    let script = format!("touch {}; sleep 600", text(&started));
    isotherm(["record", "-o", text(&file), "--", "sh", "-c", &script]).expect(1, &[text(&file)]);
    assert!(!started.exists(), "the command was started although there is no place for the record");
}

#[test]
fn workloads_that_make_no_sense() {
    isotherm(["workload", "hotspot", "--size", "0", "--duration", "1s"]).expect(2, &["size"]);
    isotherm(["workload", "hotspot", "--size", "1M", "--duration", "0s"]).expect(2, &["duration"]);
    isotherm(["workload", "hotspot", "--size", "1M", "--duration", "1s", "--hot", "2"]).expect(2, &["hot"]);
    isotherm(["workload", "zipf", "--size", "1M", "--duration", "1s", "--theta", "nan"]).expect(2, &["theta"]);
    isotherm(["workload", "polka", "--size", "1M", "--duration", "1s"]).expect(2, &["polka"]);
}
