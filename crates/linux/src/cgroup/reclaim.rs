//! Files of a control group leave memory: `memory.reclaim` of version 2.

use super::memory::{Memcg, PageCache, stat_value};
use crate::facts::Environment;
use std::io::{self, Write};

/// A page of the counters in memory.stat, bytes.
const PAGE: u64 = 4096;
const RECLAIM: &str = "memory.reclaim";
/// With this key only files go.
const FILES_ONLY: &str = "swappiness=0";
/// Asks for nothing: kernels that do not know the key refuse it.
const PROBE: &str = "0 swappiness=0";
const DEMOTION: &str = "/sys/kernel/mm/numa/demotion_enabled";

/// What memory.stat tells of files that could go, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileMemory {
    /// In the inactive list, mapped by no process as far as the sizes tell, and written back.
    pub idle: u64,
    /// Read again after they had been dropped, since the group was made; `None`: the kernel does not tell.
    pub refaulted: Option<u64>,
    /// Taken from the group, by whomever, since it was made; `None`: the kernel does not tell.
    stolen: Option<u64>,
}

/// Why a group's files are left to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoFileReclaim {
    /// Control groups of version 1.
    #[error("control groups of version 1 have no memory.reclaim; boot with systemd.unified_cgroup_hierarchy=1")]
    Version1,
    /// No such file.
    #[error(
        "the group has no memory.reclaim: it takes Linux 5.19, the memory controller in cgroup.subtree_control of the group above, and not the root group"
    )]
    NoFile,
    /// Groups below would lose theirs.
    #[error("memory.reclaim would take from the groups below it, too; name these instead")]
    GroupsBelow,
    /// Anonymous memory would go, too.
    #[error(
        "this kernel's memory.reclaim does not take swappiness=0, so that anonymous memory would go as well; only a machine without swap and without demotion keeps it"
    )]
    AnonymousToo,
    /// memory.stat lacks a counter that is needed.
    #[error(
        "memory.stat does not tell what is read again (workingset_refault_file: Linux 5.9), so nobody would notice harm"
    )]
    NoRefaults,
    /// Files of the group cannot be read or written.
    #[error("its files in the control group cannot be used ({0}); a service needs ProtectControlGroups=no")]
    Refused(io::ErrorKind),
}

impl NoFileReclaim {
    /// A word for programs.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Version1 | Self::NoFile => "no_memory_reclaim",
            Self::GroupsBelow => "groups_below",
            Self::AnonymousToo => "anonymous_too",
            Self::NoRefaults => "meter",
            Self::Refused(_) => "refused",
        }
    }
}

impl From<io::Error> for NoFileReclaim {
    fn from(error: io::Error) -> Self {
        Self::Refused(error.kind())
    }
}

impl Memcg {
    /// Files that could go.
    pub fn file_memory(&self) -> io::Result<FileMemory> {
        let text = self.roots.read(self.folder.join("memory.stat"))?;
        let cache = PageCache::parse(&text, self.v2)?;
        let of = |v2, v1| stat_value(&text, if self.v2 { v2 } else { v1 });
        let busy = [of("file_dirty", "total_dirty"), of("file_writeback", "total_writeback")];
        let pages = |name, v1| of(name, v1).map(|pages| pages * PAGE);
        Ok(FileMemory {
            idle: cache.inactive.min(cache.unmapped()).saturating_sub(busy.into_iter().flatten().sum()),
            refaulted: pages("workingset_refault_file", "total_workingset_refault_file"),
            stolen: pages("pgsteal", "total_pgsteal"),
        })
    }

    /// Whether [`reclaim_files`](Self::reclaim_files) can take files and nothing else; asks the kernel for nothing.
    pub fn can_reclaim_files(&self) -> Result<(), NoFileReclaim> {
        self.key().map(|_| ())
    }

    /// Asks the kernel to drop `bytes` of files; how many went, as far as it tells: 6.1 was seen to take a quarter more
    /// than it is asked for. Waits for it, for seconds where nothing goes.
    pub fn reclaim_files(&self, bytes: u64) -> Result<u64, NoFileReclaim> {
        let key = self.key()?;
        let before = self.file_memory()?.stolen;
        let written = self.write_reclaim(&format!("{bytes}{key}"));
        // The group may be gone meanwhile; what it was asked for has left all the same.
        let after = self.file_memory().ok().and_then(|memory| memory.stolen);
        let stolen = before.zip(after).map_or(0, |(before, after)| after.saturating_sub(before));
        match written {
            Ok(()) => Ok(stolen.max(bytes)),
            // Fewer than that: nobody tells how many, but what was taken in all.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(stolen.min(bytes)),
            Err(e) => Err(e.into()),
        }
    }

