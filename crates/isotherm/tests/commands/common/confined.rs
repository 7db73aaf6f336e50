//! What the kernel says of a confined process.

use super::{isotherm, text, wait_until};
use serde_json::Value;
use std::path::Path;

/// Capabilities by their numbers in linux/capability.h.
const NAMES: [(&str, u32); 6] = [
    ("CAP_DAC_OVERRIDE", 1),
    ("CAP_KILL", 5),
    ("CAP_SYS_PTRACE", 19),
    ("CAP_SYS_NICE", 23),
    ("CAP_BPF", 39),
    ("CAP_CHECKPOINT_RESTORE", 40),
];

/// Whether we may do what root may.
pub fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status").unwrap().lines().any(|line| {
        line.strip_prefix("CapEff:").is_some_and(|caps| u64::from_str_radix(caps.trim(), 16).unwrap() >> 21 & 1 == 1)
    })
}

/// What the files `status` of every thread say of a key.
pub fn of_threads(pid: u32, key: &str) -> Vec<String> {
    let status = |task: std::io::Result<std::fs::DirEntry>| {
        // One that has ended meanwhile says nothing.
        let text = std::fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        Some(text.lines().find_map(|line| line.strip_prefix(key)).unwrap().trim().to_owned())
    };
    std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().filter_map(status).collect()
}

/// The status of whoever listens at `socket`, once it does.
pub fn reported(socket: &Path) -> Value {
    wait_until("it listens", || socket.exists());
    let done = isotherm(["ctl", "--socket", text(socket), "status", "--json"]);
    done.expect(0, &[]);
    serde_json::from_str(&done.stdout).unwrap()
}

/// That every thread of it has the declared capabilities and no more, no new privileges, and a filter.
#[track_caller]
pub fn check_confined(pid: u32, status: &Value, declared: &[&str]) {
    assert_eq!(status["sandbox"]["on"], true, "{status}");
    let kept: Vec<&str> =
        status["sandbox"]["capabilities"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(kept, declared);
    let number = |name: &&str| NAMES.iter().find(|(known, _)| known == name).unwrap().1;
    let mask = format!("{:016x}", declared.iter().map(|name| 1u64 << number(name)).sum::<u64>());
    let threads = of_threads(pid, "CapEff:").len();
    for (key, value) in [
        ("NoNewPrivs:", "1"),
        ("Seccomp:", "2"),
        ("CapEff:", mask.as_str()),
        ("CapPrm:", mask.as_str()),
        ("CapInh:", "0000000000000000"),
        ("CapAmb:", "0000000000000000"),
        ("CapBnd:", mask.as_str()),
    ] {
        let found = of_threads(pid, key);
        assert!(found.iter().all(|found| found == value), "{key} {found:?} of {threads} threads, not {value}");
    }
}
