//! Several targets together: a page that more than one of them maps counts once, and is idle only where none of them
//! used it.
//!
//! Which pages are the same is known from their frames, of which a sample is looked at ([`Sample`]).

use super::frame::{self, PageAges};
use super::once::Sample;
use super::pages::PageHistory;
use super::together_frame::{Owned, TogetherFrame};
use super::tracked::Tracked;
use crate::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN, normalize};
use crate::mapping::{Mapping, MappingKind};
use crate::source::{AccessSource, SourceError};
use crate::target::TargetId;
use std::collections::BTreeMap;

/// Pages in each sample, about: so many, ...
const SAMPLED: u64 = 1 << 13;
/// ... and more for each target, since with a few pages in the sample little is known of one.
const SAMPLED_EACH: u64 = 32;
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

const PARTS: [Part; 2] = [Part::Backed, Part::Private];

impl Part {
    /// Its mappings, in order.
    fn of(self, mappings: &[Mapping]) -> impl Iterator<Item = &Mapping> + Clone {
        let part = |kind| match kind {
            MappingKind::File | MappingKind::Shmem | MappingKind::Hugetlb => Some(Self::Backed),
            MappingKind::Anon => Some(Self::Private),
            MappingKind::Special => None,
        };
        mappings.iter().filter(move |m| part(m.kind) == Some(self))
    }
}

