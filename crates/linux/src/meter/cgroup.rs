//! Memory figures of control groups, in v1, v2 and hybrid set-ups.

use super::files::Files;
use crate::cgroup::CgroupSetup;
use crate::cgroup::memory::{LIMIT, Memcg, USED, folder_of, list, parse_limit};
use std::io;
use std::path::{Path, PathBuf};

/// Why a figure is not to be had, and what helps.
pub(super) type Trouble = (String, String);

/// A group whose figures are read through [`Files`].
#[derive(Debug)]
pub(super) struct Group(Memcg);

impl Group {
    /// Finds a group in the hierarchy that controls memory.
    pub(super) fn find(setup: &CgroupSetup, files: &Files, path: &str) -> Result<Self, Trouble> {
        Memcg::find(setup, &files.roots, path).map(Self).map_err(|e| (e.reason, e.remedy))
    }

    /// Bytes in use.
    pub(super) fn used(&self, files: &mut Files) -> Result<u64, Trouble> {
        let path = self.0.folder.join(USED.file(self.0.v2));
        number(files, &path).map_err(|e| self.trouble(&path, &e))
    }

    /// Bytes left below the limit of the group or of one above it, whichever leaves least. `None`: none of them has a
    /// limit.
    pub(super) fn left(&self, files: &mut Files) -> Result<Option<u64>, Trouble> {
        let mut least: Option<u64> = None;
        for folder in self.0.folder.ancestors().take_while(|f| f.starts_with(&self.0.mount)) {
            let path = folder.join(LIMIT.file(self.0.v2));
            let limit = match limit(files, &path) {
                Ok(limit) => limit,
                // The root group has no such file.
                Err(e) if e.kind() == io::ErrorKind::NotFound && folder != self.0.folder => None,
                Err(e) => return Err(self.trouble(&path, &e)),
            };
            if let Some(limit) = limit {
                let path = folder.join(USED.file(self.0.v2));
                let used = number(files, &path).map_err(|e| self.trouble(&path, &e))?;
                let left = limit.saturating_sub(used);
                least = Some(least.map_or(left, |l| l.min(left)));
            }
        }
        Ok(least)
    }

    fn trouble(&self, path: &Path, error: &io::Error) -> Trouble {
        let missing = error.kind() == io::ErrorKind::NotFound;
        if missing && self.0.folder == self.0.mount && self.0.v2 {
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
    if let Some(folder) = folder_of(setup, &files.roots, v2, path) {
        return Ok(folder.join("memory.pressure"));
    }
    match setup.v1_memory.as_ref().and_then(|v1| folder_of(setup, &files.roots, v1, path)) {
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

fn number(files: &mut Files, path: &Path) -> io::Result<u64> {
    files.read(path)?.trim().parse().map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not a number"))
}

/// v2 writes `max` for none, v1 the largest number of whole pages that it can count.
fn limit(files: &mut Files, path: &Path) -> io::Result<Option<u64>> {
    parse_limit(files.read(path)?).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not a number"))
}
