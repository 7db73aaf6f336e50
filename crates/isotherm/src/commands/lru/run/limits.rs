//! Limits, and the control groups that they are on.

use crate::exit::{Unsupported, Usage};
use anyhow::Context;
use isotherm_core::memcg::is_below;
use isotherm_linux::cgroup::memory::{self, Memcg, Memcgs};

/// How often a group's limit is read, ns.
const LOOK_NS: u64 = 1_000_000_000;

/// A limit, and the control groups that it is on.
#[derive(Debug)]
pub struct Limit {
    /// Paths of the groups.
    pub paths: Vec<String>,
    /// The groups whose memory counts: these, or the one above them that has the limit.
    pub groups: Vec<Memcg>,
    /// Bytes.
    pub bytes: u64,
    /// Where it is read again; `None`: it was given.
    pub source: Option<LimitSource>,
}

impl Limit {
    /// One limit of `all` bytes on the groups at these paths together; without it, those that they have: one for all groups below the
    /// group that has it. A group that is named twice, or lies in another one that is named, counts once, with that.
    pub fn of(paths: &[String], groups: &mut Memcgs, all: Option<u64>) -> anyhow::Result<Vec<Self>> {
        let mut open = |path: &String| {
            groups.open(path).map_err(|e| Unsupported(format!("the memory of {path} is not reported: {e}")))
        };
        let found = outermost(paths.iter().map(&mut open).collect::<Result<Vec<_>, _>>()?, |inner, outer| {
            if all.is_none() {
                tracing::warn!(
                    "{inner} lies in {outer} and is kept below the limit of that only; its own is left to the kernel"
                );
            }
        });
        if let Some(bytes) = all {
            let paths = found.iter().map(Memcg::path).collect();
            return Ok(vec![Self { paths, groups: found, bytes, source: None }]);
        }
        let mut limits: Vec<Self> = Vec::new();
        for group in found {
            let path = group.path();
            let limit = group.limit().with_context(|| format!("the limit of {path} cannot be read"))?;
            let limit =
                limit.ok_or_else(|| Usage(format!("{path} has no memory limit: give --limit SIZE, or set one")))?;
            match limits.iter_mut().find(|known| known.groups[..] == [limit.group.clone()]) {
                Some(known) => {
                    known.paths.push(path);
                    known.source = Some(LimitSource::new(limit.group.clone(), limit));
                }
                None => limits.push(Self {
                    paths: vec![path],
                    groups: vec![limit.group.clone()],
                    bytes: limit.bytes,
                    source: Some(LimitSource::new(group, limit)),
                }),
            }
        }
        Ok(limits)
    }
}

/// Those of `groups` that lie in no other of them, each once. `hidden` is told which lie in which.
fn outermost(groups: Vec<Memcg>, hidden: impl Fn(&str, &str)) -> Vec<Memcg> {
    let paths: Vec<String> = groups.iter().map(Memcg::path).collect();
    let mut out: Vec<Memcg> = Vec::new();
    for (group, path) in groups.into_iter().zip(&paths) {
        if let Some(outer) = paths.iter().find(|outer| *outer != path && is_below(path, outer)) {
            hidden(path, outer);
        } else if !out.contains(&group) {
            out.push(group);
        }
    }
    out
}

/// Where a limit comes from: it may be changed while it is kept.
#[derive(Debug)]
pub struct LimitSource {
    group: Memcg,
    /// As it was last read.
    known: Option<memory::Limit>,
    next_ns: u64,
}

impl LimitSource {
    const fn new(group: Memcg, known: memory::Limit) -> Self {
        Self { group, known: Some(known), next_ns: 0 }
    }