impl<S: AccessSource> Tracked<S> {
    /// The figures of `targets` together, of those whose ages are known: of the others nothing is, and they would
    /// hide what is known of the pages that they share. `None` where the source cannot tell frames, or none was walked
    /// twice yet.
    pub fn together(&mut self, targets: &[Mapped<'_>]) -> Result<Option<TogetherFrame>, SourceError> {
        let Some(time_ns) = self.last_walk(targets.iter().map(|(target, _)| *target)) else { return Ok(None) };
        let mut owned = BTreeMap::<TargetId, (usize, PageAges, PageAges)>::new();
        let (mut resident, mut coarsest) = (0, 1);
        for part in PARTS {
            let Some((one_in, there, sample)) = self.sample(targets, part, time_ns)? else { return Ok(None) };
            coarsest = coarsest.max(one_in);
            resident += sample.mapped();
            for (target, (mapped, own)) in there.into_iter().zip(sample.own(time_ns)) {
                let (parts, all_mapped, all_own) = owned.entry(target).or_default();
                *parts += 1;
                all_mapped.add(&mapped);
                all_own.add(&own);
            }
        }
        // Half of one that has ended in between says nothing of it.
        let both = owned.into_iter().filter(|(_, (parts, ..))| *parts == PARTS.len());
        let owned = both.filter_map(|(target, (_, mapped, ages))| {
            Some(Owned { target, walked_ns: self.page_history(target)?.now_ns(), mapped, ages })
        });
        let owned: Vec<Owned> = owned.collect();
        let ages = frame::sum(owned.iter().map(|owned| &owned.ages));
        self.set_shares_little(ages.resident as f64 >= UNSHARED * resident as f64);
        Ok(Some(TogetherFrame { time_ns, targets: owned.len() as u32, one_in: coarsest, ages, owned }))
    }

    /// A part of the memory of all targets whose ages are known: one in how many frames is looked at, the targets, and the
    /// frames; `None` where the source cannot tell frames. Those that have ended meanwhile are left out.
    fn sample(
        &mut self,
        targets: &[Mapped<'_>],
        part: Part,
        now_ns: u64,
    ) -> Result<Option<(u32, Vec<TargetId>, Sample)>, SourceError> {
        let mut of_part = Vec::new();
        for (target, mappings) in targets {
            let Some(history) = self.known(*target) else { continue };
            let mappings = part.of(mappings);
            // By mapping, as a target's own frames are: what is not known yet is estimated in each by itself.
            let ages = history.ages_of(mappings.clone());
            let mut ranges: Vec<AddrRange> = mappings.map(|m| m.range).collect();
            normalize(&mut ranges);
            of_part.push((*target, ages, ranges));
        }
        let resident: u64 = of_part.iter().map(|(_, ages, _)| ages.resident).sum();
        let sampled = SAMPLED + SAMPLED_EACH * of_part.len() as u64;
        let one_in = (resident / sampled).max(1).next_power_of_two().min(1 << 16) as u32;
        let (mut there, mut sample) = (Vec::new(), Sample::new(one_in));
        let mut pages: Vec<(u64, u64)> = Vec::new();
        for (target, ages, ranges) in of_part {
            pages.clear();
            match self.frames(target, &ranges, one_in, &mut |addr, frame| pages.push((addr, frame))) {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(SourceError::Gone { .. } | SourceError::Replaced { .. }) => continue,
                Err(e) => return Err(e),
            }
            let Some(history) = self.page_history(target) else { continue };
            there.push(target);
            sample.add_target(ages);
            // Ages are those at the target's last walk, also where another target was walked later.
            let later_ns = now_ns - history.now_ns();
            for &(addr, frame) in &pages {
                let base = addr / TABLE_SPAN * TABLE_SPAN;
                let code = history.table(base).map(|t| t.code(((addr - base) / PAGE_SIZE) as usize));
                if let Some(known) = code.and_then(|c| history.known(c)) {
                    sample.add_page(frame, known.later(later_ns));
                }
            }
        }
        Ok(Some((one_in, there, sample)))
    }

    /// The same without looking at frames, where these have shown lately that the targets share next to nothing.
    pub(crate) fn together_unshared(&self, targets: &[Mapped<'_>]) -> Option<TogetherFrame> {
        let time_ns = self.last_walk(targets.iter().map(|(target, _)| *target)).filter(|_| self.shares_little())?;
        let owned = targets.iter().filter_map(|&(target, mappings)| {
            let history = self.known(target)?;
            let ages = history.ages_of(mappings);
            Some(Owned { target, walked_ns: history.now_ns(), mapped: ages.clone(), ages })
        });
        let owned: Vec<Owned> = owned.collect();
        let ages = frame::sum(owned.iter().map(|owned| &owned.ages));
        Some(TogetherFrame { time_ns, targets: owned.len() as u32, one_in: 1, ages, owned })
    }

    /// When the last walk of any of `targets` was; `None` if of none ages are known yet.
    fn last_walk(&self, targets: impl Iterator<Item = TargetId>) -> Option<u64> {
        targets.filter_map(|t| self.known(t)).map(PageHistory::now_ns).max()
    }

    fn known(&self, target: TargetId) -> Option<&PageHistory> {
        self.page_history(target).filter(|h| h.tells_ages())
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

    /// Targets that map the same 2 MiB of text, and 20 MiB each of their own, of which they use every eighth page. These
    /// have ended.
    struct Group(Vec<TargetId>);

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
            if self.0.contains(&target) {
                return Err(SourceError::Gone { target, pid: target });
            }
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
        let mut tracked = Tracked::new(Group(Vec::new()));
        let (mappings, mut clock) = (mappings(), VirtualClock::default());
        let ranges: Vec<AddrRange> = mappings.iter().map(|m| m.range).collect();
        let targets: Vec<Mapped> = (0..TARGETS).map(|t| (t as TargetId, &mappings[..])).collect();
        for _ in 0..3 {
            assert!(tracked.together(&targets).unwrap().is_none(), "nobody was walked twice");
            for (target, _) in &targets {
                while !tracked.walk(*target, &ranges, Some(Allowance::UNLIMITED), &mut clock).unwrap().complete {}
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
        let owned: Vec<u64> = frame.owned.iter().map(|owned| owned.ages.resident).collect();
        assert_eq!((owned.len(), owned.iter().sum()), (TARGETS as usize, frame.ages.resident));
        assert_eq!((owned[0], owned[1], owned[149]), (11 * PAGES, 10 * PAGES, 10 * PAGES));
    }

    #[test]
    fn who_came_just_now_or_has_ended_does_not_keep_others_from_being_counted_once() {
        const OLD: TargetId = 20;
        let (once, never, ended) = (OLD, OLD + 1, 0);
        let mut tracked = Tracked::new(Group(vec![ended]));
        let (mappings, mut clock) = (mappings(), VirtualClock::default());
        let ranges: Vec<AddrRange> = mappings.iter().map(|m| m.range).collect();
        let targets: Vec<Mapped> = (0..=never).map(|t| (t, &mappings[..])).collect();
        for last in [OLD, once + 1] {
            for target in 0..last {
                while !tracked.walk(target, &ranges, Some(Allowance::UNLIMITED), &mut clock).unwrap().complete {}
            }
            clock.advance_ns(11_000_000_000);
        }
        let frame = tracked.together(&targets).unwrap().unwrap();
        let counted: Vec<TargetId> = frame.owned.iter().map(|owned| owned.target).collect();
        assert_eq!((counted, frame.targets), ((1..OLD).collect(), OLD - 1));
        let private = u64::from(OLD - 1) * PRIVATE_TABLES * PAGES;
        assert_eq!(frame.ages.resident, private + PAGES);
        assert_eq!(frame.ages.idle_for(10_000_000_000).unwrap().pages, private / 8 * 7);
    }
}
