//! This machine: its control groups, page tables read with eBPF, eviction by `process_madvise`.

use super::machine::Machine;
use crate::refused::Refused;
use isotherm_core::keeper::memory::PageOut;
use isotherm_core::source::AccessSource;
use isotherm_core::target::TargetId;
use isotherm_linux::cgroup::list::{GroupList, ListedGroup};
use isotherm_linux::clock::monotonic_ns;
use isotherm_linux::lru::page_out::LivePageOut;
use isotherm_linux::proc::ProcessDir;
use isotherm_linux::proc::statm::Statm;
use isotherm_linux::roots::Roots;
use isotherm_linux::source::pagetable::PageTableSource;
use isotherm_linux::targets::{TargetSpec, TargetTracker};

/// What the kernel has where nobody says otherwise.
const SWAPPINESS: u8 = 60;

/// This machine.
#[derive(Debug)]
pub struct LiveMachine {
    groups: GroupList,
    /// Until the first command nothing needs them.
    source: Option<PageTableSource>,
    out: LivePageOut,
}

impl LiveMachine {
    /// Where control groups are mounted, and what forbids eviction, is read below `roots`.
    pub fn new(roots: &Roots) -> Self {
        Self { groups: GroupList::new(roots), source: None, out: LivePageOut::new(roots) }
    }
}

impl Machine for LiveMachine {
    fn groups(&mut self) -> Vec<ListedGroup> {
        self.groups.all()
    }

    fn find(&mut self, id: u32) -> Option<ListedGroup> {
        self.groups.find(id)
    }

    fn pids(&mut self, id: u32) -> Vec<u32> {
        self.groups.pids(id)
    }

    fn resident(&self, pid: u32) -> Option<Statm> {
        Statm::read(&ProcessDir::live(pid))
    }

    fn swappiness(&self, id: u32) -> u8 {
        self.groups.swappiness(id).unwrap_or(SWAPPINESS)
    }

    fn now_ns(&self) -> u64 {
        monotonic_ns()
    }

    fn open(&mut self) -> Result<(), Refused> {
        if self.source.is_none() {
            let mut tracker = TargetTracker::new(TargetSpec::OneByOne).map_err(Refused::new)?;
            tracker.on_skip(|skipped| tracing::warn!("{skipped}"));
            let source = PageTableSource::new(tracker).map_err(Refused::new)?;
            self.source = Some(source);
        }
        Ok(())
    }

    fn watch(&mut self, pid: u32) -> Option<TargetId> {
        let target = self.source.as_mut()?.tracker().watch(pid)?;
        self.out.add(target, pid);
        Some(target)
    }

    fn forget(&mut self, targets: &[TargetId]) {
        if targets.is_empty() {
            return;
        }
        if let Some(source) = &mut self.source {
            targets.iter().for_each(|&target| source.close(target));
            self.out.keep_only(|target| source.is_running(target));
        }
    }

    fn tools(&mut self) -> Option<(&mut dyn AccessSource, &mut dyn PageOut)> {
        Some((self.source.as_mut()?, &mut self.out))
    }
}
