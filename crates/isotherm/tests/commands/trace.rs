//! `isotherm trace`, and the probes that it listens to.

use crate::common::{Done, Program, Running, command, isotherm, snapshots, start, text, wait_until, workload};
use isotherm_core::trace::{MOST_FIELDS, TraceEvent, Tracepoint};
use isotherm_linux::usdt::{Note, PROVIDER, notes};
use serde_json::Value;
use std::path::Path;

fn probes(program: &Path) -> Vec<Note> {
    let mut found = notes(&std::fs::read(program).unwrap()).unwrap();
    found.retain(|note| note.provider == PROVIDER);
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

#[test]
fn every_tracepoint_is_one_probe_with_all_fields_and_a_semaphore() {
    let found = probes(Path::new(env!("CARGO_BIN_EXE_isotherm")));
    let mut names = Tracepoint::ALL.map(Tracepoint::name);
    names.sort_unstable();
    assert_eq!(found.iter().map(|note| note.name.as_str()).collect::<Vec<_>>(), names);
    for note in &found {
        let tracepoint = Tracepoint::ALL.into_iter().find(|t| t.name() == note.name).unwrap();
        let needed = (0..=MOST_FIELDS).find(|&n| TraceEvent::from_fields(tracepoint, &[0; MOST_FIELDS][..n]).is_some());
        assert_eq!(Some(note.arguments.len()), needed, "{note:?}");
        assert!(note.semaphore.is_some(), "{note:?}");
        assert!(note.arguments.iter().all(|a| a.size.abs() == 8 && a.register.is_some()), "{note:?}");
    }
    let mut counters: Vec<_> = found.iter().map(|note| note.semaphore).collect();
    counters.sort_unstable();
    counters.dedup();
    assert_eq!(counters.len(), found.len(), "each has its own listeners");
}

#[test]
fn the_probes_are_there_after_strip() {
    let folder = tempfile::tempdir().unwrap();
    let stripped = folder.path().join("isotherm");
    let mut strip = std::process::Command::new("strip");
    match strip.arg(env!("CARGO_BIN_EXE_isotherm")).arg("-o").arg(&stripped).status() {
        Ok(status) => assert!(status.success()),
        Err(error) => return eprintln!("skipped: no strip ({error})"),
    }
    // Places in the file may differ; what is there may not.
    let what = |note: Note| (note.name, note.arguments, note.semaphore.is_some());
    let [before, after] = [Path::new(env!("CARGO_BIN_EXE_isotherm")), &stripped].map(probes);
    assert_eq!(before.into_iter().map(what).collect::<Vec<_>>(), after.into_iter().map(what).collect::<Vec<_>>());
}

#[test]
fn nonsense_is_bad_usage() {
    for target in [["--pid", "1"], ["--name", "x"], ["--cgroup", "x"], ["--", "true"]] {
        isotherm([["trace", "--of", "1"].as_slice(), &target].concat()).expect(2, &["--of"]);
    }
    for alone in [&["--children"][..], &["--sample", "1ms"], &["--source", "refs"], &["--of", "1", "--sample", "1ms"]] {
        isotherm([["trace"].as_slice(), alone].concat()).expect(2, &["target"]);
    }
    isotherm(["trace", "--event", "sched_switch"]).expect(2, &["damon_aggregated"]);
    isotherm(["trace", "--duration", "0s", "--pid", "1"]).expect(2, &["duration"]);
    let gone = Program::gone().to_string();
    isotherm(["trace", "--of", &gone]).expect(1, &[&gone]);
    isotherm(["trace", "--pid", &gone]).expect(1, &[&gone]);
}

/// Every line, as its event's name and its fields; each must have the form that the kernel gives it.
#[track_caller]
fn events(trace: &str) -> Vec<(String, String)> {
    trace.lines().map(|line| event(line).unwrap_or_else(|| panic!("no line of an event: {line:?}"))).collect()
}

fn event(line: &str) -> Option<(String, String)> {
    let words: Vec<&str> = line.splitn(6, ' ').collect();
    let [kdamond, tid, cpu, time, name, fields] = words[..] else { return None };
    kdamond.strip_prefix("kdamond.")?.parse::<u32>().ok()?;
    tid.parse::<u32>().ok()?;
    cpu.strip_prefix('[')?.strip_suffix(']')?.parse::<u32>().ok()?;
    let (_, fraction) = time.strip_suffix(':')?.split_once('.')?;
    (fraction.len() == 6).then_some(())?;
    Some((name.strip_prefix("damon:")?.strip_suffix(':')?.to_owned(), fields.to_owned()))
}

/// A program that touches a tenth of its memory all the time.
fn target() -> Running {
    start(&mut workload("hotspot --size 32M --hot 10%"))
}

fn end(target: Running) {
    target.signal("TERM");
    target.finish();
}

/// Whether the kernel lets programs be listened to.
fn can_listen() -> bool {
    let can = Path::new("/sys/bus/event_source/devices/uprobe/type").exists();
    if !can {
        eprintln!("skipped: this kernel has no uprobes for perf");
    }
    can
}

/// What `isotherm ARGS` says to one that listens until it ends.
fn listen_to<const N: usize>(args: [&str; N], folder: &Path) -> (Done, String) {
    let trace = folder.join("trace.txt");
    let running = start(&mut command(args));
    let pid = running.pid().to_string();
    isotherm(["trace", "--of", &pid, "-o", text(&trace)]).expect(0, &[]);
    (running.finish(), std::fs::read_to_string(trace).unwrap())
}

fn regions(snapshot: &Value) -> Vec<[u64; 4]> {
    let row = |r: &Value| ["start", "end", "nr_accesses", "age"].map(|key| r[key].as_u64().unwrap());
    snapshot["regions"].as_array().unwrap().iter().map(row).collect()
}

#[test]
fn root_who_listens_to_a_recording_hears_what_it_records() {
    if !can_listen() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (target, record) = (target(), folder.path().join("r.iso"));
    let pid = target.pid().to_string();
    let args = ["record", "--algorithm", "damon", "--cpu-budget", "none", "--duration", "5s", "--pid", &pid, "-o"];
    let mut all = [""; 11];
    all[..10].copy_from_slice(&args);
    all[10] = text(&record);
    let (done, heard) = listen_to(all, folder.path());
    done.expect(0, &[]);
    end(target);
    assert!(events(&heard).iter().all(|(name, _)| name == "damon_aggregated"), "there is no scheme: {heard}");
    let recorded = snapshots(&record);
    let heard = snapshots(&folder.path().join("trace.txt"));
    // It began to listen a while after the recording began, perhaps amid a snapshot.
    assert!(heard.len() > 10 && recorded.len() >= heard.len(), "{} of {}", heard.len(), recorded.len());
    for (heard, recorded) in heard.iter().rev().zip(recorded.iter().rev()).take(heard.len() - 1) {
        assert_eq!(regions(heard), regions(recorded));
        let [said, ended] = [heard, recorded].map(|s| s["end_ns"].as_u64().unwrap());
        // Text tells microseconds.
        assert!(said + 1000 > ended && said < ended + 100_000_000, "{said} is not {ended}");
    }
    let busy = recorded.iter().flat_map(regions).filter(|r| r[2] > 0).count();
    assert!(busy > 0, "something was seen to be accessed");
}

/// The number behind `key=`.
fn field(fields: &str, key: &str) -> u64 {
    let word = fields.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    word.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("no {key} in {fields:?}"))
}

