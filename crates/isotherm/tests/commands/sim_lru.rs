//! `isotherm sim lru` as a user runs it.

use crate::common::{Done, command, isotherm, run, text};
use isotherm_record::{Input, Options, Rotation, Writer, read_events};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

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

/// A trace whose counts are known: LRU, FIFO and CLOCK miss every request of a loop that does not fit, the optimum does
/// not.
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
fn there_is_a_line_for_all_that_is_asked_for_in_that_order() {
    let args = ["--generate", "loop:pages=4,requests=40", "--policy", "fifo,lru,fifo", "--size", "3,2,50%", "--json"];
    let done = sim(&args);
    done.expect(0, &[]);
    let lines = done.json_lines();
    let seen: Vec<_> = lines.iter().map(|l| (l["policy"].as_str().unwrap(), l["size"].as_u64().unwrap())).collect();
    let of = |policy| [3, 2, 2].map(|size| (policy, size));
    assert_eq!(seen, [of("fifo"), of("lru"), of("fifo")].concat());
    assert_eq!((&lines[1], &lines[0]), (&lines[2], &lines[6]), "what is asked for twice runs once");
}

#[test]
fn every_policy_runs_by_its_name() {
    let all = "lru,fifo,clock,2q,arc,lirs,s3fifo,sieve,wtinylfu,classic,mglru,mglru-6.12,opt";
    let lines = figures(&["--generate", "zipf:pages=2000,requests=30000", "--policy", all, "--size", "10%"]);
    let names: Vec<&str> = lines.iter().map(|l| l["policy"].as_str().unwrap()).collect();
    assert_eq!(names.join(","), all);
    let misses = |name: &str| {
        let line = lines.iter().find(|l| l["policy"] == name).unwrap();
        line["misses"].as_u64().unwrap()
    };
    assert!(lines.iter().all(|l| l["misses"].as_u64().unwrap() >= misses("opt")), "{lines:?}");
    assert!(misses("sieve") < misses("lru"), "SIEVE beats LRU on skewed loads");
    for form in ["mglru", "mglru-6.12"] {
        let line = lines.iter().find(|l| l["policy"] == form).unwrap();
        assert!(line["ptes_read"].as_u64().unwrap() > 0 && line["pages_scanned"].as_u64().unwrap() > 0, "{line}");
    }
    assert_ne!(misses("mglru"), misses("mglru-6.12"), "its two forms are not one");
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
fn of_a_record_in_parts_it_is_said_which_are_missing() {
    let folder = tempfile::tempdir().unwrap();
    let [whole, file] = ["r.iso", "parts.iso"].map(|name| folder.path().join(name));
    isotherm(["sim", "monitor", "hotspot", "--size", "16M", "--duration", "4s", "-o", text(&whole)]).expect(0, &[]);
    let rotation = Some(Rotation { max_age_ns: Some(1_000_000_000), ..Rotation::default() });
    let mut writer = Writer::create(&file, Options { rotation, ..Options::default() }).unwrap();
    read_events(Input::open(&whole).unwrap(), None, &mut |event| Ok(writer.write(&event)?)).unwrap();
    writer.finish().unwrap();
    std::fs::remove_file(folder.path().join("parts.iso.1")).unwrap();
    let done = sim(&["--trace", text(&file), "--policy", "lru", "--size", "10%"]);
    done.expect(0, &["part 1 is missing"]);
}

#[test]
fn a_record_of_another_format_is_a_trace_too() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    isotherm(["sim", "monitor", "hotspot", "--size", "16M", "--duration", "2s", "-o", text(&at("r.iso"))])
        .expect(0, &[]);
    let told = |name: &str| {
        let file = at(name);
        let args = ["--trace", text(&file), "--policy", "lru", "--size", "10%", "--format"];
        let [auto, isotherm] = ["auto", "isotherm"].map(|format| figures(&[&args[..], &[format]].concat()).remove(0));
        assert_eq!(auto["misses"], isotherm["misses"], "{name}");
        auto["requests"].as_u64().unwrap()
    };
    for name in ["r.csv", "r.json", "r.perf", "r.bin"] {
        isotherm(["convert", text(&at("r.iso")), text(&at(name))]).expect(0, &[]);
        assert!(told(name) > 1000, "{name}");
    }
    assert_eq!(told("r.csv"), told("r.iso"));
}

