//! What is known of control groups beside their pages: paths, names, page cache.

use crate::args::target::TargetArgs;
use isotherm_core::printable::printable;
use isotherm_linux::cgroup::memory::{Memcg, Memcgs, PageCache, Protection};
use isotherm_linux::cgroup::names::{ContainerNames, GroupNames};
use isotherm_linux::roots::Roots;
use isotherm_view::machine::Row;
use serde::Serialize;
use std::io;
use std::sync::Once;

/// The control groups of this machine, and what containers were called when this was read.
#[derive(Debug)]
pub struct Groups {
    memcgs: Memcgs,
    names: ContainerNames,
}

/// What JSON tells of a group beside its memory.
#[derive(Debug, Default, Serialize)]
pub struct GroupJson {
    #[serde(flatten)]
    names: GroupNames,
    /// Files in its memory and in that of the groups below it; it is not in the other figures but for what is mapped.
    #[serde(skip_serializing_if = "Option::is_none")]
    page_cache: Option<CacheJson>,
}

#[derive(Debug, Serialize)]
struct CacheJson {
    active_bytes: u64,
    inactive_bytes: u64,
    mapped_bytes: u64,
}

impl From<PageCache> for CacheJson {
    fn from(cache: PageCache) -> Self {
        Self { active_bytes: cache.active, inactive_bytes: cache.inactive, mapped_bytes: cache.mapped }
    }
}

impl Groups {
    /// Reads what runtimes have left on disk.
    pub fn read() -> Self {
        let roots = Roots::system();
        Self { memcgs: Memcgs::new(&roots), names: ContainerNames::read(&roots) }
    }

    /// The control group that a process's memory is counted in; `None`: the process has gone, or its group cannot be named
    /// here, which is said once.
    pub fn path_of(&self, pid: u32) -> Option<String> {
        static SAID: Once = Once::new();
        let path = self.memcgs.path_of(pid)?;
        path.inspect_err(|outside| SAID.call_once(|| tracing::warn!("{outside}; others may lie there, too"))).ok()
    }

    /// What is in swap of the memory that is charged to the group at this path, bytes. `None`: not known, or others than
    /// `watched` may hold it.
    pub fn swapped(&self, path: &str, watched: &TargetArgs) -> Option<u64> {
        let whole = watched.are_groups().then(|| self.memcg(path))?;
        whole?.swapped().ok()
    }

    /// What people call the group at this path.
    pub fn names(&self, path: &str) -> GroupNames {
        self.names.of(path)
    }

    /// What people call the container at this path; `None`: it is none.
    pub fn container_of(&self, path: &str) -> Option<String> {
        let names = self.names.of(path);
        names.container_id.as_ref().and_then(|_| names.label())
    }

    /// What a row is called in a table.
    pub fn label(&self, row: &Row) -> String {
        match (row.pid, &row.cgroup) {
            (None, Some(path)) => self.names.of(path).label().unwrap_or_else(|| printable(path).into_owned()),
            // Without the folder that the program is in.
            _ => {
                let (program, arguments) = row.name.split_at(row.name.find(' ').unwrap_or(row.name.len()));
                format!("{}{arguments}", program.rsplit('/').next().unwrap_or(program))
            }
        }
    }

    /// Files in its memory that no process maps, bytes.
    pub fn unmapped_cache(&self, row: &Row) -> Option<u64> {
        self.cache(row).map(|cache| cache.unmapped())
    }

    /// The group of a row, where its memory is counted; `None`: it has gone.
    pub fn memcg(&self, path: &str) -> Option<Memcg> {
        self.memcgs.open(path).ok()
    }

    /// What protects the group at this path and those above it. `None`: it has gone, and so has what protected it. An error where
    /// that cannot be read, or where nobody knows where groups are.
    pub fn protections(&self, path: &str) -> Option<io::Result<Vec<Protection>>> {
        let Some(memcg) = self.memcg(path) else {
            return self.memcgs.unknown().map(|why| Err(io::Error::other(why)));
        };
        let protections = memcg.protections();
        (protections.is_ok() || memcg.exists()).then_some(protections)
    }

    fn cache(&self, row: &Row) -> Option<PageCache> {
        self.memcg(row.cgroup.as_deref()?)?.cache().ok()
    }

    /// What else is known of a row that is a group.
    pub fn more(&self, row: &Row) -> GroupJson {
        let names = self.names(row.cgroup.as_deref().unwrap_or_default());
        GroupJson { names, page_cache: self.cache(row).map(CacheJson::from) }
    }
}
