//! The memory of a control group: how much is used, of what kind, and what its limit is.

use super::setup::{CgroupSetup, OutsideGroup};
use crate::facts::pressure;
use crate::roots::Roots;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What helps where no hierarchy tells memory figures.
pub(crate) const REMEDY: &str = "mount cgroup2 with its memory controller (or the v1 memory controller)";

/// The names of one fact in v2 and v1.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fact {
    v2: &'static str,
    v1: &'static str,
}

/// Bytes in use.
pub(crate) const USED: Fact = Fact { v2: "memory.current", v1: "memory.usage_in_bytes" };
pub(crate) const LIMIT: Fact = Fact { v2: "memory.max", v1: "memory.limit_in_bytes" };

impl Fact {
    /// Its file in a hierarchy of this version.
    pub(crate) const fn file(self, v2: bool) -> &'static str {
        if v2 { self.v2 } else { self.v1 }
    }
}

/// Where the memory of processes is counted.
#[derive(Debug)]
pub struct Memcgs {
    roots: Roots,
    setup: CgroupSetup,
}

/// A control group's folder in the hierarchy that controls memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memcg {
    pub(crate) folder: PathBuf,
    pub(crate) mount: PathBuf,
    pub(crate) v2: bool,
    pub(super) roots: Roots,
}

/// A limit, and the group that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// The group itself, or one above it.
    pub group: Memcg,
    /// Bytes.
    pub bytes: u64,
}

/// A group that `memory.min` or `memory.low` protect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protection {
    /// As [`Memcg::path`] tells it.
    pub path: String,
    /// Bytes that it uses beyond what is protected.
    pub spare: u64,
}

/// Files in memory, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PageCache {
    /// In the kernel's inactive list: to be dropped first.
    pub inactive: u64,
    /// In its active list.
    pub active: u64,
    /// What a process maps, with mapped shared memory, which is in neither of the two lists; how much that is the kernel
    /// does not tell.
    pub mapped: u64,
}

impl PageCache {
    /// From a group's memory.stat: its own and that of the groups below it.
    pub(super) fn parse(stat: &str, v2: bool) -> io::Result<Self> {
        let [inactive, active, mapped] = if v2 {
            ["inactive_file", "active_file", "file_mapped"]
        } else {
            ["total_inactive_file", "total_active_file", "total_mapped_file"]
        };
        let none = || io::Error::new(io::ErrorKind::InvalidData, "memory.stat lacks the sizes of file memory");
        let size = |name| stat_value(stat, name).ok_or_else(none);
        Ok(Self { inactive: size(inactive)?, active: size(active)?, mapped: size(mapped)? })
    }

    /// What no process maps, at least: shared memory counts as if it were files that are mapped.
    pub const fn unmapped(&self) -> u64 {
        (self.inactive + self.active).saturating_sub(self.mapped)
    }
}

/// A figure of memory.stat.
pub(super) fn stat_value(stat: &str, name: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?.trim().parse().ok()
}

/// Why a control group's memory is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}; {remedy}")]
pub struct NoMemcg {
    pub(crate) reason: String,
    pub(crate) remedy: String,
}

impl Memcgs {
    /// Looks up where control groups are mounted.
    pub fn new(roots: &Roots) -> Self {
        Self { setup: CgroupSetup::read(roots), roots: roots.clone() }
    }

    /// The path of a process's group, as it is called outside of our namespace, too; `None`: there is none, or the
    /// process has gone.
    pub fn path_of(&self, pid: u32) -> Option<Result<String, OutsideGroup>> {
        self.setup.name_in(&self.roots.read(format!("/proc/{pid}/cgroup")).ok()?, pid)
    }

    /// The path of the group that users write as `path`, as [`path_of`](Self::path_of) tells it. Of one that is not there, it is taken
    /// to be below the hierarchy's root.
    pub fn name(&self, path: &str) -> String {
        let path = self.open(path).map_or_else(|_| path.to_owned(), |memcg| memcg.path());
        let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty() && *name != ".").collect();
        format!("/{}", names.join("/"))
    }

    /// Why it is not known where groups are whose memory is controlled; `None`: it is known, or the kernel controls none.
    pub fn unknown(&self) -> Option<&str> {
        self.setup.unknown.as_deref()
    }

    /// The group at a path as [`path_of`](Self::path_of) tells it, or as users write it.
    pub fn open(&self, path: &str) -> Result<Memcg, NoMemcg> {
        Memcg::find(&self.setup, &self.roots, path)
    }
}

