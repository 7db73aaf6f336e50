//! Figures that goals and watermarks can follow.

use super::Finding;
use crate::cgroup::memory::{LIMIT, REMEDY, USED};
use crate::facts::Environment;
use crate::meter::LinuxMeter;
use crate::roots::Roots;
use isotherm_core::meter::{LiveTarget, Meter, MeterError, Metric};
use std::path::{Path, PathBuf};

/// Reads each figure once.
pub(crate) fn probe_meters(roots: &Roots, env: &Environment) -> Vec<Finding> {
    let meter = &mut LinuxMeter::new(roots.clone());
    let own = [LiveTarget { target: 0, pid: own_pid(roots) }];
    let pressure = pressure_scope(roots, env);
    let mut read = |name, metric: Metric, detail: &str| finding(name, meter.read(&metric, &own).map(|_| detail));
    let mut found = vec![
        read("some_mem_psi", Metric::SomeMemPsi(None), pressure),
        read("full_mem_psi", Metric::FullMemPsi(None), pressure),
        read("free_mem_rate", Metric::FreeMemRate, ""),
        read("active_mem", Metric::ActiveMem, ""),
        read("inactive_mem", Metric::InactiveMem, ""),
        read("target_rss", Metric::TargetRss, ""),
        read("target_major_faults", Metric::TargetMajorFaults, ""),
        read("target_stall", Metric::TargetStall, "by major faults and what one costs here"),
        read("swap_in", Metric::SwapIn, ""),
        read("refault", Metric::Refault, ""),
    ];
    let nodes = [
        node("node_mem_used", env, meter, Metric::NodeMemUsed),
        node("node_mem_free", env, meter, Metric::NodeMemFree),
    ];
    found.splice(3..3, nodes.into_iter().chain([cgroup_used(roots, env, meter), cgroup_free(roots, env, meter)]));
    found.push(Finding::usable("user_input", "a value that you give while it runs"));
    found
}

fn finding(name: &'static str, read: Result<impl Into<String>, MeterError>) -> Finding {
    match read {
        Ok(detail) => Finding::usable(name, detail),
        Err(e) => Finding::unusable(name, e.reason, e.remedy),
    }
}

/// Our own process as this tree of proc calls it.
fn own_pid(roots: &Roots) -> Option<u32> {
    roots.read("/proc/self/stat").ok()?.split(' ').next()?.parse().ok()
}

fn pressure_scope(roots: &Roots, env: &Environment) -> &'static str {
    let reported = |folder: &PathBuf| roots.exists(folder.join("memory.pressure"));
    let groups = env.cgroup.v2.as_ref().is_some_and(|v2| reported(v2) || env.cgroup.own.as_ref().is_some_and(reported));
    if groups { "system-wide and per control group" } else { "system-wide" }
}

fn node(name: &'static str, env: &Environment, meter: &mut LinuxMeter, metric: fn(u32) -> Metric) -> Finding {
    let known = |node: &&u32| meter.read(&metric(**node), &[]).is_ok();
    match env.memory_nodes.iter().filter(known).count() {
        0 => Finding::unusable(
            name,
            "no memory node with a meminfo file below /sys/devices/system/node",
            "use a kernel with CONFIG_NUMA=y",
        ),
        1 => Finding::usable(name, "one node"),
        n => Finding::usable(name, format!("{n} nodes")),
    }
}

/// A group to try: our own, else the first one below the root of v2, which has no figures itself.
fn some_group(roots: &Roots, env: &Environment) -> Option<String> {
    let (mount, v2) = env.cgroup.memory_mount()?;
    let has = |p: &Path| [USED, LIMIT].iter().any(|fact| roots.exists(p.join(fact.file(v2))));
    let own = env.cgroup.own.clone().filter(|p| has(p));
    let found = own
        .or_else(|| Some(mount.to_path_buf()).filter(|p| has(p)))
        .or_else(|| roots.names(mount).into_iter().map(|n| mount.join(n)).find(|p| has(p)))?;
    Some(found.to_string_lossy().into_owned())
}

