//! Several targets together: a page that more than one of them maps counts once, and is idle only where none of them
//! used it.
//!
//! Which pages are the same is told by their frames, of which a sample is looked at. It tells by what part the sum over
//! the targets is too large; where nothing is shared, nothing changes.

use super::ages::Known;
use super::frame::{self, AGES_NS, IdlePages, PageAges, TogetherFrame};
use super::tracked::Tracked;
use crate::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN, normalize};
use crate::mapping::{Mapping, MappingKind};
use crate::source::{AccessSource, SourceError};
use crate::target::TargetId;
use std::collections::HashMap;

/// Pages in each sample, about.
const SAMPLED: u64 = 1 << 13;
/// With so large a part of the pages left when each counts once, nothing that matters is shared.
const UNSHARED: f64 = 0.99;

/// A target, and its mappings.
pub type Mapped<'a> = (TargetId, &'a [Mapping]);

/// Memory that is shared for different reasons, and to a different degree: each has a sample of its own, or the few
/// pages of a library that all targets map, and that are in a small sample by chance, would stand for the private
/// memory, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Files, shared memory, and hugetlb.
    Backed,
    /// All else: private, or shared since a fork.
    Private,
}

impl Part {
    /// Its ranges, sorted and disjoint.
    fn ranges(self, mappings: &[Mapping]) -> Vec<AddrRange> {
        let part = |kind| match kind {
            MappingKind::File | MappingKind::Shmem | MappingKind::Hugetlb => Some(Self::Backed),
            MappingKind::Anon => Some(Self::Private),
            MappingKind::Special => None,
        };
        let mut ranges: Vec<AddrRange> =
            mappings.iter().filter(|m| part(m.kind) == Some(self)).map(|m| m.range).collect();
        normalize(&mut ranges);
        ranges
    }
}

