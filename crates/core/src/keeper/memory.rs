//! One memory: the processes that share a limit, their generations, and what was learnt about them.

use super::MIN_GENS;
use super::address_space::{AddressSpace, Walked};
use super::creation_times::CreationTimes;
use super::plan::Plan;
use super::reuse::ReuseModel;
use crate::addr::{AddrRange, total_len};
use crate::bits::TableBits;
use crate::source::{AccessSource, Clear, SourceError};
use crate::target::TargetId;
use serde::Serialize;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// The number of the first generation.
const FIRST_SEQ: u64 = 0;
/// Bytes that one step of a command evicts.
const STEP: u64 = 16 << 20;

/// Pages out memory of live processes.
pub trait PageOut {
    /// Asks for `ranges` (sorted, disjoint) of a target to be evicted; for how many bytes the request was taken.
    /// Refusals of single ranges do not stop the others.
    fn page_out(&mut self, target: TargetId, ranges: &[AddrRange]) -> PagedOut;
}

/// What became of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PagedOut {
    /// Bytes that the kernel took the request for.
    pub taken: u64,
    /// The first refusal, with range, reason and remedy.
    pub error: Option<String>,
}

/// A generation's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Generation {
    /// Its number.
    pub seq: u64,
    /// Time since it was created, ms.
    pub age_ms: u64,
    /// Anonymous and shared memory, bytes.
    pub anon_bytes: u64,
    /// Memory of files, bytes.
    pub file_bytes: u64,
}

impl Generation {
    /// All of it.
    pub const fn bytes(&self) -> u64 {
        self.anon_bytes + self.file_bytes
    }
}

/// What an eviction did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evicted {
    /// Bytes that were to go.
    pub planned: u64,
    /// Bytes spared because they had been used since the last walk.
    pub spared: u64,
    /// Bytes that have left memory.
    pub out: u64,
    /// The first refusal.
    pub error: Option<String>,
}

impl Evicted {
    /// Adds what another one did.
    pub fn add(&mut self, other: Self) {
        self.planned += other.planned;
        self.spared += other.spared;
        self.out += other.out;
        self.error = self.error.take().or(other.error);
    }
}

/// Processes that share a limit.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    /// By target.
    pub spaces: BTreeMap<TargetId, AddressSpace>,
    created: Option<CreationTimes>,
    /// What was learnt, where that is wanted.
    reuse: Option<ReuseModel>,
    most_level: u8,
}

impl Memory {
    /// One that learns which pages come back: a byte a page more.
    pub(crate) fn learning() -> Self {
        Self { reuse: Some(ReuseModel::default()), ..Self::default() }
    }

    /// With generations as they were kept.
    pub fn restore(created: CreationTimes) -> Self {
        Self { created: Some(created), ..Self::default() }
    }

    /// A process joins; nothing is known of it.
    pub fn add(&mut self, target: TargetId) {
        self.spaces.insert(target, AddressSpace::new(self.reuse.is_some()));
    }

    /// How seldom walks may clear the bits of pages in constant use at most: one part in 2^level each time.
    pub(crate) fn set_most_level(&mut self, level: u8) {
        self.most_level = level;
    }

    /// When its generations were created; `None` before the first walk.
    pub const fn created(&self) -> Option<&CreationTimes> {
        self.created.as_ref()
    }

    /// Creates a generation without a walk: what is in memory becomes older, used or not, until it is looked at.
    pub fn create_generation(&mut self, now_ns: u64) {
        match &mut self.created {
            Some(created) => created.create(now_ns),
            none => *none = Some(CreationTimes::new(FIRST_SEQ, now_ns)),
        }
    }

    /// Walks the page tables of all its processes and creates a generation. Processes that have exited or run another
    /// program are forgotten; another error of one process is returned after all others have been walked. That process
    /// stays: its next walk begins anew.
    pub fn age(&mut self, source: &mut dyn AccessSource, now_ns: u64) -> Result<Walked, SourceError> {
        self.create_generation(now_ns);
        let Some(created) = &self.created else { return Ok(Walked::default()) };
        let (mut sum, mut failed) = (Walked::default(), None);
        self.spaces.retain(|&target, space| {
            match walk(source, target, space, created, self.most_level, &mut self.reuse) {
                Ok(walked) => sum.add(&walked),
                // Another program in the same process: its pages are new.
                Err(SourceError::Replaced { .. }) => *space = AddressSpace::new(self.reuse.is_some()),
                Err(SourceError::Gone { .. }) => return false,
                // Memory or descriptors were short, say: nobody would announce the process once more.
                Err(e) => failed = Some(e),
            }
            true
        });
        if let Some(reuse) = &mut self.reuse {
            reuse.carry_over();
        }
        failed.map_or(Ok(sum), Err)
    }

