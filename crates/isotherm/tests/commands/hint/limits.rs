//! What limits `isotherm hint host`, where guests call it, and what is said of VMMs that have ended. No privilege needed.

use crate::common::vmm::{self, HostSide, MIB, RAM, Vmm};
use crate::common::{isotherm, text, wait_until};
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

#[test]
fn zeros_are_dropped_within_the_rate() {
    let mut vmm = Vmm::start();
    vmm.fill(2 * MIB, RAM - 2 * MIB, 0);
    let folder = tempfile::tempdir().unwrap();
    let spec = format!("pid={}", vmm.pid());
    let begin = Instant::now();
    let host =
        HostSide::start(folder.path(), &["--guest", &spec, "--scan-zero", "--scan-every", "50ms", "--rate", "8M"]);
    let dropped = || host.guest(0)["scan"]["dropped"].as_u64().unwrap_or(0);
    wait_until("what may come at once is dropped", || dropped() == RAM - 2 * MIB);
    vmm.fill(2 * MIB, RAM - 2 * MIB, 0);
    wait_until("more is dropped", || dropped() >= RAM + 8 * MIB);
    let (dropped, most) = (dropped(), RAM + 2 * MIB + begin.elapsed().as_millis() as u64 * 8 * MIB / 1000);
    assert!(dropped <= most, "{dropped} are more than {most}");
}

#[test]
fn a_vmm_that_has_ended_is_a_problem() {
    let vmm = Vmm::start();
    let pid = vmm.pid();
    let folder = tempfile::tempdir().unwrap();
    let door = format!("unix:{}", text(&folder.path().join("door")));
    let host = HostSide::start(folder.path(), &["--guest", &format!("pid={pid},name=a"), "--listen", &door]);
    assert!(host.guest(0)["problem"].is_null());
    drop(vmm);
    let problem = || host.guest(0)["problem"].as_str().map(str::to_owned).unwrap_or_default();
    wait_until("the status tells", || problem().contains(&format!("process {pid} has ended")));
    assert!(problem().contains("pid of the new VMM"), "{}", problem());
    host.end("TERM").expect(0, &[&format!("process {pid} has ended")]);
}

#[test]
fn the_port_that_the_kernel_chose_is_told() {
    let vmm = Vmm::start();
    let folder = tempfile::tempdir().unwrap();
    let spec = format!("pid={},key={}", vmm.pid(), text(&vmm::key_file(folder.path(), "0123456789abcdef")));
    let host = HostSide::start(folder.path(), &["--guest", &spec, "--listen", "tcp:127.0.0.1:0"]);
    let status = host.status();
    let place = status["listening"][0].as_str().unwrap();
    assert!(place.starts_with("tcp:127.0.0.1:") && !place.ends_with(":0"), "{place}");
}

#[test]
fn others_may_call_if_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    for (mode, args) in [(0o600, &[][..]), (0o660, &["--listen-mode", "660"])] {
        let door = folder.path().join("door");
        let listen = format!("unix:{}", text(&door));
        let host = HostSide::start(folder.path(), &[&["--listen", listen.as_str()], args].concat());
        assert_eq!(door.metadata().unwrap().permissions().mode() & 0o777, mode);
        host.end("TERM").expect(0, &[]);
    }
}

#[test]
fn places_that_cannot_be_and_times_that_make_no_sense() {
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain");
    std::fs::write(&plain, "kept").unwrap();
    let at = |path: &std::path::Path| format!("unix:{}", text(path));
    let host = |args: &[&str]| isotherm([&["hint", "host", "--no-control"], args].concat());
    let done = host(&["--listen", &at(&plain)]);
    done.expect(1, &["is no socket", "another --listen unix:PATH"]);
    assert!(!done.stderr.contains("--socket"), "{done:#?}");
    let other = at(&folder.path().join("a"));
    host(&["--listen", &other, "--listen", &other]).expect(2, &["given twice", &other]);
    host(&["--listen", &other, "--listen-mode", "777"]).expect(2, &["660"]);
    host(&["--guest", "socket=/a", "--listen-mode", "660"]).expect(2, &["--listen"]);
    host(&["--guest", "socket=/a", "--scan-zero", "--scan-every", "0s"]).expect(2, &["--scan-every"]);
    host(&["--guest", "socket=/a", "--scan-zero", "--pause", "0s"]).expect(2, &["--pause"]);
    host(&["--guest", "socket=/a,name=guest1", "--guest", "socket=/b"]).expect(2, &["the name guest1", "name=X"]);
    host(&["--guest", "socket=/a,name=x", "--guest", "socket=/b,name=x"]).expect(2, &["the name x"]);
}