impl Memcg {
    /// Finds the group at `path`.
    pub(crate) fn find(setup: &CgroupSetup, roots: &Roots, path: &str) -> Result<Self, NoMemcg> {
        let Some((mount, v2)) = setup.memory_mount() else {
            let reason = format!("no memory controller is mounted (control groups: {})", setup.describe());
            return Err(NoMemcg { reason, remedy: REMEDY.into() });
        };
        let folder = folder_of(setup, roots, mount, path).ok_or_else(|| NoMemcg {
            reason: format!("no control group '{path}' in {}", mount.display()),
            remedy: list(mount),
        })?;
        Ok(Self { folder, mount: mount.to_path_buf(), v2, roots: roots.clone() })
    }

    /// Its path below the mount, as [`path_of`](Memcgs::path_of) tells it.
    pub fn path(&self) -> String {
        format!("/{}", self.folder.strip_prefix(&self.mount).unwrap_or(&self.folder).display())
    }

    /// Whether it is still there.
    pub fn exists(&self) -> bool {
        self.roots.exists(self.folder.join("cgroup.procs"))
    }

    /// Bytes charged to it.
    pub fn used(&self) -> io::Result<u64> {
        let text = self.roots.read(self.folder.join(USED.file(self.v2)))?;
        text.trim().parse().map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not a number"))
    }

    /// How often a program in it, or below it, wanted memory beyond the limit and had to reclaim some first, since the group was made.
    pub fn limit_hits(&self) -> io::Result<u64> {
        let text = self.roots.read(self.folder.join(if self.v2 { "memory.events" } else { "memory.failcnt" }))?;
        let count = if self.v2 { text.lines().find_map(|line| line.strip_prefix("max ")) } else { Some(text.as_str()) };
        let count = count.and_then(|count| count.trim().parse().ok());
        count.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no number of times that the limit was reached"))
    }

    /// The number of its folder, which tells it from another that is called so later.
    pub fn inode(&self) -> io::Result<u64> {
        std::fs::metadata(self.roots.path(&self.folder)).map(|folder| folder.ino())
    }

    /// Time for which some task in it has waited for memory since it was made, microseconds. Version 1 does not tell.
    pub fn stall_us(&self) -> io::Result<u64> {
        if !self.v2 {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let text = self.roots.read(self.folder.join("memory.pressure"))?;
        let none = || io::Error::new(io::ErrorKind::InvalidData, "memory.pressure has no total");
        pressure::total(&text, pressure::Share::Some).ok_or_else(none)
    }

    /// Bytes of files in it that no process maps: what the kernel can drop without our help, and what page tables do
    /// not show.
    pub fn unmapped_cache(&self) -> io::Result<u64> {
        self.cache().map(|cache| cache.unmapped())
    }

    /// What is in swap of the memory that is charged to it, that of groups below it left out.
    ///
    /// # Errors
    ///
    /// The kernel does not count it for each group.
    pub fn swapped(&self) -> io::Result<u64> {
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        if !self.v2 {
            let text = self.roots.read(self.folder.join("memory.stat"))?;
            return stat_value(&text, "swap").ok_or_else(|| invalid("memory.stat lacks the size of what is in swap"));
        }
        let of = |folder: &Path| {
            let text = self.roots.read(folder.join("memory.swap.current"))?;
            text.trim().parse::<u64>().map_err(|_| invalid("memory.swap.current is not a number"))
        };
        let mut own = of(&self.folder)?;
        for below in std::fs::read_dir(self.roots.path(&self.folder))?.flatten() {
            if below.file_type().is_ok_and(|kind| kind.is_dir()) {
                // One that has gone, or without the controller of memory, has none of its own.
                own = own.saturating_sub(of(&self.folder.join(below.file_name())).unwrap_or(0));
            }
        }
        Ok(own)
    }

    /// Files in its memory, and in that of the groups below it.
    pub fn cache(&self) -> io::Result<PageCache> {
        PageCache::parse(&self.roots.read(self.folder.join("memory.stat"))?, self.v2)
    }

    /// Of it and the groups above it, those that `memory.min` or `memory.low` protect, with what they use beyond that.
    /// Version 1 protects nothing.
    pub fn protections(&self) -> io::Result<Vec<Protection>> {
        let mut protections = Vec::new();
        // The root group uses all there is, and protects nothing.
        for folder in self.folder.ancestors().take_while(|folder| self.v2 && *folder != self.mount) {
            let group = Self { folder: folder.to_path_buf(), ..self.clone() };
            let protected = group.protected("memory.min")?.max(group.protected("memory.low")?);
            if protected > 0 {
                protections.push(Protection { path: group.path(), spare: group.used()?.saturating_sub(protected) });
            }
        }
        Ok(protections)
    }

    /// Bytes that the file says are protected; 0 where it is not there, since the controller is not enabled.
    fn protected(&self, file: &str) -> io::Result<u64> {
        let text = match self.roots.read(self.folder.join(file)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && self.exists() => return Ok(0),
            text => text?,
        };
        // "max" protects all.
        parse_limit(&text).map(|bytes| bytes.unwrap_or(u64::MAX)).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{}/{file} is not a number", self.folder.display()))
        })
    }

    /// The lowest limit of its own and those of the groups above it, the nearest of equal ones; `None`: there is none.
    pub fn limit(&self) -> io::Result<Option<Limit>> {
        let mut lowest: Option<Limit> = None;
        for folder in self.folder.ancestors() {
            let group = Self { folder: folder.to_path_buf(), ..self.clone() };
            let text = match self.roots.read(folder.join(LIMIT.file(self.v2))) {
                Ok(text) => text,
                // The root group of v2 has no such file, and what is above the mount neither.
                Err(e) if e.kind() == io::ErrorKind::NotFound && folder != self.folder => break,
                Err(e) => return Err(e),
            };
            match parse_limit(&text) {
                Some(Some(bytes)) if lowest.as_ref().is_none_or(|limit| bytes < limit.bytes) => {
                    lowest = Some(Limit { group, bytes });
                }
                Some(_) => {}
                None => return Err(io::Error::new(io::ErrorKind::InvalidData, "the limit is not a number")),
            }
        }
        Ok(lowest)
    }
}

