//! When the page history walks which target, and what it may clear: as often as asked for, as far as its share of the
//! budget goes. Targets that do not run need no walk.

mod savings;
mod schedule;
mod sums;

use super::targets::Target;
use crate::addr::PAGE_SIZE;
use crate::clock::Clock;
use crate::engine::{EngineError, emit};
use crate::event::{Event, Subscriber};
use crate::history::pages::PageHistory;
use crate::history::table::PAGES;
use crate::history::times::AGES_NS;
use crate::history::together::Mapped;
use crate::history::tracked::{CLEAR_NS, SLICE_NS, Tracked};
use crate::source::{AccessSource, SourceError};
use crate::space::pageable_ranges;
use crate::target::TargetId;
use savings::{ADVANCE_NS, Savings, TOGETHER_PART};
use schedule::{FRAME_NS, FRAME_PART, LONGEST_NS, Means, NEWEST, READ_PART, READ_PART_AT_FIRST, Schedule, wish_ns};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use sums::Sums;

pub(super) use savings::SHARE_AT_FIRST;

/// Within about this time there are to be figures for all memory: what cannot be cleared in it waits, and is estimated
/// from the rest, ns; ...
const FIRST_FIGURES_NS: f64 = 4e9;
/// ... of which there are to be so many page tables in each target.
const FIRST_TABLES: u64 = 4;
/// First walks come before second ones where all of them are done within this time, and no second walk is later, ns.
const FIRST_WALKS_NS: f64 = 8e9;
/// Until so large a part of all pages has figures nothing is set aside for what targets share, but for no longer than this,
/// ns. Where processes come and go there is always one without.
const FIGURES_FIRST_PART: f64 = 0.98;
const FIGURES_FIRST_NS: u64 = 45_000_000_000;
/// And not where so large a part of the pages is in forked targets: what each has is far off as long as pages count for each.
const FORKED_PART: f64 = 0.5;
/// What finding targets took beyond the budget is made up for when [`FIGURES_FIRST_PART`] has figures, or after this time, ns.
const MADE_UP_AFTER_NS: u64 = 60_000_000_000;
/// All targets together are reported where so large a part of their pages is in targets whose ages are known.
const KNOWN_PART: f64 = 0.9;
/// Looking for pages that they share is saved up for once so large a part of that is known, not long before.
const SAVES_FROM: f64 = 0.5;
/// How often pages that several targets map are looked for at most, ns; ...
const TOGETHER_NS: u64 = 2_000_000_000;
/// ... and where less than this part of all pages is in targets that have run since, after this part of the time that there have
/// been walks, or this time, ns: only ages change.
const CHANGED_PART: f64 = 0.05;
const UNCHANGED_PART: u64 = 4;
const UNCHANGED_NS: u64 = 300_000_000_000;
/// Walks of one turn end after this time, so that samples are not late, ns. Without regions there are none, and of thousands of targets
/// they may take as long as a turn is worth.
const TURN_NS: u64 = 10_000_000;
/// What a turn costs for each target, whether it is walked or not, ns, and the part of the walks' budget that this may
/// take: of thousands of targets turns are rarer, and several are walked in each.
const TURN_NS_PER_TARGET: f64 = 200.0;
const TURN_PART: f64 = 0.05;
/// What a page's walk costs until that is known, ns (0.18 ms a GiB), and a target's.
const READ_NS_PER_PAGE: f64 = 0.7;
const READ_NS_PER_TARGET: f64 = 150_000.0;
/// The largest sample step.
const MOST_ONE_IN: u32 = 1 << 12;

/// The walks of all targets.
#[derive(Debug, Default)]
pub(super) struct Walks {
    schedules: BTreeMap<TargetId, Schedule>,
    savings: Savings,
    /// Before this there is no turn, ns.
    rest_until_ns: u64,
    /// When what was spent too much will have been saved, ns.
    ready_ns: u64,
    /// When all targets together are reported next.
    together_ns: Option<u64>,
    /// When they were reported last, and how many pages are in targets walked since, each time counted.
    reported_ns: u64,
    walked_pages: u64,
    /// What a first walk costs, ns: a moving average; `None`: there was none.
    first_walk_ns: Option<f64>,
    /// When the first of all walks is due, as the last turn left them, ns; `None`: there was no turn.
    due_ns: Option<u64>,
}

impl Walks {
    /// Without regions (`alone`) the walks may take what nothing else does.
    pub fn new(alone: bool) -> Self {
        Self { savings: Savings::new(alone), ..Self::default() }
    }

