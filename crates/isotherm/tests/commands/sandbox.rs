//! The sandbox of the commands that run on: what they keep, what they do not, and who is not confined.

use crate::common::confined::{check_confined, is_root, of_threads, reported};
use crate::common::vmm::{HostSide, Vmm};
use crate::common::{Program, Running, command, isotherm, run, start, text};
use std::path::Path;
use std::process::Command;

fn schemes(socket: &Path, pid: u32, more: &[&str]) -> Running {
    let pid = pid.to_string();
    let args = ["schemes", "--pid", &pid, "--scheme", "4K max 0 0 1s max cold", "--socket", text(socket)];
    start(command(args).args(more))
}

#[test]
fn root_schemes_keep_what_they_declare() {
    if !is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let (target, folder) = (Program::sleeper(), tempfile::tempdir().unwrap());
    let socket = folder.path().join("s");
    let running = schemes(&socket, target.pid(), &[]);
    let status = reported(&socket);
    check_confined(running.pid(), &status, &["CAP_DAC_OVERRIDE", "CAP_SYS_PTRACE", "CAP_SYS_NICE", "CAP_BPF"]);
    let words = isotherm(["ctl", "--socket", text(&socket), "status"]);
    assert!(words.stdout.contains("sandbox   on, with CAP_DAC_OVERRIDE"), "{}", words.stdout);
    running.signal("TERM");
    running.finish().expect(0, &[]);
    assert!(!socket.exists(), "it can still remove its socket");
}

#[test]
fn root_without_it_all_rights_are_kept() {
    if !is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let (target, folder) = (Program::sleeper(), tempfile::tempdir().unwrap());
    let socket = folder.path().join("s");
    let running = schemes(&socket, target.pid(), &["--no-sandbox"]);
    let status = reported(&socket);
    assert_eq!(status["sandbox"]["on"], false, "{status}");
    let own = of_threads(std::process::id(), "CapEff:").remove(0);
    for (key, value) in [("NoNewPrivs:", "0"), ("Seccomp:", "0"), ("CapEff:", own.as_str())] {
        assert!(of_threads(running.pid(), key).iter().all(|found| found == value), "{key}");
    }
    running.signal("TERM");
    running.finish().expect(0, &[]);
}

#[test]
fn a_command_that_is_the_target_is_not_confined() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("status");
    let script = format!("grep -E 'NoNewPrivs|Seccomp:|CapEff' /proc/self/status > {}; exec sleep 2", text(&out));
    let args = ["schemes", "--source", "refs", "--no-control", "--scheme", "4K max 0 0 1s max stat"];
    run(command(args).args(["--", "sh", "-c", &script])).expect(0, &[]);
    let found = std::fs::read_to_string(&out).unwrap();
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    for line in found.lines() {
        assert!(own.lines().any(|own| own == line), "{line}: not as whoever started Isotherm");
    }
    assert_eq!(found.lines().count(), 3);
}

#[test]
fn root_hint_host_keeps_what_it_declares() {
    if !is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let (vmm, folder) = (Vmm::start(), tempfile::tempdir().unwrap());
    let guest = format!("pid={},socket={}", vmm.pid(), text(&folder.path().join("port")));
    let host = HostSide::start(folder.path(), &["--guest", &guest]);
    let declared = ["CAP_DAC_OVERRIDE", "CAP_SYS_PTRACE", "CAP_CHECKPOINT_RESTORE"];
    check_confined(host.pid(), &host.status(), &declared);
    host.end("TERM").expect(0, &[]);
    let host = HostSide::start(folder.path(), &["--guest", &guest, "--scan-zero"]);
    let declared = ["CAP_DAC_OVERRIDE", "CAP_SYS_PTRACE", "CAP_SYS_NICE", "CAP_CHECKPOINT_RESTORE"];
    check_confined(host.pid(), &host.status(), &declared);
    host.end("TERM").expect(0, &[]);
}

/// Runs `isotherm` where the kernel refuses filters, as an old container does.
const WITHOUT_SECCOMP: &str = r#"
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
code = b"".join(struct.pack("=HBBI", *i) for i in [
    (0x20, 0, 0, 0),               # the number of the call
    (0x15, 0, 1, 317),             # seccomp, on x86-64
    (0x06, 0, 0, 0x50000 | 38),    # ENOSYS
    (0x06, 0, 0, 0x7fff0000)])
buffer = ctypes.create_string_buffer(code)
program = ctypes.create_string_buffer(struct.pack("=H6xQ", 4, ctypes.addressof(buffer)))
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program):
    sys.exit("no filter: " + os.strerror(ctypes.get_errno()))
os.execv(sys.argv[1], sys.argv[1:])
"#;

#[test]
#[cfg(target_arch = "x86_64")]
fn who_cannot_be_confined_does_not_run() {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: there is no python3");
        return;
    }
    let target = Program::sleeper();
    let pid = target.pid().to_string();
    let args = ["schemes", "--pid", &pid, "--source", "refs", "--no-control", "--duration", "1s"];
    let wrapped = |more: &[&str]| {
        run(Command::new("python3")
            .args(["-c", WITHOUT_SECCOMP, env!("CARGO_BIN_EXE_isotherm")])
            .args(args)
            .args(["--scheme", "4K max 0 0 1s max stat"])
            .args(more))
    };
    wrapped(&[]).expect(3, &["cannot be confined", "seccomp", "--no-sandbox"]);
    wrapped(&["--no-sandbox"]).expect(0, &[]);
}