fn cgroup_used(roots: &Roots, env: &Environment, meter: &mut LinuxMeter) -> Finding {
    const NAME: &str = "cgroup_mem_used";
    let Some(group) = some_group(roots, env) else { return no_cgroup(NAME, env) };
    finding(NAME, meter.read(&Metric::CgroupMemUsed(group), &[]).map(|_| version(env)))
}

fn cgroup_free(roots: &Roots, env: &Environment, meter: &mut LinuxMeter) -> Finding {
    const NAME: &str = "cgroup_mem_free";
    let Some(group) = some_group(roots, env) else { return no_cgroup(NAME, env) };
    let detail = format!("{}; only for groups that have a limit", version(env));
    finding(NAME, meter.cgroup_left(&group).map(|_| detail))
}

fn version(env: &Environment) -> &'static str {
    if env.cgroup.v2_memory() { "cgroup v2" } else { "cgroup v1 memory controller" }
}

fn no_cgroup(name: &'static str, env: &Environment) -> Finding {
    let reason = format!("no control group with memory figures (control groups: {})", env.cgroup.describe());
    Finding::unusable(name, reason, REMEDY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::tree;

    fn usable(files: &[(&str, &str)]) -> Vec<&'static str> {
        let t = tree(files);
        let findings = probe_meters(&t.roots, &Environment::read(&t.roots));
        for f in &findings {
            assert_eq!(f.usable, f.reason.is_empty(), "{f:?}");
            assert!(f.usable || !f.remedy.is_empty(), "{f:?}");
        }
        findings.iter().filter(|f| f.usable).map(|f| f.name).collect()
    }

    #[test]
    fn nothing_but_user_input_on_an_empty_tree() {
        assert_eq!(usable(&[]), ["user_input"]);
    }

    #[test]
    fn hybrid_control_groups_use_the_v1_figures() {
        let mounts = "29 24 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      34 24 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup rw\n";
        let names = usable(&[
            ("proc/self/mountinfo", mounts),
            ("proc/self/cgroup", "4:memory:/a\n0::/\n"),
            ("sys/fs/cgroup/unified/cgroup.controllers", "hugetlb\n"),
            ("sys/fs/cgroup/memory/a/cgroup.procs", ""),
            ("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "4096\n"),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n"),
        ]);
        assert_eq!(names, ["cgroup_mem_used", "cgroup_mem_free", "user_input"]);
    }

    #[test]
    fn root_of_unified_groups_borrows_a_child() {
        let names = usable(&[
            ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/cgroup.controllers", "memory\n"),
            ("sys/fs/cgroup/system.slice/cgroup.procs", ""),
            ("sys/fs/cgroup/system.slice/memory.current", "1\n"),
            ("sys/fs/cgroup/system.slice/memory.max", "max\n"),
        ]);
        assert_eq!(names, ["cgroup_mem_used", "cgroup_mem_free", "user_input"]);
    }

    #[test]
    fn pressure_without_a_full_line() {
        let names = usable(&[("proc/pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=12\n")]);
        assert_eq!(names, ["some_mem_psi", "user_input"]);
    }

    #[test]
    fn counters_nodes_and_memory() {
        let names = usable(&[
            ("proc/vmstat", "pswpin 0\nworkingset_refault 3\n"),
            ("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 10 kB\nActive: 3 kB\nInactive: 4 kB\n"),
            ("proc/self/stat", "7 (a) S 1 1 1 0 -1 4194560 1 9 2 7 1 2 0 0 20 0 5 0 9 1 8 1 94 95 96 0\n"),
            ("proc/7/stat", "7 (a) S 1 1 1 0 -1 4194560 1 9 2 7 1 2 0 0 20 0 5 0 9 1 8 1 94 95 96 0\n"),
            ("proc/7/status", "VmRSS:\t 8 kB\n"),
            ("sys/devices/system/node/has_memory", "0\n"),
            ("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 10 kB\nNode 0 MemFree: 1 kB\n"),
        ]);
        assert_eq!(
            names,
            [
                "free_mem_rate",
                "node_mem_used",
                "node_mem_free",
                "active_mem",
                "inactive_mem",
                "target_rss",
                "target_major_faults",
                "swap_in",
                "refault",
                "user_input"
            ]
        );
    }
}
