//! `isotherm report` on records whose content is known.

use crate::common::{self, command, isotherm, run, text};
use isotherm_core::addr::AddrRange;
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::event::{Event, Mode, MonitorStats, RunInfo};
use isotherm_core::history::frame::{IdlePages, MappingPages, PageAges, PageFrame, TablePages};
use isotherm_core::history::times::AGES_NS;
use isotherm_core::mapping::{Mapping, MappingKind};
use isotherm_core::snapshot::{Evidence, RegionInfo, Snapshot};
use isotherm_core::target::{Footprint, TargetInfo};
use isotherm_record::{Options, Writer};
use std::path::{Path, PathBuf};
use std::process::Stdio;

const MIB: u64 = 1 << 20;
const HEAP: u64 = 0x5500_0000_0000;
const BLOB: u64 = 0x7f00_0000_0000;
const KINDS: [&str; 6] = ["raw", "access", "heatmap", "wss", "regions", "summary"];

/// `targets` targets, each watched for `intervals`: a 64 MiB heap of which a window of 8 MiB is hot, moving up every
/// ten intervals; 32 MiB that cannot be observed; and 16 GiB of which no page was ever present.
pub fn record(path: &Path, targets: u32, intervals: u64) {
    let mut writer = Writer::create(path, Options::default()).unwrap();
    let run = RunInfo {
        source: "sim".into(),
        algorithm: "isotherm".into(),
        attrs: MonitorAttrs::default(),
        cpu_budget: Some(0.01),
        kernel: "6.1.0".into(),
        realtime_offset_ns: 1_700_000_000_000_000_000,
    };
    writer.write(&Event::Run(run)).unwrap();
    for target in 0..targets {
        let name = format!("/usr/bin/server <{target}> & \"more\"");
        writer.write(&Event::Target(TargetInfo { target, pid: Some(100 + target), name })).unwrap();
        let heap = Mapping { name: "[heap]".into(), ..Mapping::anon(HEAP, HEAP + 64 * MIB) };
        let blob =
            Mapping { kind: MappingKind::Shmem, name: "/dev/shm/blob".into(), ..Mapping::anon(BLOB, BLOB + 32 * MIB) };
        let reserve = Mapping::anon(BLOB + 64 * MIB, BLOB + 64 * MIB + (16 << 30));
        writer.write(&Event::Mappings { time_ns: 0, target, mappings: vec![heap, blob, reserve] }).unwrap();
    }
    for i in 0..intervals {
        for target in 0..targets {
            writer.write(&Event::Snapshot(snapshot(target, i))).unwrap();
            if i % 10 == 0 {
                let time_ns = (i + 1) * 100_000_000;
                let rss = 96 * MIB;
                writer.write(&Event::Footprint(Footprint { time_ns, target, vsz: 17 << 30, rss, swap: None })).unwrap();
            }
        }
        if i % 10 == 0 {
            writer.write(&Event::Stats(stats((i + 1) * 100_000_000))).unwrap();
        }
    }
    writer.finish().unwrap();
}

pub fn snapshot(target: u32, i: u64) -> Snapshot {
    let region = |start, end, nr_accesses, (present, blind)| RegionInfo {
        start,
        end,
        nr_accesses,
        age: (i % 10) as u32,
        evidence: Some(Evidence { checks: 20, pages: 10, present, blind }),
        accessed: None,
    };
    let hot = HEAP + (1 + i / 10 % 6) * 8 * MIB;
    Snapshot {
        target,
        pid: Some(100 + target),
        start_ns: i * 100_000_000,
        end_ns: (i + 1) * 100_000_000,
        sample_us: 5_000,
        aggr_us: 100_000,
        max_nr_accesses: 20,
        regions: vec![
            region(HEAP, hot, 0, (10, 0)),
            region(hot, hot + 8 * MIB, 20, (10, 0)),
            region(hot + 8 * MIB, HEAP + 64 * MIB, 0, (10, 0)),
            region(BLOB, BLOB + 32 * MIB, 0, (10, 10)),
            region(BLOB + 64 * MIB, BLOB + 64 * MIB + (16 << 30), 0, (0, 0)),
        ],
    }
}

