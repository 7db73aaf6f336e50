//! Mappings of a target: the memory that exists.

use crate::addr::AddrRange;
use serde::{Deserialize, Serialize};

/// What backs a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MappingKind {
    /// Private anonymous memory (heap, stack, malloc arenas).
    Anon,
    /// A file.
    File,
    /// Shared memory: tmpfs, memfd, SysV, shared anonymous.
    Shmem,
    /// hugetlbfs.
    Hugetlb,
    /// Device or PFN-mapped memory and kernel-made areas (`[vdso]`, `[vvar]`): not observable.
    Special,
}

/// One mapping (a line of /proc/PID/maps, or adjacent lines that agree in everything shown here).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    /// Addresses.
    pub range: AddrRange,
    /// What backs it.
    pub kind: MappingKind,
    /// Whether writes go to the shared object (`s` in maps).
    pub shared: bool,
    /// Whether pages of it are locked (mlock), so that they cannot be paged out.
    pub locked: bool,
    /// `[heap]`, `[stack]`, `[anon:NAME]`, a file's path, or empty for nameless anonymous memory.
    pub name: String,
}

impl Mapping {
    /// An anonymous, private, nameless mapping.
    pub fn anon(start: u64, end: u64) -> Self {
        Self {
            range: AddrRange::new(start, end),
            kind: MappingKind::Anon,
            shared: false,
            locked: false,
            name: String::new(),
        }
    }
}
