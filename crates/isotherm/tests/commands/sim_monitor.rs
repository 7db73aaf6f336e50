//! `isotherm sim monitor` as a user runs it.

use crate::common::{Done, isotherm};
use isotherm_record::Record;
use isotherm_sim::accuracy::{HOT_TOUCHES, Score};
use isotherm_sim::workload::truth::Truth;

fn sim(args: &[&str]) -> Done {
    isotherm([&["sim", "monitor"], args].concat())
}

fn figures(args: &[&str]) -> serde_json::Value {
    let done = sim(&[args, &["--json"]].concat());
    serde_json::from_str(&done.expect(0, &[]).stdout).expect("JSON and nothing else")
}

/// Everything but what depends on this machine's speed.
fn repeatable(mut figures: serde_json::Value) -> serde_json::Value {
    figures["computing_share"] = serde_json::Value::Null;
    figures
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for algorithm in ["isotherm", "damon"] {
        let run = |seed| {
            repeatable(figures(&[
                "stairs",
                "--size",
                "16G",
                "--period",
                "1s",
                "--duration",
                "4s",
                "--algorithm",
                algorithm,
                "--seed",
                seed,
            ]))
        };
        let first = run("7");
        assert_eq!(first, run("7"));
        assert_ne!(first, run("8"));
    }
}

#[test]
fn terabytes_fit_into_the_budget_and_are_seen_truly() {
    let f = figures(&["hotspot", "--size", "5T", "--hot", "0.2%", "--duration", "6s", "--seed", "3"]);
    let figure = |name: &str| f[name].as_f64().unwrap_or_else(|| panic!("{name}: {f}"));
    assert!(figure("precision") >= 0.95 && figure("recall") >= 0.95, "{f}");
    assert!(f["converged_intervals"].as_u64().is_some_and(|n| n <= 20), "{f}");
    assert!(figure("monitor_share") + figure("target_share") <= 0.0105, "{f}");
}

#[test]
fn the_record_and_the_truth_tell_what_the_figures_sum_up() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (record, truth) = (path("r.iso"), path("t.json"));
    let f = figures(&["alternate", "--size", "256M", "--duration", "3s", "-o", &record, "--truth", &truth]);
    let record = Record::load(record).unwrap();
    let truth: Truth = serde_json::from_str(&std::fs::read_to_string(truth).unwrap()).unwrap();
    assert!(truth.header.complete);
    let scores: Vec<Score> =
        record.snapshots.iter().map(|s| Score::new(s, truth.header.arena, &truth.slices, HOT_TOUCHES)).collect();
    assert_eq!(f["intervals"].as_u64(), Some(scores.len() as u64));
    let half = &scores[scores.len() / 2..];
    let recall = half.iter().filter_map(Score::recall).sum::<f64>() / half.len() as f64;
    assert!((f["recall"].as_f64().unwrap() - recall).abs() < 1e-9);
    assert_eq!(record.run.unwrap().source, "sim");
}

#[test]
fn huge_pages_and_text_output_work() {
    let out = sim(&["hotspot", "--size", "4G", "--huge", "50%", "--duration", "2s"]);
    let text = &out.expect(0, &[]).stdout;
    assert!(text.contains("recall") && text.contains("converged"), "{text}");
}

#[test]
fn nonsense_is_bad_usage() {
    for args in [
        &["hotspot"] as &[&str],
        &["hotspot", "--size", "1G", "--duration", "0"],
        &["hotspot", "--size", "1G", "--rate", "0"],
        &["hotspot", "--size", "1G", "--rate", "inf"],
        &["hotspot", "--size", "1G", "--huge", "101%"],
        &["hotspot", "--size", "1G", "--source", "refs"],
        &["hotspot", "--size", "1G", "--min-regions", "20", "--max-regions", "10"],
        &["hotspot", "--size", "1G", "--aggr", "1ms"],
        &["hotspot", "--size", "999999T"],
        &["hotspot", "--size", "64M", "--hot-touches", "nan"],
        &["hotspot", "--size", "64M", "--hot-touches", "0"],
        &["hotspot", "--size", "64M", "--rate", "1e-300"],
    ] {
        let out = sim(args);
        assert!(out.expect(2, &[]).stdout.is_empty(), "{args:?}");
    }
}
