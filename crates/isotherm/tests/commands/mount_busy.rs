//! A hundred programs at once on the mounted files, while kdamonds monitor real processes. Needs root, FUSE and eBPF.

use crate::common::{Running, command, start, text, wait_until, workload};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const THREADS: u64 = 100;
/// Operations of each thread in a round.
const OPERATIONS: usize = 60;
/// What may grow between rounds that are alike, as they are not quite.
const GROWTH_KIB: u64 = 4 << 10;

const COMMANDS: [&str; 10] = [
    "on",
    "off",
    "commit",
    "commit_schemes_quota_goals",
    "update_schemes_stats",
    "update_schemes_tried_regions",
    "update_schemes_tried_bytes",
    "clear_schemes_tried_regions",
    "update_schemes_effective_quotas",
    "update_tuned_intervals",
];

fn target() -> Running {
    start(&mut workload("hotspot --size 4M --hot 50%"))
}

/// Serves the files at a folder; the kdamonds' folder.
fn mount(at: &Path) -> (Running, PathBuf) {
    let mut command = command(["mount", text(at)]);
    // Otherwise each of a dozen arenas keeps what the kdamond of some thread had.
    let running = start(command.env("MALLOC_ARENA_MAX", "1"));
    let kdamonds = at.join("sys/kernel/mm/damon/admin/kdamonds");
    wait_until("it is mounted", || kdamonds.exists());
    (running, kdamonds)
}

/// Two kdamonds, each with a target and a scheme that counts.
fn set_up(kdamonds: &Path, targets: &[Running; 2]) {
    let write =
        |path: String, text: &str| fs::write(kdamonds.join(&path), text).unwrap_or_else(|e| panic!("{path}: {e}"));
    write("nr_kdamonds".into(), "2");
    for (k, target) in targets.iter().enumerate() {
        write(format!("{k}/contexts/nr_contexts"), "1");
        write(format!("{k}/contexts/0/targets/nr_targets"), "1");
        write(format!("{k}/contexts/0/targets/0/pid_target"), &target.pid().to_string());
        write(format!("{k}/contexts/0/monitoring_attrs/intervals/aggr_us"), "20000");
        write(format!("{k}/contexts/0/schemes/nr_schemes"), "1");
        write(format!("{k}/contexts/0/schemes/0/action"), "stat");
        for range in ["sz", "nr_accesses", "age"] {
            let max = format!("{k}/contexts/0/schemes/0/access_pattern/{range}/max");
            write(max, "4294967295");
        }
    }
}

/// Numbers that look random; the same for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % sides as u64) as usize
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.roll(of.len())]
    }
}

/// Some file below `folder`; `None` where what was there has gone meanwhile.
fn some_file(dice: &mut Dice, folder: &Path) -> Option<PathBuf> {
    let mut at = folder.to_owned();
    loop {
        let entries: Vec<PathBuf> = fs::read_dir(&at).ok()?.flatten().map(|entry| entry.path()).collect();
        if entries.is_empty() {
            return None;
        }
        at = dice.pick(&entries).clone();
        if at.is_file() {
            return Some(at);
        }
    }
}

/// What a program may do: anything, at any time. Every answer is right, but there must be one.
fn operate(dice: &mut Dice, kdamonds: &Path) {
    let state = kdamonds.join(dice.roll(2).to_string()).join("state");
    match dice.roll(4) {
        0 => drop(fs::write(state, dice.pick(&COMMANDS))),
        1 => {
            let Some(file) = some_file(dice, kdamonds) else { return };
            let text = *dice.pick(&["0", "1", "2", "stat", "Y", "-1", "", "18446744073709551615", "20", "x"]);
            // Which processes are watched, and by whom, is this test's.
            if !["pid_target", "nr_kdamonds", "action"].iter().any(|name| file.ends_with(name)) {
                drop(fs::write(file, text));
            }
        }
        2 => drop(some_file(dice, kdamonds).map(fs::read_to_string)),
        _ => drop(fs::read_dir(kdamonds.join("0/contexts/0/schemes/0/tried_regions")).map(Iterator::count)),
    }
}