impl<S: AccessSource> Tracked<S> {
    /// The figures of `targets` together; `None` where the source cannot tell frames, or a target was not walked twice
    /// yet.
    pub fn together(&mut self, targets: &[Mapped<'_>]) -> Result<Option<TogetherFrame>, SourceError> {
        let Some(time_ns) = self.walked_twice(targets.iter().map(|(target, _)| *target)) else { return Ok(None) };
        let (mut parts, mut resident, mut coarsest) = (Vec::new(), 0, 1);
        for part in [Part::Backed, Part::Private] {
            let Some(sum) = self.part(targets, part, time_ns)? else { return Ok(None) };
            resident += sum.all.resident;
            coarsest = coarsest.max(sum.one_in);
            parts.push(sum.finish());
        }
        let ages = frame::sum(parts.iter());
        self.set_shares_little(ages.resident as f64 >= UNSHARED * resident as f64);
        Ok(Some(TogetherFrame { time_ns, targets: targets.len() as u32, one_in: coarsest, ages }))
    }

    /// A part of all targets' memory; `None` where the source cannot tell frames.
    fn part(&mut self, targets: &[Mapped<'_>], part: Part, now_ns: u64) -> Result<Option<Sum>, SourceError> {
        let targets: Vec<(TargetId, Vec<AddrRange>)> =
            targets.iter().map(|(target, mappings)| (*target, part.ranges(mappings))).collect();
        let ages: Vec<PageAges> =
            targets.iter().filter_map(|(target, ranges)| Some(self.page_history(*target)?.ages_in(ranges))).collect();
        let all = frame::sum(ages.iter());
        let one_in = (all.resident / SAMPLED).max(1).next_power_of_two().min(1 << 16) as u32;
        let mut sum = Sum { all, one_in, each: Sampled::default(), once: Sampled::default() };
        let mut frames: HashMap<u64, Known> = HashMap::new();
        for (target, ranges) in &targets {
            let mut pages: Vec<(u64, u64)> = Vec::new();
            if !self.frames(*target, ranges, one_in, &mut |addr, frame| pages.push((addr, frame)))? {
                return Ok(None);
            }
            let Some(history) = self.page_history(*target) else { return Ok(None) };
            // Ages are those at the target's last walk, also where another target was walked later.
            let later_ns = now_ns - history.now_ns();
            for (addr, frame) in pages {
                let base = addr / TABLE_SPAN * TABLE_SPAN;
                let code = history.table(base).map(|t| t.code(((addr - base) / PAGE_SIZE) as usize));
                let Some(known) = code.and_then(|c| Known::of(c, history.epochs())) else { continue };
                let known = known.later(later_ns);
                sum.each.add(known, now_ns);
                frames.entry(frame).and_modify(|f| *f = f.or(known)).or_insert(known);
            }
        }
        frames.values().for_each(|&known| sum.once.add(known, now_ns));
        Ok(Some(sum))
    }

    /// The same without looking at frames, where these have shown lately that the targets share next to nothing.
    pub(crate) fn together_unshared(&self, targets: impl Iterator<Item = TargetId> + Clone) -> Option<TogetherFrame> {
        let time_ns = self.walked_twice(targets.clone()).filter(|_| self.shares_little())?;
        let ages: Vec<PageAges> = targets.filter_map(|t| Some(self.page_history(t)?.total())).collect();
        Some(TogetherFrame { time_ns, targets: ages.len() as u32, one_in: 1, ages: frame::sum(ages.iter()) })
    }

    /// When the last walk of any of `targets` was; `None` if one was not walked twice yet.
    fn walked_twice(&self, targets: impl Iterator<Item = TargetId>) -> Option<u64> {
        let times: Option<Vec<u64>> =
            targets.map(|t| self.page_history(t).filter(|h| h.walks() > 1).map(|h| h.now_ns())).collect();
        times?.into_iter().max()
    }
}

/// The sum over the targets, and of a sample of their pages, with each counted for each target, and once.
#[derive(Debug)]
struct Sum {
    all: PageAges,
    one_in: u32,
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
    /// The figures of all, each reduced by as much as the sample is when its pages count once.
    fn finish(self) -> PageAges {
        let mut total = self.all;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bits::{TableBits, Window};
    use crate::clock::VirtualClock;
    use crate::history::tracked::Allowance;
    use crate::mask::{self, NO_PAGES};
    use crate::source::{Clear, Cost, in_sample};
    use crate::target::TargetInfo;

    const TEXT: u64 = 1 << 30;
    const PRIVATE: u64 = 2 << 30;
    const PRIVATE_TABLES: u64 = 10;
    /// Pages below a table.
    const PAGES: u64 = 512;

    /// Targets that map the same 2 MiB of text, and 20 MiB each of their own, of which they use every eighth page.
    struct Group;

    fn mappings() -> Vec<Mapping> {
        let text = Mapping { kind: MappingKind::File, ..Mapping::anon(TEXT, TEXT + TABLE_SPAN) };
        vec![text, Mapping::anon(PRIVATE, PRIVATE + PRIVATE_TABLES * TABLE_SPAN)]
    }

    impl AccessSource for Group {
        fn name(&self) -> &'static str {
            "group"
        }

        fn poll_targets(&mut self) -> Result<Vec<TargetInfo>, SourceError> {
            Ok(Vec::new())
        }

        fn mappings(&mut self, _: TargetId, out: &mut Vec<Mapping>) -> Result<(), SourceError> {
            *out = mappings();
            Ok(())
        }

        fn arm(&mut self, _: TargetId, _: &mut [Window]) -> Result<(), SourceError> {
            Ok(())
        }

        fn look(&mut self, _: TargetId, _: &mut [Window]) -> Result<(), SourceError> {
            Ok(())
        }

        fn scan(
            &mut self,
            _: TargetId,
            ranges: &[AddrRange],
            mut clear: Clear<'_>,
            sink: &mut dyn FnMut(&TableBits),
        ) -> Result<(), SourceError> {
            for base in ranges.iter().flat_map(|r| (r.start..r.end).step_by(TABLE_SPAN as usize)) {
                let accessed = if base == TEXT { [u64::MAX; 8] } else { [0x0101_0101_0101_0101; 8] };
                let present = [u64::MAX; 8];
                let bits = TableBits { base, leaf_shift: 12, present, accessed, cleared: NO_PAGES, blind: NO_PAGES };
                let cleared = mask::and(&clear.choose(&bits), &accessed);
                sink(&TableBits { cleared, ..bits });
            }
            Ok(())
        }

        fn frames(
            &mut self,
            target: TargetId,
            ranges: &[AddrRange],
            one_in: u32,
            sink: &mut dyn FnMut(u64, u64),
        ) -> Result<bool, SourceError> {
            for addr in ranges.iter().flat_map(|r| (r.start..r.end).step_by(PAGE_SIZE as usize)) {
                let own = 1 << 20 | (u64::from(target) * PRIVATE_TABLES * PAGES);
                let frame = if addr < PRIVATE { (addr - TEXT) / PAGE_SIZE } else { own + (addr - PRIVATE) / PAGE_SIZE };
                if in_sample(frame, one_in) {
                    sink(addr, frame);
                }
            }
            Ok(true)
        }

        fn cost(&self) -> Cost {
            Cost::default()
        }
    }

    #[test]
    fn a_text_that_all_of_many_targets_map_does_not_shake_their_total() {
        const TARGETS: u64 = 150;
        let mut tracked = Tracked::new(Group);
        let (mappings, mut clock) = (mappings(), VirtualClock::default());
        let ranges: Vec<AddrRange> = mappings.iter().map(|m| m.range).collect();
        let targets: Vec<Mapped> = (0..TARGETS).map(|t| (t as TargetId, &mappings[..])).collect();
        for _ in 0..3 {
            assert!(tracked.together(&targets).unwrap().is_none(), "nobody was walked twice");
            for (target, _) in &targets {
                while !tracked.walk(*target, &ranges, Allowance::UNLIMITED, &mut clock).unwrap().complete {}
            }
            clock.advance_ns(11_000_000_000);
            if tracked.page_history(0).is_some_and(|h| h.walks() > 1) {
                break;
            }
        }
        let frame = tracked.together(&targets).unwrap().unwrap();
        assert!(frame.one_in > 1);
        let private = TARGETS * PRIVATE_TABLES * PAGES;
        assert_eq!(frame.ages.resident, private + PAGES);
        assert_eq!(frame.ages.idle_for(10_000_000_000).unwrap().pages, private / 8 * 7);
    }
}