fn stats(time_ns: u64) -> MonitorStats {
    MonitorStats {
        time_ns,
        monitor_ns: time_ns / 250,
        target_ns: time_ns / 1000,
        checks: time_ns / 1_000_000,
        clears: time_ns / 2_000_000,
        nr_regions: 5,
        mode: Mode::Sample,
        sample_us: 5_000,
        aggr_us: 100_000,
        late_samples: 0,
    }
}

pub struct Scene {
    pub folder: tempfile::TempDir,
    pub file: PathBuf,
}

pub fn scene(targets: u32, intervals: u64) -> Scene {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.iso");
    record(&file, targets, intervals);
    Scene { folder, file }
}

impl Scene {
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn report(&self, args: &[&str]) -> common::Done {
        isotherm([&["report"], args, &[text(&self.file)]].concat())
    }
}

#[test]
fn raw_json_is_what_was_recorded() {
    let s = scene(2, 5);
    let lines = s.report(&["raw", "--json"]).expect(0, &[]).json_lines();
    assert_eq!(lines.len(), 10);
    for (i, line) in lines.iter().enumerate() {
        let expected = snapshot(i as u32 % 2, i as u64 / 2);
        assert_eq!(line["target"], expected.target);
        assert_eq!(line["pid"], expected.target + 100);
        assert_eq!(line["start_ns"], expected.start_ns);
        assert_eq!(line["end_ns"], expected.end_ns);
        assert_eq!(line["sample_us"], 5_000);
        assert_eq!(line["aggr_us"], 100_000);
        assert_eq!(line["max_nr_accesses"], 20);
        let regions = line["regions"].as_array().unwrap();
        assert_eq!(regions.len(), expected.regions.len());
        for (got, r) in regions.iter().zip(&expected.regions) {
            assert_eq!((&got["start"], &got["end"]), (&r.start.into(), &r.end.into()));
            assert_eq!((&got["nr_accesses"], &got["age"]), (&r.nr_accesses.into(), &r.age.into()));
        }
    }
}

#[test]
fn every_kind_prints_text_and_json() {
    let s = scene(2, 60);
    for kind in KINDS {
        let plain = s.report(&[kind]).expect(0, &[]).stdout.clone();
        assert!(plain.lines().count() > 4, "{kind}: {plain}");
        assert!(!plain.contains('\x1b'), "{kind}: colours without a terminal");
        let lines = s.report(&[kind, "--json"]).expect(0, &[]).json_lines();
        assert!(lines.iter().all(|l| l.get("target").is_some()), "{kind}");
        let one = s.report(&[kind, "--json", "--target", "1"]).expect(0, &[]).json_lines();
        let (one, sum) = one.split_at(one.len() - usize::from(kind == "summary"));
        assert!(sum.iter().all(|l| l["target"].is_null()), "the last line of a summary is the sum");
        assert!(!one.is_empty() && one.iter().all(|l| l["target"] == 1), "{kind}");
        s.report(&[kind, "--target", "9"]).expect(1, &["no target 9", "0, 1"]);
    }
}

#[test]
fn working_set_and_summary_tell_the_truth() {
    let s = scene(1, 60);
    let wss = &s.report(&["wss", "--json"]).expect(0, &[]).json_lines()[0];
    assert_eq!(wss["average"], 8 * MIB);
    assert!(wss["percentiles"].as_array().unwrap().iter().all(|p| p["value"] == 8 * MIB));
    let summary = &s.report(&["summary", "--json"]).expect(0, &[]).json_lines()[0];
    assert_eq!(summary["working_set"]["p50"], 8 * MIB);
    assert_eq!(summary["idle"]["accessed"], 8 * MIB);
    assert_eq!(summary["idle"]["not_accessed"], 56 * MIB, "what was never present is no cold memory");
    assert_eq!(summary["idle"]["not_observable"], 32 * MIB);
    assert!(summary["idle"]["cold"].as_array().unwrap().iter().all(|c| c["bytes"].is_null()));
    assert_eq!(summary["mappings"][0]["name"], "[heap]");
    assert!((summary["cost"]["monitor"].as_f64().unwrap() - 0.004).abs() < 1e-9);
}