/// Each thread does so many operations.
fn round(kdamonds: &Path, seed: u64) {
    let done = Arc::new(AtomicU64::new(0));
    let threads = (0..THREADS).map(|thread| {
        let (done, kdamonds) = (Arc::clone(&done), kdamonds.to_owned());
        std::thread::spawn(move || {
            let mut dice = Dice(seed * THREADS + thread);
            for _ in 0..OPERATIONS {
                operate(&mut dice, &kdamonds);
            }
            done.fetch_add(1, Ordering::Relaxed);
        })
    });
    let threads: Vec<_> = threads.collect();
    let begin = Instant::now();
    while threads.iter().any(|thread| !thread.is_finished()) {
        // Who never gets an answer is left behind: waiting for its thread would take for ever.
        assert!(begin.elapsed() < Duration::from_secs(120), "{done:?} of {THREADS} have got all their answers");
        std::thread::sleep(Duration::from_millis(20));
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Open files, threads, and memory in KiB.
fn held(pid: u32) -> (usize, usize, u64) {
    let count = |folder: &str| fs::read_dir(format!("/proc/{pid}/{folder}")).unwrap().count();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    (count("fd"), count("task"), line.split_whitespace().nth(1).unwrap().parse().unwrap())
}

fn put_out(kdamonds: &Path) {
    for k in 0..2 {
        let _ = fs::write(kdamonds.join(format!("{k}/state")), "off");
        assert_eq!(fs::read_to_string(kdamonds.join(format!("{k}/state"))).unwrap(), "off\n");
    }
    fs::write(kdamonds.join("nr_kdamonds"), "0").unwrap();
}

#[test]
fn root_a_hundred_programs_at_random_leave_nothing_behind() {
    let (folder, targets) = (tempfile::tempdir().unwrap(), [target(), target()]);
    let (server, kdamonds) = mount(folder.path());
    let mut before = None;
    for seed in 0..4 {
        set_up(&kdamonds, &targets);
        for k in 0..2 {
            fs::write(kdamonds.join(format!("{k}/state")), "on").unwrap();
        }
        round(&kdamonds, seed);
        put_out(&kdamonds);
        let (files, threads, kib) = held(server.pid());
        // The first has filled what is kept for later.
        let (files_before, threads_before, kib_before) = *before.get_or_insert((files, threads, kib));
        assert!(
            files <= files_before && threads <= threads_before,
            "{files} of {files_before}, {threads} of {threads_before}"
        );
        assert!(kib < kib_before + GROWTH_KIB, "{kib_before} to {kib} KiB");
    }
    // It works as before.
    set_up(&kdamonds, &targets);
    fs::write(kdamonds.join("0/state"), "on").unwrap();
    fs::write(kdamonds.join("0/state"), "update_schemes_tried_bytes").unwrap();
    let bytes = fs::read_to_string(kdamonds.join("0/contexts/0/schemes/0/tried_regions/total_bytes")).unwrap();
    assert_ne!(bytes, "0\n");
    server.signal("TERM");
    server.finish().expect(0, &[]);
}

#[test]
fn root_it_is_unmounted_while_a_hundred_programs_use_it() {
    let (folder, targets) = (tempfile::tempdir().unwrap(), [target(), target()]);
    let (server, kdamonds) = mount(folder.path());
    set_up(&kdamonds, &targets);
    fs::write(kdamonds.join("0/state"), "on").unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (over, kdamonds) = (&over, &kdamonds);
            scope.spawn(move || {
                let mut dice = Dice(thread);
                while !over.load(Ordering::Relaxed) {
                    operate(&mut dice, kdamonds);
                }
            });
        }
        std::thread::sleep(Duration::from_millis(300));
        server.signal("TERM");
        server.finish().expect(0, &[]);
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let (server, kdamonds) = mount(folder.path());
    assert_eq!(fs::read_to_string(kdamonds.join("nr_kdamonds")).unwrap(), "0\n");
    server.signal("TERM");
    server.finish().expect(0, &[]);
}
