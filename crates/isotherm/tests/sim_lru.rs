//! `isotherm sim lru` as a user runs it.

mod common;

use common::{Done, isotherm, text};
use serde_json::Value;
use std::path::Path;

fn sim(args: &[&str]) -> Done {
    isotherm([&["sim", "lru"], args].concat())
}

#[track_caller]
fn figures(args: &[&str]) -> Vec<Value> {
    let done = sim(&[args, &["--json"]].concat());
    done.expect(0, &[]);
    done.json_lines()
}

fn write(path: &Path, pages: impl Iterator<Item = u64>) {
    let lines: String = pages.map(|p| format!("{p}\n")).collect();
    std::fs::write(path, format!("page\n{lines}")).expect("writes");
}

/// A trace whose counts are known: LRU, FIFO and CLOCK miss every request of a loop that does not fit, the optimum does not.
#[test]
fn counts_of_a_loop() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("loop.csv");
    write(&file, (0..505_500).map(|i| i % 1011));
    let lines = figures(&["--trace", text(&file), "--policy", "lru,fifo,clock,opt", "--size", "202,100%"]);
    let seen: Vec<_> = lines.iter().map(|l| (l["policy"].as_str(), l["size"].as_u64(), l["misses"].as_u64())).collect();
    let row = |p, s, m| (Some(p), Some(s), Some(m));
    assert_eq!(
        seen,
        [
            row("lru", 202, 505_500),
            row("lru", 1011, 1011),
            row("fifo", 202, 505_500),
            row("fifo", 1011, 1011),
            row("clock", 202, 505_500),
            row("clock", 1011, 1011),
            row("opt", 202, 405_000),
            row("opt", 1011, 1011),
        ]
    );
    for line in lines {
        assert_eq!(line["requests"], 505_500);
        let ratio = line["misses"].as_f64().unwrap() / 505_500.0;
        assert!((line["miss_ratio"].as_f64().unwrap() - ratio).abs() < 1e-12);
        assert!(line["seconds"].as_f64().unwrap() >= 0.0);
        assert_eq!(line["refaults"].as_u64().unwrap() + 1011, line["misses"].as_u64().unwrap());
    }
}

#[test]
fn every_policy_runs_by_its_name() {
    let all = "lru,fifo,clock,2q,arc,lirs,s3fifo,sieve,wtinylfu,classic,mglru,opt";
    let lines = figures(&["--generate", "zipf:pages=2000,requests=30000", "--policy", all, "--size", "10%"]);
    let names: Vec<&str> = lines.iter().map(|l| l["policy"].as_str().unwrap()).collect();
    assert_eq!(names.join(","), all);
    let misses = |name: &str| {
        let line = lines.iter().find(|l| l["policy"] == name).unwrap();
        line["misses"].as_u64().unwrap()
    };
    assert!(lines.iter().all(|l| l["misses"].as_u64().unwrap() >= misses("opt")), "{lines:?}");
    assert!(misses("sieve") < misses("lru"), "SIEVE beats LRU on skewed loads");
    let mglru = lines.iter().find(|l| l["policy"] == "mglru").unwrap();
    assert!(mglru["ptes_read"].as_u64().unwrap() > 0 && mglru["pages_scanned"].as_u64().unwrap() > 0);
}

#[test]
fn how_pages_are_reached_matters_to_mglru() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fd.csv");
    let lines: String = (0..30_000u64).map(|i| format!("{},r,fd,file\n", i * i % 3001)).collect();
    std::fs::write(&file, format!("page,op,channel,type\n{lines}")).unwrap();
    let lines = figures(&["--trace", text(&file), "--policy", "mglru", "--size", "30%"]);
    assert_eq!(lines[0]["ptes_read"], 0, "files that are read have no page tables: {lines:?}");
}

#[test]
fn the_same_seed_gives_the_same_figures() {
    let run = |seed: &str| {
        let spec = format!("ycsb-e:pages=3000,requests=20000,seed={seed}");
        let mut lines = figures(&["--generate", &spec, "--size", "5%,20%"]);
        lines.iter_mut().for_each(|l| l["seconds"] = Value::Null);
        lines
    };
    assert_eq!(run("1"), run("1"));
    assert_ne!(run("1"), run("2"));
}

