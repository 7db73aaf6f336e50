//! `isotherm sim schemes` as a user runs it.

use crate::common::{Done, command, isotherm, start, text, wait_until};

const PRCL: &str = "4K null null 5 5s null pageout";
const SMALL: &[&str] = &["hotspot", "--size", "64M", "--rate", "2e6", "--duration", "20s"];

fn sim(args: &[&str]) -> Done {
    isotherm([&["sim", "schemes"], args].concat())
}

fn lines(args: &[&str]) -> Vec<serde_json::Value> {
    sim(&[args, &["--json"]].concat()).expect(0, &[]).json_lines()
}

#[test]
fn cold_memory_goes_and_the_same_seed_gives_the_same_figures() {
    let args = [SMALL, &["--scheme", PRCL, "--seed", "7"]].concat();
    let f = &lines(&args)[0];
    let figure = |name: &str| f[name].as_f64().unwrap_or_else(|| panic!("{name}: {f}"));
    assert!(figure("rss_ratio") < 0.75 && figure("rss_at_end") < 16e6, "{f}");
    assert!((1.0..1.02).contains(&figure("runtime_ratio")), "{f}");
    assert!(figure("memory_ratio") > figure("rss_ratio"), "{f}");
    assert_eq!(f["alone"]["slowdown"], 1.0);
    assert_eq!(f["schemes"][0]["action"], "pageout");
    assert_eq!(f, &lines(&args)[0]);
}

#[test]
fn statistics_are_those_of_a_real_run_and_can_be_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (stats, svg) = (path("s.jsonl"), path("p.svg"));
    let out = sim(&[SMALL, &["--scheme", PRCL, "--stats", &stats, "--svg", &svg]].concat());
    let text = &out.expect(0, &[]).stdout;
    assert!(text.contains("of that without schemes") && text.contains("scheme 0 (pageout): tried"), "{text}");
    let written = std::fs::read_to_string(&stats).unwrap();
    assert!((19..=24).contains(&written.lines().count()), "one a second: {}", written.lines().count());
    assert!(std::fs::read_to_string(&svg).unwrap().contains("resident memory"));
    isotherm(["report", "schemes", &stats]).expect(0, &[]);
}

#[test]
fn choices_are_compared_and_their_mean_is_geometric() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("slow.toml");
    std::fs::write(
        &file,
        "[[scheme]]\naction = \"pageout\"\n[scheme.pattern]\nage = [\"10s\", \"max\"]\naccess_rate = [0, 0]\n",
    )
    .unwrap();
    let svg = dir.path().join("t.svg").display().to_string();
    let choices = ["--scheme", PRCL, "-c", file.to_str().unwrap(), "--compare"];
    let args = [SMALL, &choices, &["--also", "stairs", "--svg", &svg]].concat();
    let all = lines(&args);
    assert_eq!(all.len(), 2 * 2 + 2);
    let ratio = |pattern: &str, schemes: &str| {
        let line = all.iter().find(|l| l["pattern"] == pattern && l["schemes"] == schemes);
        line.unwrap_or_else(|| panic!("{pattern} {schemes}"))["rss_ratio"].as_f64().unwrap()
    };
    assert!(ratio("hotspot", PRCL) < ratio("hotspot", "slow"), "{all:?}");
    let mean = all.last().unwrap();
    assert_eq!((&mean["schemes"], &mean["cases"]), (&"slow".into(), &2.into()));
    let expected = (ratio("hotspot", "slow") * ratio("stairs", "slow")).sqrt();
    assert!((mean["geometric_mean"]["rss_ratio"].as_f64().unwrap() - expected).abs() < 1e-9);
    assert!(std::fs::read_to_string(&svg).unwrap().contains("slow"));
    let text = sim(&args).stdout;
    assert!(text.contains("geometric mean") && text.lines().count() == 7, "{text}");
}

#[test]
fn what_a_file_says_about_watching_counts() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.toml");
    let write = |monitor: &str| {
        let scheme = "[[scheme]]\naction = \"stat\"\n";
        std::fs::write(&file, format!("[monitor]\n{monitor}\n{scheme}")).unwrap();
        let f = lines(&[SMALL, &["-c", file.to_str().unwrap()]].concat()).remove(0);
        f["monitor_share"].as_f64().unwrap()
    };
    assert!(write("cpu_budget = \"0.1%\"") < write("cpu_budget = \"2%\""));
}

