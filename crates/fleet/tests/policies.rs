//! `isotherm-fleet what-if` and `tune` against a plain replay of the rows, window by window, by the rules that the agents use.

mod common;

use common::{Row, json, rows, simulate};
use isotherm_core::scheme::threshold::{NONE, SeenWindow, Threshold, ThresholdPolicy};
use serde_json::Value;

/// What a policy would have done.
#[derive(Debug, Default, Clone, Copy)]
struct Replayed {
    saved: f64,
    windows: u64,
    broken: u64,
    promoted: f64,
}

/// Of windows in `part` of time; `hosts_s`: for how long each host was watched.
fn replay(rows: &[Row], policy: &ThresholdPolicy, hosts_s: f64, part: impl Fn(u64) -> bool) -> Replayed {
    let mut all = Replayed::default();
    for group in rows.chunk_by(|a, b| a.group == b.group) {
        let mut threshold = Threshold::default();
        for row in group {
            let entry = threshold.entry(policy, row.start_s);
            if let Some(entry) = entry.filter(|entry| *entry != NONE && part(row.start_s)) {
                all.saved += row.cold[entry].unwrap_or(0) as f64 * row.window_s as f64 / hosts_s;
                if let Some((promoted, accessed)) = row.promoted[entry].zip(row.accessed) {
                    all.windows += 1;
                    all.promoted += promoted as f64;
                    let allowed = policy.rate * accessed as f64 * row.window_s as f64;
                    all.broken += u64::from(promoted as f64 * 60.0 > allowed);
                }
            }
            let (start_s, window_s) = (row.start_s, row.window_s);
            threshold.see(&SeenWindow { start_s, window_s, accessed: row.accessed, promoted: &row.promoted }, policy);
        }
    }
    all
}

fn same(line: &Value, want: &Replayed, what: &str) {
    let saved = line["saved_bytes"].as_f64().unwrap();
    assert!((saved - want.saved).abs() <= 2.0 + want.saved * 1e-6, "{what}: saved {saved}, {want:?}");
    assert_eq!(line["windows"].as_u64(), Some(want.windows), "{what}: {want:?}");
    assert_eq!(line["windows_over_limit"].as_u64(), Some(want.broken), "{what}: {want:?}");
}

#[test]
fn a_policy_does_what_an_agent_would_do() {
    let folder = tempfile::tempdir().unwrap();
    let made = simulate(folder.path(), "--hosts 4 --hours 14 --seed 5 --groups 24");
    let rows = rows(&made);
    let hosts_s = 14.0 * 3600.0;
    for (k, warmup, rate) in
        [("98", "20m", 0.002), ("50", "0s", 0.002), ("90", "2h", 0.0005), ("100", "10m", 0.01), ("0", "0s", 0.002)]
    {
        let warmup_s =
            [("20m", 1200), ("0s", 0), ("2h", 7200), ("10m", 600)].into_iter().find(|w| w.0 == warmup).unwrap().1;
        let policy = ThresholdPolicy { rate, percentile: k.parse::<f64>().unwrap() / 100.0, warmup_s };
        let want = replay(&rows, &policy, hosts_s, |_| true);
        assert!(want.windows > 1000 && want.saved > 1e9, "{want:?}");
        let rate = format!("{}%/min", rate * 100.0);
        let lines = json(&[
            "what-if",
            made.to_str().unwrap(),
            "--percentile",
            k,
            "--warmup",
            warmup,
            "--rate",
            &rate,
            "--json",
        ]);
        same(&lines[0], &want, &format!("{k} {warmup} {rate}"));
        let of_jobs: f64 = lines[1..].iter().map(|job| job["saved_bytes"].as_f64().unwrap()).sum();
        assert!((of_jobs / want.saved - 1.0).abs() < 1e-6, "jobs {of_jobs}, {want:?}");
    }
}

#[test]
fn what_if_and_report_agree_on_what_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let made = simulate(folder.path(), "--hosts 3 --hours 5 --seed 8 --groups 10");
    let made = made.to_str().unwrap();
    let (report, what_if) = (&json(&["report", made, "--json"])[0], &json(&["what-if", made, "--json"])[0]);
    assert_eq!((&report["resident_bytes"], &report["hosts"]), (&what_if["resident_bytes"], &what_if["hosts"]));
}

