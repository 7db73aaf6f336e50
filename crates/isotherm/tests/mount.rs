//! `isotherm mount` from outside.

use std::process::{Command, Output};

fn isotherm(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_isotherm")).args(args).output().unwrap()
}

#[test]
fn bad_words_are_usage_errors() {
    for args in [&["mount"][..], &["mount", "a", "b"], &["mount", "--exec"], &["mount", "/does/not/exist"]] {
        assert_eq!(isotherm(args).status.code(), Some(2), "{args:?}");
    }
}

/// Whether this kernel has the folder that the files stand at.
fn has_usual_place() -> bool {
    std::path::Path::new("/sys/kernel/mm/damon").is_dir()
}

#[test]
fn root_a_command_sees_the_files_and_ends_as_it_would() {
    if !has_usual_place() {
        return;
    }
    let script = "cat /sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds; \
                  echo 1 >/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds; \
                  cat /sys/kernel/mm/damon/admin/kdamonds/0/state; exit 7";
    let output = isotherm(&["mount", "--exec", "sh", "-c", script]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0\noff\n");
    assert_eq!(output.status.code(), Some(7));
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains("/sys/kernel/mm/damon"), "nothing is mounted for others");
}

/// Serves a folder, is killed, and serves it again.
#[test]
fn root_a_mount_whose_server_was_killed_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let kdamonds = folder.path().join("sys/kernel/mm/damon/admin/kdamonds");
    for signal in ["KILL", "TERM"] {
        let mut server = Command::new(env!("CARGO_BIN_EXE_isotherm")).arg("mount").arg(folder.path()).spawn().unwrap();
        while !kdamonds.join("nr_kdamonds").exists() {
            assert!(server.try_wait().unwrap().is_none(), "it serves until it is told to end");
            std::thread::yield_now();
        }
        let sent = Command::new("kill").args([&format!("-{signal}"), &server.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let status = server.wait().unwrap();
        assert_eq!(status.success(), signal == "TERM");
        if signal == "KILL" {
            assert!(std::fs::read_dir(folder.path()).is_err(), "the mount is left without a server");
        }
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "unmounted");
}
