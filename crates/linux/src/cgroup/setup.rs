//! How control groups are mounted: v2 alone, v1 alone, or both side by side (hybrid).

use super::view::{Mounted, View};
use crate::roots::Roots;
use std::path::{Path, PathBuf};

/// Mounts of the control group file systems and what they offer for memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CgroupSetup {
    /// Mount of cgroup v2.
    pub v2: Option<PathBuf>,
    /// Controllers that the v2 root offers.
    pub v2_controllers: Vec<String>,
    /// Mount of the v1 memory controller.
    pub v1_memory: Option<PathBuf>,
    /// Our own group's folder in the hierarchy that controls memory (else in v2), with the mount in front.
    pub own: Option<PathBuf>,
    /// Why it is not known where groups are whose memory is controlled. `None`: it is known, or the kernel controls none.
    pub(crate) unknown: Option<String>,
    view: View,
}

/// A process's control group that has no name here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the control group of process {pid} is not known: seen from our own it is '{path}', outside of what is mounted \
     here ({mount}); mount the host's /sys/fs/cgroup at /sys/fs/cgroup (it may be read-only)"
)]
pub struct OutsideGroup {
    pub pid: u32,
    /// As the kernel writes it.
    pub path: String,
    mount: String,
}

impl CgroupSetup {
    /// Reads `/proc/self/mountinfo` and `/proc/self/cgroup`.
    pub fn read(roots: &Roots) -> Self {
        let (mut v2, mut v1_memory) = (Vec::new(), Vec::new());
        let mounts = roots.read("/proc/self/mountinfo");
        for line in mounts.as_deref().unwrap_or_default().lines() {
            // id parent device root mount-point options [optional fields] - type source super-options
            let Some((left, right)) = line.split_once(" - ") else { continue };
            let mut left = left.split(' ').skip(3);
            let (Some(root), Some(point)) = (left.next(), left.next()) else { continue };
            let mut right = right.split(' ');
            match (right.next(), right.nth(1)) {
                (Some("cgroup2"), _) => Mounted::new(point, root).add_to(&mut v2),
                (Some("cgroup"), Some(o)) if o.split(',').any(|o| o == "memory") => {
                    Mounted::new(point, root).add_to(&mut v1_memory);
                }
                _ => {}
            }
        }
        let (v2, v1_memory) = (Mounted::widest(&v2), Mounted::widest(&v1_memory));
        let point = |mount: Option<&Mounted>| mount.map(|mount| mount.point.clone());
        let mut setup = Self { v2: point(v2), v1_memory: point(v1_memory), ..Self::default() };
        if let Some(v2) = &setup.v2 {
            let file = v2.join("cgroup.controllers");
            match roots.read(&file) {
                // Without controllers it is empty.
                Ok(text) => setup.v2_controllers = text.split_whitespace().map(str::to_owned).collect(),
                Err(e) if setup.v1_memory.is_none() => setup.unknown = Some(format!("{}: {e}", file.display())),
                Err(_) => {}
            }
        } else if setup.v1_memory.is_none() {
            setup.unknown = Some(match &mounts {
                Ok(_) => "/proc/self/mountinfo shows no hierarchy of control groups".to_owned(),
                Err(e) => format!("/proc/self/mountinfo: {e}"),
            });
        }
        let is_v1 = setup.memory_mount().is_some_and(|(_, is_v2)| !is_v2);
        let mount = if is_v1 { v1_memory } else { v2 };
        let text = roots.read("/proc/self/cgroup").unwrap_or_default();
        let own = setup.path_in(&text);
        if let Some(mount) = mount {
            setup.view = View::of(roots, mount, own);
            let name = own.and_then(|own| setup.view.name_of(own));
            setup.own = name.map(|name| mount.point.join(name.trim_start_matches('/')));
        }
        setup
    }

    /// Whether v2 controls memory.
    pub(crate) fn v2_memory(&self) -> bool {
        self.v2_controllers.iter().any(|c| c == "memory")
    }

    /// The mount of the hierarchy that controls memory, and whether that is v2.
    pub fn memory_mount(&self) -> Option<(&Path, bool)> {
        let v2 = self.v2.as_deref().filter(|_| self.v2_memory()).map(|mount| (mount, true));
        v2.or_else(|| self.v1_memory.as_deref().map(|mount| (mount, false)))
    }

