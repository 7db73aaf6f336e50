//! Memory figures of control groups, in v1, v2 and hybrid set-ups.

use super::files::Files;
use crate::probe::CgroupSetup;
use std::io;
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

/// Why a figure is not to be had, and what helps.
pub(super) type Trouble = (String, String);

/// The figures' hierarchy and the group's folder in it.
#[derive(Debug)]
pub(super) struct Group {
    folder: PathBuf,
    mount: PathBuf,
    v2: bool,
}

impl Group {
    /// Finds a group in the hierarchy that controls memory.
    pub(super) fn find(setup: &CgroupSetup, files: &Files, path: &str) -> Result<Self, Trouble> {
        let Some((mount, v2)) = setup.memory_mount() else {
            let reason = format!("no memory controller is mounted (control groups: {})", setup.describe());
            return Err((reason, REMEDY.into()));
        };
        let folder = find(setup, files, mount, path)
            .ok_or_else(|| (format!("no control group '{path}' in {}", mount.display()), list(mount)))?;
        Ok(Self { folder, mount: mount.to_path_buf(), v2 })
    }

    /// Its folder, and whether it is one of v2.
    pub(super) fn into_folder(self) -> (PathBuf, bool) {
        (self.folder, self.v2)
    }

    /// Bytes in use.
    pub(super) fn used(&self, files: &mut Files) -> Result<u64, Trouble> {
        let path = self.folder.join(USED.file(self.v2));
        number(files, &path).map_err(|e| self.trouble(&path, &e))
    }

    /// Bytes left below the limit of the group or of one above it, whichever leaves least. `None`: none of them has a
    /// limit.
    pub(super) fn left(&self, files: &mut Files) -> Result<Option<u64>, Trouble> {
        let mut least: Option<u64> = None;
        for folder in self.folder.ancestors().take_while(|f| f.starts_with(&self.mount)) {
            let path = folder.join(LIMIT.file(self.v2));
            let limit = match limit(files, &path) {
                Ok(limit) => limit,
                // The root group has no such file.
                Err(e) if e.kind() == io::ErrorKind::NotFound && folder != self.folder => None,
                Err(e) => return Err(self.trouble(&path, &e)),
            };
            if let Some(limit) = limit {
                let path = folder.join(USED.file(self.v2));
                let used = number(files, &path).map_err(|e| self.trouble(&path, &e))?;
                let left = limit.saturating_sub(used);
                least = Some(least.map_or(left, |l| l.min(left)));
            }
        }
        Ok(least)
    }

    fn trouble(&self, path: &Path, error: &io::Error) -> Trouble {
        let missing = error.kind() == io::ErrorKind::NotFound;
        if missing && self.folder == self.mount && self.v2 {
            return (format!("{} is missing: the root group has none", path.display()), "name a group below it".into());
        }
        if missing {
            let remedy = "check that the group is still there and that its memory controller is on ('+memory' in \
                          cgroup.subtree_control of the group above)";
            return (format!("{} is missing", path.display()), remedy.into());
        }
        (format!("{}: {error}", path.display()), "run as a user who may read it".into())
    }
}

/// The pressure file of a group. Only v2 has one, also where v1 controls the memory: then the group must be in both.
pub(super) fn pressure_file(setup: &CgroupSetup, files: &Files, path: &str) -> Result<PathBuf, Trouble> {
    let Some(v2) = &setup.v2 else {
        let reason = format!("only cgroup v2 tells pressure of a group (control groups: {})", setup.describe());
        return Err((reason, "mount cgroup2, or use the pressure of the whole machine".into()));
    };
    if let Some(folder) = find(setup, files, v2, path) {
        return Ok(folder.join("memory.pressure"));
    }
    match setup.v1_memory.as_ref().and_then(|v1| find(setup, files, v1, path)) {
        Some(folder) => Err((
            format!(
                "{} is a v1 group; only cgroup v2 tells pressure, and {} has no such group",
                folder.display(),
                v2.display()
            ),
            format!(
                "make a group of the same name below {} and move its processes there, or use the pressure of the whole machine",
                v2.display()
            ),
        )),
        None => Err((format!("no control group '{path}' in {}", v2.display()), list(v2))),
    }
}

fn list(mount: &Path) -> String {
    format!("`find {} -type d` lists the groups", mount.display())
}

/// The group's folder below `mount`. `path` may be a path below a mount, with or without a leading slash, or have the
/// mount in front; the mount of another hierarchy will do, so that one name serves for all of a group's figures.
fn find(setup: &CgroupSetup, files: &Files, mount: &Path, path: &str) -> Option<PathBuf> {
    let path = Path::new(path);
    let inside = path.strip_prefix("/").unwrap_or(path);
    let mounts = || setup.v2.iter().chain(&setup.v1_memory);
    let full = mounts().filter_map(|m| path.strip_prefix(m).ok());
    let below_parent = mounts().filter_map(|m| inside.strip_prefix(m.file_name()?).ok());
    let exists = |folder: &PathBuf| files.roots.exists(folder.join("cgroup.procs"));
    full.chain([inside]).chain(below_parent).map(|rest| mount.join(rest)).find(exists)
}

fn number(files: &mut Files, path: &Path) -> io::Result<u64> {
    files.read(path)?.trim().parse().map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not a number"))
}

/// v2 writes `max` for none, v1 the largest number of whole pages that it can count.
fn limit(files: &mut Files, path: &Path) -> io::Result<Option<u64>> {
    parse_limit(files.read(path)?).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not a number"))
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
