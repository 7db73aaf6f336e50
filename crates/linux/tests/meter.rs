//! Metrics of the running system.

mod common;

use common::{Guard, wait_for};
use isotherm_core::meter::{LiveTarget, Meter, Metric, MetricKind};
use isotherm_linux::meter::LinuxMeter;
use isotherm_linux::roots::Roots;

fn meter() -> LinuxMeter {
    LinuxMeter::new(Roots::system())
}

fn target(pid: u32) -> LiveTarget {
    LiveTarget { target: 0, pid: Some(pid) }
}

#[test]
fn figures_of_this_machine_are_within_bounds_and_counters_grow() {
    let mut m = meter();
    let own = [target(std::process::id())];
    for metric in [
        Metric::SomeMemPsi(None),
        Metric::FullMemPsi(None),
        Metric::FreeMemRate,
        Metric::NodeMemUsed(0),
        Metric::NodeMemFree(0),
        Metric::ActiveMem,
        Metric::InactiveMem,
        Metric::SwapIn,
        Metric::Refault,
        Metric::TargetMajorFaults,
        Metric::TargetStall,
    ] {
        match (m.read(&metric, &own), m.read(&metric, &own)) {
            (Ok(a), Ok(b)) if metric.kind() == MetricKind::Counter => assert!(b >= a, "{metric}: {a}, then {b}"),
            (Ok(a), Ok(_)) => assert!(a <= 10_000, "{metric}: {a}"),
            // A kernel may lack it; then it says so each time.
            (Err(a), b) => assert_eq!(b, Err(a)),
            (Ok(a), Err(e)) => panic!("{metric}: {a}, then {e}"),
        }
    }
    assert!(m.read(&Metric::FreeMemRate, &[]).is_ok());
    let active = m.read(&Metric::ActiveMem, &[]).unwrap();
    assert!(active <= 10_000);
}

#[test]
fn resident_memory_grows_with_a_target_and_vanishes_with_it() {
    let mut m = meter();
    let own = target(std::process::id());
    let before = m.read(&Metric::TargetRss, &[own]).unwrap();
    let block = vec![1u8; 64 << 20];
    // Not exact: the test harness has other threads.
    let after = m.read(&Metric::TargetRss, &[own]).unwrap();
    assert!(after >= before + (48 << 20), "{before}, then {after}");
    drop(std::hint::black_box(block));

    let mut child = Guard::shell("read line");
    let both = [own, target(child.pid())];
    let with = m.read(&Metric::TargetRss, &both[1..]).unwrap();
    assert!(with > 0);
    assert!(m.read(&Metric::TargetRss, &both).unwrap() > with);
    drop(child.0.stdin.take());
    wait_for("the child's end", || m.read(&Metric::TargetRss, &both[1..]).is_err().then_some(()));
    assert!(m.read(&Metric::TargetRss, &both).is_ok(), "those that remain still count");
}

#[test]
fn the_control_group_of_a_target_is_the_one_the_kernel_names() {
    let text = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    match meter().cgroup_of(target(std::process::id())) {
        Some(path) => {
            assert!(path.starts_with('/') && text.lines().any(|l| l.ends_with(&format!(":{path}"))), "{path}: {text}");
        }
        None => assert!(!text.contains("0::") && !text.contains("memory"), "{text}"),
    }
}

mod privileged {
    use super::common::Guard;
    use super::common::group::Group;
    use super::{Metric, meter, target};
    use isotherm_core::meter::Meter;
    use isotherm_linux::cgroup::CgroupSetup;
    use isotherm_linux::roots::Roots;

    #[test]
    fn root_a_control_group_tells_its_use_and_what_its_limit_leaves() {
        let setup = CgroupSetup::read(&Roots::system());
        let (mount, v2) = setup.memory_mount().expect("a memory controller");
        let name = format!("isotherm-meter-{}", std::process::id());
        let group = Group::new(mount.join(&name));
        let path = format!("/{name}");
        let mut m = meter();
        let used = Metric::CgroupMemUsed(path.clone());
        let left = Metric::CgroupMemFree(path.clone());
        assert!(m.read(&left, &[]).is_err(), "no limit has been set");

        // It reads 32 MiB into a variable of its own once it is asked to.
        let mut child = Guard::shell("read line; x=$(head -c 33554432 /dev/zero | tr '\\0' x); echo done; read line");
        group.add(child.pid());
        let before = m.read(&used, &[]).unwrap();
        std::io::Write::write_all(child.0.stdin.as_mut().unwrap(), b"go\n").unwrap();
        let mut done = [0; 5];
        std::io::Read::read_exact(child.0.stdout.as_mut().unwrap(), &mut done).unwrap();
        let after = m.read(&used, &[]).unwrap();
        assert!(after >= before + (32 << 20), "{before}, then {after}");

        const LIMIT: u64 = 1 << 30;
        std::fs::write(group.0.join(if v2 { "memory.max" } else { "memory.limit_in_bytes" }), LIMIT.to_string())
            .unwrap();
        let (left, now) = (m.read(&left, &[]).unwrap(), m.read(&used, &[]).unwrap());
        assert!((left + now).abs_diff(LIMIT) < 16 << 20, "{left} left, {now} used");
        assert_eq!(m.cgroup_of(target(child.pid())), Some(path));
    }
}
