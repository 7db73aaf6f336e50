//! When the page history walks which target, and what it may clear: as often as asked for, as far as its share of the
//! budget goes.

use super::Target;
use super::emit;
use crate::addr::{AddrRange, PAGE_SIZE, normalize};
use crate::clock::Clock;
use crate::engine::EngineError;
use crate::event::{Event, Subscriber};
use crate::history::frame::AGES_NS;
use crate::history::table::{HIGHEST_LEVEL, PAGES};
use crate::history::together::Mapped;
use crate::history::tracked::{Allowance, CLEAR_NS, SLICE_NS, Tracked};
use crate::mapping::MappingKind;
use crate::source::{AccessSource, SourceError};
use crate::target::TargetId;
use std::collections::{BTreeMap, BTreeSet};

/// Time between walks where nobody asks about shorter ages and the budget pays for it, ns: the shortest window of a
/// working set.
const WISH_NS: u64 = 1_000_000_000;
/// And the shortest time between walks, however young the memory that somebody asks about, ns.
const SHORTEST_NS: u64 = 50_000_000;
/// Walks in the shortest age that somebody asks about.
const PER_AGE: u64 = 4;
/// Part of the CPU budget that walks may take; the rest is for regions.
const SHARE: f64 = 0.55;
/// The same while much has never been cleared: until then regions say little either.
pub(super) const SHARE_AT_FIRST: f64 = 0.75;
/// The same where there are no regions: at most this part, ...
const MOST_ALONE: f64 = 0.95;
/// ... and of the budget so much may be aimed at by what follows mappings and footprints, which takes a part of it.
const LEFT_ALONE: f64 = 0.5;
/// "Much": this part of the pages, unless it is cleared within [`FIRST_FIGURES_NS`] anyway.
const MUCH: f64 = 0.05;
/// Of pages that cannot be observed so large a part may soon be, since the source then clears all of a target at once.
const BLIND_PART: f64 = 0.25;
/// Part of the walks' budget that reading and reporting may take; the rest is for clearing.
const READ_PART: f64 = 0.4;
/// The same while much has never been cleared.
const READ_PART_AT_FIRST: f64 = 0.5;
/// Within about this time there are to be figures for all memory: what cannot be cleared in it waits, and is estimated
/// from the rest, ns; ...
const FIRST_FIGURES_NS: f64 = 4e9;
/// ... of which there are to be so many page tables in each target.
const FIRST_TABLES: u64 = 4;
/// Time between two frames of a target, ns, ...
const FRAME_NS: u64 = 1_000_000_000;
/// ... unless they cost more than this part of what reading costs.
const FRAME_PART: f64 = 0.5;
/// How often pages that several targets map are looked for, ns, and the part of the walks' budget that this may take.
const TOGETHER_NS: u64 = 2_000_000_000;
const TOGETHER_PART: f64 = 0.2;
/// Walks of one turn end after this time, so that samples are not late, ns.
const TURN_NS: u64 = 10_000_000;
/// Budget is saved up for so many times the time between two walks.
const SAVED: f64 = 1.5;
/// Of what walks do not need, so much is given to regions; over so long is seen what they need, ns.
const GIVEN: f64 = 0.4;
const RATE_NS: f64 = 5e9;
/// Of the budget so much is aimed at: what things cost is known only afterwards.
const AIM: f64 = 0.86;
/// What a start may take in advance, ns of its share.
const ADVANCE_NS: u64 = 250_000_000;
/// What a page's walk costs until that is known, ns (0.18 ms a GiB), and a target's.
const READ_NS_PER_PAGE: f64 = 0.7;
const READ_NS_PER_TARGET: f64 = 30_000.0;
/// Real over estimated price of clearing until that is known: rather too little is cleared than too much.
const DEARER: f64 = 1.3;
/// Of what the first walk costs, reading is at least this part.
const LEAST_READ: f64 = 0.2;
/// Less than this cleared tells nothing of its price, ns.
const ENOUGH_NS: f64 = 300_000.0;
/// Walks are put so many times further apart, or closer together, at once.
const STRETCH: f64 = 1.2;
/// Weight of the newest measurement in averages.
const NEWEST: f64 = 0.3;
/// Walks that would lie further apart are of a sample of the page tables, unless somebody asks about single pages, ns.
const LONGEST_NS: f64 = 10e9;
/// The second walk of a target comes at most so long after the first, ns: then it knows what was idle for 10 s.
const SECOND_NS: f64 = 10.3e9;
/// The largest sample step.
const MOST_ONE_IN: u32 = 1 << 12;