    /// So much was spent on something else.
    pub fn others_spent(&mut self, ns: u64) {
        self.savings.others_spent(ns);
    }

    /// The part of `budget` (a share of a core) that is left for regions: also what walks could take and do not need.
    pub fn left(&self, budget: f64) -> f64 {
        self.savings.left(budget)
    }

    /// When the next walk is due and can be paid for; `None` if there is no target.
    pub fn next_ns(&self) -> Option<u64> {
        self.due_ns.filter(|_| !self.schedules.is_empty()).map(|due_ns| due_ns.max(self.ready_ns))
    }

    pub(crate) fn drop_target(&mut self, target: TargetId) {
        self.schedules.remove(&target);
    }

    /// Walks the targets whose time has come, [in turn](Schedule::turn), and hands out what it found. `budget`: share of a
    /// core for the whole monitor. Returns errors that concern one target.
    pub fn turn<S: AccessSource>(
        &mut self,
        tracked: &mut Tracked<S>,
        targets: &[Target],
        budget: Option<f64>,
        clock: &mut dyn Clock,
        subscriber: &mut dyn Subscriber,
    ) -> Result<Vec<SourceError>, EngineError> {
        let begin_ns = clock.now_ns();
        if begin_ns < self.rest_until_ns {
            return Ok(Vec::new());
        }
        self.follow(tracked, targets, begin_ns, clock);
        let sums = Sums::of(self.schedules.values(), self.savings.began_ns);
        self.savings.at_first = budget.is_some_and(|budget| sums.is_at_first(budget));
        let share = budget.map(|budget| self.savings.share(budget));
        let Sums { read_ns, read_all_ns, pages, .. } = sums;
        let wish_ns = wish_ns(tracked.shortest_age_ns()) as f64;
        let interval_ns = |share: f64| wish_ns.max(read_ns / (share * READ_PART_AT_FIRST)) * sums.stretch;
        let known_part = sums.known_part();
        let figures_first = known_part < KNOWN_PART * SAVES_FROM
            || self.savings.watched_ns() < FIGURES_FIRST_NS
                && known_part < FIGURES_FIRST_PART
                && sums.forked_part() < FORKED_PART;
        let together_ns = if targets.len() < 2 || figures_first { 0.0 } else { read_all_ns };
        self.savings.make_up(known_part >= FIGURES_FIRST_PART || self.savings.watched_ns() >= MADE_UP_AFTER_NS);
        self.savings.fill(budget, begin_ns, interval_ns, together_ns);
        // What an interval brings beyond reading is for all targets, whosever turn it is now.
        let clearing_ns = share.map_or(0.0, |share| share * interval_ns(share) - read_ns);
        let mut faults = Vec::new();
        let firsts_first = share.is_some_and(|share| self.firsts_first(share, begin_ns));
        let slice_ns = |s: &Schedule| s.price_ns().min(SLICE_NS as f64);
        // Of thousands that are due few are walked: no more of them are sorted.
        let (mut due, mut due_read_ns) = (Vec::new(), 0.0);
        for (i, s) in self.schedules.values().enumerate().filter(|(_, s)| s.due_ns <= begin_ns) {
            due.push(Reverse((s.turn(firsts_first), i)));
            due_read_ns += slice_ns(s);
        }
        let mut due = BinaryHeap::from(due);
        // So long are walks to take that looking at all targets is no more than its part of a turn.
        let worth_ns = targets.len() as f64 * TURN_NS_PER_TARGET / TURN_PART;
        let turn_ns = if self.savings.is_alone() { worth_ns.max(TURN_NS as f64) } else { TURN_NS as f64 };
        let (mut needed_ns, mut is_left, mut at_rest) = (0.0, false, Vec::new());
        while let Some(Reverse((_, i))) = due.pop() {
            let target = &targets[i];
            // What is to be spent has to be saved first.
            let Some(s) = self.schedules.get(&target.info.target) else { continue };
            needed_ns = slice_ns(s);
            if clock.now_ns() > begin_ns + turn_ns as u64 || share.is_some() && self.savings.saved_ns < needed_ns {
                is_left = true;
                break;
            }
            let means = share.map(|share| {
                let spare_ns = clearing_ns.max(self.savings.saved_ns - due_read_ns);
                let spare = s.needs().share_of(sums.needs, spare_ns);
                let most_ns = self.savings.saved_ns - needed_ns + self.savings.advance_ns(share);
                Means { share, read_ns, pages, spare: spare.at_most(most_ns), many_firsts: !firsts_first }
            });
            due_read_ns -= needed_ns;
            let rests = self.rest(tracked, target, means, clock);
            let complete = if rests { Ok(true) } else { self.walk(tracked, target, means, clock) };
            match complete {
                Ok(true) => self.frame(tracked, target, clock, subscriber)?,
                Ok(false) => {}
                Err(fault) => faults.push(fault),
            }
            if rests {
                at_rest.push((target, means));
            }
        }
        if !is_left {
            self.clear_at_rest(tracked, &at_rest, begin_ns + turn_ns as u64, clock, &mut faults);
        }
        self.due_ns = if is_left { Some(begin_ns) } else { self.schedules.values().map(|s| s.due_ns).min() };
        self.together(tracked, targets, share, clock, subscriber)?;
        let debt_ns = (needed_ns - self.savings.saved_ns).max(0.0);
        let pause_ns = |ns: f64| share.map_or(0, |share| (ns / share.max(1e-6)).min(LONGEST_NS).ceil() as u64);
        let end_ns = clock.now_ns();
        self.rest_until_ns = end_ns + pause_ns(worth_ns.min(turn_ns));
        self.ready_ns = self.rest_until_ns.max(end_ns + pause_ns(debt_ns));
        Ok(faults)
    }

