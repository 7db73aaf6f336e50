//! `isotherm ctl` talks to an `isotherm mount`: what runs behind its files, and why something was refused. Needs root,
//! FUSE and eBPF.

use crate::common::{Program, command, isotherm, start, text, wait_until};
use std::fs;
use std::path::Path;

fn status(socket: &Path) -> serde_json::Value {
    let done = isotherm(["ctl", "--socket", text(socket), "status", "--json"]);
    done.expect(0, &[]);
    done.json_lines().remove(0)
}

#[test]
fn root_the_status_tells_what_runs_and_what_was_refused() {
    let (folder, program) = (tempfile::tempdir().unwrap(), Program::sleeper());
    let (at, socket) = (folder.path().join("files"), folder.path().join("socket"));
    fs::create_dir(&at).unwrap();
    let server = start(&mut command(["mount", "--socket", text(&socket), text(&at)]));
    let sys = at.join("sys");
    let kdamonds = sys.join("kernel/mm/damon/admin/kdamonds");
    wait_until("it is mounted", || kdamonds.exists() && socket.exists());
    assert_eq!(status(&socket)["kdamonds"], serde_json::json!([]));

    let write = |file: &str, text: &str| fs::write(kdamonds.join(file), text);
    write("nr_kdamonds", "2").unwrap();
    for (file, text) in [
        ("contexts/nr_contexts", "1"),
        ("contexts/0/operations", "paddr"),
        ("contexts/0/targets/nr_targets", "1"),
        ("contexts/0/targets/0/pid_target", &program.pid().to_string()),
        ("contexts/0/schemes/nr_schemes", "1"),
        ("contexts/0/schemes/0/access_pattern/sz/max", "18446744073709551615"),
        ("contexts/0/schemes/0/access_pattern/age/max", "18446744073709551615"),
    ] {
        write(&format!("1/{file}"), text).unwrap();
    }
    assert_eq!(write("1/state", "on").unwrap_err().raw_os_error(), Some(22), "EINVAL");
    // Cold memory cannot be distinguished by where the machine has it, so the module refuses, too.
    fs::write(sys.join("module/damon_lru_sort/parameters/enabled"), "Y").unwrap_err();
    let reported = status(&socket);
    let refused = reported["refused"].as_array().unwrap();
    assert_eq!((&refused[0]["files"], &refused[1]["files"]), (&"kdamonds/1".into(), &"damon_lru_sort".into()));
    assert!(refused[0]["reason"].as_str().unwrap().contains("physical memory"), "{reported}");

    write("1/contexts/0/operations", "vaddr").unwrap();
    write("1/state", "on").unwrap();
    wait_until("its scheme has acted", || status(&socket)["kdamonds"][0]["schemes"][0]["nr_tried"] != 0);
    let reported = status(&socket);
    let kdamond = &reported["kdamonds"][0];
    assert_eq!((&kdamond["files"], &kdamond["pids"][0]), (&"kdamonds/1".into(), &program.pid().into()));
    assert_eq!((&kdamond["operations"], &kdamond["schemes"][0]["action"]), (&"vaddr".into(), &"stat".into()));
    assert_eq!(kdamond["tid"].to_string(), fs::read_to_string(kdamonds.join("1/pid")).unwrap().trim());

    isotherm(["ctl", "--socket", text(&socket), "stop"]).expect(0, &[]);
    server.finish().expect(0, &["refused (EINVAL)", "physical memory"]);
    assert_eq!(fs::read_dir(&at).unwrap().count(), 0, "unmounted");
    assert!(!socket.exists());
}

#[test]
fn root_a_command_that_has_the_files_is_told_to_stop() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let server = start(&mut command(["mount", "--socket", text(&socket), "--exec", "sleep", "600"]));
    wait_until("it listens", || socket.exists());
    assert_eq!(status(&socket)["about"], "for sleep");
    isotherm(["ctl", "--socket", text(&socket), "stop"]).expect(0, &[]);
    let done = server.finish();
    assert_eq!(done.status, Some(128 + 15), "{done:#?}");
}