#[derive(Debug, Default)]
struct Schedule {
    /// When the next walk is due, ns.
    due_ns: u64,
    /// When the present walk, or the last one, began.
    begun_ns: u64,
    /// What reading costs, without clearing: the least of the last walks, ns; 0: not known.
    read_ns: f64,
    /// Pages that were resident before it was read for the first time.
    pages: u64,
    /// What a frame costs, ns.
    frame_ns: f64,
    /// When the last frame was drawn up.
    framed_ns: Option<u64>,
    /// Real over estimated price of clearing.
    dearer: f64,
    /// What the last complete walk would have cleared, had it been allowed to, ns; first clears not counted.
    demand_ns: f64,
    /// Complete walks.
    walks: u64,
    /// Sums over the slices of the present walk.
    walk: Spent,
    level: u8,
    /// Walks are so many times as far apart as reading alone would ask for: what changes from walk to walk must be
    /// cleared, too, and leaving it set would only put that off.
    stretch: f64,
}

/// What there is for walks.
#[derive(Debug, Clone, Copy)]
struct Means {
    /// Share of a core.
    share: f64,
    /// What reading all targets costs, ns.
    read_ns: f64,
    /// Pages of all targets, about.
    pages: u64,
    /// What this slice may spend beyond reading, ns.
    spare_ns: f64,
}

#[derive(Debug, Default, Clone, Copy)]
struct Spent {
    spent_ns: f64,
    cleared_ns: f64,
    first_ns: f64,
    refused_ns: f64,
}

/// The walks of all targets.
#[derive(Debug, Default)]
pub(super) struct Walks {
    schedules: BTreeMap<TargetId, Schedule>,
    /// Budget that is saved, ns; negative where more was spent.
    saved_ns: f64,
    filled_ns: Option<u64>,
    /// When what was spent too much will have been saved, ns.
    ready_ns: u64,
    /// Spent since the last fill, and a moving average of what is spent, in parts of a core; `None`: not known yet.
    recent_ns: f64,
    rate: Option<f64>,
    /// When all targets together are reported next, and when pages that several of them map are looked for.
    together_ns: Option<u64>,
    frames_ns: u64,
    /// Whether much was never cleared when the last turn began: then bits say little.
    at_first: bool,
    /// Where there are no regions: what all else takes.
    others: Option<Others>,
}

/// What is spent on something else than walks and regions: following mappings and footprints.
#[derive(Debug, Default)]
struct Others {
    /// Since the last fill, ns.
    recent_ns: f64,
    /// A moving average, in parts of a core.
    rate: f64,
}

impl Walks {
    /// Without regions (`alone`) the walks may take what nothing else does.
    pub fn new(alone: bool) -> Self {
        Self { others: alone.then(Others::default), ..Self::default() }
    }

    /// So much was spent on something else.
    pub fn others_spent(&mut self, ns: u64) {
        if let Some(others) = &mut self.others {
            others.recent_ns += ns as f64;
        }
    }

    /// The part of the CPU `budget` (a share of a core) that walks may take at present.
    fn share(&self, budget: f64) -> f64 {
        let share = if self.at_first { SHARE_AT_FIRST } else { SHARE };
        match &self.others {
            // Finding hundreds of processes is dear at first, and over soon.
            Some(others) => (1.0 - others.rate / budget).clamp(share, MOST_ALONE),
            None => share,
        }
    }

    /// The part of `budget` (a share of a core) that is left for regions: also what walks could take and do not need.
    pub fn left(&self, budget: f64) -> f64 {
        if self.others.is_some() {
            return LEFT_ALONE;
        }
        let share = self.share(budget);
        let needed = self.rate.map_or(share, |rate| rate / budget);
        AIM * (1.0 - share + (share - needed).max(0.0) * GIVEN)
    }

    /// When the next walk is due and can be paid for; `None` if there is no target.
    pub fn next_ns(&self) -> Option<u64> {
        self.schedules.values().map(|s| s.due_ns.max(self.ready_ns)).min()
    }

    pub(crate) fn drop_target(&mut self, target: TargetId) {
        self.schedules.remove(&target);
    }