    /// Until `until_ns`, walks those of the targets `at_rest` of which much was left set, as far as what is saved goes: nobody else
    /// needs it now, and they may run again.
    fn clear_at_rest<S: AccessSource>(
        &mut self,
        tracked: &mut Tracked<S>,
        at_rest: &[(&Target, Option<Means>)],
        until_ns: u64,
        clock: &mut dyn Clock,
        faults: &mut Vec<SourceError>,
    ) {
        for &(target, means) in at_rest {
            let Some(s) = self.schedules.get(&target.info.target) else { continue };
            let spare_ns = self.savings.saved_ns - s.read_ns;
            if means.is_some() && spare_ns < 0.0 || clock.now_ns() > until_ns {
                break;
            }
            if s.is_worth_clearing(clock.now_ns()) {
                let spare = s.needs().share_of(s.needs(), spare_ns);
                let means = means.map(|means| Means { spare: spare.at_most(spare_ns), ..means });
                faults.extend(self.walk(tracked, target, means, clock).err());
            }
        }
    }

    /// Whether first walks come before second ones: where few are left. Else those few would wait until all others have
    /// been walked twice, and then for the time between their own first and second walk.
    fn firsts_first(&self, share: f64, now_ns: u64) -> bool {
        let (mut left_ns, mut late_ns) = (0.0, 0);
        for s in self.schedules.values() {
            match s.walks {
                0 => left_ns += self.first_walk_ns.unwrap_or(s.read_ns),
                1 if !s.rests => late_ns = late_ns.max(now_ns.saturating_sub(s.due_ns)),
                _ => {}
            }
        }
        left_ns <= share * FIRST_WALKS_NS && late_ns as f64 <= FIRST_WALKS_NS
    }

    /// Hands out the figures of all targets together if it is time.
    fn together<S: AccessSource>(
        &mut self,
        tracked: &mut Tracked<S>,
        targets: &[Target],
        share: Option<f64>,
        clock: &mut dyn Clock,
        subscriber: &mut dyn Subscriber,
    ) -> Result<(), EngineError> {
        let now_ns = clock.now_ns();
        let due_ns = *self.together_ns.get_or_insert(now_ns + TOGETHER_NS);
        if targets.len() < 2 || now_ns < due_ns {
            return Ok(());
        }
        let sums = Sums::of(self.schedules.values(), self.savings.began_ns);
        let has_changed = self.walked_pages as f64 > sums.pages as f64 * CHANGED_PART;
        let unchanged_ns = (self.savings.watched_ns() / UNCHANGED_PART).min(UNCHANGED_NS);
        if sums.known_part() < KNOWN_PART || !has_changed && now_ns < self.reported_ns + unchanged_ns {
            return Ok(());
        }
        let before_ns = spent(tracked);
        // Of many targets frames are expensive: their price is saved up.
        let samples = share.is_none() || self.savings.has_aside();
        let all: Vec<Mapped> = targets.iter().map(|t| (t.info.target, &t.mappings[..])).collect();
        let frame = if samples {
            // A target that has just ended is noticed when it is walked.
            tracked.together(&all).unwrap_or(None)
        } else {
            tracked.together_unshared(&all)
        };
        let cost_ns = (spent(tracked) - before_ns) as f64;
        let mut pause_ns = TOGETHER_NS;
        if samples && frame.is_some() {
            self.savings.spend_aside(cost_ns);
        } else {
            self.savings.spend(cost_ns);
            let paid_ns = share.map_or(0, |share| (cost_ns / (share * TOGETHER_PART)) as u64);
            pause_ns = pause_ns.max(paid_ns);
        }
        self.together_ns = Some(now_ns + pause_ns);
        let Some(frame) = frame else { return Ok(()) };
        (self.reported_ns, self.walked_pages) = (now_ns, 0);
        emit(subscriber, &Event::Together(frame))
    }

