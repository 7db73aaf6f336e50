//! `isotherm lru` as people use it: on live processes.

use crate::common::confined::{check_confined, of_threads, reported};
use crate::common::grouped::{Group, within};
use crate::common::{
    self, Program, Running, command, isotherm, resident, run, send, start, state, status_bytes, text, wait_until,
    workload,
};
use crate::zram::{self, ZramSwap};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

const MIB: u64 = 1 << 20;

#[test]
fn nonsense_is_bad_usage() {
    for (args, words) in [
        (&["run", "--pid", "1"][..], &["--limit"][..]),
        (&["run", "--pid", "1", "--limit", "0"], &["--limit 0"]),
        (&["run", "--limit", "1M"], &["no target"]),
        (&["run", "--pid", "1", "--limit", "1M", "--headroom", "90%"], &["--headroom"]),
        (&["run", "--pid", "1", "--limit", "1M", "--duration", "0s"], &["--duration 0"]),
        (&["run", "--pid", "1", "--limit", "1M", "--on-thrash", "kill"], &["--min-ttl"]),
        (&["run", "--pid", "1", "--limit", "1M", "--freeze-time", "0s"], &["--freeze-time 0"]),
        (&["report", "--pid", "1", "--interval", "0s"], &["--interval"]),
        (&["report", "--pid", "1", "--interval", "5s", "--duration", "1s"], &["--duration"]),
        (&["report"], &["no target"]),
        (&["evict", "--pid", "1"], &["--min-gen, --bytes, or both"]),
        (&["evict", "--pid", "1", "--bytes", "0"], &["--bytes 0"]),
        (&["report", "--cgroup", "x", "--children"], &["--children"]),
    ] {
        isotherm([&["lru"], args].concat()).expect(2, words);
    }
}

#[test]
fn a_process_or_group_that_is_not_there_is_named() {
    let gone = common::Program::gone().to_string();
    for args in [&["report", "--pid", &gone][..], &["age", "--pid", &gone], &["evict", "--bytes", "1M", "--pid", &gone]]
    {
        let done = isotherm([&["lru"], args].concat());
        assert!(matches!(done.status, Some(1 | 3)), "{done:?}");
        done.expect_no_panic();
    }
    let done = isotherm(["lru", "run", "--cgroup", "no/such/group", "--limit", "1G"]);
    assert!(matches!(done.status, Some(1 | 3)), "{done:?}");
    assert!(done.stderr.contains("no/such/group"), "{done:?}");
}

#[test]
fn the_kernels_engine_is_refused_with_a_reason_where_it_is_not() {
    if Path::new("/sys/kernel/mm/lru_gen").exists() {
        return;
    }
    let pid = std::process::id().to_string();
    isotherm(["lru", "report", "--engine", "kernel", "--pid", &pid]).expect(3, &["CONFIG_LRU_GEN", "--engine user"]);
}

/// What a program with memory is started by, of which a part is in use.
fn hotspot(size: &str, hot: &str) -> Command {
    workload(&format!("hotspot --size {size} --hot {hot} --thp no --seed 7"))
}

fn wait_for_memory(target: Running, size: &str) -> Running {
    let want = size.trim_end_matches('M').parse::<u64>().unwrap() * MIB;
    wait_until("its memory is there", || resident(target.pid()) >= want);
    target
}

fn target(size: &str, hot: &str) -> Running {
    wait_for_memory(start(&mut hotspot(size, hot)), size)
}

/// As [`target`], in a group.
fn target_in(group: &Group, size: &str, hot: &str) -> Running {
    wait_for_memory(start(&mut within(group, &hotspot(size, hot))), size)
}

fn end(target: Running) {
    target.signal("KILL");
    target.finish();
}

/// `isotherm lru ARGUMENTS`, which keeps what it knows in a folder of its own: other commands that clear accessed bits
/// void it where it is usually.
fn lru(folder: &Path, args: &[&str]) -> Command {
    let mut lru = command([&["lru"], args].concat());
    lru.env("RUNTIME_DIRECTORY", folder);
    lru
}

