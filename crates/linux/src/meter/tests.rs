use super::*;
use crate::test_tree::{Tree, tree};

const HYBRID: &str = "29 24 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      34 24 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup rw\n";
const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";

fn meter(files: &[(&str, &str)]) -> (LinuxMeter, Tree) {
    let t = tree(files);
    (LinuxMeter::new(t.roots.clone()), t)
}

fn pressure(total: u64) -> String {
    format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={total}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n")
}

/// Checks that an error names the metric and helps, and gives its reason.
fn refused(result: Result<u64, MeterError>) -> String {
    let e = result.unwrap_err();
    assert!(!e.metric.is_empty() && !e.reason.is_empty() && !e.remedy.is_empty(), "{e:?}");
    e.reason
}

#[test]
fn figures_of_the_machine_follow_their_files() {
    let (mut m, t) = meter(&[
        ("proc/pressure/memory", &pressure(12)),
        ("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 100 kB\nActive: 1 kB\nInactive: 3 kB\n"),
        ("proc/vmstat", "pswpin 2\nworkingset_refault_anon 1\nworkingset_refault_file 2\n"),
        ("sys/devices/system/node/node1/meminfo", "Node 1 MemTotal: 10 kB\nNode 1 MemFree: 1 kB\n"),
    ]);
    let mut read = |metric| m.read(&metric, &[]).unwrap();
    assert_eq!(read(Metric::SomeMemPsi(None)), 12);
    assert_eq!(read(Metric::FullMemPsi(None)), 1);
    assert_eq!(
        (read(Metric::FreeMemRate), read(Metric::NodeMemUsed(1)), read(Metric::NodeMemFree(1))),
        (1000, 9000, 1000)
    );
    assert_eq!((read(Metric::ActiveMem), read(Metric::InactiveMem)), (2500, 7500));
    assert_eq!((read(Metric::SwapIn), read(Metric::Refault)), (2 * 4096, 3 * 4096));
    std::fs::write(t.roots.path("/proc/pressure/memory"), pressure(13)).unwrap();
    assert_eq!(read(Metric::SomeMemPsi(None)), 13);
    assert!(refused(m.read(&Metric::NodeMemUsed(0), &[])).contains("node0/meminfo is missing"));
}

#[test]
fn every_metric_is_refused_with_a_reason_where_the_kernel_tells_nothing() {
    let (mut m, _t) = meter(&[]);
    let group = || "/a".to_owned();
    for metric in [
        Metric::SomeMemPsi(None),
        Metric::FullMemPsi(Some(group())),
        Metric::FreeMemRate,
        Metric::NodeMemUsed(0),
        Metric::NodeMemFree(0),
        Metric::CgroupMemUsed(group()),
        Metric::CgroupMemFree(group()),
        Metric::TargetRss,
        Metric::TargetMajorFaults,
        Metric::TargetStall,
        Metric::ActiveMem,
        Metric::InactiveMem,
        Metric::SwapIn,
        Metric::Refault,
    ] {
        refused(m.read(&metric, &[LiveTarget { target: 0, pid: Some(1) }]));
    }
    assert_eq!(m.cgroup_of(LiveTarget { target: 0, pid: Some(1) }), None);
}

#[test]
fn a_file_without_the_line_is_refused_too() {
    let (mut m, _t) = meter(&[
        ("proc/pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=12\n"),
        ("proc/meminfo", "MemFree: 100 kB\nActive: 1 kB\n"),
        ("proc/vmstat", "nr_free_pages 1\n"),
    ]);
    assert_eq!(m.read(&Metric::SomeMemPsi(None), &[]), Ok(12));
    assert!(refused(m.read(&Metric::FullMemPsi(None), &[])).contains("no 'full' line"));
    assert!(refused(m.read(&Metric::FreeMemRate, &[])).contains("MemTotal"));
    assert!(refused(m.read(&Metric::ActiveMem, &[])).contains("Inactive"));
    assert!(refused(m.read(&Metric::SwapIn, &[])).contains("pswpin"));
}