#[test]
fn root_who_listens_to_schemes_hears_all_that_they_do() {
    if !can_listen() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let target = target();
    let pid = target.pid().to_string();
    let schemes = folder.path().join("schemes.toml");
    std::fs::write(
        &schemes,
        "[[scheme]]\naction = \"stat\"\n[scheme.quota]\nbytes = \"1M\"\nreset_interval = \"500ms\"\n\
         [[scheme]]\naction = \"stat\"\n",
    )
    .unwrap();
    let args =
        ["schemes", "-c", text(&schemes), "--algorithm", "damon", "--duration", "4s", "--json", "--pid", pid.as_str()];
    let (done, heard) = listen_to(args, folder.path());
    done.expect(0, &[]);
    end(target);
    let heard = events(&heard);
    let of = |name: &str, scheme: u64| -> Vec<(usize, &str)> {
        let all = heard.iter().enumerate();
        let fields = all.filter(|(_, (n, f))| n == name && field(f, "scheme_idx") == scheme);
        fields.map(|(at, (_, f))| (at, f.as_str())).collect()
    };
    let quotas = of("damos_esz", 0);
    assert!(quotas.len() > 2 && quotas.iter().all(|(_, f)| field(f, "esz") == 1 << 20), "{quotas:?}");
    assert_eq!(of("damos_esz", 1), [], "it has no quota");
    for (scheme, last) in done.json_lines().iter().enumerate() {
        let stats = of("damos_stat_after_apply_interval", scheme as u64);
        let &[(first_at, first), .., (last_at, final_one)] = &stats[..] else { panic!("{heard:#?}") };
        for key in ["nr_tried", "sz_tried", "qt_exceeds"] {
            assert_eq!(field(final_one, key), last[key].as_u64().unwrap(), "{key} of scheme {scheme}");
        }
        let applied = of("damos_before_apply", scheme as u64);
        let between = applied.iter().filter(|(at, _)| (first_at..last_at).contains(at));
        let range = |fields: &str| {
            let (start, end) = fields.split(' ').nth(4).unwrap().trim_end_matches(':').split_once('-').unwrap();
            end.parse::<u64>().unwrap() - start.parse::<u64>().unwrap()
        };
        let (count, bytes) = between.fold((0, 0), |(count, bytes), (_, f)| (count + 1, bytes + range(f)));
        let since = |key| field(final_one, key) - field(first, key);
        assert_eq!((count, bytes), (since("nr_tried"), since("sz_tried")), "scheme {scheme}");
        assert!(count > 0, "{heard:#?}");
    }
}

