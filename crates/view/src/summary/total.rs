//! All targets together.

use super::Summary;
use super::cost::Cost;
use super::idle::Idle;
use super::pages::{PageFigures, ResidentPages};
use super::working_set::WorkingSet;
use super::{Resident, target::TargetSummary};
use crate::overview::Overview;
use crate::series::{Measure, PageMoments, Point, SumBuilder, TOGETHER_NS};
use isotherm_core::addr::PAGE_SIZE;
use isotherm_core::event::Event;
use isotherm_core::history::frame::PageAges;
use isotherm_core::history::together_frame::TogetherFrame;
use isotherm_core::target::{Footprint, TargetEnd};
use isotherm_core::units::NS_PER_S;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};

/// A target that ended earlier than this before the end of the record is not part of what was there at its end, ns.
const LATE_NS: u64 = 2 * NS_PER_S;

/// How often a page counts that several targets map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shared {
    /// Once.
    CountedOnce,
    /// Once for each target.
    CountedForEachTarget,
}

/// What all targets hold at the end of the record; those that ended before are left out.
#[derive(Debug, Clone, PartialEq)]
pub struct Total {
    pub targets: usize,
    /// Working set: percentiles over time, windows at the end.
    pub working_set: WorkingSet,
    pub idle: Idle,
    /// Present memory without a rest; `None` where only regions are known.
    pub pages: Option<ResidentPages>,
    /// The sum of the targets' resident memory; each of them counts what it shares.
    pub resident: Option<Resident>,
    /// How often shared pages count, in everything but `resident`.
    pub shared: Shared,
    pub cost: Option<Cost>,
}

/// Collects what is needed for the total beside the targets' own summaries.
#[derive(Debug, Default)]
pub(super) struct TotalBuilder {
    /// Targets that are summed up.
    wanted: HashSet<u32>,
    /// Whether these are all.
    all: bool,
    moments: PageMoments,
    regions: SumBuilder,
    /// Targets that have not ended yet.
    living: HashSet<u32>,
    /// Targets of whose pages ages are known, and since when, ns.
    known: HashMap<u32, u64>,
    together: Option<Together>,
    last_pages_ns: u64,
    /// The last of each target.
    footprints: HashMap<u32, Footprint>,
    /// Resident memory of those that have not ended, bytes.
    rss: HashMap<u32, u64>,
    /// All of it.
    rss_now: u64,
    highest: u64,
}

impl TotalBuilder {
    /// Of the targets with these numbers.
    pub fn new(overview: &Overview, wanted: impl Iterator<Item = u32>) -> Self {
        let wanted: HashSet<u32> = wanted.collect();
        Self { all: overview.targets.len() == wanted.len(), wanted, ..Self::default() }
    }

    pub fn add(&mut self, event: &Event) {
        match event {
            Event::End { target, why, .. } => self.end(*target, *why),
            _ => self.living.extend(event.target()),
        }
        match event {
            Event::Snapshot(s) if self.wanted.contains(&s.target) => {
                let value = Measure::WorkingSet { min_rate: 0.0 }.of(s);
                self.regions.add(s.target, Point { time_ns: s.end_ns, value }, s.aggr_us.saturating_mul(1000));
            }
            Event::Pages(f) if self.wanted.contains(&f.target) => {
                self.last_pages_ns = f.time_ns;
                if let Some(point) = self.moments.add(f) {
                    self.known.entry(f.target).or_insert(point.time_ns);
                }
            }
            Event::Together(f) if self.all => {
                self.moments.add_together(f);
                let known = self.living.iter().copied().filter(|t| self.known.contains_key(t)).collect();
                self.together = Some(Together { frame: f.clone(), living: self.living.clone(), known });
            }
            Event::Footprint(f) if self.wanted.contains(&f.target) => {
                self.footprints.insert(f.target, *f);
                let before = self.rss.insert(f.target, f.rss).unwrap_or(0);
                self.rss_now = self.rss_now.saturating_sub(before).saturating_add(f.rss);
                self.highest = self.highest.max(self.rss_now);
            }
            _ => {}
        }
    }

    fn end(&mut self, target: u32, why: TargetEnd) {
        self.moments.end(target);
        self.regions.end(target);
        match why {
            TargetEnd::Exited => {
                self.living.remove(&target);
                self.rss_now = self.rss_now.saturating_sub(self.rss.remove(&target).unwrap_or(0));
            }
            // Nothing is known of the new program yet.
            TargetEnd::Replaced => {
                self.known.remove(&target);
            }
        }
    }

