//! What reports write beside what they read: never in its place, never one in the place of another, and nothing of a target of
//! which nothing is known.

use crate::common::{command, isotherm, run, text};
use crate::report::{Scene, scene, snapshot};
use isotherm_core::event::Event;
use isotherm_core::snapshot::Snapshot;
use isotherm_core::target::TargetInfo;
use isotherm_record::{Options, Rotation, Writer};
use std::fs;
use std::path::Path;

/// A record of two parts.
fn two_parts(path: &Path) {
    let rotation = Rotation { max_bytes: None, max_age_ns: Some(2_000_000_000), keep: None };
    let mut writer = Writer::create(path, Options { rotation: Some(rotation), ..Options::default() }).unwrap();
    let name = "server".to_owned();
    writer.write(&Event::Target(TargetInfo { target: 0, pid: Some(100), name })).unwrap();
    (0..30).for_each(|i| writer.write(&Event::Snapshot(snapshot(0, i))).unwrap());
    writer.finish().unwrap();
}

#[test]
fn no_report_takes_the_place_of_its_record() {
    let s = scene(1, 30);
    let whole = fs::read(&s.file).unwrap();
    let there = text(&s.file);
    let same = s.path("link.iso");
    std::os::unix::fs::symlink(&s.file, &same).unwrap();
    for kind in ["heatmap", "wss", "regions"] {
        for option in ["--svg", "--png"] {
            s.report(&[kind, option, there]).expect(2, &[option, "r.iso", "name another file"]);
        }
    }
    for kind in ["heatmap", "wss", "summary"] {
        s.report(&[kind, "--html", text(&same)]).expect(2, &["--html", "link.iso", "name another file"]);
    }
    let script = format!("'{}' report summary - --html '{there}' <'{there}'", env!("CARGO_BIN_EXE_isotherm"));
    run(std::process::Command::new("sh").args(["-c", &script])).expect(2, &["--html", "name another file"]);
    assert_eq!(fs::read(&s.file).unwrap(), whole);
}

#[test]
fn no_report_takes_the_place_of_a_part() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.iso");
    two_parts(&path);
    let second = folder.path().join("r.iso.1");
    let whole = fs::read(&second).unwrap();
    for args in [
        ["report", "heatmap", text(&path), "--svg", text(&second)],
        ["report", "wss", text(&path), "--png", text(&second)],
    ] {
        isotherm(args).expect(2, &["r.iso.1", "name another file"]);
    }
    isotherm(["convert", text(&path), text(&second), "--to", "iso"]).expect(2, &["r.iso.1"]);
    assert_eq!(fs::read(&second).unwrap(), whole);
}

#[test]
fn no_two_outputs_go_to_one_place() {
    let s = scene(1, 30);
    let file = s.path("x");
    let file = text(&file);
    s.report(&["heatmap", "--svg", file, "--png", file]).expect(2, &["--svg and --png name the same file"]);
    s.report(&["heatmap", "--svg", file, "--html", file]).expect(2, &["--svg and --html name the same file"]);
    s.report(&["wss", "--svg", "-", "--png", "-"]).expect(2, &["--svg and --png", "standard output"]);
    s.report(&["summary", "--html", "-", "--json"]).expect(2, &["--html and --json", "standard output"]);
    assert!(!Path::new(file).exists(), "nothing is written before that is said");
}

#[test]
fn standard_output_takes_one_picture() {
    let s = scene(2, 30);
    for kind in ["heatmap", "wss", "regions"] {
        for option in ["--svg", "--png"] {
            let mut command = command(["report", kind, text(&s.file), option, "-"]);
            let done = run(command.current_dir(s.folder.path()));
            assert!(done.expect(2, &[option, "one picture", "--target"]).stdout.is_empty(), "{done:?}");
        }
        let one = s.report(&[kind, "--svg", "-", "--target", "1"]);
        assert!(one.expect(0, &[]).stdout.starts_with("<svg"), "{kind}");
    }
    assert_eq!(fs::read_dir(s.folder.path()).unwrap().count(), 1, "no file of a name like --0");
}

