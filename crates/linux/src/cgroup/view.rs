//! What control groups are called below a mount, whatever namespace of control groups we are in.
//!
//! The kernel writes paths (`/proc/PID/cgroup`, the roots in `/proc/self/mountinfo`) as seen from the root of the
//! reader's namespace: in a container that has one of its own, a group beside the container's is `/../other`. Both kinds
//! of path begin at the same place, so that a mount of the host's hierarchy, whose root is then `/../..`, tells how far
//! up its own root is. No privilege is needed for that.

use super::escapes::unescape;
use crate::roots::Roots;
use std::path::{Path, PathBuf};

/// A path as the kernel writes it: so many levels up from the namespace's root, then down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SeenPath<'a> {
    ups: usize,
    below: &'a str,
}

impl<'a> SeenPath<'a> {
    pub(super) fn parse(path: &'a str) -> Self {
        let (mut ups, mut below) = (0, path.trim_start_matches('/'));
        while let Some(rest) = below.strip_prefix("..").filter(|rest| rest.is_empty() || rest.starts_with('/')) {
            (ups, below) = (ups + 1, rest.trim_start_matches('/'));
        }
        Self { ups, below }
    }
}

/// A mount of a hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mounted {
    pub(super) point: PathBuf,
    /// As mountinfo has it, with escapes undone.
    root: String,
}

impl Mounted {
    /// From the fields of mountinfo, which escape blanks.
    pub(super) fn new(point: &str, root: &str) -> Self {
        Self { point: PathBuf::from(unescape(point)), root: unescape(root) }
    }

    /// Takes in another mount: at the same place, it covers the earlier one.
    pub(super) fn add_to(self, mounts: &mut Vec<Self>) {
        mounts.retain(|earlier| earlier.point != self.point);
        mounts.push(self);
    }

    /// That which shows most. A part of the hierarchy in which we are not shows nothing of ours.
    pub(super) fn widest(mounts: &[Self]) -> Option<&Self> {
        let rank = |mount: &Self| {
            let root = SeenPath::parse(&mount.root);
            (root.ups == 0 || root.below.is_empty()).then_some((root.below.is_empty(), root.ups))
        };
        // The first of those that show as much.
        mounts.iter().rev().filter(|mount| rank(mount).is_some()).max_by_key(|mount| rank(mount))
    }
}

/// From where we see the mount that groups are named by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct View {
    /// How many levels the mount's root is above the namespace's.
    above: usize,
    /// The groups from the mount's root down to the namespace's, that included; `None`: they were not found.
    way: Option<Vec<String>>,
}

impl View {
    /// Of a mount. `own`: our path, as `/proc/self/cgroup` has it.
    pub(super) fn of(roots: &Roots, mount: &Mounted, own: Option<&str>) -> Self {
        let above = SeenPath::parse(&mount.root).ups;
        let way = own.filter(|_| above > 0).and_then(|own| way(roots, &mount.point, above, &SeenPath::parse(own)));
        Self { above, way }
    }

    /// The path below the mount; `None`: it is not below, or not known which it is.
    pub(super) fn name_of(&self, path: &str) -> Option<String> {
        let path = SeenPath::parse(path);
        let down = self.above.checked_sub(path.ups)?;
        if down == 0 {
            return Some(format!("/{}", path.below));
        }
        let below = Some(path.below).filter(|below| !below.is_empty());
        let parts: Vec<&str> = self.way.as_ref()?.get(..down)?.iter().map(String::as_str).chain(below).collect();
        Some(format!("/{}", parts.join("/")))
    }
}

