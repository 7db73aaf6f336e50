//! A made-up machine: control groups, processes with page tables, virtual time.

use crate::lru_gen::machine::Machine;
use crate::refused::Refused;
use isotherm_core::addr::{AddrRange, PAGE_SIZE};
use isotherm_core::bits::{TableBits, Window};
use isotherm_core::keeper::memory::{PageOut, PagedOut};
use isotherm_core::mapping::Mapping;
use isotherm_core::source::{AccessSource, Clear, Cost, SourceError};
use isotherm_core::target::{TargetId, TargetInfo};
use isotherm_linux::cgroup::list::ListedGroup;
use isotherm_linux::proc::statm::Statm;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

/// A process; pages are numbered from address 0 on, all anonymous.
#[derive(Debug, Default)]
pub(super) struct Process {
    pub(super) group: u32,
    pub(super) present: BTreeSet<u64>,
    accessed: BTreeSet<u64>,
    /// Pages that other processes map as well: they are not paged out.
    pub(super) shared: BTreeSet<u64>,
    target: Option<TargetId>,
}

#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) groups: BTreeMap<u32, String>,
    pub(super) processes: BTreeMap<u32, Process>,
    next: TargetId,
    pub(super) now_ns: u64,
    /// What each read of a process's page tables takes, ns.
    pub(super) look_ns: u64,
    pub(super) looks: u64,
    pub(super) swappiness: u8,
    /// Nothing can be walked here.
    pub(super) blind: bool,
    pub(super) no_swap: bool,
}

/// Another handle on the same.
#[derive(Debug, Clone)]
pub(super) struct Fake {
    world: Arc<Mutex<World>>,
    source: Hand,
    out: Hand,
}

/// What walks or evicts.
#[derive(Debug, Clone)]
struct Hand(Arc<Mutex<World>>);

impl Fake {
    pub(super) fn new() -> Self {
        let world: Arc<Mutex<World>> = Arc::default();
        let hand = Hand(Arc::clone(&world));
        let fake = Self { world, source: hand.clone(), out: hand };
        fake.world().swappiness = 60;
        fake.world().now_ns = 1_000_000_000;
        fake
    }

    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    pub(super) fn group(&self, id: u32, path: &str) {
        self.world().groups.insert(id, path.into());
    }

    /// A process with so many pages, all just used.
    pub(super) fn process(&self, pid: u32, group: u32, pages: u64) {
        self.world().processes.insert(pid, Process { group, ..Process::default() });
        self.touch(pid, 0..pages);
    }

    pub(super) fn touch(&self, pid: u32, pages: std::ops::Range<u64>) {
        let mut world = self.world();
        let process = world.processes.get_mut(&pid).unwrap();
        process.present.extend(pages.clone());
        process.accessed.extend(pages);
    }

    pub(super) fn present(&self, pid: u32) -> usize {
        self.world().processes[&pid].present.len()
    }

    pub(super) fn wait(&self, ms: u64) {
        self.world().now_ns += ms * 1_000_000;
    }
}

impl World {
    fn process(&mut self, target: TargetId) -> Result<&mut Process, SourceError> {
        let found = self.processes.values_mut().find(|process| process.target == Some(target));
        found.ok_or(SourceError::Gone { target, pid: 0 })
    }
}

impl Machine for Fake {
    fn groups(&mut self) -> Vec<ListedGroup> {
        self.world().groups.iter().map(|(&id, path)| ListedGroup { id, path: path.clone() }).collect()
    }

    fn find(&mut self, id: u32) -> Option<ListedGroup> {
        self.world().groups.get(&id).map(|path| ListedGroup { id, path: path.clone() })
    }

    fn pids(&mut self, id: u32) -> Vec<u32> {
        self.world().processes.iter().filter(|(_, process)| process.group == id).map(|(&pid, _)| pid).collect()
    }

    fn resident(&self, pid: u32) -> Option<Statm> {
        let anon = self.world().processes.get(&pid)?.present.len() as u64;
        Some(Statm { anon, ..Statm::default() })
    }

    fn swappiness(&self, _: u32) -> u8 {
        self.world().swappiness
    }

    fn now_ns(&self) -> u64 {
        self.world().now_ns
    }

    fn open(&mut self) -> Result<(), Refused> {
        if self.world().blind { Err(Refused::new("this is a test")) } else { Ok(()) }
    }

    fn watch(&mut self, pid: u32) -> Option<TargetId> {
        let mut world = self.world();
        let next = world.next;
        let target = *world.processes.get_mut(&pid)?.target.get_or_insert(next);
        world.next += u32::from(target == next);
        Some(target)
    }

    fn forget(&mut self, targets: &[TargetId]) {
        let of = |process: &&mut Process| process.target.is_some_and(|target| targets.contains(&target));
        self.world().processes.values_mut().filter(of).for_each(|process| process.target = None);
    }

    fn tools(&mut self) -> Option<(&mut dyn AccessSource, &mut dyn PageOut)> {
        Some((&mut self.source, &mut self.out))
    }
}

impl AccessSource for Hand {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn poll_targets(&mut self) -> Result<Vec<TargetInfo>, SourceError> {
        Ok(Vec::new())
    }

    fn mappings(&mut self, target: TargetId, out: &mut Vec<Mapping>) -> Result<(), SourceError> {
        self.0.lock().unwrap().process(target)?;
        *out = vec![Mapping::anon(0, 1 << 30)];
        Ok(())
    }

    fn arm(&mut self, _: TargetId, _: &mut [Window]) -> Result<(), SourceError> {
        unreachable!("walks are scans")
    }

    fn look(&mut self, _: TargetId, _: &mut [Window]) -> Result<(), SourceError> {
        unreachable!("walks are scans")
    }

    fn scan(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        mut clear: Clear<'_>,
        sink: &mut dyn FnMut(&TableBits),
    ) -> Result<(), SourceError> {
        let mut world = self.0.lock().unwrap();
        world.now_ns += world.look_ns;
        world.looks += 1;
        let process = world.process(target)?;
        let mut tables: BTreeMap<u64, TableBits> = BTreeMap::new();
        for &page in &process.present {
            let at = page * PAGE_SIZE;
            if ranges.iter().any(|range| (range.start..range.end).contains(&at)) {
                let base = at & !((1 << 21) - 1);
                let bits = tables.entry(base).or_insert_with(|| TableBits::empty(base));
                let (word, bit) = (page as usize % 512 / 64, page % 64);
                bits.present[word] |= 1 << bit;
                bits.accessed[word] |= u64::from(process.accessed.contains(&page)) << bit;
            }
        }
        for bits in tables.values_mut() {
            bits.cleared = clear.choose(bits);
            for i in 0..512u64 {
                if bits.cleared[i as usize / 64] >> (i % 64) & 1 == 1 {
                    process.accessed.remove(&(bits.base / PAGE_SIZE + i));
                }
            }
            sink(bits);
        }
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::default()
    }
}

impl PageOut for Hand {
    fn page_out(&mut self, target: TargetId, ranges: &[AddrRange]) -> PagedOut {
        let mut world = self.0.lock().unwrap();
        if world.no_swap {
            return PagedOut { taken: 0, error: Some("there is no swap".into()) };
        }
        let Ok(process) = world.process(target) else { return PagedOut::default() };
        let mut taken = 0;
        for page in ranges.iter().flat_map(|range| range.start / PAGE_SIZE..range.end / PAGE_SIZE) {
            if !process.shared.contains(&page) && process.present.remove(&page) {
                taken += PAGE_SIZE;
            }
        }
        PagedOut { taken, error: None }
    }
}