fn sizes(line: &Value) -> Vec<u64> {
    let of = |g: &Value| g["anon_bytes"].as_u64().unwrap() + g["file_bytes"].as_u64().unwrap();
    line["generations"].as_array().unwrap().iter().map(of).collect()
}

#[test]
fn root_a_report_tells_the_working_set_in_three_forms() {
    let folder = tempfile::tempdir().unwrap();
    let isotherm = |args: &[&str]| run(&mut lru(folder.path(), args));
    let target = target("64M", "25%");
    let pid = target.pid().to_string();
    let done = isotherm(&["report", "--pid", &pid, "--json", "--duration", "3s", "--engine", "user"]);
    done.expect(0, &[]);
    let lines = done.json_lines();
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["pid"], target.pid());
    assert!(lines[0]["memcg"].is_string());
    let found = sizes(&lines[0]);
    assert!((2..=4).contains(&found.len()), "{lines:?}");
    // 16 MiB are hot; the rest has not been used since it was filled.
    let (old, young) = (found[0], found[found.len() - 1]);
    assert!((12 * MIB..28 * MIB).contains(&young), "{lines:?}");
    assert!(old >= 40 * MIB, "{lines:?}");
    let seqs: Vec<u64> =
        lines[0]["generations"].as_array().unwrap().iter().map(|g| g["seq"].as_u64().unwrap()).collect();
    assert!(seqs.windows(2).all(|w| w[1] == w[0] + 1), "oldest first: {seqs:?}");
    // What is known is shown again at once, in the kernel's form.
    let text = isotherm(&["report", "--pid", &pid, "--kernel-text", "--engine", "user"]);
    text.expect(0, &[]);
    let rows = isotherm_core::keeper::lru_gen::parse(&text.stdout).unwrap();
    assert_eq!(rows[0].nodes[0].1.last().unwrap().seq, *seqs.last().unwrap(), "no new generation");
    let table = isotherm(&["report", "--pid", &pid, "--engine", "user"]);
    assert!(table.expect(0, &[]).stdout.contains("generation"), "{table:?}");
    end(target);
}

#[test]
fn root_age_and_evict_are_the_kernels_two_commands() {
    let Some(_swap) = ZramSwap::new(512 * MIB) else { return };
    let folder = tempfile::tempdir().unwrap();
    let isotherm = |args: &[&str]| run(&mut lru(folder.path(), args));
    let target = target("64M", "25%");
    let pid = target.pid().to_string();
    for _ in 0..3 {
        isotherm(&["age", "--pid", &pid, "--engine", "user"]).expect(0, &["in memory"]);
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
    let evict = |gen_: &str| isotherm(&["evict", "--pid", &pid, "--min-gen", gen_, "--engine", "user"]);
    evict("1").expect(2, &["two youngest"]);
    evict("0").expect(0, &["evicted"]);
    wait_until("the cold part is out", || status_bytes(target.pid(), "VmSwap") >= 40 * MIB);
    assert!(resident(target.pid()) >= 14 * MIB, "the hot part stays");
    // And an amount.
    isotherm(&["evict", "--pid", &pid, "--bytes", "1M", "--engine", "user"]).expect(0, &["evicted"]);
    end(target);
}

/// What is known of used memory must not outlive others who clear its accessed bits.
#[test]
fn root_what_is_kept_ends_with_others_who_clear_accessed_bits_and_with_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let lru = |args: &[&str]| lru(folder.path(), args);
    let target = target("64M", "100%");
    let pid = target.pid().to_string();
    let kept = || {
        let files = std::fs::read_dir(folder.path().join("lru")).into_iter().flatten();
        files
            .filter(|file| file.as_ref().unwrap().file_name().to_string_lossy().starts_with(&format!("{pid}-")))
            .count()
    };
    let age = || _ = run(&mut lru(&["age", "--pid", &pid, "--engine", "user"])).expect(0, &[]);
    age();
    assert_eq!(kept(), 1);
    let iso = folder.path().join("r.iso");
    let record = ["record", "--pid", &pid, "--source", "pagetable", "--duration", "1s", "-o", text(&iso)];
    run(command(record).env("RUNTIME_DIRECTORY", folder.path())).expect(0, &[]);
    assert_eq!(kept(), 0, "record has cleared bits");
    age();
    let report = start(&mut lru(&["report", "--pid", &pid, "--engine", "user", "--duration", "60s"]));
    wait_until("it is at work", || kept() == 0);
    // Another one waits for it, and can be interrupted.
    let waiting = start(&mut lru(&["report", "--pid", &pid, "--engine", "user"]));
    std::thread::sleep(std::time::Duration::from_secs(1));
    let of_another = Program::sleeper();
    run(&mut lru(&["age", "--pid", &of_another.pid().to_string(), "--engine", "user"])).expect(0, &[]);
    waiting.signal("INT");
    let holder = format!("waiting for isotherm (pid {})", report.pid());
    waiting.finish().expect(1, &[&holder, &format!("at work on pid {pid}"), "interrupted"]);
    report.signal("KILL");
    report.finish();
    assert_eq!(kept(), 0, "nobody knows what it had cleared");
    end(target);
}