/// What the page history says of 16 MiB at the heap's begin in a second: one page in 64 is used, the rest is cold.
fn pages(target: u32, second: u64) -> Event {
    let (resident, hot) = (4096, 64);
    let known = AGES_NS.iter().take_while(|age| **age <= second * 1_000_000_000).count();
    let idle = IdlePages { pages: resident - hot, least: resident - hot, most: resident - hot, unresolved: 0 };
    let ages = PageAges { resident, unobservable: 0, idle: vec![idle; known], ..PageAges::default() };
    Event::Pages(PageFrame {
        time_ns: second * 1_000_000_000,
        since_ns: (second - 1) * 1_000_000_000,
        begin_ns: 0,
        walk_ns: 1_000_000_000,
        target,
        one_in: 1,
        mappings: vec![MappingPages { range: AddrRange::new(HEAP, HEAP + 16 * MIB), ages }],
        tables: (0..8).map(|i| TablePages { base: HEAP + i * 2 * MIB, present: 512, accessed: 8 }).collect(),
        reaccessed: None,
        forked: false,
    })
}

#[test]
fn scattered_heat_is_told_page_by_page_and_summed_up() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pages.iso");
    let mut writer = Writer::create(&file, Options::default()).unwrap();
    for target in 0..12 {
        let info = TargetInfo { target, pid: Some(100 + target), name: "store".into() };
        writer.write(&Event::Target(info)).unwrap();
        let heap = Mapping::anon(HEAP, HEAP + 16 * MIB);
        writer.write(&Event::Mappings { time_ns: 0, target, mappings: vec![heap] }).unwrap();
    }
    for second in 1..=12 {
        for target in 0..12 {
            // A region that reaches over all of it, of which hardly anything was seen.
            let regions = vec![RegionInfo {
                start: HEAP,
                end: HEAP + 16 * MIB,
                nr_accesses: 1,
                age: 0,
                evidence: None,
                accessed: None,
            }];
            writer
                .write(&Event::Snapshot(Snapshot {
                    target,
                    pid: Some(100 + target),
                    start_ns: (second - 1) * 1_000_000_000,
                    end_ns: second * 1_000_000_000,
                    sample_us: 5000,
                    aggr_us: 1_000_000,
                    max_nr_accesses: 20,
                    regions,
                }))
                .unwrap();
            writer.write(&pages(target, second)).unwrap();
        }
    }
    writer.finish().unwrap();
    let report = |args: &[&str]| {
        let args: Vec<&str> = ["report"].iter().chain(args).copied().chain([text(&file)]).collect();
        isotherm(args)
    };
    let lines = report(&["summary", "--json"]).expect(0, &[]).json_lines();
    assert_eq!(lines.len(), 13);
    let cold = |l: &serde_json::Value| l["idle"]["cold"][0]["bytes"].as_u64();
    assert_eq!((cold(&lines[3]), cold(&lines[12])), (Some(4032 * 4096), Some(12 * 4032 * 4096)));
    assert_eq!(lines[12]["shared"], "counted_for_each_target");
    let plain = report(&["summary"]).expect(0, &[]).stdout.clone();
    assert!(
        plain.starts_with("all 12 targets together\n") && plain.contains("\nand 2 more targets: 31.5 MiB cold"),
        "{plain}"
    );
    let wss = report(&["wss", "--json", "--target", "5"]).expect(0, &[]).json_lines();
    assert_eq!((&wss[0]["average"], &wss[0]["basis"]), (&(MIB / 4).into(), &"pages".into()));
    let heat = report(&["heatmap", "--json", "--target", "5"]).expect(0, &[]).json_lines();
    let rates = heat[0]["rates"].as_array().unwrap().iter().flat_map(|r| r.as_array().unwrap());
    assert!(rates.clone().count() > 0);
    assert!(rates.clone().all(|r| (r.as_f64().unwrap() - 1.0 / 64.0).abs() < 1e-6), "one page in 64, everywhere");
    let access = report(&["access", "--json", "--target", "5"]).expect(0, &[]).json_lines();
    assert_eq!(access[0]["totals"]["accessed"], MIB / 4);
}

