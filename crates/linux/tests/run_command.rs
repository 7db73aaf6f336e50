//! Commands that are run to their end: one test, because signals belong to the whole process.

use isotherm_linux::run_command::run_command;
use isotherm_linux::signals::StopSignals;
use rustix::process::{Signal, getpid, kill_process};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

/// Runs a shell's script and, each time that it has added a line to `told`, sends us SIGTERM.
fn run(script: &str, told: &Path, terms: usize, grace: Duration) -> ExitStatus {
    let signals = StopSignals::catch().unwrap();
    let _ = std::fs::remove_file(told);
    let words = ["sh", "-c", script, "sh", told.to_str().unwrap()].map(OsString::from);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=terms {
                while std::fs::read_to_string(told).map_or(0, |text| text.lines().count()) < number {
                    std::thread::sleep(Duration::from_millis(1));
                }
                kill_process(getpid(), Signal::TERM).unwrap();
            }
        });
        run_command(&words, &signals, grace, || {}).unwrap()
    })
}

#[test]
fn a_command_that_is_asked_to_stop_ends() {
    let folder = tempfile::tempdir().unwrap();
    let told = folder.path().join("told");
    let run = |script, terms, grace| run(script, &told, terms, grace);
    let (soon, never) = (Duration::from_millis(50), Duration::from_secs(3600));
    assert_eq!(run("exit 3", 0, never).code(), Some(3));
    assert_eq!(run("echo >$1; exec sleep 1000", 1, never).signal(), Some(15));
    // Each signal is handed on.
    let counts = "n=0; trap 'n=$((n+1)); echo >>$1' TERM; echo >>$1; while [ $n -lt 3 ]; do sleep 0.01; done; exit $n";
    assert_eq!(run(counts, 3, never).code(), Some(3));
    // As shells in which somebody types. Where SIGHUP is ignored, as with nohup, it is so for the command, too.
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let hangs_up = u64::from_str_radix(ignored.trim(), 16).unwrap() & 1 == 0;
    let ended = run("trap '' TERM; echo >$1; while :; do sleep 0.01; done", 1, soon).signal();
    assert_eq!(ended, Some(if hangs_up { 1 } else { 9 }));
    let child = "trap '' TERM HUP; sleep 1000 & echo $! >$1; while :; do sleep 0.01; done";
    assert_eq!(run(child, 1, soon).signal(), Some(9));
    let pid: u32 = std::fs::read_to_string(&told).unwrap().trim().parse().unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "what it had forked ends as well: {stat}");
}
