//! Processes that cannot be watched, or that end or change while they are watched.

use crate::common::{self, Program, Running, command, isotherm, snapshots, start, state, text, wait_until};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A folder for a record.
fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.iso");
    (folder, file)
}

/// Starts `record` with `args` and waits until the record holds something.
fn recording(file: &Path, args: &[&str]) -> Running {
    let running = start(&mut command([&["record", "-o", text(file)], args].concat()));
    wait_until("the record is begun", || std::fs::metadata(file).is_ok_and(|m| m.len() > 0));
    running
}

#[test]
fn a_process_that_does_not_exist() {
    let (_folder, file) = place();
    let pid = Program::gone().to_string();
    isotherm(["record", "--pid", &pid, "-o", text(&file), "--duration", "1s"]).expect(1, &[&pid]);
    assert!(!file.exists());
}

#[test]
fn a_name_that_nobody_has() {
    let (_folder, file) = place();
    isotherm(["record", "--name", "no-such-program", "-o", text(&file), "--duration", "1s"])
        .expect(1, &["no process is named 'no-such-program'"]);
    assert!(!file.exists());
}

#[test]
fn a_zombie() {
    let (_folder, file) = place();
    let zombie = Program::zombie();
    let pid = zombie.pid().to_string();
    isotherm(["record", "--pid", &pid, "-o", text(&file), "--duration", "1s"]).expect(1, &[&pid]);
    assert!(!file.exists());
}

/// The parts that work without privilege, through the source that needs none.
mod with_refs {
    use super::*;

    const REFS: [&str; 2] = ["--source", "refs"];

    #[test]
    fn the_end_of_the_target_ends_the_recording_well() {
        let (_folder, file) = place();
        let program = Program::shell("exec sleep 1.5");
        let pid = program.pid().to_string();
        isotherm([&["record", "-o", text(&file), "--pid", &pid, "--duration", "1h"], &REFS[..]].concat())
            .expect(0, &[]);
        assert!(!snapshots(&file).is_empty());
    }

    #[test]
    fn a_program_that_cannot_be_executed_leaves_an_old_record_alone() {
        let (folder, file) = place();
        let program = folder.path().join("program");
        std::fs::copy("/bin/true", &program).unwrap();
        // While somebody has it open for writing, the kernel refuses to execute it.
        let _busy = std::fs::File::options().append(true).open(&program).unwrap();
        let record = || isotherm([&["record", "-o", text(&file)], &REFS[..], &["--", text(&program)]].concat());
        record().expect(1, &[text(&program)]);
        assert!(!file.exists(), "there was no record");
        std::fs::write(&file, "kept").unwrap();
        record().expect(1, &[text(&program)]);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
        let left = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 2, "nothing but the program and the old record");
    }

    #[test]
    fn interrupt_and_terminate_both_end_with_a_whole_record() {
        for signal in ["INT", "TERM"] {
            let (_folder, file) = place();
            let mut program = Program::sleeper();
            let pid = program.pid().to_string();
            let running = recording(&file, &[&["--pid", &pid][..], &REFS].concat());
            // Time for at least one aggregation interval, at any speed of the machine.
            std::thread::sleep(std::time::Duration::from_millis(1500));
            running.signal(signal);
            running.finish().expect(0, &[]);
            assert!(!snapshots(&file).is_empty(), "after SIG{signal}");
            assert!(program.is_alive(), "a watched process must outlive its watcher");
        }
    }

    #[test]
    fn the_command_that_record_started_does_not_outlive_it() {
        let (folder, file) = place();
        let pid_file = folder.path().join("pid");
        let script = format!("echo $$ >{0}.new; mv {0}.new {0}; exec sleep 600", text(&pid_file));
        let running = recording(&file, &[&REFS[..], &["--", "sh", "-c", &script]].concat());
        wait_until("the command runs", || pid_file.exists());
        let pid: u32 = std::fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap();
        running.signal("TERM");
        running.finish().expect_no_panic();
        wait_until("the command has ended", || matches!(state(pid), None | Some('Z')));
    }
}

mod privileged {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;

    #[test]
    fn root_a_kernel_thread() {
        let (_folder, file) = place();
        isotherm(["record", "--pid", "2", "-o", text(&file), "--duration", "1s"]).expect(1, &["2", "kernel thread"]);
        assert!(!file.exists());
    }

    #[test]
    fn root_the_end_of_the_target_ends_the_recording_well() {
        let (_folder, file) = place();
        let program = Program::shell("exec sleep 1.5");
        let pid = program.pid().to_string();
        isotherm(["record", "-o", text(&file), "--pid", &pid, "--duration", "1h"]).expect(0, &[]);
        assert!(!snapshots(&file).is_empty());
    }

    #[test]
    fn root_the_end_of_one_of_two_targets_leaves_the_other() {
        let (_folder, file) = place();
        let (short, mut long) = (Program::shell("exec sleep 1"), Program::sleeper());
        let (a, b) = (short.pid().to_string(), long.pid().to_string());
        isotherm(["record", "-o", text(&file), "--pid", &a, "--pid", &b, "--duration", "3s"]).expect(0, &[]);
        let last = snapshots(&file).pop().unwrap();
        assert_eq!(last["pid"].as_u64(), Some(u64::from(long.pid())), "{last}");
        assert!(long.is_alive());
    }

    #[test]
    fn root_a_target_that_executes_another_program_is_followed() {
        let (_folder, file) = place();
        let program = Program::shell("sleep 1.5; exec sleep 600");
        let pid = program.pid().to_string();
        isotherm(["record", "-o", text(&file), "--pid", &pid, "--duration", "4s"]).expect(0, &[]);
        let all = snapshots(&file);
        // Two address spaces: what is mapped at the end was not there at the begin.
        let first_address = |s: &serde_json::Value| s["regions"][0]["start"].as_u64();
        assert_ne!(first_address(&all[0]), first_address(all.last().unwrap()), "still the old program's addresses");
        let span_ns = all.last().unwrap()["end_ns"].as_u64().unwrap() - all[0]["start_ns"].as_u64().unwrap();
        assert!(span_ns > 2_500_000_000, "the record ends {span_ns} ns after its begin, at the exec");
    }

    #[test]
    fn root_somebody_elses_process_without_permission() {
        // A folder and a copy that anybody may reach, for the build's own folder may be closed to others.
        let folder = tempfile::tempdir().unwrap();
        let binary = folder.path().join("isotherm");
        std::fs::copy(env!("CARGO_BIN_EXE_isotherm"), &binary).unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let mut program = Program::sleeper();
        let pid = program.pid().to_string();
        let file = folder.path().join("r.iso");
        for source in ["auto", "pagetable", "refs"] {
            let mut as_nobody = std::process::Command::new(&binary);
            as_nobody.uid(65534).gid(65534).current_dir("/");
            as_nobody.args(["record", "--pid", &pid, "--source", source, "-o", text(&file), "--duration", "1s"]);
            let done = common::run(&mut as_nobody);
            done.expect_no_panic();
            assert!(matches!(done.status, Some(1 | 3)), "{source}: {done:#?}");
            assert!(!done.stderr.trim().is_empty());
            assert!(!file.exists(), "{source} left a file");
        }
        assert!(program.is_alive());
    }
}