#[test]
fn a_reader_that_leaves_is_no_failure_and_costs_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (record, saved, svg, compared) = (at("r.iso"), at("saved"), at("lru.svg"), at("compared.svg"));
    isotherm(["sim", "monitor", "hotspot", "--size", "16M", "--duration", "2s", "-o", text(&record)]).expect(0, &[]);
    let generate = ["sim", "lru", "--generate", "loop:pages=100,requests=1000"];
    let files = ["--json", "--svg", text(&svg), "--save", text(&saved)];
    let monitor = ["sim", "monitor", "hotspot", "--size", "16M", "--duration", "1s"];
    let schemes = [&["sim", "schemes"], &monitor[2..], &["--scheme", "4K null null 5 5s null pageout"]].concat();
    for args in [
        [&generate[..], &files].concat(),
        generate.to_vec(),
        [&generate[..], &["--save", "/dev/stdout"]].concat(),
        [&monitor[..], &["--json"]].concat(),
        vec!["sim", "guests", "--json"],
        [&schemes[..], &["--json"]].concat(),
        [&schemes[..], &["--json", "--compare", "--svg", text(&compared)]].concat(),
        vec!["convert", text(&record), "-", "--to", "iso"],
        vec!["convert", text(&record), "-", "--to", "csv"],
        vec!["convert", text(&record), "-", "--to", "perf_script"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let done = command(&args).stdout(writer).output().unwrap();
        let stderr = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success() && !stderr.contains("roken pipe"), "{args:?}: {done:?}");
    }
    assert!(svg.exists() && compared.exists());
    assert_eq!(saved.metadata().unwrap().len(), 1000 * 24);
}

#[test]
fn a_trace_is_saved_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t");
    std::fs::write(&file, "old").unwrap();
    let args = ["sim", "lru", "--generate", "loop:pages=100,requests=100000", "--policy", "lru", "--save"];
    // As on a full disk: no file may be larger than a small part of the trace, 2.4 MB. The signal for it must not end the command.
    let script = r#"trap "" XFSZ; ulimit -f 8; exec "$@""#;
    let done = run(Command::new("sh").args(["-c", script, "sh", env!("CARGO_BIN_EXE_isotherm")]).args(args).arg(&file));
    done.expect(1, &["cannot write", text(&file), "too large"]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "old");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");

    isotherm(args.iter().copied().chain([text(&file)])).expect(0, &[]);
    let whole = std::fs::read(&file).unwrap();
    assert_eq!(whole.len(), 100_000 * 24);
    // A pipe is written to, and stays what it is.
    let done = command(args).args(["/dev/stdout", "--json"]).output().unwrap();
    assert!(done.status.success() && done.stdout.starts_with(&whole), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Two groups: one goes through many pages, the other uses few.
fn two_groups(path: &Path) {
    let lines: String =
        (0..60_000u64)
            .map(|i| {
                if i % 4 == 0 {
                    format!("{},db\n", 100_000 + i / 4 % 300)
                } else {
                    format!("{},web\n", i * 7919 % 5003)
                }
            })
            .collect();
    std::fs::write(path, format!("page,group\n{lines}")).expect("writes");
}

#[test]
fn groups_have_figures_and_bounds_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("groups.csv");
    two_groups(&file);
    let trace = ["--trace", text(&file), "--size", "1000"];
    let run = |args: &[&str]| figures(&[&trace, args].concat());
    let number = |line: &Value, group: usize, key: &str| line["groups"][group][key].as_u64();

    let lines = run(&["--policy", "lru,mglru"]);
    for line in &lines {
        let sum = |key: &str| number(line, 0, key).unwrap() + number(line, 1, key).unwrap();
        assert_eq!(line["groups"][0]["group"], "db", "in order of appearance");
        assert_eq!((sum("requests"), sum("misses")), (60_000, line["misses"].as_u64().unwrap()));
        assert_eq!(sum("refaults"), line["refaults"].as_u64().unwrap());
    }
    assert!(lines[0]["groups"][0].get("evictions").is_none(), "lru does not know whose a page is");
    let line = &lines[1];
    assert_eq!(number(line, 0, "evictions").unwrap() + number(line, 1, "evictions").unwrap(), line["evictions"]);

    let min = &run(&["--group", "db:min=400"])[0];
    assert_eq!((&min["policy"], number(min, 0, "evictions")), (&Value::from("mglru"), Some(0)), "protected: {min}");
    assert_eq!(number(min, 0, "misses"), Some(300));
    // Passed over at first, but not for ever.
    let low = &run(&["--group", "db:low=400"])[0];
    assert!(
        number(low, 0, "low_events") > Some(0) && number(low, 0, "evictions") < number(line, 0, "evictions"),
        "{low}"
    );
    for form in ["mglru", "mglru-6.12"] {
        let max = &run(&["--group", "web:max=200", "--policy", form])[0];
        assert!(number(max, 1, "resident").unwrap() <= 200 && number(max, 0, "evictions") == Some(0), "{max}");
    }
    let done = sim(&[&trace[..], &["--policy", "mglru"]].concat());
    done.expect(0, &[]);
    assert!(done.stdout.contains("low events") && done.stdout.contains("web"), "{done:?}");
}

