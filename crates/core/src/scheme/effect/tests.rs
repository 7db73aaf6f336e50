use super::*;
use crate::addr::TABLE_SPAN;
use crate::bits::{TableBits, Window};
use crate::mapping::Mapping;
use crate::mask;
use crate::source::{Clear, Cost};
use crate::target::TargetInfo;
use std::collections::BTreeSet;

const S: u64 = 1_000_000_000;
/// What a scan takes in [`Fake`], ns.
const SCAN_NS: u64 = 100_000;
/// Looks as often as can be.
const OFTEN: Pauses = Pauses { lately_ns: S, all_ns: 10 * S };

/// Targets whose present pages are told, and whose scans are counted.
#[derive(Default)]
struct Fake {
    present: PageSet,
    gone: BTreeSet<TargetId>,
    scans: u64,
}

impl AccessSource for Fake {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn poll_targets(&mut self) -> Result<Vec<TargetInfo>, SourceError> {
        Ok(Vec::new())
    }

    fn mappings(&mut self, _: TargetId, _: &mut Vec<Mapping>) -> Result<(), SourceError> {
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
        target: TargetId,
        ranges: &[AddrRange],
        clear: Clear<'_>,
        sink: &mut dyn FnMut(&TableBits),
    ) -> Result<(), SourceError> {
        assert!(!clear.any(), "whoever only looks clears nothing");
        self.scans += 1;
        if self.gone.contains(&target) {
            return Err(SourceError::Gone { target, pid: target });
        }
        let asked = PageSet::of(ranges);
        let bases: BTreeSet<u64> = ranges.iter().map(|r| r.start / TABLE_SPAN * TABLE_SPAN).collect();
        for base in bases {
            let present = mask::and(&self.present.mask(base), &asked.mask(base));
            sink(&TableBits { present, ..TableBits::empty(base) });
        }
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost { monitor_ns: self.scans * SCAN_NS, ..Cost::default() }
    }
}

fn pages(first: u64, end: u64) -> AddrRange {
    AddrRange::new(first * PAGE_SIZE, end * PAGE_SIZE)
}

/// Of no target is known what it has mapped.
fn unknown(_: TargetId) -> Option<Vec<AddrRange>> {
    None
}

/// A page of each target goes in every second before `end_s`, and is followed.
fn follow(source: &mut Fake, targets: TargetId, end_s: u64) -> EffectTracker {
    let mut tracker = EffectTracker::default();
    for second in 1..end_s {
        for target in 0..targets {
            let page = PageSet::of(&[pages(second, second + 1)]);
            tracker.paged_out(source, target, &page, (second * S, 5 * S)).unwrap();
        }
        tracker.look(source, &unknown, OFTEN, second * S);
    }
    tracker
}

#[test]
fn a_look_scans_each_target_once_however_many_batches_and_old_sets_there_are() {
    let mut source = Fake::default();
    let mut tracker = follow(&mut source, 3, 121);
    let sets = |t: &EffectTracker| (t.batches.len(), t.old.values().map(Vec::len).sum::<usize>());
    assert!(sets(&tracker).0 > 30 && sets(&tracker).1 > 30, "{:?}", sets(&tracker));
    // The first page that is old, and one of a young batch.
    source.present = PageSet::of(&[pages(1, 2), pages(118, 119)]);
    let (scans, out) = (source.scans, tracker.effect.saved_now);
    tracker.look(&mut source, &unknown, OFTEN, 121 * S);
    assert_eq!(source.scans - scans, 3, "lately");
    assert_eq!(tracker.effect.saved_now, out - 3 * PAGE_SIZE);
    assert_eq!((tracker.effect.back_10s, tracker.effect.back_60s), (3 * PAGE_SIZE, 3 * PAGE_SIZE));
    let scans = source.scans;
    tracker.look(&mut source, &unknown, OFTEN, 130 * S);
    assert_eq!(source.scans - scans, 3, "everything");
    assert_eq!(tracker.effect.saved_now, out - 6 * PAGE_SIZE);
    assert_eq!(tracker.back().pages()[0], 6, "both were idle for more than nothing");
    assert_eq!(tracker.cost(), LookCost { lately_ns: 3 * SCAN_NS, all_ns: 3 * SCAN_NS });
}

#[test]
fn looks_keep_the_pauses() {
    let mut source = Fake::default();
    let mut tracker = follow(&mut source, 1, 10);
    let seldom = Pauses { lately_ns: 4 * S, all_ns: 30 * S };
    let scans = source.scans;
    (10..=33).for_each(|second| tracker.look(&mut source, &unknown, seldom, second * S));
    assert_eq!(source.scans - scans, 6, "at 13, 17, ... 33");
}

