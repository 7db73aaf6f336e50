//! The border to the machine whose memory generations are kept of.

use crate::refused::Refused;
use isotherm_core::keeper::memory::PageOut;
use isotherm_core::source::AccessSource;
use isotherm_core::target::TargetId;
use isotherm_linux::cgroup::list::ListedGroup;
use isotherm_linux::proc::statm::Statm;

/// Control groups, their processes, and the means to walk and evict their memory.
pub trait Machine: Send {
    /// All control groups that there are now.
    fn groups(&mut self) -> Vec<ListedGroup>;
    /// The group of that number.
    fn find(&mut self, id: u32) -> Option<ListedGroup>;
    /// The processes in a group itself.
    fn pids(&mut self, id: u32) -> Vec<u32>;
    /// What of a process is in memory; `None` once it has exited.
    fn resident(&self, pid: u32) -> Option<Statm>;
    /// The swappiness of a group.
    fn swappiness(&self, id: u32) -> u8;
    /// CLOCK_MONOTONIC, ns.
    fn now_ns(&self) -> u64;
    /// Gets ready to walk, which is done before the first target is watched.
    fn open(&mut self) -> Result<(), Refused>;
    /// Watches a process; the same number for as long as it is the same process. `None`: it has exited, or cannot be
    /// watched.
    fn watch(&mut self, pid: u32) -> Option<TargetId>;
    /// Watches these targets no more.
    fn forget(&mut self, targets: &[TargetId]);
    /// What walks, and what evicts; `None` before [`Self::open`].
    fn tools(&mut self) -> Option<(&mut dyn AccessSource, &mut dyn PageOut)>;
}
