//! The systemd units and the example that `make install` brings.

use crate::common::{self, isotherm, run, text};
use std::path::{Path, PathBuf};
use std::process::Command;

fn dist(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist").join(name)
}

const UNITS: [&str; 4] =
    ["isotherm@.service", "isotherm-node.service", "isotherm-hint-host.service", "isotherm-hint-guest.service"];

#[test]
fn systemd_finds_no_fault_in_the_units() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        eprintln!("skipped: there is no systemd-analyze");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let verify = |path: &Path| run(Command::new("systemd-analyze").args(["verify", "--man=no", text(path)]));
    for name in UNITS {
        let unit = std::fs::read_to_string(dist(name)).unwrap();
        let installed = "/usr/local/bin/isotherm";
        assert!(unit.contains(installed));
        let path = folder.path().join(name);
        // It looks whether the program is there.
        std::fs::write(&path, unit.replace(installed, env!("CARGO_BIN_EXE_isotherm"))).unwrap();
        let done = verify(&path);
        let stem = name.trim_end_matches(".service");
        // An older systemd may not know every call of the filter.
        let faults = done.stderr.lines().filter(|l| l.contains(stem) && !l.contains("Failed to parse system call"));
        assert!(done.status == Some(0) && faults.count() == 0, "{done:#?}");
        std::fs::write(&path, unit.replace("ProtectSystem=strict", "ProtectSystm=strict")).unwrap();
        assert!(verify(&path).stderr.contains("ProtectSystm"), "a mistake would be found");
    }
}

#[test]
fn systemd_finds_little_exposure() {
    let judged = |path: &Path| {
        run(Command::new("systemd-analyze").args(["security", "--offline=true", "--threshold=40", text(path)]))
    };
    if Command::new("systemd-analyze").arg("--version").output().is_err()
        || judged(&dist(UNITS[0])).stderr.contains("unrecognized option")
    {
        eprintln!("skipped: there is no systemd-analyze that judges files");
        return;
    }
    // Tenths: below 4.
    for name in UNITS {
        let done = judged(&dist(name));
        assert_eq!(done.status, Some(0), "{name}: {done:#?}");
    }
    let folder = tempfile::tempdir().unwrap();
    let bare = folder.path().join("bare.service");
    std::fs::write(&bare, "[Service]\nExecStart=/bin/true\n").unwrap();
    assert_eq!(judged(&bare).status, Some(1), "one without hardening is found");
}

/// The words of all lines of a unit with this key.
fn words(unit: &str, key: &str) -> Vec<String> {
    let values = unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    values.flat_map(str::split_whitespace).map(str::to_owned).collect()
}

#[test]
fn the_units_let_isotherm_confine_itself() {
    for name in UNITS {
        let unit = std::fs::read_to_string(dist(name)).unwrap();
        let allowed = words(&unit, "SystemCallFilter");
        for call in ["seccomp", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"] {
            assert!(allowed.iter().any(|word| word == call), "{name}: {call}");
        }
        assert!(
            !allowed.iter().any(|word| ["@mount", "@module", "@reboot", "@raw-io", "@swap"].contains(&word.as_str()))
        );
        assert_eq!(words(&unit, "NoNewPrivileges"), ["yes"]);
    }
}

#[test]
fn no_unit_is_asked_to_reload_before_it_can() {
    let reload: Vec<&str> = UNITS
        .into_iter()
        .filter(|name| {
            let unit = std::fs::read_to_string(dist(name)).unwrap();
            let reloads = unit.contains("\nExecReload=");
            assert!(!reloads || words(&unit, "Type") == ["notify"], "{name}");
            reloads
        })
        .collect();
    assert_eq!(reload.len(), 2, "{reload:?}");
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