#[test]
fn unified_groups() {
    let (mut m, t) = meter(&[
        ("proc/self/mountinfo", V2),
        ("proc/7/cgroup", "0::/a/b (deleted)\n"),
        ("sys/fs/cgroup/cgroup.controllers", "memory\n"),
        ("sys/fs/cgroup/cgroup.procs", ""),
        ("sys/fs/cgroup/memory.pressure", &pressure(99)),
        ("sys/fs/cgroup/a/cgroup.procs", ""),
        ("sys/fs/cgroup/a/memory.current", "1000\n"),
        ("sys/fs/cgroup/a/memory.max", "1500\n"),
        ("sys/fs/cgroup/a/b/cgroup.procs", ""),
        ("sys/fs/cgroup/a/b/memory.current", "300\n"),
        ("sys/fs/cgroup/a/b/memory.max", "max\n"),
        ("sys/fs/cgroup/a/b/memory.pressure", &pressure(5)),
        ("sys/fs/cgroup/c/cgroup.procs", ""),
        ("sys/fs/cgroup/c/memory.current", "1\n"),
        ("sys/fs/cgroup/c/memory.max", "max\n"),
    ]);
    for path in ["/a/b", "a/b", "/sys/fs/cgroup/a/b", "cgroup/a/b"] {
        assert_eq!(m.read(&Metric::CgroupMemUsed(path.into()), &[]), Ok(300), "{path}");
        assert_eq!(m.read(&Metric::SomeMemPsi(Some(path.into())), &[]), Ok(5), "{path}");
        assert_eq!(m.read(&Metric::CgroupMemFree(path.into()), &[]), Ok(500), "the limit above it counts");
    }
    std::fs::write(t.roots.path("/sys/fs/cgroup/a/b/memory.max"), "310\n").unwrap();
    assert_eq!(m.read(&Metric::CgroupMemFree("/a/b".into()), &[]), Ok(10), "its own limit leaves less");
    std::fs::write(t.roots.path("/sys/fs/cgroup/a/b/memory.current"), "320\n").unwrap();
    assert_eq!(m.read(&Metric::CgroupMemFree("/a/b".into()), &[]), Ok(0), "a limit that was lowered below the use");
    assert_eq!(m.cgroup_left("/c"), Ok(None));
    assert!(refused(m.read(&Metric::CgroupMemFree("/c".into()), &[])).contains("limit"));
    assert!(refused(m.read(&Metric::CgroupMemUsed("/".into()), &[])).contains("the root group has none"));
    assert!(refused(m.read(&Metric::CgroupMemUsed("/x".into()), &[])).contains("no control group '/x'"));
    assert_eq!(m.read(&Metric::SomeMemPsi(Some("/".into())), &[]), Ok(99));
    assert!(refused(m.read(&Metric::SomeMemPsi(Some("/a".into())), &[])).contains("a/memory.pressure is missing"));
    assert_eq!(m.cgroup_of(LiveTarget { target: 0, pid: Some(7) }).as_deref(), Some("/a/b"));
    assert_eq!(m.cgroup_of(LiveTarget { target: 0, pid: None }), None);
}

#[test]
fn hybrid_groups_have_memory_in_v1_and_pressure_in_v2() {
    let (mut m, _t) = meter(&[
        ("proc/self/mountinfo", HYBRID),
        ("proc/7/cgroup", "4:memory:/a\n1:cpu:/x\n0::/two\n"),
        ("sys/fs/cgroup/unified/cgroup.controllers", "hugetlb\n"),
        ("sys/fs/cgroup/unified/cgroup.procs", ""),
        ("sys/fs/cgroup/unified/memory.pressure", &pressure(9)),
        ("sys/fs/cgroup/unified/both/cgroup.procs", ""),
        ("sys/fs/cgroup/unified/both/memory.pressure", &pressure(8)),
        ("sys/fs/cgroup/memory/cgroup.procs", ""),
        ("sys/fs/cgroup/memory/memory.usage_in_bytes", "9000\n"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ("sys/fs/cgroup/memory/a/cgroup.procs", ""),
        ("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "4096\n"),
        ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "8192\n"),
        ("sys/fs/cgroup/memory/both/cgroup.procs", ""),
        ("sys/fs/cgroup/memory/both/memory.usage_in_bytes", "1\n"),
        ("sys/fs/cgroup/memory/both/memory.limit_in_bytes", "9223372036854771712\n"),
    ]);
    assert_eq!(m.cgroup_of(LiveTarget { target: 0, pid: Some(7) }).as_deref(), Some("/a"));
    assert_eq!(m.read(&Metric::CgroupMemUsed("/a".into()), &[]), Ok(4096));
    assert_eq!(m.read(&Metric::CgroupMemFree("memory/a".into()), &[]), Ok(4096));
    assert_eq!(m.cgroup_left("/both"), Ok(None));
    assert_eq!(m.read(&Metric::CgroupMemUsed("/".into()), &[]), Ok(9000));
    assert_eq!(m.read(&Metric::SomeMemPsi(Some("/".into())), &[]), Ok(9));
    // The name of either hierarchy finds both figures.
    for path in ["/both", "/sys/fs/cgroup/memory/both", "/sys/fs/cgroup/unified/both", "unified/both"] {
        assert_eq!(m.read(&Metric::SomeMemPsi(Some(path.into())), &[]), Ok(8), "{path}");
        assert_eq!(m.read(&Metric::CgroupMemUsed(path.into()), &[]), Ok(1), "{path}");
    }
    let e = m.read(&Metric::SomeMemPsi(Some("/a".into())), &[]).unwrap_err();
    assert!(e.reason.contains("is a v1 group"), "never the pressure of another group: {e}");
    assert!(e.remedy.contains("/sys/fs/cgroup/unified"), "{e}");
}

#[test]
fn a_group_that_is_made_anew_is_read_anew() {
    let (mut m, t) = meter(&[
        ("proc/self/mountinfo", V2),
        ("sys/fs/cgroup/cgroup.controllers", "memory\n"),
        ("sys/fs/cgroup/a/cgroup.procs", ""),
        ("sys/fs/cgroup/a/memory.current", "x\n"),
    ]);
    let metric = Metric::CgroupMemUsed("/a".into());
    assert!(refused(m.read(&metric, &[])).contains("not a number"));
    std::fs::remove_dir_all(t.roots.path("/sys/fs/cgroup/a")).unwrap();
    assert!(refused(m.read(&metric, &[])).contains("no control group"));
}