#[test]
fn root_a_watched_target_is_told_as_a_record() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.txt");
    let target = target();
    let pid = target.pid().to_string();
    let running =
        start(&mut command(["trace", "--pid", &pid, "--event", "damon:damon_aggregated", "-o", text(&trace)]));
    // The last numbers of a line are how often a region was accessed, and its age.
    let accessed = |line: &str| line.split(' ').nth_back(1).is_some_and(|n| n.parse().is_ok_and(|n: u64| n > 0));
    wait_until("something is seen to be accessed", || {
        std::fs::read_to_string(&trace).is_ok_and(|text| text.lines().any(accessed))
    });
    running.signal("INT");
    running.finish().expect(0, &[]);
    end(target);
    let reported = events(&std::fs::read_to_string(&trace).unwrap());
    assert!(reported.iter().all(|(name, _)| name == "damon_aggregated"), "only what was asked for: {reported:?}");
    let snapshots = snapshots(&trace);
    assert_eq!(snapshots.iter().map(|s| regions(s).len()).sum::<usize>(), reported.len(), "all of it is read back");
    assert!(snapshots.iter().flat_map(regions).any(|r| r[2] > 0), "something was seen to be accessed");
}

#[test]
fn root_nobody_listens_any_more_once_the_listener_has_gone() {
    if !can_listen() {
        return;
    }
    let target = target();
    let pid = target.pid().to_string();
    let folder = tempfile::tempdir().unwrap();
    let [record, trace] = ["r.iso", "trace.txt"].map(|name| folder.path().join(name));
    let running = start(&mut command(["record", "--pid", &pid, "--duration", "600s", "-o", text(&record)]));
    let program = probes(Path::new(env!("CARGO_BIN_EXE_isotherm")));
    let aggregated = program.iter().find(|n| n.name == Tracepoint::Aggregated.name()).unwrap();
    let listeners = || semaphore(running.pid(), aggregated.semaphore.unwrap());
    wait_until("it records", || std::fs::metadata(&record).is_ok_and(|m| m.len() > 0));
    assert_eq!(listeners(), 0);
    let listener = start(&mut command(["trace", "-o", text(&trace)]));
    wait_until("something is heard", || std::fs::metadata(&trace).is_ok_and(|m| m.len() > 0));
    assert!(listeners() > 0);
    // Killed: it had no time to put anything right.
    listener.signal("KILL");
    wait_until("the kernel has noticed", || listeners() == 0);
    end(running);
    end(target);
}

/// The counter at `offset` of the program's file, in the memory of process `pid`.
fn semaphore(pid: u32, offset: u64) -> u16 {
    use std::os::unix::fs::FileExt;
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let place = maps.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (range, access, from) = (words.next()?, words.next()?, words.next()?);
        let (start, end) = range.split_once('-')?;
        let [start, end, from] = [start, end, from].map(|n| u64::from_str_radix(n, 16).unwrap());
        let ours = line.ends_with("/isotherm") && access.starts_with("rw");
        let within = offset.checked_sub(from).filter(|&at| at < end - start)?;
        ours.then_some(start + within)
    });
    let mut counter = [0; 2];
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    memory.read_exact_at(&mut counter, place.expect("it is mapped")).unwrap();
    u16::from_ne_bytes(counter)
}