#[test]
fn a_machine_can_be_too_small_and_have_a_slower_node() {
    let run = |args: &[&str]| lines(&[SMALL, args].concat()).remove(0);
    let f = run(&["--hot", "20%", "--memory", "48M", "--scheme", "min max min min 2s max pageout"]);
    assert!(f["alone"]["swapped_at_end"].as_u64() > Some(16 << 20), "what does not fit is out from the start: {f}");
    assert!(f["memory_ratio"].as_f64() < Some(0.9), "{f}");
    let out = sim(&[SMALL, &["--memory", "32M", "--swap", "none", "--scheme", PRCL]].concat());
    out.expect(1, &["out of memory"]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tier.toml");
    let tier = isotherm(["tier", "--slow-node", "1", "--cold-age", "3s", "--print"]);
    std::fs::write(&file, tier.stdout).unwrap();
    let f = run(&["-c", file.to_str().unwrap(), "--slow-node", "64M"]);
    assert!(f["rss_fast_ratio"].as_f64() < Some(0.6) && f["rss_ratio"] == 1.0, "{f}");
    assert!(f["runtime_ratio"].as_f64() < Some(0.9), "hot memory is in huge pages: {f}");
    let tried = f["schemes"][1]["sz_tried"].as_u64().unwrap();
    assert!(tried < 4 * (64 << 20), "what has moved is not moved again and again: {f}");
}

#[test]
fn nonsense_is_bad_usage() {
    let with = |extra: &[&'static str]| [SMALL, &["--scheme", PRCL], extra].concat();
    for args in [
        vec!["hotspot", "--size", "1G"],
        vec!["hotspot", "--scheme", PRCL],
        vec!["hotspot", "--size", "1G", "--scheme", "4K max"],
        with(&["--duration", "0"]),
        with(&["--rate", "0"]),
        with(&["--rate", "nan"]),
        with(&["--memory", "1M"]),
        with(&["--ratio", "0.5"]),
        with(&["--swap", "ssd", "--ratio", "3"]),
        with(&["--swap", "tape"]),
        with(&["--swap-read", "2s"]),
        with(&["--huge-gain", "100%"]),
        with(&["--source", "refs"]),
        with(&["--also", "zipf"]),
        with(&["--compare", "--runs", "0"]),
        with(&["--compare", "--stats", "x"]),
        with(&["--rate", "1e-300"]),
        with(&["--stats", "-", "--json"]),
    ] {
        let out = sim(&args);
        out.expect(2, &[]);
        assert!(out.stdout.is_empty() && !out.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn what_cannot_be_read_or_written_is_named() {
    let out = sim(&[SMALL, &["-c", "/nowhere/at/all.toml"]].concat());
    out.expect(1, &["/nowhere/at/all.toml"]);
    let out = sim(&[SMALL, &["--scheme", PRCL, "--stats", "/nowhere/at/all.jsonl"]].concat());
    out.expect(1, &["/nowhere/at/all.jsonl"]);
}

#[test]
fn a_target_in_the_file_is_said_to_be_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.toml");
    std::fs::write(&file, "[target]\npid = [1]\n[[scheme]]\naction = \"stat\"\n").unwrap();
    sim(&[SMALL, &["-c", text(&file)]].concat()).expect(0, &["[target]", "simulated"]);
}

/// SIGINT in a mask of signals.
const SIGINT: u64 = 1 << 1;

/// A mask of signals in a process's status file.
fn status_mask(pid: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[test]
fn half_a_run_is_compared_with_nothing() {
    let args = ["hotspot", "--size", "64M", "--rate", "2e6", "--duration", "1000h", "--scheme", PRCL];
    let running = start(&mut command([&["sim", "schemes"][..], &args].concat()));
    wait_until("it heeds signals", || status_mask(running.pid(), "SigCgt") & SIGINT != 0);
    running.signal("INT");
    let done = running.finish();
    done.expect(1, &["interrupted"]);
    assert!(!done.stdout.contains("runtime "), "{done:#?}");
}