/// Finds the namespace's root below the mount: our own group is in it, and has our process.
fn way(roots: &Roots, mount: &Path, above: usize, own: &SeenPath<'_>) -> Option<Vec<String>> {
    let stat = roots.read("/proc/self/stat").ok()?;
    let pid = stat.split(' ').next()?;
    let parts: Vec<&str> = own.below.split('/').filter(|part| !part.is_empty()).collect();
    if own.ups > 0 {
        // We were moved out of it.
        return None;
    }
    let depth = above + parts.len();
    let mut queue = vec![Vec::<String>::new()];
    while let Some(mut names) = queue.pop() {
        let folder = mount.join(names.join("/"));
        if names.len() < depth {
            let entries = std::fs::read_dir(roots.path(&folder)).into_iter().flatten().flatten();
            let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            let within = folders.filter_map(|folder| folder.file_name().into_string().ok());
            queue.extend(within.map(|name| names.iter().cloned().chain([name]).collect()));
        } else if names[above..] == parts
            && roots.read(folder.join("cgroup.procs")).is_ok_and(|pids| pids.lines().any(|line| line == pid))
        {
            names.truncate(above);
            return Some(names);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::tree;

    fn seen(path: &str) -> (usize, &str) {
        let SeenPath { ups, below } = SeenPath::parse(path);
        (ups, below)
    }

    #[test]
    fn levels_up_are_counted() {
        assert_eq!(seen("/"), (0, ""));
        assert_eq!(seen("/a/b"), (0, "a/b"));
        assert_eq!(seen("/.."), (1, ""));
        assert_eq!(seen("/../../a.slice/..b"), (2, "a.slice/..b"));
        assert_eq!(seen("/..b/c"), (0, "..b/c"), "a group may be called so");
    }

    #[test]
    fn the_mount_that_shows_most_is_taken() {
        let widest = |mounts: &[(&str, &str)]| {
            let mut all = Vec::new();
            mounts.iter().for_each(|(point, root)| Mounted::new(point, root).add_to(&mut all));
            Mounted::widest(&all).map(|mount| mount.point.display().to_string())
        };
        assert_eq!(widest(&[("/own", "/"), ("/host", "/../.."), ("/again", "/../..")]).as_deref(), Some("/host"));
        assert_eq!(widest(&[("/part", "/a"), ("/own", "/")]).as_deref(), Some("/own"));
        assert_eq!(widest(&[("/part", "/a"), ("/beside", "/../b")]).as_deref(), Some("/part"));
        assert_eq!(widest(&[("/beside", "/../../b")]), None);
        assert_eq!(widest(&[("/same", "/../.."), ("/same", "/")]).as_deref(), Some("/same"));
        assert_eq!(widest(&[]), None);
    }

    #[test]
    fn groups_are_called_as_outside() {
        let t = tree(&[
            ("proc/self/stat", "77 (isotherm) R"),
            ("g/cgroup.procs", "1\n"),
            ("g/k/cgroup.procs", ""),
            ("g/k/other/cgroup.procs", "177\n7\n"),
            ("g/k/pod/cgroup.procs", "9\n"),
            ("g/k/pod/sub/cgroup.procs", "77\n"),
            ("g/z/sub/cgroup.procs", "5\n"),
        ]);
        let view = |root: &str, own: &str| View::of(&t.roots, &Mounted::new("/g", root), Some(own));
        let names = |view: &View, paths: [&str; 5]| paths.map(|path| view.name_of(path));
        let paths = ["/", "/sub", "/../other/x", "/../../z", "/../.."];
        let some = |names: [&str; 5]| names.map(|name| Some(name.to_owned()));
        let outside = some(["/k/pod", "/k/pod/sub", "/k/other/x", "/z", "/"]);
        assert_eq!(names(&view("/../..", "/sub"), paths), outside);
        assert_eq!(view("/../..", "/sub").name_of("/../../.."), None, "above the mount");
        // In the host's namespace, paths are what they are.
        assert_eq!(view("/", "/k/pod/sub").name_of("/k/pod/sub").as_deref(), Some("/k/pod/sub"));
        // Only our own part is mounted.
        let own = view("/", "/sub");
        assert_eq!((own.name_of("/sub").as_deref(), own.name_of("/../other")), (Some("/sub"), None));
    }

    #[test]
    fn what_is_not_found_has_no_name() {
        let t = tree(&[("proc/self/stat", "77 (isotherm) R"), ("g/k/pod/cgroup.procs", "5\n")]);
        for own in ["/", "/../other", "/sub"] {
            let view = View::of(&t.roots, &Mounted::new("/g", "/../.."), Some(own));
            // Of those that branch off below the mount's root it is not needed.
            assert_eq!(view.name_of("/../../z/y").as_deref(), Some("/z/y"), "{own}");
            assert_eq!((view.name_of("/"), view.name_of("/../other")), (None, None), "{own}");
        }
    }
}
