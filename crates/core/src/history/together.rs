//! Several targets together: a page that more than one of them maps counts once, and is idle only where none of them used it.
//!
//! Which pages are the same is told by their frames, of which a sample is looked at. It tells by what part the sum over the
//! targets is too large; where nothing is shared, nothing changes.

use super::ages::Known;
use super::frame::{AGES_NS, IdlePages, PageAges, TogetherFrame};
use super::tracked::Tracked;
use crate::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN};
use crate::source::{AccessSource, SourceError, TargetId};
use std::collections::HashMap;

/// Pages in the sample, about.
const SAMPLED: u64 = 1 << 13;

impl<S: AccessSource> Tracked<S> {
    /// The figures of `targets`, each with its mapped ranges (sorted, disjoint), together; `None` where the source cannot tell frames, or
    /// a target was not walked twice yet.
    pub fn together(&mut self, targets: &[(TargetId, Vec<AddrRange>)]) -> Result<Option<TogetherFrame>, SourceError> {
        let Some(mut sum) = self.sum(targets.iter().map(|(target, _)| *target)) else { return Ok(None) };
        let present: u64 = sum.ages.iter().map(|ages| ages.resident).sum();
        let one_in = (present / SAMPLED).max(1).next_power_of_two().min(1 << 16) as u32;
        let mut frames: HashMap<u64, Known> = HashMap::new();
        for (target, mapped) in targets {
            let mut pages: Vec<(u64, u64)> = Vec::new();
            if !self.frames(*target, mapped, one_in, &mut |addr, frame| pages.push((addr, frame)))? {
                return Ok(None);
            }
            let Some(history) = self.page_history(*target) else { return Ok(None) };
            // Ages are those at the target's last walk, also where another target was walked later.
            let later_ns = sum.time_ns - history.now_ns();
            for (addr, frame) in pages {
                let base = addr / TABLE_SPAN * TABLE_SPAN;
                let code = history.table(base).map(|t| t.code(((addr - base) / PAGE_SIZE) as usize));
                let Some(known) = code.and_then(|c| Known::of(c, history.epochs())) else { continue };
                let known = known.later(later_ns);
                sum.each.add(known, sum.time_ns);
                frames.entry(frame).and_modify(|f| *f = f.or(known)).or_insert(known);
            }
        }
        frames.values().for_each(|&known| sum.once.add(known, sum.time_ns));
        self.set_shares_little(sum.once.resident as f64 >= UNSHARED * sum.each.resident as f64);
        Ok(Some(TogetherFrame { time_ns: sum.time_ns, targets: targets.len() as u32, one_in, ages: sum.finish() }))
    }

    /// The same without looking at frames, where these have shown lately that the targets share next to nothing.
    pub fn together_unshared(&self, targets: impl Iterator<Item = TargetId>) -> Option<TogetherFrame> {
        let sum = self.sum(targets).filter(|_| self.shares_little())?;
        Some(TogetherFrame { time_ns: sum.time_ns, targets: sum.ages.len() as u32, one_in: 1, ages: sum.finish() })
    }

    /// What is known of each target; `None` if one was not walked twice yet.
    fn sum(&self, targets: impl Iterator<Item = TargetId>) -> Option<Sum> {
        let histories: Option<Vec<_>> = targets.map(|t| self.page_history(t).filter(|h| h.walks() > 1)).collect();
        let histories = histories?;
        let time_ns = histories.iter().map(|h| h.now_ns()).max()?;
        Some(Sum { time_ns, ages: histories.iter().map(|h| h.total()).collect(), ..Sum::default() })
    }
}

/// With so large a part of the pages left when each counts once, nothing that matters is shared.
const UNSHARED: f64 = 0.99;

/// The targets' figures, and those of the sample with each page counted for each target, and once.
#[derive(Debug, Default)]
struct Sum {
    /// When the last walk of any of them was.
    time_ns: u64,
    ages: Vec<PageAges>,
    each: Sampled,
    once: Sampled,
}

#[derive(Debug)]
struct Sampled {
    resident: u64,
    blind: u64,
    idle: [IdlePages; AGES_NS.len()],
}

impl Default for Sampled {
    fn default() -> Self {
        Self { resident: 0, blind: 0, idle: [IdlePages::default(); AGES_NS.len()] }
    }
}

impl Sampled {
    fn add(&mut self, known: Known, now_ns: u64) {
        self.resident += 1;
        self.blind += u64::from(known == Known::Blind);
        for (idle, age) in self.idle.iter_mut().zip(AGES_NS) {
            let expected = known.idle(now_ns.saturating_sub(age), (now_ns, 1.0), 1, idle);
            idle.pages += u64::from(expected >= 0.5);
        }
    }
}

impl Sum {
    /// The sums over the targets, each reduced by as much as the sample is when its pages count once.
    fn finish(self) -> PageAges {
        let mut total = super::frame::sum(self.ages.iter());
        let reduced = |all: u64, each: u64, once: u64| match each {
            0 => all,
            each => (all as f64 * once as f64 / each as f64).round() as u64,
        };
        let (each, once) = (&self.each, &self.once);
        total.resident = reduced(total.resident, each.resident, once.resident);
        total.unobservable = reduced(total.unobservable, each.blind, once.blind);
        for (i, idle) in total.idle.iter_mut().enumerate() {
            let (each, once) = (&each.idle[i], &once.idle[i]);
            // What is certain and what is expected of each sampled page.
            let sum = |s: &IdlePages| s.least + s.pages;
            idle.pages = reduced(idle.pages, sum(each), sum(once));
            idle.least = reduced(idle.least, each.least, once.least).min(idle.pages);
            idle.unresolved = reduced(idle.unresolved, each.unresolved, once.unresolved);
            idle.most = reduced(idle.most, each.most, once.most).max(idle.pages + idle.unresolved);
        }
        total
    }
}