    /// The total. `targets` are the summaries of all that were wanted.
    pub fn finish(self, overview: &Overview, targets: &[TargetSummary]) -> Total {
        let last_ns = overview.end_ns;
        let gone = |s: &Summary| matches!(s.target.ended, Some((at, TargetEnd::Exited)) if at + LATE_NS < last_ns);
        let there: Vec<&TargetSummary> = targets.iter().filter(|t| !gone(&t.summary)).collect();
        let there = if there.is_empty() { targets.iter().collect() } else { there };

        let is_recent = |t: &Together| t.frame.time_ns + TOGETHER_NS >= self.last_pages_ns;
        let once = self.together.filter(|t| is_recent(t) && (t.is_of(&there) || t.says_fewer_pages(&there)));
        let ages: Vec<&PageAges> = match &once {
            Some(t) => std::iter::once(&t.frame.ages).chain(t.of_later(&there, &self.known)).collect(),
            None => there.iter().filter_map(|t| t.ages.as_ref()).collect(),
        };
        // Where only regions are known, no target has pages, and none is waited for.
        let waited_for = there.iter().filter(|t| !ages.is_empty() && t.ages.is_none());
        let unknown: Vec<PageAges> = waited_for.filter_map(|t| unknown(&self.footprints, t)).collect();
        let figures = PageFigures::of(ages.into_iter().chain(&unknown));
        let (working_set, idle) = match &figures {
            Some(f) => (WorkingSet::of_pages(&values(self.moments.finish()), f.windows()), f.idle()),
            None => (WorkingSet::of_regions(&values(self.regions.finish())), idle(&there)),
        };
        let one = there.len() == 1;
        Total {
            targets: there.len(),
            working_set,
            idle,
            pages: figures.map(|f| f.resident()),
            resident: resident(there.iter().filter_map(|t| self.footprints.get(&number(t))), self.highest),
            shared: if one || once.is_some() { Shared::CountedOnce } else { Shared::CountedForEachTarget },
            cost: there.iter().find_map(|t| t.summary.cost),
        }
    }
}

/// What was last known of all targets together. Records do not tell who they were.
#[derive(Debug)]
struct Together {
    frame: TogetherFrame,
    /// Targets that had not ended then.
    living: HashSet<u32>,
    /// Of these, those of whose pages ages were known.
    known: HashSet<u32>,
}

impl Together {
    /// Whether none but targets that are `there` can be in it.
    fn is_of(&self, there: &[&TargetSummary]) -> bool {
        let there: HashSet<u32> = there.iter().map(|t| number(t)).collect();
        self.living.is_subset(&there) || self.frame.targets as usize <= self.known.intersection(&there).count()
    }

    /// Whether it says fewer pages, with those of targets that have ended, than the sum for those that are `there`, in which shared pages
    /// count for each. Both say too many: forks that come and go share nearly all of their pages.
    fn says_fewer_pages(&self, there: &[&TargetSummary]) -> bool {
        let sum: u64 = there.iter().filter_map(|t| t.ages.as_ref()).map(|ages| ages.resident).sum();
        self.frame.ages.resident <= sum
    }

    /// The pages of those that are `there` and not in it, for which they came too late, or had ended before. Nothing
    /// of theirs is known to be others'.
    fn of_later<'a>(&self, there: &[&'a TargetSummary], known: &HashMap<u32, u64>) -> Vec<&'a PageAges> {
        let later = |t: &&'a TargetSummary| Some((*known.get(&number(t))?, t.ages.as_ref()?));
        let (in_it, not): (Vec<&&TargetSummary>, _) = there.iter().partition(|t| self.known.contains(&number(t)));
        let mut later: Vec<(u64, &PageAges)> = not.into_iter().filter_map(later).collect();
        later.sort_by_key(|(since_ns, _)| *since_ns);
        // It may know somebody whose own figures came only after it: who came first.
        let early = (self.frame.targets as usize).saturating_sub(in_it.len());
        later.into_iter().skip(early).map(|(_, ages)| ages).collect()
    }
}

fn number(target: &TargetSummary) -> u32 {
    target.summary.target.info.target
}

/// What there is of a target that was not walked twice: pages of which nothing is known yet.
fn unknown(footprints: &HashMap<u32, Footprint>, target: &TargetSummary) -> Option<PageAges> {
    let footprint = footprints.get(&number(target))?;
    Some(PageAges { resident: footprint.rss / PAGE_SIZE, ..PageAges::default() })
}

fn values(points: Vec<Point>) -> Vec<u64> {
    points.into_iter().map(|p| p.value).collect()
}

fn idle(targets: &[&TargetSummary]) -> Idle {
    let mut all = targets.iter().map(|t| t.summary.idle);
    let mut sum = all.next().unwrap_or_else(Idle::nothing);
    all.for_each(|i| sum.add(&i));
    sum
}

