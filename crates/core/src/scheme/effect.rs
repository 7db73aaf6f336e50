//! What paging out has really brought: how much memory went, how much of it came back, and when.

mod pauses;
mod present;

pub(crate) use pauses::{LookCost, Pauses};

use crate::addr::{AddrRange, PAGE_SIZE};
use crate::history::reaccessed::Reaccessed;
use crate::pages::PageSet;
use crate::source::{AccessSource, SourceError};
use crate::target::TargetId;
use present::{Wanted, absent};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};

/// Memory that comes back within this time should not have gone.
pub(crate) const SOON_NS: u64 = 10_000_000_000;
/// The second mark at which is counted what came back.
pub(crate) const LATER_NS: u64 = 60_000_000_000;
/// How often what went is looked for, where that costs little.
const LOOK_EVERY_NS: u64 = 1_000_000_000;
/// From so many young batches on a batch is made of what goes of a target within [`LONG_BATCH_NS`], instead of within
/// [`LOOK_EVERY_NS`].
const MANY_BATCHES: usize = 64;
/// Short enough to tell what came back within [`SOON_NS`].
const LONG_BATCH_NS: u64 = SOON_NS / 2;
/// Old batches of a target at most; of more, those whose idle times are most alike are joined.
const MOST_OLD: usize = 32;

crate::figures! {
    /// What has become of the memory that was paged out, since the start unless said otherwise.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct Effect {
        out: u64 = Counter Bytes, "Memory that left, as seen in the page tables afterwards.";
        back_10s: u64 = Counter Bytes, "Of what went: came back within 10 s.";
        back_60s: u64 = Counter Bytes, "Of what went: came back within 60 s.";
        saved_now: u64 = Gauge Bytes, "Memory that is out at present.";
        recent_out: u64 = Gauge Bytes, "Memory that left within the last 10 s.";
        recent_back: u64 = Gauge Bytes, "Of what left within the last 10 s: has come back.";
    }
}

#[derive(Debug)]
struct Batch {
    target: TargetId,
    time_ns: u64,
    /// Since when its pages had certainly been idle when they went.
    idle_since_ns: u64,
    out: PageSet,
    bytes: u64,
    back: u64,
}

impl Batch {
    /// For how long its pages had certainly been idle at `at_ns`, or when they went if that was later, ns. What joined a batch may
    /// have been in use until after the batch began: then 0.
    fn idle_at(&self, at_ns: u64) -> u64 {
        at_ns.max(self.time_ns).saturating_sub(self.idle_since_ns)
    }
}

/// What has been out for longer than [`LATER_NS`].
#[derive(Debug)]
struct Old {
    /// As that of a batch.
    idle_since_ns: u64,
    /// The earliest of those of the batches that it is made of.
    earliest_ns: u64,
    out: PageSet,
}

/// Follows what a scheme has paged out.
#[derive(Debug, Default)]
pub(crate) struct EffectTracker {
    batches: VecDeque<Batch>,
    /// Sorted by how long they have been idle.
    old: HashMap<TargetId, Vec<Old>>,
    effect: Effect,
    /// What came back, by how long it had been idle until then: walks take it for new memory.
    back: Reaccessed,
    looked_ns: u64,
    looked_at_all_ns: u64,
    cost: LookCost,
}

/// Joins neighbours until there are few enough: those of which the longest and the shortest idle time at `now_ns` have the least ratio.
/// What is joined counts as idle for the shortest.
fn join(old: &mut Vec<Old>, now_ns: u64) {
    while old.len() > MOST_OLD {
        let idle = |since_ns: u64| now_ns.saturating_sub(since_ns).max(1) as f64;
        let ratio = |i: &usize| idle(old[*i].earliest_ns) / idle(old[i + 1].idle_since_ns);
        let Some(at) = (0..old.len() - 1).min_by(|a, b| ratio(a).total_cmp(&ratio(b))) else { return };
        let longer = old.remove(at);
        old[at].earliest_ns = longer.earliest_ns;
        old[at].out.unite(&longer.out);
    }
}

impl EffectTracker {
    /// Takes in that `pages`, all of them present before and idle for `idle_ns`, were paged out at `time_ns`; looks which are really
    /// gone.
    pub(crate) fn paged_out(
        &mut self,
        source: &mut dyn AccessSource,
        target: TargetId,
        pages: &PageSet,
        (time_ns, idle_ns): (u64, u64),
    ) -> Result<PageSet, SourceError> {
        let out = absent(source, target, pages)?;
        let bytes = out.len();
        if bytes == 0 {
            return Ok(out);
        }
        self.effect.out += bytes;
        // What went again was counted as out before only if nobody saw it come back.
        let mut again = 0;
        for old in self.old.get_mut(&target).into_iter().flatten() {
            let back: u64 = out.ranges().iter().map(|&r| old.out.remove(r)).sum();
            again += back;
            self.back.add(self.looked_at_all_ns.saturating_sub(old.idle_since_ns), back / PAGE_SIZE);
        }
        let idle_since_ns = time_ns.saturating_sub(idle_ns);
        let length_ns = if self.batches.len() < MANY_BATCHES { LOOK_EVERY_NS } else { LONG_BATCH_NS };
        let joins = |b: &&mut Batch| b.target == target && time_ns < b.time_ns + length_ns;
        let added = match self.batches.iter_mut().rev().find(joins) {
            Some(last) => {
                let before = last.out.len();
                last.out.unite(&out);
                let added = last.out.len() - before;
                last.bytes += added;
                last.idle_since_ns = last.idle_since_ns.max(idle_since_ns);
                added
            }
            None => {
                self.batches.push_back(Batch { target, time_ns, idle_since_ns, out: out.clone(), bytes, back: 0 });
                bytes
            }
        };
        // Until the next look counts anew.
        self.effect.recent_out += added;
        self.effect.saved_now = (self.effect.saved_now + added).saturating_sub(again);
        Ok(out)
    }

