//! The systemd unit and the example that `make install` brings.

mod common;

use common::{isotherm, run, text};
use std::path::{Path, PathBuf};
use std::process::Command;

fn dist(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist").join(name)
}

#[test]
fn systemd_finds_no_fault_in_the_unit() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        eprintln!("skipped: there is no systemd-analyze");
        return;
    }
    let unit = std::fs::read_to_string(dist("isotherm@.service")).unwrap();
    let installed = "/usr/local/bin/isotherm";
    assert!(unit.contains(installed));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("isotherm@.service");
    // It looks whether the program is there.
    std::fs::write(&path, unit.replace(installed, env!("CARGO_BIN_EXE_isotherm"))).unwrap();
    let verify = |path: &Path| run(Command::new("systemd-analyze").args(["verify", "--man=no", text(path)]));
    let done = verify(&path);
    assert!(done.status == Some(0) && !done.stderr.contains("isotherm@"), "{done:#?}");
    std::fs::write(&path, unit.replace("ProtectSystem=strict", "ProtectSystm=strict")).unwrap();
    assert!(verify(&path).stderr.contains("ProtectSystm"), "a mistake would be found");
}

#[test]
fn the_example_is_understood() {
    let done = isotherm(["schemes", "-c", text(&dist("example.toml")), "--print"]);
    done.expect(0, &[]);
    assert!(done.stdout.contains("pageout") && done.stdout.contains("some_mem_psi"), "{done:#?}");
}

#[test]
fn root_the_rights_that_the_unit_keeps_suffice() {
    let unit = std::fs::read_to_string(dist("isotherm@.service")).unwrap();
    let kept = unit.lines().find_map(|l| l.strip_prefix("CapabilityBoundingSet=")).unwrap();
    let kept: Vec<String> =
        kept.split(' ').map(|c| format!("+{}", c.trim_start_matches("CAP_").to_lowercase())).collect();
    if Command::new("setpriv").arg("--version").output().is_err() {
        eprintln!("skipped: there is no setpriv");
        return;
    }
    // A program of another user, paged out with no more than these rights.
    let isotherm = env!("CARGO_BIN_EXE_isotherm");
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("isotherm");
    std::fs::copy(isotherm, &copy).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).unwrap();
    let target =
        common::start(Command::new("setpriv").args(["--reuid=65534", "--regid=65534", "--clear-groups"]).args([
            text(&copy),
            "workload",
            "hotspot",
            "--size",
            "32M",
            "--hot",
            "10%",
            "--duration",
            "120s",
        ]));
    common::wait_until("it runs", || {
        std::fs::read_link(format!("/proc/{}/exe", target.pid())).is_ok_and(|exe| exe == copy)
    });
    let bounds = format!("--bounding-set=-all,{}", kept.join(","));
    let pid = target.pid().to_string();
    let done = run(Command::new("setpriv").args([&bounds, "--no-new-privs", isotherm]).args([
        "schemes",
        "--json",
        "--no-control",
        "--source",
        "pagetable",
        "--duration",
        "8s",
        "--pid",
        &pid,
        "--scheme",
        "4K max 0 0 1s max cold",
    ]));
    target.signal("TERM");
    target.finish();
    done.expect(0, &[]);
    let applied = done.json_lines()[0]["sz_applied"].as_u64().unwrap();
    assert!(applied > 8 << 20, "{done:#?}");
}