#[test]
fn statistics_do_not_take_the_place_of_schemes_nor_pictures_that_of_statistics() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (schemes, stats, trace) = (path("sc.txt"), path("s.jsonl"), path("t.csv"));
    fs::write(&schemes, "4K null null 5 5s null pageout\n").unwrap();
    let small = ["--duration", "2s", "--rate", "1e5", "--size", "16M"];
    let sim = |more: &[&str]| isotherm([&["sim", "schemes", "hotspot", "-c", &schemes], &small[..], more].concat());
    sim(&["--stats", &schemes]).expect(2, &["--stats", "sc.txt", "name another file"]);
    sim(&["--svg", &schemes]).expect(2, &["--svg", "sc.txt"]);
    sim(&["--svg", &schemes, "--compare"]).expect(2, &["--svg", "sc.txt"]);
    isotherm(["schemes", "-c", &schemes, "--pid", "1", "--stats", &schemes]).expect(2, &["--stats", "sc.txt"]);
    isotherm(["tune", "-c", &schemes, "-o", &schemes, "--", "true"]).expect(2, &["--output", "sc.txt"]);
    assert_eq!(fs::read_to_string(&schemes).unwrap(), "4K null null 5 5s null pageout\n");
    sim(&["--stats", &stats]).expect(0, &[]);
    isotherm(["report", "schemes", &stats, "--svg", &stats]).expect(2, &["--svg", "s.jsonl"]);

    fs::write(&trace, "page\n1\n2\n1\n").unwrap();
    for option in ["--save", "--svg"] {
        isotherm(["sim", "lru", "--trace", &trace, "--size", "1", option, &trace]).expect(2, &[option, "t.csv"]);
    }
    assert_eq!(fs::read_to_string(&trace).unwrap(), "page\n1\n2\n1\n");
}

/// Target 0 was watched for 3 s, target 1 for the first second, and of target 2 no memory was seen.
fn some_of_three() -> Scene {
    let s = scene(0, 0);
    let mut writer = Writer::create(&s.file, Options::default()).unwrap();
    for target in 0..3 {
        let name = format!("program-{target}");
        writer.write(&Event::Target(TargetInfo { target, pid: Some(100 + target), name })).unwrap();
    }
    for i in 0..30 {
        writer.write(&Event::Snapshot(snapshot(0, i))).unwrap();
        if i < 10 {
            writer.write(&Event::Snapshot(snapshot(1, i))).unwrap();
            writer.write(&Event::Snapshot(Snapshot { regions: Vec::new(), ..snapshot(2, i) })).unwrap();
        }
    }
    writer.finish().unwrap();
    s
}

#[test]
fn a_target_of_which_nothing_is_known_does_not_hide_the_others() {
    let s = some_of_three();
    let done = s.report(&["heatmap"]);
    done.expect(0, &["program-2", "no memory of it was recorded"]);
    assert!(done.stdout.contains("program-0") && done.stdout.contains("program-1"), "{done:?}");
    let late = ["--time-range", "2s-3s"];
    let done = s.report(&[&["heatmap"], &late[..]].concat());
    done.expect(0, &["program-1", "it was watched from 0 ns to 1.00 s", "program-2"]);
    assert!(done.stdout.contains("program-0") && !done.stdout.contains("program-1"), "{done:?}");

    let json = s.report(&[&["heatmap", "--json"], &late[..]].concat());
    assert_eq!(json.expect(0, &["program-1"]).json_lines().len(), 1);
    let png = s.path("p.png");
    s.report(&[&["heatmap", "--png", text(&png)], &late[..]].concat()).expect(0, &["p-0.png", "program-1"]);
    assert!(s.path("p-0.png").exists() && !s.path("p-1.png").exists());
    let html = s.path("p.html");
    for more in [&late[..], &[]] {
        s.report(&[&["heatmap", "--html", text(&html)], more].concat()).expect(0, &["p.html"]);
        let page = fs::read_to_string(&html).unwrap();
        assert!(page.contains("program-2 (pid 102): no") && page.contains("program-0"), "{more:?}");
    }
    s.report(&["summary", "--html", text(&html)]).expect(0, &["p.html"]);

    for more in [&["--target", "1"][..], &["--target", "1", "--html", "-"]] {
        let done = s.report(&[&["heatmap"], &late[..], more].concat());
        assert!(done.expect(1, &["program-1", "it was watched"]).stdout.is_empty(), "{done:?}");
    }
    s.report(&["heatmap", "--time-range", "50s-60s"]).expect(1, &["the record holds 0 to 3.00 s"]);
}

#[test]
fn what_is_asked_for_is_written_and_printed() {
    let s = scene(1, 30);
    let (html, svg) = (s.path("p.html"), s.path("p.svg"));
    for args in [
        &["summary", "--html", text(&html)][..],
        &["heatmap", "--svg", text(&svg), "--html", text(&html)],
        &["wss", "--svg", text(&svg), "--html", text(&html)],
        &["regions", "--svg", text(&svg)],
    ] {
        let done = s.report(&[args, &["--json"]].concat());
        assert!(!done.expect(0, &["wrote"]).json_lines().is_empty(), "{args:?}");
        assert!(s.report(args).expect(0, &["wrote"]).stdout.is_empty(), "{args:?}");
    }
    for option in [&["--min-rate", "5%"][..], &["--skip", "3"], &["--percentiles", "50"], &["--sort", "time"]] {
        s.report(&[&["wss", "--html", text(&html)], option].concat()).expect(2, &["cannot be used with", option[0]]);
    }
    s.report(&["wss", "--min-rate", "200%"]).expect(2, &["more than 100 %"]);
    s.report(&["wss", "--min-rate", "100%"]).expect(0, &[]);
}