#[test]
fn root_a_report_of_nobody_is_empty_and_one_that_cannot_be_written_says_where() {
    let Some(group) = group("empty") else { return };
    let report = ["lru", "report", "--engine", "user", "--duration", "1s", "--json", "--cgroup", text(&group.0)];
    assert_eq!(isotherm(report).expect(0, &["no process"]).stdout, "");
    let script = r#""$0" lru report --engine user --duration 1s --json --pid $$ >/dev/full"#;
    let done = run(Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_isotherm")]));
    done.expect(1, &["cannot write to standard output: No space left on device"]);
}

#[test]
fn root_a_groups_limit_that_is_changed_is_kept_as_it_is_then() {
    let (Some(_swap), Some(group)) = (ZramSwap::new(512 * MIB), group("changed")) else { return };
    let target = target_in(&group, "96M", "25%");
    let limit = |bytes: u64| std::fs::write(group.0.join("memory.limit_in_bytes"), bytes.to_string()).unwrap();
    limit(256 * MIB);
    let file = tempfile::NamedTempFile::new().unwrap();
    let args = ["lru", "run", "--cgroup", text(&group.0), "--engine", "user", "--stats", text(file.path())];
    let run = start(&mut command(args));
    let last = || -> Option<Value> {
        let text = std::fs::read_to_string(file.path()).unwrap();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).next_back()
    };
    wait_until("it runs", || last().is_some_and(|line| line["limit"] == 256 * MIB));
    assert!(resident(target.pid()) >= 96 * MIB);
    limit(97 * MIB);
    wait_until("it is below the new limit", || last().is_some_and(|line| line["limit"] == 97 * MIB));
    run.signal("INT");
    let done = run.finish();
    done.expect(0, &["evicted;", "came back"]);
    end(target);
}

#[test]
fn root_without_swap_nothing_is_tried() {
    let _turn = zram::turn();
    if std::fs::read_to_string("/proc/swaps").unwrap().lines().count() > 1 {
        eprintln!("skipped: this machine has swap");
        return;
    }
    let target = target("64M", "25%");
    let before = resident(target.pid());
    let pid = target.pid().to_string();
    let done = isotherm(["lru", "run", "--pid", &pid, "--limit", "32M", "--duration", "3s"]);
    done.expect(3, &["no swap", "zram"]);
    assert!(resident(target.pid()) >= before, "the target is intact");
    // Files need none.
    let evict = ["lru", "evict", "--pid", &pid, "--bytes", "64M", "--engine", "user"];
    isotherm(evict).expect(3, &["no swap"]);
    isotherm([&evict[..], &["--swappiness", "0"]].concat()).expect(0, &["evicted"]);
    end(target);
}

