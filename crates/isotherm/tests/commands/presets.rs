//! The ready-made schemes as people use them.

use crate::common::{Program, isotherm, resident, start, text, workload};

const PRESETS: [&[&str]; 5] = [
    &["reclaim", "--goal", "psi=0.5%", "--goal", "rss=2G", "--watermarks"],
    &["thp"],
    &["thp", "--advise", "--hot-rate", "20%"],
    &["tier", "--slow-node", "1", "--fast-node", "0", "--goal", "stall=1%"],
    &["tier", "--keep-pages", "--quota", "1M/100ms"],
];

#[test]
fn what_is_printed_is_a_scheme_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.toml");
    for preset in PRESETS {
        let printed = isotherm([preset, &["--print"]].concat());
        printed.expect(0, &[]);
        assert!(printed.stdout.contains("[[scheme]]"), "{preset:?}: {}", printed.stdout);
        std::fs::write(&file, &printed.stdout).unwrap();
        let again = isotherm(["schemes", "--print", "-c", file.to_str().unwrap()]);
        again.expect(0, &[]);
        assert_eq!(again.stdout, printed.stdout, "{preset:?}");
    }
}

#[test]
fn nonsense_is_bad_usage() {
    for (args, words) in [
        (&["reclaim", "--pid", "1", "--goal", "psi=0%"][..], &["goal of 0"][..]),
        (&["reclaim", "--pid", "1", "--quota", "fast"], &["fast"]),
        (&["reclaim", "--pid", "1", "--watermarks=1%,2%,3%"], &["rise"]),
        (&["reclaim"], &["target"]),
        (&["thp", "--pid", "1", "--hot-rate", "0%"], &["--hot-rate"]),
        (&["tier", "--pid", "1", "--hot-rate", "5%", "--cold-rate", "10%"], &["--cold-rate"]),
        (&["tier", "--pid", "1", "--fast-node", "0"], &["--slow-node"]),
    ] {
        isotherm(args).expect(2, words);
    }
}

#[test]
fn root_a_run_that_cannot_be_leaves_statistics_of_an_earlier_one() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (folder.path().join("old.jsonl"), folder.path().join("new.jsonl"));
    std::fs::write(&old, "{}\n").unwrap();
    let gone = Program::gone().to_string();
    for file in [&old, &new] {
        isotherm(["reclaim", "--pid", &gone, "--stats", text(file)]).expect(1, &[&gone]);
    }
    assert_eq!(std::fs::read_to_string(&old).unwrap(), "{}\n");
    assert!(!new.exists(), "a failed command left a file behind");
    let started = folder.path().join("started");
    let script = format!("touch {}; sleep 600", text(&started));
    let nowhere = folder.path().join("no/such/folder.jsonl");
    isotherm(["reclaim", "--stats", text(&nowhere), "--", "sh", "-c", &script]).expect(1, &[text(&nowhere)]);
    assert!(!started.exists(), "the command was started although there is no place for statistics");
}

/// The kernel says EINVAL to a program that wants no huge pages.
#[test]
fn root_what_the_kernel_refuses_is_said() {
    let target = start(&mut workload("hotspot --size 32M --hot 50% --thp no"));
    let pid = target.pid().to_string();
    // As long as it takes until something was tried; blocks are known after two walks.
    let done = isotherm(["thp", "--ahead", "never", "--json", "--duration", "20s", "--pid", &pid]);
    done.expect(0, &[]);
    // The one that goes by the page history, which always has the same blocks.
    let line = &done.json_lines()[1];
    assert!(line["sz_tried"] != 0, "{line}");
    assert_eq!((&line["sz_applied"], &line["idle_code"]), (&0.into(), &"refused".into()), "{line}");
}

#[test]
fn root_reclaim_pages_nothing_out_that_is_in_use() {
    let target = start(&mut workload("hotspot --size 64M --hot 10%"));
    let pid = target.pid().to_string();
    let done = isotherm([
        "reclaim",
        "--dry-run",
        "--json",
        "--min-age",
        "1s",
        "--quota-time",
        "none",
        "--duration",
        "8s",
        "--pid",
        &pid,
    ]);
    done.expect(0, &[]);
    let applied = done.json_lines()[0]["sz_applied"].as_u64().unwrap();
    // The program's own memory may be idle as well, its code as far as nobody else maps it; of the hot tenth, 6.4 MiB, no more than half
    // may be missing from what stays.
    let (resident, hot) = (resident(target.pid()), (64u64 << 20) / 10);
    assert!(
        applied > 20 << 20 && applied + hot / 2 < resident,
        "{applied} of {resident} bytes would have been paged out"
    );
}