#[test]
fn names_that_others_chose_never_reach_the_terminal_as_commands() {
    let scene = scene(0, 0);
    let path = scene.path("hostile.iso");
    let mut writer = Writer::create(&path, Options::default()).unwrap();
    let hostile = "\u{1b}]0;owned\u{7}\u{1b}[2Jx\r\ny\u{9b}31m\u{202e}z";
    writer.write(&Event::Target(TargetInfo { target: 0, pid: Some(7), name: hostile.into() })).unwrap();
    let mapping = Mapping { name: format!("/tmp/{hostile}"), ..Mapping::anon(HEAP, HEAP + 64 * MIB) };
    writer.write(&Event::Mappings { time_ns: 0, target: 0, mappings: vec![mapping] }).unwrap();
    (0..30).for_each(|i| writer.write(&Event::Snapshot(snapshot(0, i))).unwrap());
    writer.finish().unwrap();
    for kind in KINDS {
        for form in [&[][..], &["--json"]] {
            let done = isotherm([&["report", kind, text(&path)], form].concat());
            done.expect(0, &[]);
            let bad = |c: char| c.is_control() && !matches!(c, '\n' | '\t') || ('\u{2028}'..='\u{202e}').contains(&c);
            let found = [&done.stdout, &done.stderr].iter().find_map(|out| out.chars().find(|&c| bad(c)));
            assert_eq!(found, None, "{kind} {form:?}:\n{}", done.stdout);
        }
    }
}

#[test]
fn the_heatmap_shows_the_walk_and_folds_what_was_never_present() {
    let s = scene(1, 60);
    let plain = s.report(&["heatmap"]).expect(0, &[]).stdout.clone();
    assert!(plain.contains("16.0 GiB never present"), "{plain}");
    assert!(plain.contains("[heap]") && plain.contains("blob"), "{plain}");
    assert!(plain.lines().any(|l| l.contains("????")), "{plain}");
    // The hot window climbs: seen from the top, lines get hot ever earlier.
    let hot: Vec<usize> = plain.lines().filter(|l| !l.starts_with("rate")).filter_map(|l| l.find('@')).collect();
    assert!(hot.len() >= 6 && hot.is_sorted_by(|a, b| a >= b), "{hot:?}\n{plain}");
    let json = &s.report(&["heatmap", "--json"]).expect(0, &[]).json_lines()[0];
    let rates = json["rates"].as_array().unwrap();
    assert_eq!(rates.len(), json["rows"].as_array().unwrap().len());
    assert!(rates.iter().flat_map(|r| r.as_array().unwrap()).any(|r| *r == 1.0));
    assert!(rates.iter().flat_map(|r| r.as_array().unwrap()).any(|r| r.is_null()), "not observable is null, not zero");
}

#[test]
fn pictures_are_written_whole_and_one_for_each_target() {
    let s = scene(2, 30);
    for kind in ["heatmap", "wss", "regions"] {
        let (svg, png) = (s.path("p.svg"), s.path("p.png"));
        let done = s.report(&[kind, "--svg", text(&svg), "--png", text(&png)]);
        assert!(done.expect(0, &["wrote", "p-0.svg", "p-1.png"]).stdout.is_empty(), "{kind}");
        let (svg, png) = (s.path("p-1.svg"), s.path("p-1.png"));
        assert!(std::fs::read(&png).unwrap().starts_with(b"\x89PNG\r\n\x1a\n"), "{kind}");
        assert!(std::fs::read_to_string(&svg).unwrap().trim_end().ends_with("</svg>"), "{kind}");
    }
    let html = s.path("p.html");
    s.report(&["heatmap", "--html", text(&html)]).expect(0, &["p.html"]);
    let page = std::fs::read_to_string(&html).unwrap();
    assert!(page.trim_end().ends_with("</html>") && !page.contains("http://"));
    let nowhere = s.path("no/such/folder/p.svg");
    s.report(&["heatmap", "--svg", text(&nowhere)]).expect(1, &["no/such/folder/p-0.svg"]);
    let left: Vec<_> = std::fs::read_dir(s.folder.path()).unwrap().map(|f| f.unwrap().file_name()).collect();
    assert!(left.iter().all(|f| !f.to_string_lossy().ends_with(".tmp")), "{left:?}");
}