    /// A plan for at least `want` bytes, if there are so many, of pages at least `least_age` generations old.
    pub fn plan(&self, swappiness: u8, want: u64, least_age: u8) -> Plan {
        let turn = self.created.as_ref().map_or(0, CreationTimes::max_seq);
        let reuse = self.reuse.clone().unwrap_or_default();
        Plan::new(&self.spaces, &reuse, swappiness, want, least_age, turn)
    }

    /// Evicts about `bytes` of what is next in the plan. Each page is looked at once more before it goes, and
    /// afterwards to see whether it went.
    pub fn evict(
        &mut self,
        source: &mut dyn AccessSource,
        out: &mut dyn PageOut,
        plan: &mut Plan,
        bytes: u64,
    ) -> Result<Evicted, SourceError> {
        let mut sum = Evicted::default();
        for (target, ranges) in plan.take(bytes) {
            match self.evict_ranges(source, out, target, &ranges) {
                Ok(one) => sum.add(one),
                Err(SourceError::Gone { .. } | SourceError::Replaced { .. }) => {
                    // The next walk puts things right.
                    plan.forget(target);
                    self.add(target);
                }
                Err(e) => return Err(e),
            }
        }
        Ok(sum)
    }

    /// Evicts what of `ranges` has not been used since the last walk.
    fn evict_ranges(
        &mut self,
        source: &mut dyn AccessSource,
        out: &mut dyn PageOut,
        target: TargetId,
        ranges: &[AddrRange],
    ) -> Result<Evicted, SourceError> {
        let Some(space) = self.spaces.get_mut(&target) else { return Ok(Evicted::default()) };
        let planned = total_len(ranges);
        // What a range may reach over is looked at as well: pages that came in since the walk must not go with it.
        look(source, target, space, &space.joined(ranges))?;
        let cold = space.evictable(ranges);
        if cold.is_empty() {
            return Ok(Evicted { planned, spared: planned, ..Evicted::default() });
        }
        let spared = planned - total_len(&cold);
        let done = out.page_out(target, &space.joined(&cold));
        look(source, target, space, &cold)?;
        Ok(Evicted { planned, spared, out: space.evicted(&cold), error: done.error })
    }

    /// A plan for all pages of generations up to `seq`, the two youngest excepted whatever `seq` is.
    pub fn plan_generations(&self, seq: u64, swappiness: u8) -> Plan {
        let max_seq = self.created.as_ref().map_or(0, CreationTimes::max_seq);
        match u8::try_from(max_seq.saturating_sub(seq).max(MIN_GENS)) {
            Ok(age) => self.plan(swappiness, u64::MAX, age),
            // Older than what can be told apart.
            Err(_) => Plan::default(),
        }
    }

    /// Evicts all pages of generations up to `seq`, or `bytes` of them, of the kinds that `swappiness` (0: files, 200:
    /// anonymous memory, else both) lets go: the kernel's command. The two youngest generations stay, whatever `seq` is.
    /// Errors of single ranges are reported.
    pub fn evict_generations(
        &mut self,
        source: &mut dyn AccessSource,
        out: &mut dyn PageOut,
        seq: u64,
        swappiness: u8,
        bytes: u64,
    ) -> Result<Evicted, SourceError> {
        let mut sum = Evicted::default();
        let mut plan = self.plan_generations(seq, swappiness);
        while !plan.is_empty() && sum.out < bytes {
            let step = (bytes - sum.out).min(STEP);
            sum.add(self.evict(source, out, &mut plan, step)?);
        }
        Ok(sum)
    }

    /// Looks at what is in memory now, without a walk.
    pub fn refresh(&mut self, source: &mut dyn AccessSource) -> Result<(), SourceError> {
        let targets: Vec<TargetId> = self.spaces.keys().copied().collect();
        for target in targets {
            let Some(space) = self.spaces.get_mut(&target) else { continue };
            let mut mappings = Vec::new();
            let looked = source.mappings(target, &mut mappings).and_then(|()| {
                space.set_mappings(&mappings);
                let known = space.known();
                look(source, target, space, &known)
            });
            match looked {
                Err(SourceError::Gone { .. }) => _ = self.spaces.remove(&target),
                Err(SourceError::Replaced { .. }) => self.add(target),
                other => other?,
            }
        }
        Ok(())
    }