    /// Walks the targets whose time has come, the longest due first, and hands out what it found. `budget`: share of a
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
        self.follow(targets, begin_ns);
        self.expect(tracked, targets, begin_ns);
        self.at_first = budget.is_some_and(|budget| self.is_at_first(tracked, budget));
        let share = budget.map(|b| b * AIM * self.share(b));
        let read_ns: f64 = self.schedules.values().map(|s| s.read_ns).sum();
        let pages = self.schedules.values().map(|s| s.pages).sum();
        self.fill(share, read_ns, tracked.shortest_age_ns(), begin_ns);
        let mut faults = Vec::new();
        let mut due: Vec<(u64, usize)> = targets
            .iter()
            .enumerate()
            .filter_map(|(i, t)| Some((self.schedules.get(&t.info.target)?.due_ns, i)))
            .filter(|(due_ns, _)| *due_ns <= begin_ns)
            .collect();
        due.sort_unstable();
        let slice_ns = |s: &Schedule| s.read_ns.min(SLICE_NS as f64);
        let mut due_read_ns: f64 =
            due.iter().filter_map(|(_, i)| self.schedules.get(&targets[*i].info.target)).map(slice_ns).sum();
        let (mut left, mut needed_ns) = (due.len(), 0.0);
        for (_, i) in due {
            let target = &targets[i];
            // What is to be spent has to be saved first.
            needed_ns = self.schedules.get(&target.info.target).map_or(0.0, slice_ns);
            if clock.now_ns() > begin_ns + TURN_NS || share.is_some() && self.saved_ns < needed_ns {
                break;
            }
            // What is left when all have been read is shared by those whose turn it is.
            let spare_ns = (self.saved_ns - due_read_ns).max(0.0) / left as f64;
            due_read_ns -= self.schedules.get(&target.info.target).map_or(0.0, slice_ns);
            left -= 1;
            let means = share.map(|share| Means { share, read_ns, pages, spare_ns });
            match self.walk(tracked, target, means, clock) {
                Ok(true) => self.frame(tracked, target, clock, subscriber)?,
                Ok(false) => {}
                Err(fault) => faults.push(fault),
            }
        }
        self.together(tracked, targets, share, clock, subscriber)?;
        let debt_ns = (needed_ns - self.saved_ns).max(0.0);
        self.ready_ns =
            share.map_or(0, |share| clock.now_ns() + (debt_ns / share.max(1e-6)).min(LONGEST_NS).ceil() as u64);
        Ok(faults)
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
        let before_ns = spent(tracked);
        let samples = now_ns >= self.frames_ns;
        let frame = if samples {
            let all: Vec<Mapped> = targets.iter().map(|t| (t.info.target, &t.mappings[..])).collect();
            // A target that has just ended is noticed when it is walked.
            tracked.together(&all).unwrap_or(None)
        } else {
            tracked.together_unshared(targets.iter().map(|t| t.info.target))
        };
        let cost_ns = spent(tracked) - before_ns;
        self.saved_ns -= cost_ns as f64;
        self.recent_ns += cost_ns as f64;
        let pause_ns = share.map_or(0, |share| (cost_ns as f64 / (share * TOGETHER_PART)) as u64);
        if samples {
            // Of many targets frames are dear.
            self.frames_ns = now_ns + pause_ns;
            self.together_ns = Some(now_ns + TOGETHER_NS);
        } else {
            self.together_ns = Some(now_ns + TOGETHER_NS.max(pause_ns));
        }
        match frame {
            Some(frame) => emit(subscriber, &Event::Together(frame)),
            None => Ok(()),
        }
    }

    /// Takes targets in and out.
    fn follow(&mut self, targets: &[Target], now_ns: u64) {
        let there: BTreeSet<TargetId> = targets.iter().map(|t| t.info.target).collect();
        self.schedules.retain(|id, _| there.contains(id));
        for t in targets {
            self.schedules.entry(t.info.target).or_insert_with(|| Schedule {
                due_ns: now_ns,
                dearer: DEARER,
                stretch: 1.0,
                ..Schedule::default()
            });
        }
    }

    /// What reading costs of targets that were not read yet.
    fn expect<S: AccessSource>(&mut self, tracked: &mut Tracked<S>, targets: &[Target], now_ns: u64) {
        for t in targets {
            let Some(s) = self.schedules.get_mut(&t.info.target).filter(|s| s.read_ns == 0.0) else { continue };
            let pages = tracked.footprint(t.info.target, now_ns).map_or(0, |f| f.rss / PAGE_SIZE);
            s.pages = pages;
            s.read_ns = READ_NS_PER_TARGET + READ_NS_PER_PAGE * pages as f64;
        }
    }

    /// Whether much has never been cleared, so much that it would take long with the usual share of `budget`.
    fn is_at_first<S: AccessSource>(&self, tracked: &Tracked<S>, budget: f64) -> bool {
        let (mut unresolved, mut blind, mut present) = (0, 0, 0);
        for (id, s) in &self.schedules {
            match tracked.page_history(*id).filter(|h| h.walks() > 0) {
                Some(history) => {
                    unresolved += history.learnt().unresolved;
                    blind += history.learnt().blind;
                    present += history.learnt().present;
                }
                None => {
                    unresolved += s.pages;
                    present += s.pages;
                }
            }
        }
        if blind as f64 > BLIND_PART * present as f64 {
            unresolved += blind;
        }
        let affordable = budget * AIM * SHARE * FIRST_FIGURES_NS / CLEAR_NS;
        unresolved as f64 > (MUCH * present as f64).max(affordable)
    }

    fn fill(&mut self, share: Option<f64>, read_ns: f64, asked_ns: Option<u64>, now_ns: u64) {
        let Some(filled_ns) = self.filled_ns else {
            // The first walks may begin at once, with what the next moments bring.
            self.filled_ns = Some(now_ns + ADVANCE_NS);
            self.saved_ns = share.map_or(0.0, |share| share * ADVANCE_NS as f64);
            return;
        };
        let since = now_ns.saturating_sub(filled_ns) as f64;
        self.filled_ns = Some(filled_ns.max(now_ns));
        if since > 0.0 {
            let rate = std::mem::take(&mut self.recent_ns) / since;
            let weight = (since / RATE_NS).min(1.0);
            self.rate = Some(self.rate.map_or(rate, |known| known + (rate - known) * weight));
            if let Some(others) = &mut self.others {
                others.rate += (std::mem::take(&mut others.recent_ns) / since - others.rate) * weight;
            }
        }
        let Some(share) = share else { return };
        let interval_ns = (wish_ns(asked_ns) as f64).max(read_ns / (share * READ_PART_AT_FIRST));
        let stretch = self.schedules.values().map(|s| s.stretch).fold(1.0, f64::max);
        self.saved_ns = (self.saved_ns + share * since).min(share * interval_ns * stretch * SAVED);
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
        let at_first = self.at_first;
        let asked = tracked.shortest_age_ns();
        let wish_ns = wish_ns(asked);
        let Some(s) = self.schedules.get_mut(&id) else { return Ok(false) };
        if s.walk.spent_ns == 0.0 {
            s.begun_ns = now_ns;
        }
        let history = tracked.history_mut(id, now_ns);
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
        // The first walk clears what figures are to be known of soon, as long as that does not cost much at once.
        let begun_ns = match means {
            Some(means) if history.walks() == 0 => {
                let begun_ns = s.pages as f64 * CLEAR_NS / f64::from(history.one_in()) / f64::from(history.begun_in());
                begun_ns.min(means.share * ADVANCE_NS as f64)
            }
            _ => 0.0,
        };
        let allowance = s.allowance(means, begun_ns);
        let before = spent(tracked);
        let slice = tracked.walk(id, &mapped(target), allowance, clock)?;
        let cost_ns = (spent(tracked) - before) as f64;
        self.saved_ns -= cost_ns;
        self.recent_ns += cost_ns;
        s.walk.spent_ns += cost_ns;
        s.walk.cleared_ns += slice.cleared_ns;
        s.walk.first_ns += slice.first_ns;
        s.walk.refused_ns += slice.refused_ns;
        if !slice.complete {
            s.due_ns = now_ns;
            return Ok(false);
        }
        s.learn(means, wish_ns, asked.map_or(LONGEST_NS, |age| age as f64));
        // Reading all targets may take its part of the budget, reporting included.
        let part = if at_first { READ_PART_AT_FIRST } else { READ_PART };
        let frames_ns = s.frame_ns * wish_ns as f64 / FRAME_NS as f64;
        let reading_ns = |m: Means| m.read_ns * (1.0 + (frames_ns / s.read_ns).min(FRAME_PART));
        let affordable_ns = means.map_or(0.0, |m| reading_ns(m) / (m.share * part));
        // The second walk is the first to tell ages: nobody waits long for it.
        let longest_ns = if s.walks == 1 { SECOND_NS } else { f64::INFINITY };
        let stretched_ns = s.stretch * affordable_ns.max(wish_ns as f64);
        let interval_ns = wish_ns.max(stretched_ns.min(longest_ns) as u64);
        // In step with the clock, so that windows of whole seconds hold whole walks; but the first ones of many targets
        // come one after the other, and the second of each is to come so long after it.
        let since_ns = if s.walks == 1 { s.begun_ns } else { s.due_ns };
        s.due_ns = (since_ns + interval_ns).max(clock.now_ns() + interval_ns / 2);
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
        let frame = history.frame(id, &target.mappings, s.framed_ns);
        s.framed_ns = Some(clock.now_ns().min(frame.time_ns));
        emit(subscriber, &Event::Pages(frame))?;
        let cost_ns = (tracked.cost().monitor_ns - before_ns) as f64;
        self.recent_ns += cost_ns;
        s.frame_ns = if s.frame_ns == 0.0 { cost_ns } else { s.frame_ns + (cost_ns - s.frame_ns) * NEWEST };
        self.saved_ns -= cost_ns;
        Ok(())
    }
}