#[test]
fn what_came_back_between_two_rare_looks_counts_as_in_their_middle() {
    let seldom = Pauses { lately_ns: 5 * S, all_ns: 100 * S };
    let soon = |went_s: u64| {
        let mut source = Fake::default();
        let mut tracker = EffectTracker::default();
        tracker.look(&mut source, &unknown, seldom, 100 * S);
        let page = PageSet::of(&[pages(1, 2)]);
        tracker.paged_out(&mut source, 0, &page, (went_s * S, 5 * S)).unwrap();
        tracker.look(&mut source, &unknown, seldom, 105 * S);
        tracker.look(&mut source, &unknown, seldom, 110 * S);
        source.present = page;
        tracker.look(&mut source, &unknown, seldom, 115 * S);
        (tracker.effect.back_10s, tracker.effect.back_60s)
    };
    assert_eq!(soon(102), (PAGE_SIZE, PAGE_SIZE), "after 8 to 13 s");
    assert_eq!(soon(101), (0, PAGE_SIZE), "after 9 to 14 s");
}

#[test]
fn what_its_program_has_unmapped_is_neither_out_nor_comes_back() {
    let mut source = Fake::default();
    let mut tracker = EffectTracker::default();
    // Old, and young.
    tracker.paged_out(&mut source, 0, &PageSet::of(&[pages(0, 600)]), (S, 5 * S)).unwrap();
    (1..70).for_each(|second| tracker.look(&mut source, &unknown, OFTEN, second * S));
    tracker.paged_out(&mut source, 0, &PageSet::of(&[pages(1000, 1100)]), (70 * S, 5 * S)).unwrap();
    assert_eq!((tracker.old[&0].len(), tracker.effect.saved_now), (1, 700 * PAGE_SIZE));
    let mapped = |_| Some(vec![pages(0, 100), pages(1000, 1010)]);
    (70..90).for_each(|second| tracker.look(&mut source, &mapped, OFTEN, second * S));
    assert_eq!(tracker.effect.saved_now, 110 * PAGE_SIZE);
    // The addresses are used again.
    source.present = PageSet::of(&[pages(90, 600), pages(1009, 1100)]);
    (90..110).for_each(|second| tracker.look(&mut source, &unknown, OFTEN, second * S));
    assert_eq!((tracker.effect.back_60s, tracker.effect.saved_now), (PAGE_SIZE, 99 * PAGE_SIZE));
    assert_eq!(tracker.back().pages()[0], 11);
}

#[test]
fn a_target_that_has_gone_is_forgotten_and_others_are_not() {
    let mut source = Fake::default();
    let mut tracker = follow(&mut source, 2, 100);
    source.gone.insert(0);
    tracker.look(&mut source, &unknown, OFTEN, 100 * S);
    assert!(tracker.batches.iter().all(|b| b.target == 1) && !tracker.old.contains_key(&0));
    assert_eq!(tracker.effect.saved_now, 99 * PAGE_SIZE);
}

#[test]
fn what_joins_a_batch_may_have_been_in_use_until_then() {
    let batch =
        |idle_since_ns| Batch { target: 0, time_ns: 10, idle_since_ns, out: PageSet::default(), bytes: 0, back: 0 };
    assert_eq!((batch(12).idle_at(5), batch(12).idle_at(15), batch(4).idle_at(5)), (0, 3, 6));
}

#[test]
fn what_has_been_idle_for_about_as_long_is_joined_and_counts_as_idle_for_the_shorter_time() {
    // A batch each second for an hour.
    let mut old: Vec<Old> = Vec::new();
    for second in 0..3600 {
        let since_ns = second * 1_000_000_000;
        let out = PageSet::of(&[AddrRange::new(second * PAGE_SIZE, (second + 1) * PAGE_SIZE)]);
        old.push(Old { idle_since_ns: since_ns, earliest_ns: since_ns, out });
        join(&mut old, since_ns + LATER_NS);
    }
    assert_eq!((old.len(), old.iter().map(|old| old.out.len()).sum::<u64>()), (MOST_OLD, 3600 * PAGE_SIZE));
    assert!(old.is_sorted_by_key(|old| old.idle_since_ns));
    let now_ns = 3599 * 1_000_000_000 + LATER_NS;
    for set in &old {
        let (longest, counted) = (now_ns - set.earliest_ns, now_ns - set.idle_since_ns);
        assert!(longest as f64 <= 1.5 * counted as f64, "{longest} counts as {counted}");
        assert!(set.out.ranges().iter().all(|r| r.start / PAGE_SIZE * 1_000_000_000 <= set.idle_since_ns));
    }
}