    /// What must stand behind the number for only files to go.
    fn key(&self) -> Result<String, NoFileReclaim> {
        if !self.v2 {
            return Err(NoFileReclaim::Version1);
        }
        if self.folder == self.mount || !self.roots.exists(self.folder.join(RECLAIM)) {
            return Err(NoFileReclaim::NoFile);
        }
        let below = self.roots.read(self.folder.join("cgroup.subtree_control"))?;
        if below.split_whitespace().any(|controller| controller == "memory") {
            return Err(NoFileReclaim::GroupsBelow);
        }
        if self.file_memory()?.refaulted.is_none() {
            return Err(NoFileReclaim::NoRefaults);
        }
        match self.write_reclaim(PROBE) {
            Ok(()) => Ok(format!(" {FILES_ONLY}")),
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => {
                let demotes = self.roots.line(DEMOTION).is_some_and(|word| matches!(&*word, "true" | "1"));
                // Not readable is not none.
                let swaps = self.roots.exists("/proc/swaps").then(|| Environment::read_swap(&self.roots));
                match swaps {
                    Some(swaps) if swaps.is_empty() && !demotes => Ok(String::new()),
                    _ => Err(NoFileReclaim::AnonymousToo),
                }
            }
            Err(e) => Err(e.into()),
        }
    }

    fn write_reclaim(&self, text: &str) -> io::Result<()> {
        let mut file = std::fs::OpenOptions::new().write(true).open(self.roots.path(self.folder.join(RECLAIM)))?;
        file.write_all(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::memory::Memcgs;
    use crate::test_tree::{Tree, tree};

    const STAT: &str = "anon 1\nfile_mapped 8192\nfile_dirty 4096\nfile_writeback 0\ninactive_file 40960\n\
                        active_file 4096\nworkingset_refault_anon 5\nworkingset_refault_file 3\npgsteal 7\n";

    fn group() -> Tree {
        tree(&[
            ("proc/self/mountinfo", "29 24 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            ("proc/swaps", "Filename Type Size Used Priority\n"),
            ("sys/fs/cgroup/cgroup.procs", ""),
            ("sys/fs/cgroup/cgroup.controllers", "memory\n"),
            ("sys/fs/cgroup/memory.reclaim", ""),
            ("sys/fs/cgroup/a/cgroup.procs", ""),
            ("sys/fs/cgroup/a/cgroup.subtree_control", "\n"),
            ("sys/fs/cgroup/a/memory.stat", STAT),
            ("sys/fs/cgroup/a/memory.reclaim", ""),
        ])
    }

    fn put(t: &Tree, file: &str, text: &str) {
        std::fs::write(t.roots.path("/sys/fs/cgroup/a").join(file), text).unwrap();
    }

    #[test]
    fn files_alone_are_asked_for() {
        let t = group();
        let a = Memcgs::new(&t.roots).open("/a").unwrap();
        let file = FileMemory { idle: 40960 - 4096 - 4096, refaulted: Some(3 * 4096), stolen: Some(7 * 4096) };
        assert_eq!(a.file_memory().unwrap(), file, "no more than is not mapped");
        assert_eq!(a.reclaim_files(1 << 20), Ok(1 << 20));
        assert_eq!(t.roots.read("/sys/fs/cgroup/a/memory.reclaim").unwrap(), "1048576 swappiness=0");
        put(&t, "memory.stat", "inactive_file 1\nactive_file 1\nfile_mapped 9\n");
        assert_eq!((a.file_memory().unwrap().idle, a.can_reclaim_files()), (0, Err(NoFileReclaim::NoRefaults)));
    }

    #[test]
    fn what_would_take_more_than_files_or_from_others_is_not_done() {
        let t = group();
        let groups = Memcgs::new(&t.roots);
        let why = |path| groups.open(path).unwrap().can_reclaim_files().unwrap_err();
        assert_eq!(why("/"), NoFileReclaim::NoFile, "all groups are below the root");
        put(&t, "cgroup.subtree_control", "memory pids\n");
        assert_eq!(why("/a"), NoFileReclaim::GroupsBelow);
        put(&t, "cgroup.subtree_control", "pids\n");
        assert!(groups.open("/a").unwrap().can_reclaim_files().is_ok());
        std::fs::remove_file(t.roots.path("/sys/fs/cgroup/a/memory.reclaim")).unwrap();
        assert_eq!((why("/a"), why("/a").code()), (NoFileReclaim::NoFile, "no_memory_reclaim"));
        std::fs::create_dir(t.roots.path("/sys/fs/cgroup/a/memory.reclaim")).unwrap();
        assert!(matches!(why("/a"), NoFileReclaim::Refused(_)), "an error is reported");
    }

    #[test]
    fn version_1_has_sizes_and_nothing_else() {
        let t = tree(&[
            ("proc/self/mountinfo", "29 24 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"),
            ("sys/fs/cgroup/memory/a/cgroup.procs", ""),
            (
                "sys/fs/cgroup/memory/a/memory.stat",
                "inactive_file 1\ntotal_mapped_file 0\ntotal_inactive_file 12288\ntotal_active_file 0\ntotal_dirty 4096\n",
            ),
        ]);
        let a = Memcgs::new(&t.roots).open("/a").unwrap();
        assert_eq!(a.file_memory().unwrap().idle, 8192);
        assert_eq!(a.can_reclaim_files(), Err(NoFileReclaim::Version1));
        assert!(a.reclaim_files(4096).is_err());
    }
}
