//! Figures that goals and watermarks can follow.

use super::{Environment, Finding};
use crate::roots::Roots;
use std::path::Path;

/// Reads each figure once.
pub fn probe_meters(roots: &Roots, env: &Environment) -> Vec<Finding> {
    vec![
        pressure("some_mem_psi", "some ", roots, env),
        pressure("full_mem_psi", "full ", roots, env),
        free_memory(roots),
        node("node_mem_used", env, roots),
        node("node_mem_free", env, roots),
        cgroup_used(roots, env),
        cgroup_free(roots, env),
        rss(roots),
        counter("swap_in", &["pswpin"], "CONFIG_SWAP and CONFIG_VM_EVENT_COUNTERS", roots),
        counter(
            "refault",
            &["workingset_refault_anon", "workingset_refault_file", "workingset_refault"],
            "CONFIG_VM_EVENT_COUNTERS",
            roots,
        ),
        Finding::usable("user_input", "a value that you give while it runs"),
    ]
}

fn pressure(name: &'static str, line: &str, roots: &Roots, env: &Environment) -> Finding {
    const REMEDY: &str = "use a kernel with CONFIG_PSI=y; where it is off by default, boot with psi=1";
    if let Err(reason) = &env.psi {
        return Finding::unusable(name, reason.clone(), REMEDY);
    }
    let text = roots.read("/proc/pressure/memory").unwrap_or_default();
    match text.lines().find(|l| l.starts_with(line)).and_then(|l| l.split_once("total=")) {
        Some((_, total)) if total.trim().parse::<u64>().is_ok() => {
            let own = env.cgroup.v2.as_ref().is_some_and(|v2| {
                roots.exists(v2.join("memory.pressure"))
                    || env.cgroup.own.as_ref().is_some_and(|o| roots.exists(o.join("memory.pressure")))
            });
            Finding::usable(name, if own { "system-wide and per control group" } else { "system-wide" })
        }
        _ => Finding::unusable(name, format!("/proc/pressure/memory has no '{}' line", line.trim()), REMEDY),
    }
}

fn free_memory(roots: &Roots) -> Finding {
    let text = roots.read("/proc/meminfo").unwrap_or_default();
    match (kib_field(&text, "MemFree:"), kib_field(&text, "MemTotal:")) {
        (Some(_), Some(total)) if total > 0 => Finding::usable("free_mem_rate", ""),
        _ => Finding::unusable("free_mem_rate", "/proc/meminfo lacks MemFree or MemTotal", "mount /proc"),
    }
}

fn node(name: &'static str, env: &Environment, roots: &Roots) -> Finding {
    let known = |node: &&u32| {
        let text = roots.read(format!("/sys/devices/system/node/node{node}/meminfo")).unwrap_or_default();
        let field = |what: &str| text.lines().find_map(|l| l.split_once(what)).is_some();
        field("MemTotal:") && field("MemFree:")
    };
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

const CGROUP_REMEDY: &str = "mount cgroup2 with its memory controller (or the v1 memory controller)";

/// Reads the first of the files that our own control group, or a group below it, has.
fn cgroup_file(roots: &Roots, folder: &Path, names: [&str; 2]) -> Option<String> {
    names.iter().find_map(|n| roots.line(folder.join(n)))
}

/// A folder of the memory controller to try the files in. The root group of v2 has none of its own, its children do.
fn cgroup_folder(roots: &Roots, env: &Environment) -> Option<std::path::PathBuf> {
    let has = |p: &Path| ["memory.current", "memory.usage_in_bytes"].iter().any(|n| roots.exists(p.join(n)));
    let own = env.cgroup.own.clone().filter(|p| has(p));
    own.or_else(|| env.cgroup.v1_memory.clone().filter(|p| has(p))).or_else(|| {
        let v2 = env.cgroup.v2.as_ref().filter(|_| env.cgroup.v2_memory())?;
        roots.names(v2).into_iter().map(|n| v2.join(n)).find(|p| has(p))
    })
}

fn cgroup_used(roots: &Roots, env: &Environment) -> Finding {
    let Some(folder) = cgroup_folder(roots, env) else {
        return Finding::unusable("cgroup_mem_used", no_cgroup(env), CGROUP_REMEDY);
    };
    match cgroup_file(roots, &folder, ["memory.current", "memory.usage_in_bytes"]).map(|t| t.parse::<u64>()) {
        Some(Ok(_)) => Finding::usable("cgroup_mem_used", version(env)),
        _ => Finding::unusable("cgroup_mem_used", format!("no usage figure in {}", folder.display()), CGROUP_REMEDY),
    }
}

fn cgroup_free(roots: &Roots, env: &Environment) -> Finding {
    let Some(folder) = cgroup_folder(roots, env) else {
        return Finding::unusable("cgroup_mem_free", no_cgroup(env), CGROUP_REMEDY);
    };
    match cgroup_file(roots, &folder, ["memory.max", "memory.limit_in_bytes"]) {
        Some(_) => Finding::usable("cgroup_mem_free", format!("{}; only for groups that have a limit", version(env))),
        None => Finding::unusable("cgroup_mem_free", format!("no limit file in {}", folder.display()), CGROUP_REMEDY),
    }
}

fn version(env: &Environment) -> &'static str {
    if env.cgroup.v2_memory() { "cgroup v2" } else { "cgroup v1 memory controller" }
}

fn no_cgroup(env: &Environment) -> String {
    format!("no control group with memory figures (control groups: {})", env.cgroup.describe())
}

fn rss(roots: &Roots) -> Finding {
    let text = roots.read("/proc/self/statm").unwrap_or_default();
    match text.split_whitespace().nth(1).and_then(|t| t.parse::<u64>().ok()) {
        Some(_) => Finding::usable("rss", ""),
        None => Finding::unusable("rss", "/proc/self/statm is missing", "mount /proc"),
    }
}

fn counter(name: &'static str, fields: &[&str], option: &str, roots: &Roots) -> Finding {
    let text = roots.read("/proc/vmstat").unwrap_or_default();
    let found =
        text.lines().filter_map(|l| l.split_once(' ')).any(|(k, v)| fields.contains(&k) && v.parse::<u64>().is_ok());
    if found {
        Finding::usable(name, "")
    } else {
        let reason = format!("/proc/vmstat has no {}", fields[0]);
        Finding::unusable(name, reason, format!("use a kernel with {option}"))
    }
}

/// A field of a meminfo file in KiB.
fn kib_field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|l| l.strip_prefix(name))?;
    rest.trim().strip_suffix("kB")?.trim().parse().ok()
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
            ("proc/meminfo", "MemTotal:       1000 kB\nMemFree:         10 kB\n"),
            ("proc/self/statm", "100 20 3 4 5 6 7\n"),
            ("sys/devices/system/node/has_memory", "0\n"),
            ("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 10 kB\nNode 0 MemFree: 1 kB\n"),
        ]);
        assert_eq!(
            names,
            ["free_mem_rate", "node_mem_used", "node_mem_free", "rss", "swap_in", "refault", "user_input"]
        );
    }
}
