//! One memory: the processes that share a limit, their generations, and what was learnt about them.

use super::births::Births;
use super::odds::Odds;
use super::plan::Plan;
use super::space::{Space, Walked};
use crate::addr::{AddrRange, total_len};
use crate::lru::lruvec::MIN_GENS;
use crate::source::{AccessSource, SourceError, TableBits, TargetId};
use std::collections::BTreeMap;

/// The number of the first generation.
const FIRST_SEQ: u64 = 0;
/// Bytes that one step of a command evicts.
const STEP: u64 = 16 << 20;

/// Pages out memory of live processes.
pub trait PageOut {
    /// Asks for `ranges` (sorted, disjoint) of a target to be evicted; for how many bytes the request was taken. Refusals
    /// of single ranges do not stop the others.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    pub spaces: BTreeMap<TargetId, Space>,
    births: Option<Births>,
    odds: Odds,
}

impl Memory {
    /// With generations as they were kept.
    pub fn restore(births: Births) -> Self {
        Self { births: Some(births), ..Self::default() }
    }

    /// When its generations were created; `None` before the first walk.
    pub const fn births(&self) -> Option<&Births> {
        self.births.as_ref()
    }

    /// Walks the page tables of all its processes and creates a generation. Processes that have exited or run another
    /// program are forgotten; another error of one process is told after all others have been walked.
    pub fn age(&mut self, source: &mut dyn AccessSource, force: bool, now_ns: u64) -> Result<Walked, SourceError> {
        match &mut self.births {
            Some(births) => births.create(now_ns),
            none => *none = Some(Births::new(FIRST_SEQ, now_ns)),
        }
        let (mut sum, mut failed) = (Walked::default(), None);
        let targets: Vec<TargetId> = self.spaces.keys().copied().collect();
        for target in targets {
            match self.walk_one(source, target, force) {
                Ok(walked) => sum.add(&walked),
                Err(e) => {
                    self.spaces.remove(&target);
                    match e {
                        SourceError::Gone { .. } => {}
                        // Another program in the same process: its pages are new.
                        SourceError::Replaced { .. } => _ = self.spaces.insert(target, Space::default()),
                        e => failed = Some(e),
                    }
                }
            }
        }
        self.odds.carry_over();
        failed.map_or(Ok(sum), Err)
    }

    fn walk_one(
        &mut self,
        source: &mut dyn AccessSource,
        target: TargetId,
        force: bool,
    ) -> Result<Walked, SourceError> {
        let Some(space) = self.spaces.get_mut(&target) else { return Ok(Walked::default()) };
        let (mut mappings, mut populated) = (Vec::new(), Vec::new());
        source.mappings(target, &mut mappings)?;
        space.set_mappings(&mappings);
        let mapped = space.mapped();
        source.populated(target, &mapped, &mut populated)?;
        let filtered = space.begin_walk(&populated, force);
        let odds = &mut self.odds;
        source.scan(target, filtered.as_deref().unwrap_or(&populated), true, &mut |bits| space.walk(bits, odds))?;
        // What was populated once and is no more was passed over by `populated`, but looked for all the same.
        Ok(space.end_walk(filtered.as_deref().unwrap_or(&mapped), odds))
    }

    /// A plan for at least `want` bytes, if there are so many, of pages at least `least_age` walks old.
    pub fn plan(&self, swappiness: u8, want: u64, least_age: u8) -> Plan {
        let turn = self.births.as_ref().map_or(0, Births::max_seq);
        Plan::new(&self.spaces, &self.odds, swappiness, want, least_age, turn)
    }

    /// Evicts about `bytes` of what is next in the plan. Each page is looked at once more before it goes, and afterwards to see
    /// whether it went.
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
                    self.spaces.insert(target, Space::default());
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

    /// Evicts all pages of generations up to `seq`, or `bytes` of them: the kernel's command. Errors of single ranges are told.
    pub fn evict_generations(
        &mut self,
        source: &mut dyn AccessSource,
        out: &mut dyn PageOut,
        seq: u64,
        bytes: u64,
    ) -> Result<Evicted, SourceError> {
        let mut sum = Evicted::default();
        let Some(births) = &self.births else { return Ok(sum) };
        let Some(age) = births.max_seq().checked_sub(seq) else { return Ok(sum) };
        let mut plan = Plan::of_age(&self.spaces, age);
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
                Err(SourceError::Replaced { .. }) => _ = self.spaces.insert(target, Space::default()),
                other => other?,
            }
        }
        Ok(())
    }

    /// Its generations, at most `most`, the oldest first; those below are counted with the oldest. Empty before the first walk.
    pub fn generations(&self, target: Option<TargetId>, most: usize, now_ns: u64) -> Vec<Generation> {
        let Some(births) = &self.births else { return Vec::new() };
        let count = births.len().min(most.max(1));
        let mut sizes = vec![[0; 2]; count];
        let chosen = |id: TargetId| target.is_none_or(|t| t == id);
        self.spaces.iter().filter(|(id, _)| chosen(**id)).for_each(|(_, space)| space.sizes(&mut sizes));
        let one = |(age, size): (usize, &[u64; 2])| Generation {
            seq: births.max_seq() - age as u64,
            age_ms: now_ns.saturating_sub(births.of_age(age)) / 1_000_000,
            anon_bytes: size[0],
            file_bytes: size[1],
        };
        sizes.iter().enumerate().rev().map(one).collect()
    }

    /// Bytes that may be evicted, and of them those that have not been used for `ttl_ns`; `None` for these if we have not watched
    /// for so long.
    pub fn evictable(&self, ttl_ns: u64, now_ns: u64) -> (u64, Option<u64>) {
        let age = self.births.as_ref().and_then(|b| b.age_idle_for(ttl_ns, now_ns));
        let sum = self.spaces.values().map(|s| s.evictable_bytes(age)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        (sum.0, age.map(|_| sum.1))
    }

    /// Bytes that may be evicted and are in none of the two youngest generations; all that may be evicted where that is nothing.
    pub fn old_bytes(&self) -> u64 {
        let sum = self.spaces.values().map(|s| s.evictable_bytes(Some(MIN_GENS as u8)));
        let (all, old) = sum.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        if old > 0 { old } else { all }
    }

    /// Bytes that are out.
    pub fn out_bytes(&self) -> u64 {
        self.spaces.values().map(Space::out_bytes).sum()
    }
}

/// Reads `ranges` without clearing a bit.
fn look(
    source: &mut dyn AccessSource,
    target: TargetId,
    space: &mut Space,
    ranges: &[AddrRange],
) -> Result<(), SourceError> {
    let mut tables: Vec<TableBits> = Vec::new();
    source.scan(target, ranges, false, &mut |bits| tables.push(*bits))?;
    space.look(ranges, &tables);
    Ok(())
}