#[test]
fn a_machine_predicts_throughput_and_pressure() {
    let args = ["--generate", "uniform:pages=4000,requests=50000", "--policy", "lru", "--size", "1000,3000,100%"];
    let lines = figures(&[&args[..], &["--machine", "zram:tasks=2,work=20us"]].concat());
    assert_eq!(lines[0]["machine"]["out_of_memory"], true, "a third of 4000 do not fit into 1000");
    let number =
        |at: usize, key: &str| lines[at]["machine"][key].as_f64().unwrap_or_else(|| panic!("{key}: {lines:?}"));
    assert!(number(1, "some") > 0.0 && number(1, "full") <= number(1, "some"));
    assert!(number(1, "resident") < 3000.0 && lines[1]["machine"]["major_faults"] == lines[1]["refaults"]);
    assert!(number(2, "requests_per_second") > number(1, "requests_per_second"));
    assert!(lines.iter().all(|l| l["machine"]["name"] == "zram"));
    let done = sim(&[&args[..], &["--machine", "ssd"]].concat());
    done.expect(0, &[]);
    assert!(done.stdout.contains("requests/s") && done.stdout.contains("major faults"), "{done:?}");
}

#[test]
fn a_made_up_trace_can_be_saved() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("made.oracleGeneral");
    let rest = ["--policy", "lru,mglru", "--size", "10%"];
    let made = figures(&[&["--generate", "zipf:pages=2000,requests=20000", "--save", text(&file)], &rest[..]].concat());
    let mapped = figures(&[&["--trace", text(&file), "--channel", "map"], &rest[..]].concat());
    let fd = figures(&[&["--trace", text(&file)], &rest[..]].concat());
    let misses = |lines: &[Value]| lines.iter().map(|l| l["misses"].as_u64().unwrap()).collect::<Vec<_>>();
    assert_eq!(misses(&made), misses(&mapped));
    assert_eq!((made[0]["misses"].clone(), &fd[1]["ptes_read"]), (fd[0]["misses"].clone(), &Value::from(0)));
    sim(&["--trace", text(&file), "--save", "/no/such/folder/t"]).expect(1, &["/no/such/folder/t"]);
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
        (&b"The quick brown fox jumps over the lazy dog, again and again.\n".repeat(40), &["a text", "page", "record"]),
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
    sim(&[]).expect(2, &["--trace", "--generate"]);
    sim(&["--trace", "a", "--generate", "loop"]).expect(2, &["--generate"]);
    sim(&["--generate", "polka"]).expect(2, &["polka", "uniform"]);
    with(&["--policy", "polka"]).expect(2, &["polka", "lru"]);
    with(&["--size", "0"]).expect(2, &["--size"]);
    with(&["--size", "0%"]).expect(2, &["--size"]);
    with(&["--size", "-1"]).expect(2, &[]);
    with(&["--size", "9G"]).expect(2, &["--size"]);
    with(&["--sample-rate", "0%"]).expect(2, &["--sample-rate"]);
    with(&["--sample-rate", "0.0000001"]).expect(2, &["0.0000001 %", "too low"]);
    with(&["--size", "1.9"]).expect(2, &["no part of a page"]);
    with(&["--sample-rate", "101%"]).expect(2, &["--sample-rate"]);
    with(&["--sample-rate", "nan%"]).expect(2, &["--sample-rate"]);
    with(&["--size", "1", "--sample-rate", "50%"]).expect(2, &["--sample-rate"]);
    with(&["--limit", "0"]).expect(2, &["--limit"]);
    with(&["--group", "web:max=5"]).expect(2, &["web", "no such group"]);
    with(&["--group", "web"]).expect(2, &["--group", "max="]);
    with(&["--group", "web:max=0"]).expect(2, &["--group", "nothing fits"]);
    with(&["--group", "web:high=5"]).expect(2, &["high", "known are"]);
    with(&["--group", "web:max=5", "--policy", "lru"]).expect(2, &["lru", "mglru"]);
    with(&["--machine", "disk"]).expect(2, &["--machine", "zram"]);
    with(&["--machine", "zram", "--sample-rate", "50%"]).expect(2, &["--machine", "--sample-rate"]);
    with(&["--channel", "pipe"]).expect(2, &["--channel"]);
}