#[test]
fn a_picture_goes_to_stdout_where_that_is_asked_for() {
    let s = scene(1, 30);
    let done = s.report(&["heatmap", "--svg", "-"]);
    done.expect(0, &[]);
    assert!(done.stdout.starts_with("<svg") && done.stdout.trim_end().ends_with("</svg>"), "{}", done.stdout);
    assert!(!Path::new("-").exists(), "it is no file's name");
}

#[test]
fn a_record_without_snapshots_says_so() {
    let s = scene(1, 0);
    for kind in KINDS {
        let done = s.report(&[kind]);
        assert!(done.expect(1, &["no snapshot", "record for longer"]).stdout.is_empty(), "{kind}");
    }
}

#[test]
fn bad_arguments_are_usage_errors() {
    let s = scene(1, 3);
    let bad: [&[&str]; 8] = [
        &["wss", "--range", "0", "100", "0"],
        &["wss", "--percentiles", "50,101"],
        &["wss", "--min-rate", "fast"],
        &["access", "--at", "5"],
        &["heatmap", "--time-range", "5s-1s"],
        &["heatmap", "--address-range", "zz-10"],
        &["raw", "--svg", "x.svg"],
        &["nothing"],
    ];
    for args in bad {
        s.report(args).expect(2, &[]);
    }
    s.report(&["heatmap", "--time-range", "50s-60s"]).expect(1, &["nothing was recorded", "0 to 300 ms"]);
    s.report(&["heatmap", "--address-range", "1000-2000"]).expect(1, &["nothing was recorded"]);
    s.report(&["access", "--at", "1h"]).expect(0, &[]);
}

#[test]
fn a_pipe_in_and_a_closed_pipe_out() {
    let s = scene(1, 2000);
    for kind in KINDS {
        let mut command = command(["report", kind, text(&s.file)]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let done = child.wait_with_output().unwrap();
        assert_eq!(done.status.code(), Some(0), "{kind}: {}", String::from_utf8_lossy(&done.stderr));
    }
    let piped = format!("cat '{}' | '{}' report wss -", s.file.display(), env!("CARGO_BIN_EXE_isotherm"));
    let from_pipe = run(std::process::Command::new("sh").args(["-c", &piped]));
    assert_eq!(from_pipe.expect(0, &[]).stdout, s.report(&["wss"]).stdout);
}

#[test]
fn top_without_a_terminal_says_what_to_do() {
    isotherm(["top", "--pid", "1"]).expect(2, &["terminal", "record"]);
}

#[test]
fn a_locale_without_utf8_gets_ascii_of_the_same_width() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.iso");
    record(&file, 1, 20);
    for kind in ["heatmap", "access", "summary"] {
        let shown = |locale: &str| run(command(["report", kind, text(&file)]).env("LC_ALL", locale)).stdout;
        let (utf8, ascii) = (shown("C.UTF-8"), shown("C"));
        assert!(ascii.is_ascii(), "{kind}: {ascii}");
        let widths = |text: &str| text.lines().map(|l| l.chars().count()).collect::<Vec<_>>();
        assert_eq!(widths(&ascii), widths(&utf8), "{kind}");
        assert!(kind != "heatmap" || !utf8.is_ascii());
        let json = |locale: &str| run(command(["report", kind, text(&file), "--json"]).env("LC_ALL", locale)).stdout;
        assert_eq!(json("C"), json("C.UTF-8"), "{kind}: JSON is UTF-8 everywhere");
    }
}

