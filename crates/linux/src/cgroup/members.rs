//! Control groups as targets, in v1, v2 and hybrid set-ups.

use super::escapes::unescape;
use crate::targets::TargetError;
use std::io;
use std::path::{Path, PathBuf};

/// A control group's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    dir: PathBuf,
}

impl Cgroup {
    /// Finds the folder of the control group `path` below the hierarchies that are mounted here.
    pub fn find(path: &Path) -> Result<Self, TargetError> {
        let table = PathBuf::from("/proc/self/mounts");
        let mounts = std::fs::read(&table).map_err(|source| TargetError::Io { path: table, source })?;
        Self::find_below(&mount_points(&String::from_utf8_lossy(&mounts)), path)
    }

    /// Finds the folder below the given mount points, the first of them first. `path` may be a full path, a path below
    /// one of them (with or without a leading slash), or below the folder that holds them. Where several hierarchies
    /// have such a group, the first that has a process in it is taken.
    pub(crate) fn find_below(mounts: &[PathBuf], path: &Path) -> Result<Self, TargetError> {
        let inside = path.strip_prefix("/").unwrap_or(path);
        let mut tried: Vec<PathBuf> = Vec::new();
        let full = path.is_absolute().then(|| path.to_path_buf());
        let parents = mounts.iter().filter_map(|m| m.parent());
        let below = mounts.iter().map(PathBuf::as_path).chain(parents).map(|m| m.join(inside));
        for dir in full.into_iter().chain(below) {
            if !tried.contains(&dir) {
                tried.push(dir);
            }
        }
        let groups: Vec<Self> =
            tried.iter().filter(|d| d.join(PROCS).is_file()).map(|d| Self { dir: d.clone() }).collect();
        let inhabited = groups.iter().find(|g| g.pids().is_ok_and(|p| !p.is_empty()));
        match inhabited.or(groups.first()) {
            Some(group) => Ok(group.clone()),
            None => Err(TargetError::NoCgroup { path: path.to_path_buf(), tried }),
        }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether it still exists.
    pub fn exists(&self) -> bool {
        self.dir.join(PROCS).is_file()
    }

    /// Pids of the processes in it and in nested groups, sorted. None if the group has been removed.
    pub fn pids(&self) -> Result<Vec<u32>, TargetError> {
        let mut pids = Vec::new();
        let mut queue = vec![self.dir.clone()];
        while let Some(dir) = queue.pop() {
            let file = dir.join(PROCS);
            match std::fs::read_to_string(&file) {
                // 0 stands for a process outside this pid namespace.
                Ok(text) => {
                    pids.extend(text.lines().filter_map(|l| l.trim().parse().ok()).filter(|&pid: &u32| pid != 0))
                }
                Err(e) if is_removed(&e) => continue,
                // A threaded group of v2: its processes are listed by the group above.
                Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
                Err(source) => return Err(TargetError::Io { path: file, source }),
            }
            match std::fs::read_dir(&dir) {
                Ok(entries) => queue
                    .extend(entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path())),
                Err(e) if is_removed(&e) => {}
                Err(source) => return Err(TargetError::Io { path: dir, source }),
            }
        }
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }
}

const PROCS: &str = "cgroup.procs";

/// A group that is removed while it is read gives ENODEV for files that are open and ENOENT for others.
fn is_removed(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV))
}

/// Mount points of the control group hierarchies in a mount table: v2 first, then v1 with the controllers that tell
/// most about memory first.
fn mount_points(table: &str) -> Vec<PathBuf> {
    let mut found: Vec<(usize, PathBuf)> = Vec::new();
    for line in table.lines() {
        let mut fields = line.split(' ');
        let (Some(_), Some(point), Some(fs), Some(options)) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let has = |name: &str| options.split(',').any(|o| o == name);
        let rank = match fs {
            "cgroup2" => 0,
            "cgroup" if has("memory") => 1,
            "cgroup" if has("pids") => 2,
            "cgroup" if has("name=systemd") => 3,
            "cgroup" => 4,
            _ => continue,
        };
        found.push((rank, PathBuf::from(unescape(point))));
    }
    found.sort();
    found.into_iter().map(|(_, p)| p).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_come_in_the_order_of_use() {
        let table = "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\ncgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n\
            tmpfs /tmp tmpfs rw 0 0\ncgroup2 /sys/fs/cgroup/my\\040unified cgroup2 rw 0 0\nbroken\n";
        assert_eq!(
            mount_points(table),
            ["/sys/fs/cgroup/my unified", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/cpu"].map(PathBuf::from)
        );
    }

    #[test]
    fn groups_are_found_by_every_kind_of_path_with_nested_ones() {
        let root = tempfile::tempdir().unwrap();
        let (v2, memory) = (root.path().join("unified"), root.path().join("memory"));
        for (dir, procs) in [
            (v2.join("app"), ""),
            (memory.clone(), "1\n"),
            (memory.join("app"), "12\n0\n12\n"),
            (memory.join("app/worker"), "9\n"),
        ] {
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join(PROCS), procs).unwrap();
        }
        std::fs::write(v2.join(PROCS), "1\n").unwrap();
        let mounts = [v2.clone(), memory.clone()];
        for path in ["app", "/app", "memory/app", memory.join("app").to_str().unwrap()] {
            let group = Cgroup::find_below(&mounts, Path::new(path)).unwrap();
            assert_eq!(group.dir(), memory.join("app"), "{path}");
            assert_eq!(group.pids().unwrap(), [9, 12]);
        }
        std::fs::remove_dir_all(memory.join("app")).unwrap();
        let empty = Cgroup::find_below(&mounts, Path::new("app")).unwrap();
        assert_eq!((empty.dir(), empty.pids().unwrap()), (v2.join("app").as_path(), vec![]));
        std::fs::remove_dir_all(v2.join("app")).unwrap();
        assert!(!empty.exists());
        assert!(empty.pids().unwrap().is_empty());
        let error = Cgroup::find_below(&mounts, Path::new("/app")).unwrap_err().to_string();
        assert!(error.contains("'/app'") && error.contains(&*memory.join("app").to_string_lossy()), "{error}");
    }
}