    /// Takes targets in and out: afterwards there are the schedules of `targets`, in their order.
    fn follow<S: AccessSource>(
        &mut self,
        tracked: &mut Tracked<S>,
        targets: &[Target],
        now_ns: u64,
        clock: &dyn Clock,
    ) {
        if targets.iter().map(|t| &t.info.target).eq(self.schedules.keys()) {
            return;
        }
        let there: BTreeSet<TargetId> = targets.iter().map(|t| t.info.target).collect();
        self.schedules.retain(|id, _| there.contains(id));
        for t in targets {
            self.schedules.entry(t.info.target).or_insert_with(|| expected(tracked, t, now_ns, clock));
        }
    }

    /// Whether a target need not be walked since it has not run.
    fn rest<S: AccessSource>(
        &mut self,
        tracked: &mut Tracked<S>,
        target: &Target,
        means: Option<Means>,
        clock: &dyn Clock,
    ) -> bool {
        let id = target.info.target;
        let Some(s) = self.schedules.get_mut(&id).filter(|s| s.walks > 0) else { return false };
        let before_ns = spent(tracked);
        let now_ns = clock.now_ns();
        // In any case: the walk that follows is to know from when on the target does not run.
        let has_not_run = tracked.rest(id, clock);
        s.rests = has_not_run && s.may_rest(target.footprint.map(|f| f.rss), now_ns);
        if s.rests {
            s.tells_ages |= tracked.page_history(id).is_some_and(PageHistory::tells_ages);
            s.put_off(means, wish_ns(tracked.shortest_age_ns()), now_ns);
        }
        self.savings.spend((spent(tracked) - before_ns) as f64);
        s.rests
    }

    /// Walks a target for a slice; whether its walk is complete. `means`: `None` where there is no budget.
    fn walk<S: AccessSource>(
        &mut self,
        tracked: &mut Tracked<S>,
        target: &Target,
        means: Option<Means>,
        clock: &mut dyn Clock,
    ) -> Result<bool, SourceError> {
        let id = target.info.target;
        let now_ns = clock.now_ns();
        let at_first = self.savings.at_first;
        let asked = tracked.shortest_age_ns();
        let wish_ns = wish_ns(asked);
        let Some(s) = self.schedules.get_mut(&id) else { return Ok(false) };
        if s.walk.spent_ns == 0.0 {
            s.begun_ns = now_ns;
        }
        // Of a target that has not run since it was found, the watch began then.
        let found_ns = if tracked.page_history(id).is_none() { tracked.rests_since(id, clock) } else { None };
        let history = tracked.history_mut(id, found_ns.unwrap_or(now_ns));
        if asked.is_none() && history.walks() == 0 {
            // First walks cost more than others: by the number of pages alone.
            let read_ns = |m: Means| m.pages as f64 * READ_NS_PER_PAGE;
            let interval_ns = means.map_or(0.0, |m| read_ns(m) / (m.share * READ_PART));
            let one_in = (interval_ns / LONGEST_NS).ceil().clamp(1.0, f64::from(MOST_ONE_IN)) as u32;
            history.set_one_in(one_in);
            s.read_ns /= f64::from(history.one_in());
        }
        if let Some(means) = means.filter(|_| history.walks() == 0) {
            let first_ns = means.pages as f64 * CLEAR_NS / f64::from(history.one_in());
            let begun_in = (first_ns / (means.share * FIRST_FIGURES_NS)).ceil() as u64;
            let tables = s.pages / PAGES as u64 / u64::from(history.one_in());
            history.set_begun_in(begun_in.min(tables / FIRST_TABLES).clamp(1, 1 << 16) as u32);
        }
        history.set_most_level(s.level);
        let mut allowance = s.allowance(means);
        if let Some(means) = means.filter(|_| history.walks() == 0) {
            // The first walk clears what figures are to be known of soon, as long as that does not cost much at once, and
            // no more: others wait for theirs.
            let begun_ns = s.pages as f64 * CLEAR_NS / f64::from(history.one_in()) / f64::from(history.begun_in());
            allowance.first_ns = begun_ns.min(means.share * ADVANCE_NS as f64);
        } else if s.walks > 0 {
            history.begin_more(s.unresolved, allowance.first_ns / CLEAR_NS);
        }
        // Of thousands, those that rest are known without that, and those left are not to wait for it.
        let only_reads = found_ns.is_some() && means.is_some_and(|m| m.many_firsts);
        let slice = tracked.walk(id, &pageable_ranges(&target.mappings), (!only_reads).then_some(allowance), clock)?;
        let cost_ns = slice.spent_ns as f64;
        if let Some(reading_ns) = slice.reading_ns {
            *s.walk.read_ns.get_or_insert(0.0) += reading_ns as f64;
        }
        self.savings.spend(cost_ns);
        s.walk.spent_ns += cost_ns;
        s.walk.cleared_ns += slice.cleared_ns;
        s.walk.first_ns += slice.first_ns;
        s.walk.refused_ns += slice.refused_ns;
        if !slice.complete {
            s.due_ns = now_ns;
            return Ok(false);
        }
        if let Some(history) = tracked.page_history(id) {
            s.learn_pages(history);
        }
        s.walked_rss = target.footprint.map(|f| f.rss).or(s.walked_rss);
        if s.walks == 0 {
            let spent_ns = s.walk.spent_ns;
            self.first_walk_ns = Some(self.first_walk_ns.map_or(spent_ns, |ns| ns + (spent_ns - ns) * NEWEST));
        }
        self.walked_pages += if s.rests { 0 } else { s.present };
        s.learn(means, wish_ns, asked.map_or(LONGEST_NS, |age| age as f64));
        s.rests |= found_ns.is_some() && s.tells_ages;
        match s.rests {
            true => s.put_off(means, wish_ns, clock.now_ns()),
            false => s.put_next(means, wish_ns, at_first, clock.now_ns()),
        }
        Ok(true)
    }