    /// Looks for what came back, if the pause since the last time is over. A target that has gone is forgotten. `mapped`: the addresses
    /// that a target has mapped (sorted, disjoint), where that is known; what it has unmapped is not out any more.
    pub fn look(
        &mut self,
        source: &mut dyn AccessSource,
        mapped: &dyn Fn(TargetId) -> Option<Vec<AddrRange>>,
        pauses: Pauses,
        now_ns: u64,
    ) {
        if now_ns < self.looked_ns + pauses.lately_ns {
            return;
        }
        let cost_before_ns = source.cost().monitor_ns;
        let before_ns = std::mem::replace(&mut self.looked_ns, now_ns);
        let is_of_all = now_ns >= self.looked_at_all_ns + pauses.all_ns;
        if is_of_all {
            self.forget_unmapped(mapped);
        }
        let mut wanted = Wanted::default();
        self.batches.iter().for_each(|batch| wanted.add(batch.target, &batch.out));
        if is_of_all {
            self.old.iter().for_each(|(&target, sets)| sets.iter().for_each(|set| wanted.add(target, &set.out)));
        }
        let present = wanted.find(source);
        for batch in &mut self.batches {
            let back = present.take_from(batch.target, &mut batch.out);
            batch.back += back;
            self.back.add(batch.idle_at(before_ns), back / PAGE_SIZE);
            // When it came back lies between the two looks: in the middle, on average.
            let age_ns = now_ns.saturating_sub(batch.time_ns).saturating_sub((now_ns - before_ns) / 2);
            if age_ns <= SOON_NS + LOOK_EVERY_NS / 2 {
                self.effect.back_10s += back;
            }
            self.effect.back_60s += back;
        }
        if is_of_all {
            let before_ns = std::mem::replace(&mut self.looked_at_all_ns, now_ns);
            for (&target, sets) in &mut self.old {
                for set in &mut *sets {
                    let back = present.take_from(target, &mut set.out);
                    self.back.add(before_ns.saturating_sub(set.idle_since_ns), back / PAGE_SIZE);
                }
                sets.retain(|set| !set.out.is_empty());
            }
        }
        present.gone.iter().for_each(|&target| self.forget(target));
        self.count(now_ns);
        let cost_ns = source.cost().monitor_ns.saturating_sub(cost_before_ns);
        *if is_of_all { &mut self.cost.all_ns } else { &mut self.cost.lately_ns } = cost_ns;
    }

    /// Memory that its program has unmapped never comes back; what is mapped later at the same addresses is another.
    fn forget_unmapped(&mut self, mapped: &dyn Fn(TargetId) -> Option<Vec<AddrRange>>) {
        let mut known = HashMap::new();
        let mut keep_mapped = |target, out: &mut PageSet| {
            if let Some(ranges) = known.entry(target).or_insert_with(|| mapped(target)) {
                out.keep(ranges);
            }
        };
        self.batches.iter_mut().for_each(|batch| keep_mapped(batch.target, &mut batch.out));
        for (&target, sets) in &mut self.old {
            sets.iter_mut().for_each(|set| keep_mapped(target, &mut set.out));
        }
    }

    /// Makes what is no longer young old, and counts anew.
    fn count(&mut self, now_ns: u64) {
        while self.batches.front().is_some_and(|b| now_ns >= b.time_ns + LATER_NS) {
            let batch = self.batches.pop_front().expect("just seen");
            let old = self.old.entry(batch.target).or_default();
            let at = old.partition_point(|old| old.idle_since_ns <= batch.idle_since_ns);
            let since_ns = batch.idle_since_ns;
            old.insert(at, Old { idle_since_ns: since_ns, earliest_ns: since_ns, out: batch.out });
            join(old, now_ns);
        }
        let recent = || self.batches.iter().filter(|b| now_ns < b.time_ns + SOON_NS);
        self.effect.recent_out = recent().map(|b| b.bytes).sum();
        self.effect.recent_back = recent().map(|b| b.back).sum();
        self.effect.saved_now = self.batches.iter().map(|b| b.out.len()).sum::<u64>()
            + self.old.values().flatten().map(|old| old.out.len()).sum::<u64>();
    }

    /// Of what went since `since_ns`, at most a minute ago: how much, and how much of that has come back.
    pub fn since(&self, since_ns: u64) -> (u64, u64) {
        let sum = |of: fn(&Batch) -> u64| self.batches.iter().filter(|b| b.time_ns >= since_ns).map(of).sum();
        (sum(|b| b.bytes), sum(|b| b.back))
    }

    /// The target has gone, or runs another program.
    pub fn forget(&mut self, target: TargetId) {
        self.batches.retain(|b| b.target != target);
        self.old.remove(&target);
    }

    /// What the last looks took.
    pub const fn cost(&self) -> LookCost {
        self.cost
    }

    /// What came back since the start, by how long it had certainly been idle.
    pub const fn back(&self) -> Reaccessed {
        self.back
    }

    /// The figures.
    pub const fn effect(&self) -> &Effect {
        &self.effect
    }
}

#[cfg(test)]
mod tests;