/// The optimum of a fleet whose every window is known: found by replaying each policy of the grid over its rows.
#[test]
fn tune_finds_the_planted_optimum_and_states_what_it_is_worth_later() {
    let folder = tempfile::tempdir().unwrap();
    let made = simulate(folder.path(), "--hosts 6 --hours 48 --seed 4 --groups 16");
    let rows = rows(&made);
    let (percentiles, warmups, over) = ([0.5, 0.9, 0.98], [0u64, 3600], 0.05);
    let rules = folder.path().join("node.toml");
    let lines = json(&[
        "tune",
        made.to_str().unwrap(),
        "--percentiles",
        "98,50,90,50",
        "--warmups",
        "1h,0s,1h",
        "--over",
        "5%",
        "--json",
        "--rules",
        rules.to_str().unwrap(),
    ]);
    let choice = &lines[0];
    let split_s = choice["split_s"].as_u64().unwrap();
    assert_eq!((choice["kind"].as_str(), split_s % 86_400), (Some("choice"), 0));
    // All hosts are watched all the time.
    let train_s = (split_s - rows.iter().map(|row| row.start_s).min().unwrap()) as f64;
    assert_eq!(lines.len(), 1 + percentiles.len() * warmups.len(), "what is given twice is tried once");
    let (mut best, mut best_later) = (None::<(f64, f64, u64)>, 0.0f64);
    for k in percentiles {
        for warmup_s in warmups {
            let policy = ThresholdPolicy { rate: 0.002, percentile: k, warmup_s };
            let train = replay(&rows, &policy, train_s, |start_s| start_s < split_s);
            let test = replay(&rows, &policy, 48.0 * 3600.0 - train_s, |start_s| start_s >= split_s);
            let line = lines
                .iter()
                .find(|l| l["kind"] == "tried" && l["percentile"] == k && l["warmup_s"] == warmup_s)
                .unwrap();
            same(&line["train"], &train, &format!("{k} {warmup_s} train"));
            same(&line["test"], &test, &format!("{k} {warmup_s} test"));
            let keeps = |r: &Replayed| r.windows > 0 && r.broken as f64 <= over * r.windows as f64;
            if keeps(&train) && best.is_none_or(|(saved, ..)| train.saved > saved) {
                best = Some((train.saved, k, warmup_s));
            }
            if keeps(&test) {
                best_later = best_later.max(test.saved);
            }
        }
    }
    let (saved, k, warmup_s) = best.expect("a policy keeps the limit");
    assert_eq!((choice["percentile"].as_f64(), choice["warmup_s"].as_u64()), (Some(k), Some(warmup_s)));
    assert!((choice["train"]["saved_bytes"].as_f64().unwrap() / saved - 1.0).abs() < 1e-6);
    let regret = 1.0 - choice["test"]["saved_bytes"].as_f64().unwrap() / best_later;
    assert!((choice["regret"].as_f64().unwrap() - regret).abs() < 1e-6, "{} {regret}", choice["regret"]);
    let text = std::fs::read_to_string(rules).unwrap();
    assert!(text.contains(&format!("percentile = {}", k * 100.0)) && text.contains("rate = \"0.2%/min\""), "{text}");
}

#[test]
fn a_limit_that_nothing_keeps_is_said_and_no_rules_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let made = simulate(folder.path(), "--hosts 2 --hours 6 --seed 4 --groups 16");
    let rules = folder.path().join("node.toml");
    let done = common::fleet(&[
        "tune",
        made.to_str().unwrap(),
        "--percentiles",
        "0",
        "--warmups",
        "0s",
        "--over",
        "0%",
        "--rules",
        rules.to_str().unwrap(),
    ]);
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    assert!(String::from_utf8_lossy(&done.stderr).contains("no policy of the grid keeps the limit"), "{done:?}");
    assert!(!rules.exists());
    for bad in [
        ["--test", "100%"],
        ["--over", "200%"],
        ["--warmups", "0s,1m,2m,3m,4m,5m,6m"],
        ["--rate", "0.2%"],
        ["--percentiles", "101"],
        ["--warmups", "0.5s"],
    ] {
        let done = common::fleet(&[&["tune", made.to_str().unwrap()][..], &bad].concat());
        assert_eq!((done.status.code(), done.stdout.len()), (Some(2), 0), "{bad:?} {done:?}");
    }
}
