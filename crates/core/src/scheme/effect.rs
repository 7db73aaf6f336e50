//! What paging out has really brought: how much memory went, how much of it came back, and when.

use crate::addr::AddrRange;
use crate::pages::PageSet;
use crate::source::{AccessSource, Clear, SourceError};
use crate::target::TargetId;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};

/// Memory that comes back within this time should not have gone.
pub(crate) const SOON_NS: u64 = 10_000_000_000;
/// The second mark at which is counted what came back.
pub(crate) const LATER_NS: u64 = 60_000_000_000;
/// How often what went is looked for.
const LOOK_EVERY_NS: u64 = 1_000_000_000;
/// How often everything that is out is looked for, not only what went lately.
const LOOK_AT_ALL_EVERY_NS: u64 = 10_000_000_000;
/// Young batches at most; more are joined.
const MOST_BATCHES: usize = 64;

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
    out: PageSet,
    bytes: u64,
    back: u64,
}

/// Follows what a scheme has paged out.
#[derive(Debug, Default)]
pub(crate) struct EffectTracker {
    batches: VecDeque<Batch>,
    /// Out for longer than [`LATER_NS`].
    old: HashMap<TargetId, PageSet>,
    effect: Effect,
    looked_ns: u64,
    looked_at_all_ns: u64,
}

/// Those of `pages` that are not present.
fn absent(source: &mut dyn AccessSource, target: TargetId, pages: &PageSet) -> Result<PageSet, SourceError> {
    let mut out = pages.clone();
    source.scan(target, &pages.ranges(), Clear::Nothing, &mut |bits| {
        if bits.leaf_shift > 12 {
            out.remove(AddrRange::new(bits.base, bits.base + (1 << bits.leaf_shift)));
        } else {
            out.remove_mask(bits.base, &bits.present);
        }
    })?;
    Ok(out)
}

impl EffectTracker {
    /// Takes in that `pages`, all of them present before, were paged out at `time_ns`; looks which are really gone.
    pub(crate) fn paged_out(
        &mut self,
        source: &mut dyn AccessSource,
        target: TargetId,
        pages: &PageSet,
        time_ns: u64,
    ) -> Result<PageSet, SourceError> {
        let out = absent(source, target, pages)?;
        let bytes = out.len();
        if bytes == 0 {
            return Ok(out);
        }
        self.effect.out += bytes;
        // What went again was counted as out before only if nobody saw it come back.
        if let Some(old) = self.old.get_mut(&target) {
            out.ranges().iter().for_each(|&r| {
                old.remove(r);
            });
        }
        let many = self.batches.len() >= MOST_BATCHES;
        let joins = |b: &Batch| b.target == target && (many || time_ns < b.time_ns + LOOK_EVERY_NS);
        match self.batches.back_mut().filter(|b| joins(b)) {
            Some(last) => {
                let before = last.out.len();
                out.ranges().iter().for_each(|&r| last.out.insert(r));
                last.bytes += last.out.len() - before;
            }
            None => self.batches.push_back(Batch { target, time_ns, out: out.clone(), bytes, back: 0 }),
        }
        Ok(out)
    }

    /// Looks for what came back; about once a second, to be called more often. A target that has gone is forgotten.
    pub fn look(&mut self, source: &mut dyn AccessSource, now_ns: u64) {
        if now_ns < self.looked_ns + LOOK_EVERY_NS {
            return;
        }
        self.looked_ns = now_ns;
        let mut gone = Vec::new();
        for batch in &mut self.batches {
            let Ok(still) = absent(source, batch.target, &batch.out) else {
                gone.push(batch.target);
                continue;
            };
            let back = batch.out.len() - still.len();
            batch.out = still;
            batch.back += back;
            let age = now_ns.saturating_sub(batch.time_ns);
            if age <= SOON_NS + LOOK_EVERY_NS {
                self.effect.back_10s += back;
            }
            self.effect.back_60s += back;
        }
        if now_ns >= self.looked_at_all_ns + LOOK_AT_ALL_EVERY_NS {
            self.looked_at_all_ns = now_ns;
            for (&target, set) in &mut self.old {
                match absent(source, target, set) {
                    Ok(still) => *set = still,
                    Err(_) => gone.push(target),
                }
            }
        }
        gone.iter().for_each(|&t| self.forget(t));
        while self.batches.front().is_some_and(|b| now_ns >= b.time_ns + LATER_NS) {
            let batch = self.batches.pop_front().expect("just seen");
            let old = self.old.entry(batch.target).or_default();
            batch.out.ranges().iter().for_each(|&r| old.insert(r));
        }
        let recent = || self.batches.iter().filter(|b| now_ns < b.time_ns + SOON_NS);
        self.effect.recent_out = recent().map(|b| b.bytes).sum();
        self.effect.recent_back = recent().map(|b| b.back).sum();
        self.effect.saved_now =
            self.batches.iter().map(|b| b.out.len()).sum::<u64>() + self.old.values().map(PageSet::len).sum::<u64>();
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

    /// The figures.
    pub const fn effect(&self) -> &Effect {
        &self.effect
    }
}