#[test]
fn a_sample_says_how_far_off_it_may_be() {
    let args = ["--generate", "zipf:pages=50K,requests=500K,theta=0.7", "--policy", "lru", "--size", "20%"];
    let whole = &figures(&args)[0];
    let sample = &figures(&[&args[..], &["--sample-rate", "10%"]].concat())[0];
    assert!(whole.get("miss_ratio_error").is_none() && whole.get("sample_rate").is_none());
    assert_eq!(sample["sample_rate"], 0.1);
    assert_eq!(sample["requests"], whole["requests"]);
    let ratio = |l: &Value| l["miss_ratio"].as_f64().unwrap();
    let error = sample["miss_ratio_error"].as_f64().unwrap();
    assert!(error > 0.0 && error < 0.1, "{sample}");
    assert!((ratio(whole) - ratio(sample)).abs() < 2.0 * error, "{whole} {sample}");
}

#[test]
fn people_get_a_table_and_a_picture() {
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("curves.svg");
    let args =
        ["--generate", "loop:pages=100,requests=1000", "--policy", "lru,opt", "--size", "10,50", "--svg", text(&svg)];
    let done = sim(&args);
    done.expect(0, &["curves.svg"]);
    assert!(done.stdout.contains("1000 requests for 100 pages"), "{done:?}");
    assert!(done.stdout.contains("miss ratio") && done.stdout.contains("1.0000"), "{done:?}");
    let svg = std::fs::read_to_string(svg).unwrap();
    assert!(svg.contains("lru") && svg.contains("opt") && svg.ends_with("</svg>\n"));
}

#[test]
fn a_record_is_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.iso");
    isotherm(["sim", "monitor", "hotspot", "--size", "64M", "--hot", "10%", "--duration", "2s", "-o", text(&file)])
        .expect(0, &[]);
    let lines = figures(&["--trace", text(&file), "--policy", "lru", "--size", "50%,100%"]);
    assert!(lines[0]["requests"].as_u64().unwrap() > 0);
    assert_eq!(lines[1]["refaults"], 0, "everything fits");
}

#[test]
fn broken_traces_are_named_with_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broken");
    let path = text(&file);
    sim(&["--trace", path]).expect(1, &[path]);
    for (content, words) in [
        (&b""[..], &["empty"][..]),
        (b"hello", &["page", "lackey"]),
        (b"page\n1\nx\n", &["line 3", "'x'"]),
        (b"I  0400,3\nhello\n", &["line 2", "--log-file"]),
        (&[0xff; 25], &["byte 24"]),
        (b"\x28\xb5\x2f\xfdrubbish", &["zstd"]),
    ] {
        std::fs::write(&file, content).unwrap();
        sim(&["--trace", path]).expect(1, &[&[path], words].concat());
    }
}

#[test]
fn usage_that_makes_no_sense() {
    let generated = ["--generate", "loop:pages=100,requests=1000"];
    let with = |args: &[&'static str]| sim(&[&generated, args].concat());
    sim(&[]).expect(2, &["--trace"]);
    sim(&["--trace", "a", "--generate", "loop"]).expect(2, &["--generate"]);
    sim(&["--generate", "polka"]).expect(2, &["polka", "uniform"]);
    with(&["--policy", "polka"]).expect(2, &["polka", "lru"]);
    with(&["--size", "0"]).expect(2, &["--size"]);
    with(&["--size", "0%"]).expect(2, &["--size"]);
    with(&["--size", "-1"]).expect(2, &[]);
    with(&["--size", "9G"]).expect(2, &["--size"]);
    with(&["--sample-rate", "0%"]).expect(2, &["--sample-rate"]);
    with(&["--sample-rate", "101%"]).expect(2, &["--sample-rate"]);
    with(&["--sample-rate", "nan%"]).expect(2, &["--sample-rate"]);
    with(&["--size", "1", "--sample-rate", "50%"]).expect(2, &["--sample-rate"]);
    with(&["--limit", "0"]).expect(2, &["--limit"]);
}