    /// Its generations, at most `most`, the oldest first; those below are counted with the oldest. Empty before the
    /// first walk.
    pub fn generations(&self, target: Option<TargetId>, most: usize, now_ns: u64) -> Vec<Generation> {
        let Some(created) = &self.created else { return Vec::new() };
        let count = created.len().min(most.max(1));
        let mut sizes = vec![[0; 2]; count];
        let chosen = |id: TargetId| target.is_none_or(|t| t == id);
        self.spaces.iter().filter(|(id, _)| chosen(**id)).for_each(|(_, space)| space.sizes(&mut sizes));
        let one = |(age, size): (usize, &[u64; 2])| Generation {
            seq: created.max_seq() - age as u64,
            age_ms: now_ns.saturating_sub(created.of_age(age)) / 1_000_000,
            anon_bytes: size[0],
            file_bytes: size[1],
        };
        sizes.iter().enumerate().rev().map(one).collect()
    }

    /// Bytes that may be evicted.
    pub fn evictable_bytes(&self) -> u64 {
        self.spaces.values().map(|s| s.evictable_bytes(None).0).sum()
    }

    /// Bytes that may be evicted and have certainly not been used since `limit_ns`: nothing of processes that have been
    /// watched for a shorter time. However many generations there have been meanwhile.
    pub fn idle_bytes(&self, limit_ns: u64) -> u64 {
        self.spaces.values().map(|s| s.idle_bytes(limit_ns)).sum()
    }

    /// Bytes that may be evicted and are in none of the two youngest generations; all that may be evicted where that is
    /// nothing.
    pub(crate) fn old_bytes(&self) -> u64 {
        let sum = self.spaces.values().map(|s| s.evictable_bytes(Some(MIN_GENS as u8)));
        let (all, old) = sum.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        if old > 0 { old } else { all }
    }

    /// Bytes that are out.
    pub fn out_bytes(&self) -> u64 {
        self.spaces.values().map(AddressSpace::out_bytes).sum()
    }
}

/// Walks the page tables of one process.
fn walk(
    source: &mut dyn AccessSource,
    target: TargetId,
    space: &mut AddressSpace,
    created: &CreationTimes,
    most_level: u8,
    reuse: &mut Option<ReuseModel>,
) -> Result<Walked, SourceError> {
    let (mut mappings, mut populated) = (Vec::new(), Vec::new());
    source.mappings(target, &mut mappings)?;
    space.set_mappings(&mappings);
    source.populated(target, &space.mapped(), &mut populated)?;
    space.begin_walk(created, most_level);
    let space = RefCell::new(space);
    let mut choose = |bits: &TableBits| space.borrow().wanted(bits);
    let clear = if most_level == 0 { Clear::All } else { Clear::Chosen(&mut choose) };
    source.scan(target, &populated, clear, &mut |bits| space.borrow_mut().walk(bits, reuse.as_mut()))?;
    Ok(space.into_inner().end_walk(created, reuse.as_mut()))
}

/// Reads `ranges` without clearing a bit.
fn look(
    source: &mut dyn AccessSource,
    target: TargetId,
    space: &mut AddressSpace,
    ranges: &[AddrRange],
) -> Result<(), SourceError> {
    let mut tables: Vec<TableBits> = Vec::new();
    source.scan(target, ranges, Clear::Nothing, &mut |bits| tables.push(*bits))?;
    space.look(ranges, &tables);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::replay::Toy;
    use super::*;
    use crate::addr::PAGE_SIZE;

    #[test]
    fn the_two_youngest_generations_stay_whatever_is_asked_for() {
        let mut toy = Toy::new(1, 1024);
        let mut memory = Memory::default();
        memory.add(0);
        (0..600).for_each(|page| _ = toy.access(0, page));
        let evict_all = |memory: &mut Memory, toy: &mut Toy, seq| {
            memory.evict_generations(&mut toy.clone(), toy, seq, 100, u64::MAX).unwrap().out / PAGE_SIZE
        };
        for walk in 1..=2 {
            memory.age(&mut toy.clone(), walk).unwrap();
        }
        // Numbers differ from process to process: what is old in one may be the youngest, or to come, in another.
        for seq in [0, 1, 2, 9, u64::MAX] {
            assert_eq!(evict_all(&mut memory, &mut toy, seq), 0, "generation {seq} of 0 and 1");
        }
        (0..100).for_each(|page| _ = toy.access(0, page));
        memory.age(&mut toy.clone(), 3).unwrap();
        assert_eq!(evict_all(&mut memory, &mut toy, 9), 500);
        assert_eq!(toy.resident(), 100, "what was used lately stays");
    }
}