    /// What a process's group is called below the mount, from the text of its `/proc/PID/cgroup`; `None`: it is in
    /// none.
    pub(crate) fn name_in(&self, text: &str, pid: u32) -> Option<Result<String, OutsideGroup>> {
        let path = self.path_in(text)?;
        // v2 marks the path of a group that was removed while this process was exiting.
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        Some(self.view.name_of(path).ok_or_else(|| {
            let mount = self.memory_mount().map(|(mount, _)| mount).or(self.v2.as_deref());
            let mount = mount.map_or_else(|| "nothing".to_owned(), |mount| mount.display().to_string());
            OutsideGroup { pid, path: path.to_owned(), mount }
        }))
    }

    /// A process's path as the kernel writes it, in the hierarchy that controls memory, else in v2.
    fn path_in<'a>(&self, text: &'a str) -> Option<&'a str> {
        let find = |want: &dyn Fn(&str, &str) -> bool| {
            text.lines().find_map(|line| {
                let mut fields = line.splitn(3, ':');
                let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
                want(id, controllers).then_some(path)
            })
        };
        match self.memory_mount() {
            Some((_, false)) => find(&|_, controllers| controllers.split(',').any(|c| c == "memory")),
            _ => find(&|id, controllers| id == "0" && controllers.is_empty()),
        }
    }

    /// For people: `v2`, `v1`, or `hybrid (memory in v1, ...)`.
    pub fn describe(&self) -> String {
        match (&self.v2, &self.v1_memory) {
            (Some(_), None) if self.v2_memory() => "v2".into(),
            (Some(_), None) => "v2, without the memory controller".into(),
            (Some(_), Some(_)) => "hybrid: memory is controlled by v1, v2 is mounted beside it".into(),
            (None, Some(_)) => "v1".into(),
            (None, None) => "not mounted".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::tree;

    const HYBRID_MOUNTS: &str = "\
24 1 0:22 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
25 24 0:23 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
29 24 0:27 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
34 24 0:32 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup rw
";

    #[test]
    fn hybrid_keeps_memory_in_v1() {
        let t = tree(&[
            ("proc/self/mountinfo", HYBRID_MOUNTS),
            ("proc/self/cgroup", "9:name=systemd:/\n4:memory:/api/one\n1:cpu:/\n0::/two\n"),
            ("sys/fs/cgroup/unified/cgroup.controllers", "hugetlb\n"),
        ]);
        let c = CgroupSetup::read(&t.roots);
        assert_eq!(c.v2.as_deref(), Some(Path::new("/sys/fs/cgroup/unified")));
        assert_eq!(c.own.as_deref(), Some(Path::new("/sys/fs/cgroup/memory/api/one")));
        assert!(!c.v2_memory());
        assert!(c.describe().starts_with("hybrid"));
    }

    #[test]
    fn unified() {
        let t = tree(&[
            ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"),
            ("proc/self/cgroup", "0::/user.slice/a\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n"),
        ]);
        let c = CgroupSetup::read(&t.roots);
        assert_eq!(c.own.as_deref(), Some(Path::new("/sys/fs/cgroup/user.slice/a")));
        assert_eq!(c.describe(), "v2");
    }

    #[test]
    fn what_cannot_be_read_is_not_taken_for_a_kernel_without_a_memory_controller() {
        let mounts =
            ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
        let unknown = |files: &[(&str, &str)]| CgroupSetup::read(&tree(files).roots).unknown;
        assert_eq!(unknown(&[mounts, ("sys/fs/cgroup/cgroup.controllers", "cpu pids\n")]), None);
        assert_eq!(unknown(&[mounts, ("sys/fs/cgroup/cgroup.controllers", "")]), None);
        assert!(unknown(&[mounts]).is_some_and(|why| why.starts_with("/sys/fs/cgroup/cgroup.controllers: ")));
        let others = ("proc/self/mountinfo", "30 23 0:26 / /proc rw - proc proc rw\n");
        assert!(unknown(&[others]).is_some_and(|why| why.contains("shows no hierarchy")));
        assert_eq!(unknown(&[("proc/self/mountinfo", HYBRID_MOUNTS)]), None, "memory is controlled by v1");
    }

    #[test]
    fn missing_files_are_not_mounted() {
        let c = CgroupSetup::read(&tree(&[]).roots);
        assert!(c.unknown.as_ref().is_some_and(|why| why.starts_with("/proc/self/mountinfo: ")), "{c:?}");
        assert_eq!(CgroupSetup { unknown: None, ..c.clone() }, CgroupSetup::default());
        assert_eq!(c.describe(), "not mounted");
    }
}