#[test]
fn root_memory_stays_below_a_limit_and_what_is_used_stays() {
    let Some(_swap) = ZramSwap::new(512 * MIB) else { return };
    let target = target("96M", "25%");
    let pid = target.pid().to_string();
    let file = tempfile::NamedTempFile::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("lru.sock");
    let run = start(&mut command([
        "lru",
        "run",
        "--pid",
        &pid,
        "--limit",
        "48M",
        "--engine",
        "user",
        "--stats",
        common::text(file.path()),
        "--socket",
        common::text(&socket),
    ]));
    wait_until("it is below the limit", || resident(target.pid()) <= 48 * MIB);
    let ctl = |args: &[&str]| isotherm([&["ctl", "--socket", common::text(&socket)], args].concat());
    let shown = ctl(&["status"]).stdout;
    assert!(["lru run", "48.0 MiB", "Memory that was evicted"].iter().all(|part| shown.contains(part)), "{shown}");
    let status = &ctl(&["status", "--json"]).json_lines()[0];
    assert_eq!(status["command"], "lru run");
    assert_eq!(status["limits"][0]["limit"], 48 * MIB, "{status}");
    assert!(status["limits"][0]["evicted"].as_u64().unwrap() > 0, "{status}");
    ctl(&["goal", "0", "5"]).expect(2, &["no such path"]);
    ctl(&["stop"]).expect(0, &["stopped"]);
    let done = run.finish();
    done.expect(0, &["evicted"]);
    let text = std::fs::read_to_string(file.path()).unwrap();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert!(last["evicted"].as_u64().unwrap() >= 40 * MIB, "{last}");
    assert_eq!(last["limit"], 48 * MIB);
    let spared = last["refaulted"].as_u64().unwrap();
    assert!(spared < 24 * MIB, "the hot part must not go round: {last}");
    end(target);
}

#[test]
fn root_thrashing_is_told_and_stopped_processes_go_on_again() {
    let Some(_swap) = ZramSwap::new(512 * MIB) else { return };
    // Two programs that use all of their memory all the time: 128 MiB, where 64 are allowed.
    let busy: Vec<Running> = (0..2).map(|_| target("64M", "100%")).collect();
    let pids: Vec<String> = busy.iter().map(|b| b.pid().to_string()).collect();
    let mut args = vec!["lru", "run", "--limit", "64M", "--min-ttl", "3s", "--engine", "user", "--cpu-budget", "none"];
    for pid in &pids {
        args.extend(["--pid", pid]);
    }
    let reported = isotherm([&args[..], &["--duration", "20s"]].concat());
    reported.expect(0, &["thrashing", "working set"]);
    let run = start(&mut command([&args[..], &["--on-thrash", "freeze", "--freeze-time", "1h"]].concat()));
    let stopped = || busy.iter().filter(|b| state(b.pid()) == Some('t')).count();
    wait_until("one of them is stopped", || stopped() > 0);
    run.signal("TERM");
    run.finish().expect(0, &["stopped pid"]);
    assert_eq!(stopped(), 0, "they go on when isotherm ends");
    // Also if it cannot do anything any more.
    let run = start(&mut command([&args[..], &["--on-thrash", "freeze", "--freeze-time", "1h"]].concat()));
    wait_until("one of them is stopped again", || stopped() > 0);
    run.signal("KILL");
    wait_until("it goes on", || stopped() == 0);
    run.finish();
    // Nor by whoever kills all of its control group, as systemd does.
    if let Some(v2) = v2_with_kill() {
        let group = Group::new(v2.join(format!("isotherm-test-guard-{}", std::process::id())));
        // Guard and all begin in the group.
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo $$ >\"$0\"; exec \"$@\"", text(&group.0.join("cgroup.procs"))]);
        shell
            .arg(env!("CARGO_BIN_EXE_isotherm"))
            .args([&args[..], &["--on-thrash", "freeze", "--freeze-time", "1h"]].concat());
        let run = start(&mut shell);
        wait_until("one of them is stopped once more", || stopped() > 0);
        std::fs::write(group.0.join("cgroup.kill"), "1").unwrap();
        wait_until("it goes on although the guard is killed as well", || stopped() == 0);
        run.finish();
    }
    let run = start(&mut command([&args[..], &["--on-thrash", "kill"]].concat()));
    wait_until("one of them is killed", || busy.iter().any(|b| matches!(state(b.pid()), None | Some('Z'))));
    run.signal("INT");
    run.finish().expect(0, &["killed pid"]);
    busy.into_iter().for_each(end);
}

