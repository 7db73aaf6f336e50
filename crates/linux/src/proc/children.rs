//! Finding the processes that others have forked.

use super::dir::ProcessDir;
use super::forks::Forks;
use super::stat::Stat;
use crate::roots::Roots;
use std::collections::HashSet;
use std::io;

/// The children of all threads of a process, as the kernel lists them; `None` if it does not.
pub(super) fn children_of(roots: &Roots, pid: u32) -> Option<Vec<u32>> {
    let tasks = match std::fs::read_dir(ProcessDir::of(roots, pid).file("task")) {
        Ok(tasks) => tasks,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Some(Vec::new()),
        Err(_) => return None,
    };
    let mut children = Vec::new();
    for task in tasks.flatten() {
        let list = match std::fs::read_to_string(task.path().join("children")) {
            Ok(list) => list,
            // Either this thread has just exited, or the kernel has no such file at all.
            Err(e) if e.kind() == io::ErrorKind::NotFound && !task.path().join("stat").exists() => continue,
            Err(_) => return None,
        };
        children.extend(list.split_ascii_whitespace().filter_map(|word| word.parse::<u32>().ok()));
    }
    Some(children)
}

/// Finds children by polling.
///
/// `/proc/PID/task/*/children` gives them directly, but needs CONFIG_PROC_CHILDREN, which many kernels lack. Without it
/// every process's parent must be looked at; to keep that cheap nothing is read while no pid was given out since the
/// last two calls, and a process is looked at only when it is new. (A pid could be reused between two calls only if all pids
/// of the system were handed out in that time.)
///
/// A process whose parent has exited before the call has been adopted by another and is not found: a control group is
/// the better target for programs that daemonise.
#[derive(Debug)]
pub struct ChildFinder {
    roots: Roots,
    forks: Forks,
    seen: HashSet<u32>,
    parents: HashSet<u32>,
}

impl ChildFinder {
    /// A finder for processes below `roots`.
    pub fn new(roots: Roots) -> Self {
        Self { roots, forks: Forks::default(), seen: HashSet::new(), parents: HashSet::new() }
    }

    /// Pairs of (child, parent) for all children of `parents` and their descendants. Descendants found before may or
    /// may not come again.
    pub fn poll(&mut self, parents: &[u32]) -> io::Result<Vec<(u32, u32)>> {
        let nobody_forked = self.forks.are_over(&self.roots);
        let new_parents = parents.iter().any(|p| !self.parents.contains(p));
        if nobody_forked && !new_parents {
            return Ok(Vec::new());
        }
        if new_parents {
            // What was looked at before may be a child of the new parents.
            self.seen.clear();
        }
        self.parents = parents.iter().copied().collect();
        match self.listed(parents) {
            Some(found) => Ok(found),
            None => self.scan(),
        }
    }

    /// Children as the kernel lists them; `None` if it does not.
    fn listed(&self, parents: &[u32]) -> Option<Vec<(u32, u32)>> {
        let mut found: Vec<(u32, u32)> = Vec::new();
        let mut queue: Vec<u32> = parents.to_vec();
        let mut known: HashSet<u32> = parents.iter().copied().collect();
        while let Some(parent) = queue.pop() {
            for child in children_of(&self.roots, parent)? {
                if known.insert(child) {
                    found.push((child, parent));
                    queue.push(child);
                }
            }
        }
        Some(found)
    }

    /// Children by looking at the parent of every process that is new.
    fn scan(&mut self) -> io::Result<Vec<(u32, u32)>> {
        let pids = self.roots.pids()?;
        let mut new: Vec<(u32, u32)> = Vec::new();
        for &pid in pids.iter().filter(|p| !self.seen.contains(p)) {
            if let Ok(stat) = Stat::read(&ProcessDir::of(&self.roots, pid)) {
                new.push((pid, stat.ppid));
            }
        }
        // A process counts as seen while it stays listed; those that could not be read are looked at again.
        let read: HashSet<u32> = new.iter().map(|&(pid, _)| pid).collect();
        self.seen = pids.into_iter().filter(|p| self.seen.contains(p) || read.contains(p)).collect();
        let mut family = self.parents.clone();
        let mut found = Vec::new();
        // A child may be listed before its parent, so go on until nothing more turns up.
        loop {
            let before = found.len();
            new.retain(|&(pid, parent)| {
                let ours = family.contains(&parent) && family.insert(pid);
                if ours {
                    found.push((pid, parent));
                }
                !ours
            });
            if found.len() == before {
                return Ok(found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::tree;
    use std::path::Path;

    fn add(root: &Path, pid: u32, ppid: u32) {
        let dir = root.join(pid.to_string());
        std::fs::create_dir_all(dir.join("task").join(pid.to_string())).unwrap();
        let zeros = "0 ".repeat(40);
        std::fs::write(dir.join("stat"), format!("{pid} (x) S {ppid} {zeros}\n")).unwrap();
        std::fs::write(dir.join("task").join(pid.to_string()).join("stat"), "").unwrap();
    }

    fn set_last(root: &Path, pid: u32) {
        std::fs::write(root.join("loadavg"), format!("0.00 0.00 0.00 1/9 {pid}\n")).unwrap();
    }

    fn sorted(mut found: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
        found.sort_unstable();
        found
    }

    #[test]
    fn without_the_kernels_list_parents_are_looked_at() {
        let tree = tree(&[]);
        let proc = tree.roots.path("/proc");
        for (pid, ppid) in [(1, 0), (10, 1), (9, 10), (8, 9), (20, 1)] {
            add(&proc, pid, ppid);
        }
        set_last(&proc, 20);
        let mut finder = ChildFinder::new(tree.roots.clone());
        assert_eq!(sorted(finder.poll(&[10]).unwrap()), [(8, 9), (9, 10)]);

        // A pid is given out before its process can be listed.
        let family = [10, 9, 8];
        set_last(&proc, 30);
        assert!(!finder.poll(&family).unwrap().contains(&(30, 9)));
        add(&proc, 30, 9);
        assert!(finder.poll(&family).unwrap().contains(&(30, 9)));
        // Nobody forked: nothing is read, so even a new folder goes unnoticed until the counter moves.
        add(&proc, 31, 30);
        assert_eq!(finder.poll(&family).unwrap(), []);
    }

    #[test]
    fn the_kernels_list_is_used_where_it_exists() {
        let tree = tree(&[]);
        let proc = tree.roots.path("/proc");
        for pid in [10, 11, 12] {
            add(&proc, pid, 1);
            let list = if pid == 10 { "11 12 " } else { "" };
            std::fs::write(proc.join(format!("{pid}/task/{pid}/children")), list).unwrap();
        }
        let mut finder = ChildFinder::new(tree.roots.clone());
        assert_eq!(sorted(finder.poll(&[10, 99]).unwrap()), [(11, 10), (12, 10)]);
    }
}