    /// Hands out a target's figures if it is time.
    fn frame<S: AccessSource>(
        &mut self,
        tracked: &mut Tracked<S>,
        target: &Target,
        clock: &mut dyn Clock,
        subscriber: &mut dyn Subscriber,
    ) -> Result<(), EngineError> {
        let id = target.info.target;
        let Some(s) = self.schedules.get_mut(&id) else { return Ok(()) };
        let Some(history) = tracked.page_history(id) else { return Ok(()) };
        // Rare enough not to cost more than its part.
        let pause_ns = FRAME_NS.max((FRAME_NS as f64 * s.frame_ns / (s.read_ns * FRAME_PART).max(1.0)) as u64);
        let now_ns = history.now_ns();
        // Before that there is no age to tell.
        if now_ns < history.begin_ns() + AGES_NS[0] {
            return Ok(());
        }
        if s.framed_ns.is_some_and(|last| now_ns + pause_ns / 8 < last + pause_ns) {
            return Ok(());
        }
        let before_ns = tracked.cost().monitor_ns;
        let mut frame = history.frame(id, &target.mappings, s.framed_ns);
        frame.forked = tracked.start(id).is_some_and(|start| start.forked);
        s.framed_ns = Some(clock.now_ns().min(frame.time_ns));
        emit(subscriber, &Event::Pages(frame))?;
        let cost_ns = (tracked.cost().monitor_ns - before_ns) as f64;
        self.savings.spend(cost_ns);
        s.frame_ns = if s.frame_ns == 0.0 { cost_ns } else { s.frame_ns + (cost_ns - s.frame_ns) * NEWEST };
        Ok(())
    }
}

/// The schedule of a target that has just come, which is due in the turn that begins at `now_ns`: what reading it costs is estimated.
fn expected<S: AccessSource>(tracked: &mut Tracked<S>, target: &Target, now_ns: u64, clock: &dyn Clock) -> Schedule {
    let id = target.info.target;
    let footprint = target.footprint.or_else(|| tracked.footprint(id, now_ns));
    let pages = footprint.map_or(0, |f| f.rss / PAGE_SIZE);
    let read_ns = READ_NS_PER_TARGET + READ_NS_PER_PAGE * pages as f64;
    let mut s = Schedule::new(now_ns);
    // From now on it is known whether it runs.
    tracked.rests_since(id, clock);
    s.walked_rss = footprint.map(|f| f.rss);
    (s.start, s.pages, s.read_ns) = (tracked.start(id), pages, read_ns);
    match tracked.page_history(id).filter(|h| h.walks() > 0) {
        Some(history) => s.learn_pages(history),
        None => (s.unresolved, s.present) = (pages, pages),
    }
    s
}

fn spent<S: AccessSource>(tracked: &Tracked<S>) -> u64 {
    tracked.cost().spent_ns()
}