/// Where cgroup v2 is mounted, if all of a group can be killed there.
fn v2_with_kill() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let v2 = mounts.lines().map(|l| l.split(' ').collect::<Vec<_>>()).find(|l| l.get(2) == Some(&"cgroup2"))?;
    let v2 = PathBuf::from(v2[1]);
    let probe = Group::new(v2.join(format!("isotherm-test-kill-{}", std::process::id())));
    probe.0.join("cgroup.kill").exists().then_some(v2)
}

/// The v1 memory controller, if it is mounted.
fn v1_memory() -> Option<&'static Path> {
    let path = Path::new("/sys/fs/cgroup/memory");
    path.join("memory.limit_in_bytes").exists().then_some(path)
}

fn group(name: &str) -> Option<Group> {
    let dir = v1_memory()?.join(format!("isotherm-test-lru-{name}-{}", std::process::id()));
    Some(Group::new(dir))
}

#[test]
fn root_a_groups_own_limit_is_kept_ahead_of_the_kernel() {
    let (Some(_swap), Some(group)) = (ZramSwap::new(512 * MIB), group("own")) else { return };
    let target = target("96M", "25%");
    group.add(target.pid());
    // The group is charged for what comes from now on: it begins below its limit, so that no reclaim of the kernel's is
    // needed.
    std::fs::write(group.0.join("memory.limit_in_bytes"), (64 * MIB).to_string()).unwrap();
    let path = group.0.to_str().unwrap();
    let done = isotherm(["lru", "run", "--cgroup", path, "--duration", "3s", "--engine", "user", "--stats", "-"]);
    done.expect(0, &["evicted"]);
    let last = done.json_lines().pop().unwrap();
    assert_eq!(last["limit"], 64 * MIB);
    assert!(last["used"].as_u64().unwrap() < 64 * MIB, "{last}");
    end(target);
}

#[test]
fn root_what_never_sleeps_is_left_to_the_kernel_and_what_sleeps_is_not() {
    let Some(_swap) = ZramSwap::new(512 * MIB) else { return };
    let is_left = |line: &Value| line["idle_reason"].as_str().is_some_and(|why| why.starts_with("left to the kernel"));
    for (name, rate) in [("busy", "1000000000"), ("slow", "3000")] {
        let Some(group) = group(name) else { return };
        std::fs::write(group.0.join("memory.limit_in_bytes"), (64 * MIB).to_string()).unwrap();
        // The kernel now and then kills a program that is at its limit all the time, swap or not.
        std::fs::write(group.0.join("memory.oom_control"), "1").unwrap();
        let uniform = ["workload", "zipf", "--theta", "0", "--size", "128M", "--thp", "no", "--duration", "300s"];
        let target = start(&mut within(&group, command(uniform).args(["--rate", rate])));
        let file = tempfile::NamedTempFile::new().unwrap();
        let args = ["lru", "run", "--cgroup", text(&group.0), "--engine", "user", "--stats", text(file.path())];
        let run = start(&mut command(args));
        let lines = || -> Vec<Value> {
            let text = std::fs::read_to_string(file.path()).unwrap();
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
        };
        if name == "busy" {
            wait_until("it is left to the kernel", || lines().iter().any(is_left));
        }
        let begin = lines().len();
        wait_until("some seconds have passed", || lines().len() >= begin + 6);
        let (lines, evicted) = (lines(), |line: &Value| line["evicted"].as_u64().unwrap());
        if name == "busy" {
            let left: Vec<_> = lines.iter().filter(|line| is_left(line)).collect();
            assert!(left.iter().all(|line| evicted(line) == evicted(left[0])), "{left:?}");
        } else {
            assert!(!lines.iter().any(is_left) && evicted(&lines[begin + 5]) > evicted(&lines[begin]), "{lines:?}");
        }
        run.signal("INT");
        run.finish().expect(0, &[]);
        end(target);
    }
}

