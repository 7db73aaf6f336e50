//! All control groups of the hierarchy that controls memory, by number.

use super::setup::CgroupSetup;
use crate::roots::Roots;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A control group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedGroup {
    /// The lower 32 bits of its folder's inode number, which stays the same for as long as the group is there. 0: no
    /// control groups are mounted here, and this stands for all processes.
    pub id: u32,
    /// Its path as `/proc/PID/cgroup` has it; empty where `id` is 0.
    pub path: String,
}

/// Lists control groups, those without processes included.
#[derive(Debug)]
pub struct GroupList {
    roots: Roots,
    mount: Option<PathBuf>,
    folders: HashMap<u32, PathBuf>,
}

impl GroupList {
    /// Of the hierarchy that controls memory, else of v2.
    pub fn new(roots: &Roots) -> Self {
        let setup = CgroupSetup::read(roots);
        let mount = setup.memory_mount().map(|(mount, _)| mount.to_path_buf()).or(setup.v2);
        Self { roots: roots.clone(), mount, folders: HashMap::new() }
    }

    /// All that are there now: each before those in it, in order of their names.
    pub fn all(&mut self) -> Vec<ListedGroup> {
        self.folders.clear();
        let Some(mount) = self.mount.clone() else { return vec![ListedGroup { id: 0, path: String::new() }] };
        let (mut out, mut queue) = (Vec::new(), vec![mount.clone()]);
        while let Some(folder) = queue.pop() {
            // What is removed meanwhile is left out.
            let Some(id) = self.id_of(&folder) else { continue };
            out.push(ListedGroup { id, path: path_in(&mount, &folder) });
            let entries = std::fs::read_dir(self.roots.path(&folder)).into_iter().flatten().flatten();
            let folders =
                entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| folder.join(e.file_name()));
            let mut within: Vec<PathBuf> = folders.collect();
            within.sort_unstable_by(|a, b| b.cmp(a));
            queue.append(&mut within);
            self.folders.insert(id, folder);
        }
        out
    }

    /// The group of that number. All are listed again only where it was not among the last ones.
    pub fn find(&mut self, id: u32) -> Option<ListedGroup> {
        if self.mount.is_some() && self.folders.get(&id).is_none_or(|folder| self.id_of(folder) != Some(id)) {
            self.all();
        }
        match (&self.mount, self.folders.get(&id)) {
            (Some(mount), folder) => folder.map(|folder| ListedGroup { id, path: path_in(mount, folder) }),
            (None, _) => (id == 0).then(|| ListedGroup { id, path: String::new() }),
        }
    }

    /// Pids of the processes in the group itself, not of those in the groups below it.
    pub fn pids(&self, id: u32) -> Vec<u32> {
        if self.mount.is_none() {
            return self.roots.pids().unwrap_or_default();
        }
        let text = self.folders.get(&id).and_then(|folder| self.roots.read(folder.join("cgroup.procs")).ok());
        // 0 stands for a process outside this pid namespace.
        let pids = text.iter().flat_map(|text| text.lines()).filter_map(|line| line.trim().parse().ok());
        let mut pids: Vec<u32> = pids.filter(|&pid| pid != 0).collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// The swappiness of a group: its own in v1, else the machine's.
    pub fn swappiness(&self, id: u32) -> Option<u8> {
        let own = self.folders.get(&id).and_then(|folder| self.roots.line(folder.join("memory.swappiness")));
        own.or_else(|| self.roots.line("/proc/sys/vm/swappiness"))?.parse().ok()
    }

    fn id_of(&self, folder: &Path) -> Option<u32> {
        // Only the lower half: programs that use such numbers take them for unsigned ints.
        Some(std::fs::metadata(self.roots.path(folder)).ok()?.ino() as u32)
    }
}

fn path_in(mount: &Path, folder: &Path) -> String {
    format!("/{}", folder.strip_prefix(mount).unwrap_or(folder).display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::tree;

    const MOUNTS: &str = "29 24 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

    #[test]
    fn groups_are_listed_with_their_own_processes() {
        let t = tree(&[
            ("proc/self/mountinfo", MOUNTS),
            ("proc/sys/vm/swappiness", "60\n"),
            ("sys/fs/cgroup/memory/cgroup.procs", "1\n"),
            ("sys/fs/cgroup/memory/b/cgroup.procs", ""),
            ("sys/fs/cgroup/memory/a/cgroup.procs", "8\n0\n7\n8\n"),
            ("sys/fs/cgroup/memory/a/memory.swappiness", "10\n"),
            ("sys/fs/cgroup/memory/a/x y/cgroup.procs", "9\n"),
        ]);
        let mut list = GroupList::new(&t.roots);
        let all = list.all();
        let paths: Vec<&str> = all.iter().map(|g| &*g.path).collect();
        assert_eq!(paths, ["/", "/a", "/a/x y", "/b"]);
        assert_eq!(all.iter().map(|g| list.pids(g.id)).collect::<Vec<_>>(), [vec![1], vec![7, 8], vec![9], vec![]]);
        assert_eq!((list.swappiness(all[1].id), list.swappiness(all[3].id)), (Some(10), Some(60)));
        assert_eq!(list.find(all[2].id), Some(all[2].clone()));
        std::fs::create_dir(t.roots.path("/sys/fs/cgroup/memory/new")).unwrap();
        let new = std::fs::metadata(t.roots.path("/sys/fs/cgroup/memory/new")).unwrap().ino() as u32;
        assert_eq!(list.find(new).unwrap().path, "/new");
        std::fs::remove_dir(t.roots.path("/sys/fs/cgroup/memory/new")).unwrap();
        assert_eq!(list.find(new), None);
        assert!(list.pids(new).is_empty());
    }

    #[test]
    fn without_control_groups_all_processes_are_one() {
        let t = tree(&[("proc/7/stat", ""), ("proc/12/stat", "")]);
        let mut list = GroupList::new(&t.roots);
        assert_eq!(list.all(), [ListedGroup { id: 0, path: String::new() }]);
        assert_eq!((list.find(0).is_some(), list.find(3)), (true, None));
        let mut pids = list.pids(0);
        pids.sort_unstable();
        assert_eq!(pids, [7, 12]);
    }
}
