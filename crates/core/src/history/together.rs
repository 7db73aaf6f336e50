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
use std::collections::{BTreeMap, HashMap};

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
        let (mut owned, mut resident, mut coarsest) = (BTreeMap::<TargetId, Vec<PageAges>>::new(), 0, 1);
        for part in [Part::Backed, Part::Private] {
            let Some(sum) = self.part(targets, part, time_ns)? else { return Ok(None) };
            coarsest = coarsest.max(sum.one_in);
            for (target, mapped, own) in sum.finish() {
                resident += mapped.resident;
                owned.entry(target).or_default().push(own);
            }
        }
        let owned: Vec<(TargetId, PageAges)> =
            owned.into_iter().map(|(target, parts)| (target, frame::sum(parts.iter()))).collect();
        let ages = frame::sum(owned.iter().map(|(_, ages)| ages));
        self.set_shares_little(ages.resident as f64 >= UNSHARED * resident as f64);
        Ok(Some(TogetherFrame { time_ns, targets: targets.len() as u32, one_in: coarsest, ages, owned }))
    }

    /// A part of all targets' memory; `None` where the source cannot tell frames.
    fn part(&mut self, targets: &[Mapped<'_>], part: Part, now_ns: u64) -> Result<Option<Sum>, SourceError> {
        let targets: Vec<(TargetId, Vec<AddrRange>)> =
            targets.iter().map(|(target, mappings)| (*target, part.ranges(mappings))).collect();
        let mut each: Vec<OfTarget> = Vec::new();
        for (target, ranges) in &targets {
            let Some(history) = self.page_history(*target) else { return Ok(None) };
            each.push(OfTarget { target: *target, ages: history.ages_in(ranges), ..OfTarget::default() });
        }
        let resident: u64 = each.iter().map(|t| t.ages.resident).sum();
        let one_in = (resident / SAMPLED).max(1).next_power_of_two().min(1 << 16) as u32;
        // What is known of each frame, and the first target that maps it.
        let mut frames: HashMap<u64, (Known, usize)> = HashMap::new();
        for (index, (target, ranges)) in targets.iter().enumerate() {
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
                each[index].mapped.add(known, now_ns);
                frames.entry(frame).and_modify(|f| f.0 = f.0.or(known)).or_insert((known, index));
            }
        }
        for (known, owner) in frames.into_values() {
            each[owner].own.add(known, now_ns);
        }
        Ok(Some(Sum { one_in, each }))
    }

    /// The same without looking at frames, where these have shown lately that the targets share next to nothing.
    pub(crate) fn together_unshared(&self, targets: impl Iterator<Item = TargetId> + Clone) -> Option<TogetherFrame> {
        let time_ns = self.walked_twice(targets.clone()).filter(|_| self.shares_little())?;
        let owned: Vec<(TargetId, PageAges)> =
            targets.filter_map(|t| Some((t, self.page_history(t)?.total()))).collect();
        let ages = frame::sum(owned.iter().map(|(_, ages)| ages));
        Some(TogetherFrame { time_ns, targets: owned.len() as u32, one_in: 1, ages, owned })
    }

    /// When the last walk of any of `targets` was; `None` if one was not walked twice yet.
    fn walked_twice(&self, targets: impl Iterator<Item = TargetId>) -> Option<u64> {
        let times: Option<Vec<u64>> =
            targets.map(|t| self.page_history(t).filter(|h| h.walks() > 1).map(|h| h.now_ns())).collect();
        times?.into_iter().max()
    }
}

/// A part of the memory of all targets.
#[derive(Debug)]
struct Sum {
    one_in: u32,
    each: Vec<OfTarget>,
}

/// A part of a target's memory, and the sample of its pages: all that it maps, and those of them that are its own.
#[derive(Debug, Default)]
struct OfTarget {
    target: TargetId,
    ages: PageAges,
    mapped: Sampled,
    own: Sampled,
}

/// Sampled pages. `idle.pages` are those that are expected to be idle beyond those that certainly are.
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

    fn add_all(&mut self, other: &Self) {
        self.resident += other.resident;
        self.blind += other.blind;
        self.idle.iter_mut().zip(&other.idle).for_each(|(idle, others)| idle.add(others));
    }
}

impl Sum {
    /// Of each target what it maps and what is its own: the figures reduced by as much as the sample is. One that has no page in
    /// the sample is taken to share as all do.
    fn finish(self) -> Vec<(TargetId, PageAges, PageAges)> {
        let (mut mapped, mut own) = (Sampled::default(), Sampled::default());
        for t in &self.each {
            mapped.add_all(&t.mapped);
            own.add_all(&t.own);
        }
        let one = |t: OfTarget| {
            let of_all = t.mapped.resident == 0;
            let (mapped, own) = if of_all { (&mapped, &own) } else { (&t.mapped, &t.own) };
            let own = reduced(t.ages.clone(), mapped, own);
            (t.target, t.ages, own)
        };
        self.each.into_iter().map(one).collect()
    }
}

/// These figures by as much less as the sample of what is one's own has less than that of what is mapped.
fn reduced(mut ages: PageAges, mapped: &Sampled, own: &Sampled) -> PageAges {
    let reduced = |all: u64, mapped: u64, own: u64| match mapped {
        0 => all,
        mapped => (all as f64 * own as f64 / mapped as f64).round() as u64,
    };
    ages.resident = reduced(ages.resident, mapped.resident, own.resident);
    ages.unobservable = reduced(ages.unobservable, mapped.blind, own.blind);
    for (i, idle) in ages.idle.iter_mut().enumerate() {
        let (mapped, own) = (&mapped.idle[i], &own.idle[i]);
        // What is certain and what is expected of each sampled page.
        let sum = |s: &IdlePages| s.least + s.pages;
        idle.pages = reduced(idle.pages, sum(mapped), sum(own));
        idle.least = reduced(idle.least, mapped.least, own.least).min(idle.pages);
        idle.unresolved = reduced(idle.unresolved, mapped.unresolved, own.unresolved);
        idle.most = reduced(idle.most, mapped.most, own.most).max(idle.pages + idle.unresolved);
    }
    ages
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
        // The text is the first one's.
        let owned: Vec<u64> = frame.owned.iter().map(|(_, ages)| ages.resident).collect();
        assert_eq!((owned.len(), owned.iter().sum()), (TARGETS as usize, frame.ages.resident));
        assert_eq!((owned[0], owned[1], owned[149]), (11 * PAGES, 10 * PAGES, 10 * PAGES));
    }
}