#[test]
fn root_a_group_that_vanishes_is_no_failure() {
    let (Some(_swap), Some(group)) = (ZramSwap::new(512 * MIB), group("gone")) else { return };
    let target = target("64M", "50%");
    group.add(target.pid());
    let path = group.0.to_str().unwrap().to_owned();
    let run = start(&mut command(["lru", "run", "--cgroup", &path, "--limit", "32M", "--engine", "user"]));
    std::thread::sleep(std::time::Duration::from_secs(2));
    send(target.pid(), "KILL");
    target.finish();
    drop(group);
    run.finish().expect(0, &[]);
}

#[test]
fn root_two_groups_give_by_what_they_have() {
    let Some(_swap) = ZramSwap::new(1024 * MIB) else { return };
    let (Some(big), Some(small)) = (group("big"), group("small")) else { return };
    let (idle, busy) = (target_in(&big, "192M", "5%"), target_in(&small, "32M", "90%"));
    let (a, b) = (big.0.to_str().unwrap(), small.0.to_str().unwrap());
    let args = ["lru", "run", "--cgroup", a, "--cgroup", b, "--limit", "128M", "--duration", "6s"];
    let done = isotherm([&args[..], &["--engine", "user", "--stats", "-"]].concat());
    done.expect(0, &[]);
    let last = done.json_lines().pop().unwrap();
    let of = |i: usize| last["memories"][i]["evicted"].as_u64().unwrap();
    // Round robin would take about the same from both, and leave the small one nothing.
    assert!(of(0) > 5 * of(1), "{last}");
    assert!(resident(busy.pid()) > 16 * MIB, "{last}");
    // The binary's pages are in both, and count once.
    let both = resident(idle.pid()) + resident(busy.pid()) - status_bytes(idle.pid(), "RssFile");
    assert!(both < 144 * MIB, "what both have counts: {both}: {last}");
    end(idle);
    end(busy);
}

#[test]
fn root_lru_run_keeps_what_it_declares_and_its_guard_one_capability() {
    let Some(_swap) = ZramSwap::new(512 * MIB) else { return };
    let (target, folder) = (Program::sleeper(), tempfile::tempdir().unwrap());
    let socket = folder.path().join("s");
    let pid = target.pid().to_string();
    let args = ["lru", "run", "--pid", &pid, "--limit", "1G", "--min-ttl", "1s", "--on-thrash", "freeze"];
    let running = start(command(args).args(["--socket", text(&socket)]));
    let status = reported(&socket);
    let declared = ["CAP_DAC_OVERRIDE", "CAP_SYS_PTRACE", "CAP_SYS_NICE", "CAP_BPF"];
    check_confined(running.pid(), &status, &declared);
    let children = format!("/proc/{0}/task/{0}/children", running.pid());
    let guard: u32 = std::fs::read_to_string(children).unwrap().trim().parse().unwrap();
    wait_until("the guard is confined", || of_threads(guard, "Seccomp:") == ["2"]);
    assert_eq!(of_threads(guard, "CapEff:"), [format!("{:016x}", 1 << 19)]);
    assert_eq!(of_threads(guard, "NoNewPrivs:"), ["1"]);
    running.signal("TERM");
    running.finish().expect(0, &[]);
}