fn resident<'a>(footprints: impl Iterator<Item = &'a Footprint>, highest: u64) -> Option<Resident> {
    footprints.fold(None, |sum: Option<Resident>, f| {
        let before = sum.unwrap_or(Resident { last: 0, highest, vsz: 0, swap: None });
        let swap = before.swap.map_or(f.swap, |s| Some(s + f.swap.unwrap_or(0)));
        Some(Resident { last: before.last + f.rss, vsz: before.vsz + f.vsz, swap, ..before })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::Summaries;
    use crate::testdata::{BASE_NS, MIB, paged_record, together};

    fn at(second: u64) -> u64 {
        BASE_NS + second * NS_PER_S
    }

    fn total(events: &Vec<Event>) -> Total {
        let overview = Overview::read(events).expect("has snapshots");
        let all = overview.select(None).expect("all");
        Summaries::read(events, &overview, &all).expect("has snapshots").total
    }

    /// Keeps of the second target what was between two moments.
    fn keep_second(events: &mut Vec<Event>, from_ns: u64, to_ns: u64) {
        events.retain(|e| match e {
            Event::Snapshot(s) if s.target == 1 => s.end_ns > from_ns && s.end_ns <= to_ns,
            Event::Pages(f) if f.target == 1 => f.time_ns > from_ns && f.time_ns <= to_ns,
            Event::Footprint(f) if f.target == 1 => f.time_ns > from_ns && f.time_ns <= to_ns,
            _ => true,
        });
    }

    /// Puts an event where the pages of a second have been told.
    fn put(events: &mut Vec<Event>, second: u64, event: Event) {
        let after = |e: &Event| matches!(e, Event::Pages(f) if f.time_ns > at(second + 1));
        let index = events.iter().position(after).unwrap_or(events.len());
        events.insert(index, event);
    }

    /// So many targets that share nothing.
    fn unshared(targets: u32, second: u64) -> Event {
        let mut event = together(targets, second);
        if let Event::Together(f) = &mut event {
            let one = f.ages.clone();
            (1..targets).for_each(|_| f.ages.add(&one));
        }
        event
    }

    fn end(target: u32, time_ns: u64) -> Event {
        Event::End { time_ns, target, why: TargetEnd::Exited }
    }

    #[test]
    fn who_has_ended_is_not_counted_though_all_were_counted_together_lately() {
        let mut events = paged_record(2, 30);
        keep_second(&mut events, 0, at(20));
        put(&mut events, 19, end(1, at(20)));
        put(&mut events, 17, unshared(2, 17));
        let t = total(&events);
        let pages = t.pages.expect("page by page");
        assert_eq!((t.targets, t.shared, pages.resident), (1, Shared::CountedOnce, 83 * MIB));
        assert_eq!(t.resident.map(|r| (r.last, r.highest)), Some((77 * MIB, 154 * MIB)));
        // Nobody had noticed yet that it has ended, but it was not counted any more.
        put(&mut events, 17, together(1, 17));
        assert_eq!(total(&events).pages, Some(pages));
        // Of three, two are left: what they share is not known.
        let mut events = paged_record(3, 30);
        keep_second(&mut events, 0, at(20));
        put(&mut events, 19, end(1, at(20)));
        put(&mut events, 17, unshared(3, 17));
        let t = total(&events);
        assert_eq!((t.targets, t.shared), (2, Shared::CountedForEachTarget));
        assert_eq!(t.pages.map(|p| p.resident), Some(2 * 83 * MIB));
        put(&mut events, 22, together(2, 22));
        let t = total(&events);
        assert_eq!((t.shared, t.pages.map(|p| p.resident)), (Shared::CountedOnce, Some(83 * MIB)));
        // Forks share all of it: what was counted once is nearer to the truth than the sum, though one of them has ended.
        let mut forks = paged_record(3, 30);
        keep_second(&mut forks, 0, at(20));
        put(&mut forks, 19, end(1, at(20)));
        put(&mut forks, 17, together(3, 17));
        let t = total(&forks);
        assert_eq!((t.shared, t.pages.map(|p| p.resident)), (Shared::CountedOnce, Some(83 * MIB)));
    }

    #[test]
    fn who_came_after_all_were_counted_together_is_counted() {
        let mut events = paged_record(2, 30);
        keep_second(&mut events, at(20), u64::MAX);
        let alone = total(&events).pages.expect("page by page");
        put(&mut events, 17, together(1, 17));
        let t = total(&events);
        assert_eq!((t.targets, t.shared, t.pages), (2, Shared::CountedOnce, Some(alone)));
        // It was looked at often enough to be counted, and told of a little later.
        let pos = events.iter().position(|e| matches!(e, Event::Together(_))).expect("is there");
        events[pos] = unshared(2, 17);
        assert_eq!(total(&events).pages.map(|p| p.resident), Some(2 * 83 * MIB));
    }

    #[test]
    fn resident_memory_is_that_of_the_targets_that_are_counted() {
        let mut events = paged_record(4, 12);
        events.extend((0..4).map(|target| end(target, at(12))));
        let t = total(&events);
        let r = t.resident.expect("counted");
        assert_eq!((t.targets, t.pages.map(|p| p.resident)), (4, Some(4 * 83 * MIB)));
        assert_eq!((r.last, r.highest, r.vsz, r.swap), (4 * 77 * MIB, 4 * 77 * MIB, 4 * 83 * MIB, Some(0)));
        // One that takes the place of another that has just ended: both are counted, though never at once.
        let mut events = paged_record(2, 12);
        events.retain(|e| !matches!(e, Event::Footprint(f) if (f.target == 0) == (f.time_ns > at(11))));
        put(&mut events, 10, end(0, at(11)));
        let r = total(&events).resident.expect("counted");
        assert_eq!((r.last, r.highest), (2 * 77 * MIB, 77 * MIB));
    }
}
