//! Which processes run in memory that another one runs in, too (`clone(2)` with CLONE_VM; vfork until exec).

use super::children::children_of;
use super::dir::ProcessDir;
use super::pidfd::share_memory;
use super::stat::Stat;
use crate::roots::Roots;

/// Whether nobody else accesses the memory of a process, so that its own threads tell of all that do. False where the kernel
/// does not tell (no CONFIG_PROC_CHILDREN, no CONFIG_KCMP).
///
/// Who shares it without an exec is a child or the parent, unless a process in between has ended.
pub(crate) fn is_alone(pid: u32) -> bool {
    let may_share_with_parent = |pid: u32| {
        let stat = Stat::read(&ProcessDir::live(pid));
        stat.is_ok_and(|stat| stat.forked && share_memory(pid, stat.ppid) != Some(false))
    };
    let children = children_of(&Roots::system(), pid);
    !may_share_with_parent(pid) && children.is_some_and(|children| !children.into_iter().any(may_share_with_parent))
}