impl Schedule {
    /// What the next slice may clear; of what was never cleared at least `begun_ns`.
    fn allowance(&self, means: Option<Means>, begun_ns: f64) -> Allowance {
        let Some(means) = means else { return Allowance::UNLIMITED };
        let ns = means.spare_ns / self.dearer;
        // What is known to be wanted comes before what nobody has looked at yet.
        Allowance { ns: ns.max(begun_ns), unresolved_ns: (ns - self.demand_ns).max(begun_ns) }
    }

    /// A walk is complete: learns its prices, and how much of what is used all the time is to be cleared by the next.
    /// They may be `longest_ns` apart.
    fn learn(&mut self, means: Option<Means>, wish_ns: u64, longest_ns: f64) {
        let walk = std::mem::take(&mut self.walk);
        let cleared_ns = walk.cleared_ns + walk.first_ns;
        // What reading costs: what is not for clearing, and never more than a walk in all.
        let first = self.walks == 0;
        self.walks += 1;
        let reading_ns = (walk.spent_ns - self.dearer * cleared_ns).max(walk.spent_ns * LEAST_READ);
        self.read_ns = if first { reading_ns } else { (self.read_ns * 1.02).min(walk.spent_ns) }.max(1.0);
        if cleared_ns > self.read_ns && cleared_ns > ENOUGH_NS {
            let dearer = ((walk.spent_ns - self.read_ns) / cleared_ns).clamp(0.1, 20.0);
            self.dearer += (dearer - self.dearer) * NEWEST;
        }
        self.demand_ns = walk.cleared_ns + walk.refused_ns;
        let Some(Means { share, read_ns, .. }) = means else {
            (self.level, self.stretch) = (0, 1.0);
            return;
        };
        // Its part of what an interval brings beyond the price of reading.
        let interval_ns = (wish_ns as f64).max(read_ns / (share * READ_PART));
        let affordable_ns = (share * interval_ns - read_ns).max(0.0) * self.read_ns / read_ns;
        let load = self.demand_ns * self.dearer / affordable_ns.max(1.0);
        let most = (longest_ns / interval_ns).max(1.0);
        match load / self.stretch {
            l if l > 0.8 && self.level < HIGHEST_LEVEL => self.level += 1,
            l if l > 0.8 => self.stretch = (self.stretch * STRETCH).min(most),
            l if l < 0.3 && self.stretch > 1.0 => self.stretch = (self.stretch / STRETCH).max(1.0),
            l if l < 0.3 => self.level = self.level.saturating_sub(1),
            _ => {}
        }
    }
}

/// The time between two walks that is wished for, where ages from `asked_ns` on are asked about.
fn wish_ns(asked_ns: Option<u64>) -> u64 {
    asked_ns.map_or(WISH_NS, |age| (age / PER_AGE).clamp(SHORTEST_NS, WISH_NS))
}

fn spent<S: AccessSource>(tracked: &Tracked<S>) -> u64 {
    let cost = tracked.cost();
    cost.monitor_ns + cost.target_ns
}

/// The addresses that can hold pages.
fn mapped(target: &Target) -> Vec<AddrRange> {
    let mut ranges: Vec<AddrRange> =
        target.mappings.iter().filter(|m| m.kind != MappingKind::Special).map(|m| m.range).collect();
    normalize(&mut ranges);
    ranges
}