#[test]
fn arguments_are_left_out_of_what_is_made_of_a_record() {
    let folder = tempfile::tempdir().unwrap();
    let [file, page, json] = ["r.iso", "page.html", "r.json"].map(|name| folder.path().join(name));
    record(&file, 1, 30);
    let made = |options: &[&str]| {
        let report = |args: &[&str]| isotherm([&["report"], args, &[text(&file)], options].concat());
        let printed = report(&["summary"]).stdout + &report(&["raw", "--json"]).stdout;
        report(&["heatmap", "--html", text(&page)]).expect(0, &[]);
        isotherm([&["convert", text(&file), text(&json)], options].concat()).expect(0, &[]);
        let read = |path| std::fs::read_to_string(path).unwrap();
        (printed, read(&page), read(&json))
    };
    // As it is, in JSON within a page, and in the page's title.
    let has_arguments =
        |text: &str| ["server <", "server \\u003c", "server &lt;"].iter().any(|part| text.contains(part));
    let (printed, html, converted) = made(&[]);
    assert!(has_arguments(&printed) && has_arguments(&html) && has_arguments(&converted), "a test of nothing");
    assert!(html.contains("--no-args"), "the page says what is in it");
    let (printed, html, converted) = made(&["--no-args"]);
    for (what, text) in [("printed", &printed), ("html", &html), ("converted", &converted)] {
        assert!(text.contains("server") && !has_arguments(text), "{what}");
    }
}

/// A small file that holds much: 640 MB of regions.
#[test]
fn a_record_from_a_pipe_is_not_held_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.iso");
    let mut writer = Writer::create(&file, Options::default()).unwrap();
    writer.write(&Event::Target(TargetInfo { target: 0, pid: Some(7), name: "server".into() })).unwrap();
    let region = |i: u64| RegionInfo {
        start: HEAP + i * 8192,
        end: HEAP + i * 8192 + 4096,
        nr_accesses: 1,
        age: 1,
        evidence: None,
        accessed: None,
    };
    let regions: Vec<_> = (0..100_000).map(region).collect();
    for i in 0..100 {
        let snapshot = Snapshot { regions: regions.clone(), ..snapshot(0, i) };
        writer.write(&Event::Snapshot(snapshot)).unwrap();
    }
    writer.finish().unwrap();
    assert!(file.metadata().unwrap().len() < 8 * MIB);
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "ulimit -v 400000; cat \"$0\" | \"$1\" report wss --json -", text(&file)]);
    let done = run(shell.arg(env!("CARGO_BIN_EXE_isotherm")));
    done.expect(0, &[]);
    assert!(!done.json_lines().is_empty());
}

/// What no monitor makes, but a file can hold.
#[test]
fn figures_at_the_end_of_their_range_are_no_panic() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("extreme.csv");
    let most = u64::MAX;
    let header = "target,pid,start_ns,end_ns,sample_us,aggr_us,max_nr_accesses,start,end,nr_accesses,age\n";
    let line = |target: u32, from: u64, to: u64, start: u64, end: u64| {
        format!("{target},7,{from},{to},{most},{most},4294967295,{start},{end},4294967295,4294967295\n")
    };
    // The second region lies where no machine has addresses.
    let both = |target, from, to| [line(target, from, to, 0, 1 << 57), line(target, from, to, 1 << 57, most)].concat();
    let all = [header.to_owned(), both(0, 0, 5), both(1, 0, 5), both(0, 5, most), both(1, 5, most)].concat();
    std::fs::write(&file, all).unwrap();
    let picture = folder.path().join("a.svg");
    for kind in KINDS {
        isotherm(["report", kind, text(&file)]).expect(0, &["4 snapshots", "beyond all addresses"]);
        isotherm(["report", kind, "--json", text(&file)]).expect(0, &[]);
    }
    for kind in ["heatmap", "wss"] {
        isotherm(["report", kind, text(&file), "--svg", text(&picture)]).expect(0, &[]);
    }
    let done = isotherm(["report", "heatmap", "--json", "--rows", "65535", "--cols", "65535", text(&file)]);
    done.expect(2, &["65535", "fewer"]);
}