    /// What the limit is now, if that is another one; inside, `None` while there is none. It is read once a second: in
    /// between, and where it cannot be read because the group has gone, it is taken to be as it was.
    pub fn changed(&mut self, now_ns: u64) -> Option<Option<memory::Limit>> {
        if now_ns < self.next_ns {
            return None;
        }
        self.next_ns = now_ns + LOOK_NS;
        let now = self.group.limit().ok().filter(|now| *now != self.known)?;
        self.known.clone_from(&now);
        Some(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_linux::roots::Roots;
    use std::path::Path;

    const MIB: u64 = 1 << 20;

    /// Control groups, each with its limit.
    fn machine(limits: &[(&str, &str)]) -> (tempfile::TempDir, Memcgs) {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("proc/self/mountinfo", "29 24 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        write("sys/fs/cgroup/cgroup.controllers", "memory\n");
        for (path, limit) in limits {
            write(&format!("sys/fs/cgroup/{path}/cgroup.procs"), "");
            set(folder.path(), path, limit);
        }
        let groups = Memcgs::new(&Roots::captured(folder.path()));
        (folder, groups)
    }

    fn set(folder: &Path, group: &str, limit: &str) {
        std::fs::write(folder.join("sys/fs/cgroup").join(group).join("memory.max"), limit).unwrap();
    }

    fn of(groups: &mut Memcgs, paths: &[&str], all: Option<u64>) -> Vec<Limit> {
        Limit::of(&paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>(), groups, all).unwrap()
    }

    #[test]
    fn a_group_within_another_and_one_named_twice_count_once() {
        let (_folder, mut groups) = machine(&[("p", "8388608"), ("p/y", "4194304"), ("q", "8388608"), ("pq", "max")]);
        for paths in [&["/p", "/p/y"][..], &["/p/y", "p", "/p"]] {
            for all in [Some(MIB), None] {
                let limits = of(&mut groups, paths, all);
                assert_eq!((limits.len(), &*limits[0].paths), (1, &["/p".to_owned()][..]), "{paths:?}, {all:?}");
                assert_eq!((limits[0].groups.len(), limits[0].bytes), (1, all.unwrap_or(8 * MIB)));
            }
        }
        assert_eq!(of(&mut groups, &["/p", "/q"], None).len(), 2);
        assert_eq!(of(&mut groups, &["/p", "/pq"], Some(MIB))[0].groups.len(), 2);
    }

    #[test]
    fn groups_below_one_limit_share_it() {
        let (_folder, mut groups) = machine(&[("p", "8388608"), ("p/a", "max"), ("p/b", "max"), ("p/c", "4194304")]);
        let limits = of(&mut groups, &["/p/a", "/p/c", "/p/b"], None);
        let paths: Vec<_> = limits.iter().map(|limit| (limit.paths.join(" "), limit.bytes / MIB)).collect();
        assert_eq!(paths, [("/p/a /p/b".to_owned(), 8), ("/p/c".to_owned(), 4)]);
        assert_eq!(limits[0].groups, [groups.open("/p").unwrap()]);
    }

    #[test]
    fn a_limit_that_is_changed_is_found_within_a_second() {
        let (folder, mut groups) = machine(&[("p", "8388608"), ("p/a", "4194304")]);
        let mut source = of(&mut groups, &["/p/a"], None).remove(0).source.unwrap();
        let mut changed =
            |at_ns: u64| source.changed(at_ns).map(|limit| limit.map(|l| (l.group.path(), l.bytes / MIB)));
        assert_eq!(changed(0), None);
        set(folder.path(), "p/a", "2097152");
        assert_eq!((changed(LOOK_NS - 1), changed(LOOK_NS)), (None, Some(Some(("/p/a".into(), 2)))));
        set(folder.path(), "p/a", "max");
        assert_eq!(changed(2 * LOOK_NS), Some(Some(("/p".into(), 8))), "the one above has the limit now");
        set(folder.path(), "p", "max");
        assert_eq!((changed(3 * LOOK_NS), changed(4 * LOOK_NS)), (Some(None), None));
        std::fs::remove_dir_all(folder.path().join("sys/fs/cgroup/p")).unwrap();
        assert_eq!(changed(5 * LOOK_NS), None, "a group that has gone has not lifted its limit");
    }
}