pub(crate) fn list(mount: &Path) -> String {
    format!("`find {} -type d` lists the groups", mount.display())
}

/// The group's folder below `mount`. `path` may be a path below a mount, with or without a leading slash, or have the
/// mount in front; the mount of another hierarchy will do, so that one name serves for all of a group's figures.
pub(crate) fn folder_of(setup: &CgroupSetup, roots: &Roots, mount: &Path, path: &str) -> Option<PathBuf> {
    let path = Path::new(path);
    let inside = path.strip_prefix("/").unwrap_or(path);
    let mounts = || setup.v2.iter().chain(&setup.v1_memory);
    let full = mounts().filter_map(|m| path.strip_prefix(m).ok());
    let below_parent = mounts().filter_map(|m| inside.strip_prefix(m.file_name()?).ok());
    let exists = |folder: &PathBuf| roots.exists(folder.join("cgroup.procs"));
    full.chain([inside]).chain(below_parent).map(|rest| mount.join(rest)).find(exists)
}

/// A limit as it is written; `Some(None)`: there is none.
pub(crate) fn parse_limit(text: &str) -> Option<Option<u64>> {
    const NONE: u64 = i64::MAX as u64 & !0xfff;
    if text.trim() == "max" {
        return Some(None);
    }
    // With larger pages the number is a little smaller.
    text.trim().parse().ok().map(|limit: u64| (limit < NONE & !0xffff).then_some(limit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::tree;

    const MOUNTS: &str = "29 24 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
    const STAT: &str = "cache 1\ntotal_mapped_file 8192\ntotal_inactive_file 12288\ntotal_active_file 4096\nswap 512\n\
                        total_swap 1024\n";

    #[test]
    fn hits_of_the_limit_are_told_by_both_versions() {
        let old = tree(&[
            ("proc/self/mountinfo", MOUNTS),
            ("sys/fs/cgroup/memory/a/cgroup.procs", ""),
            ("sys/fs/cgroup/memory/a/memory.failcnt", "734\n"),
        ]);
        assert_eq!(Memcgs::new(&old.roots).open("/a").unwrap().limit_hits().unwrap(), 734);
        let new = tree(&[
            ("proc/self/mountinfo", "29 24 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            ("sys/fs/cgroup/cgroup.controllers", "memory\n"),
            ("sys/fs/cgroup/a/cgroup.procs", ""),
            ("sys/fs/cgroup/a/memory.events", "low 1\nhigh 2\nmax 35\noom 4\n"),
        ]);
        let group = Memcgs::new(&new.roots).open("/a").unwrap();
        assert_eq!(group.limit_hits().unwrap(), 35);
        std::fs::write(new.roots.path("/sys/fs/cgroup/a/memory.events"), "low 1\n").unwrap();
        assert!(group.limit_hits().is_err(), "not known is not zero");
    }

    #[test]
    fn what_is_protected_by_the_group_or_above_is_not_spare() {
        let t = tree(&[
            ("proc/self/mountinfo", "29 24 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            ("sys/fs/cgroup/cgroup.procs", ""),
            ("sys/fs/cgroup/cgroup.controllers", "memory\n"),
            ("sys/fs/cgroup/a/cgroup.procs", ""),
            ("sys/fs/cgroup/a/memory.current", "10000\n"),
            ("sys/fs/cgroup/a/memory.min", "0\n"),
            ("sys/fs/cgroup/a/memory.low", "0\n"),
            ("sys/fs/cgroup/a/b/cgroup.procs", ""),
            ("sys/fs/cgroup/a/b/memory.current", "9000\n"),
            ("sys/fs/cgroup/a/b/memory.min", "1000\n"),
            ("sys/fs/cgroup/a/b/memory.low", "3000\n"),
        ]);
        let groups = Memcgs::new(&t.roots);
        let protect = |file: &str, text| std::fs::write(t.roots.path("/sys/fs/cgroup").join(file), text).unwrap();
        let spare = |path| -> Vec<(String, u64)> {
            let protections = groups.open(path).unwrap().protections().unwrap();
            protections.into_iter().map(|p| (p.path, p.spare)).collect()
        };
        let of = |path: &str, spare| (path.to_owned(), spare);
        assert_eq!((spare("/"), spare("/a"), spare("/a/b")), (vec![], vec![], vec![of("/a/b", 6000)]));
        protect("a/memory.low", "9500\n");
        assert_eq!(spare("/a"), [of("/a", 500)], "the slice is protected");
        assert_eq!(spare("/a/b"), [of("/a/b", 6000), of("/a", 500)]);
        protect("a/b/memory.low", "max\n");
        assert_eq!(spare("/a/b")[0].1, 0);
        protect("a/memory.low", "many\n");
        assert!(groups.open("/a/b").unwrap().protections().is_err(), "not known is not unprotected");
        std::fs::remove_file(t.roots.path("/sys/fs/cgroup/a/memory.low")).unwrap();
        assert_eq!(spare("/a"), [], "the controller is not enabled there");
    }

    #[test]
    fn what_is_in_swap_is_that_of_the_group_alone() {
        let t = tree(&[
            ("proc/self/mountinfo", "29 24 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            ("sys/fs/cgroup/cgroup.procs", ""),
            ("sys/fs/cgroup/cgroup.controllers", "memory\n"),
            ("sys/fs/cgroup/a/cgroup.procs", ""),
            ("sys/fs/cgroup/a/memory.swap.current", "10000\n"),
            ("sys/fs/cgroup/a/b/cgroup.procs", ""),
            ("sys/fs/cgroup/a/b/memory.swap.current", "4000\n"),
            ("sys/fs/cgroup/a/without/cgroup.procs", ""),
        ]);
        let swapped = |path| Memcgs::new(&t.roots).open(path).unwrap().swapped();
        assert_eq!((swapped("/a").unwrap(), swapped("/a/b").unwrap()), (6000, 4000));
        assert!(swapped("/a/without").is_err(), "not known is not zero");
    }

    #[test]
    fn figures_and_limits_of_v1_groups() {
        let t = tree(&[
            ("proc/self/mountinfo", MOUNTS),
            ("proc/7/cgroup", "4:memory:/a/b\n1:cpu:/\n"),
            ("sys/fs/cgroup/memory/cgroup.procs", ""),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/a/cgroup.procs", ""),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1048576\n"),
            ("sys/fs/cgroup/memory/a/b/cgroup.procs", "7\n"),
            ("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/a/b/memory.usage_in_bytes", "4096\n"),
            ("sys/fs/cgroup/memory/a/b/memory.stat", STAT),
        ]);
        let groups = Memcgs::new(&t.roots);
        assert_eq!(groups.path_of(7), Some(Ok("/a/b".to_owned())));
        assert_eq!(groups.path_of(8), None);
        let b = groups.open("/a/b").unwrap();
        assert_eq!((b.used().unwrap(), b.unmapped_cache().unwrap(), b.exists()), (4096, 8192, true));
        assert_eq!(b.swapped().unwrap(), 512);
        let limit = b.limit().unwrap().unwrap();
        assert_eq!((limit.bytes, &*limit.group.path()), (1 << 20, "/a"));
        let own = |bytes: &str| std::fs::write(t.roots.path("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes"), bytes);
        for (written, bytes, path) in [("2097152\n", 1 << 20, "/a"), ("524288\n", 1 << 19, "/a/b")] {
            own(written).unwrap();
            let limit = b.limit().unwrap().unwrap();
            assert_eq!((limit.bytes, &*limit.group.path()), (bytes, path), "the lower one holds");
        }
        for path in ["/a/b", "a/b", "/a/b/", "//a//b", "/sys/fs/cgroup/memory/a/b", "memory/a/b"] {
            assert_eq!(groups.name(path), "/a/b", "{path}");
        }
        assert_eq!((groups.name("none/yet/"), groups.name("/")), ("/none/yet".to_owned(), "/".to_owned()));
        let root = groups.open("/").unwrap();
        assert_eq!(root.limit().unwrap(), None);
        assert!(groups.open("/none").unwrap_err().to_string().contains("no control group '/none'"));
        std::fs::remove_dir_all(t.roots.path("/sys/fs/cgroup/memory/a/b")).unwrap();
        assert!(!b.exists() && b.used().is_err());
    }
}
