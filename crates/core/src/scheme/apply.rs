//! One turn of one scheme: whether it may act at all, and how work gets to the actuator. What is acted on is decided by
//! page (`by_page`) or by region (`by_region`).

use super::action::Action;
use super::idle::{IdleReason, obstacle};
use super::runner::Runner;
use super::tally::Tally;
use super::target_view::TargetView;
use crate::actuator::{Actuator, Request};
use crate::addr::{AddrRange, PAGE_SIZE, total_len};
use crate::meter::{LiveTarget, Meter};
use crate::source::AccessSource;
use crate::target::TargetId;
use crate::trace::{TraceEvent, Tracer};
use std::collections::{BTreeMap, BTreeSet};

/// Memory looked at page by page in one turn, at most: so that sampling stays on time.
pub(super) const LOOK_PER_TURN: u64 = 1 << 30;
/// Memory looked at in one go.
pub(super) const LOOK_AT_ONCE: u64 = 64 << 20;
/// With more than this handed over and not finished, nothing more is: proof that a page is cold does not keep for long.
const MOST_PENDING: u64 = 128 << 20;

/// No limit.
pub(super) const ALL_ADDRESSES: AddrRange = AddrRange { start: 0, end: u64::MAX };

/// What a turn may use.
pub(super) struct World<'a> {
    pub targets: &'a BTreeMap<TargetId, TargetView>,
    pub live: &'a [LiveTarget],
    pub actuator: &'a mut dyn Actuator,
    pub meter: &'a mut dyn Meter,
    pub source: Option<&'a mut (dyn AccessSource + 'a)>,
    pub tracer: &'a mut (dyn Tracer + 'a),
    pub now_ns: u64,
    pub dry_run: bool,
    /// Whether the monitor's algorithm is DAMON's: then regions decide, as in DAMOS.
    pub by_region: bool,
}

/// Whether to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Go {
    On,
    /// The quota, the time or the actuator has no more room; the next turn goes on at this place.
    Stop,
}

/// One turn of one scheme.
pub(super) struct Turn<'a, 'w> {
    index: usize,
    pub runner: &'a mut Runner,
    pub world: &'a mut World<'w>,
    pub tally: Tally,
}

impl<'a, 'w> Turn<'a, 'w> {
    pub fn new(index: usize, runner: &'a mut Runner, world: &'a mut World<'w>) -> Self {
        Self { index, runner, world, tally: Tally::default() }
    }

    /// Goes through all targets; tells what held the scheme back, if anything did.
    pub fn run(mut self) -> Option<IdleReason> {
        if let Some(reason) = self.runner.watermarks.reason() {
            return Some(reason);
        }
        if self.world.live.is_empty() {
            let group = self.runner.scheme.group.clone().filter(|_| !self.world.targets.is_empty());
            return Some(group.map_or(IdleReason::NoTarget, IdleReason::NotInGroup));
        }
        if let Some(reason) = self.brake() {
            return Some(reason);
        }
        if self.by_block() && self.world.source.is_none() {
            return Some(IdleReason::NoPageHistory { targets: None });
        }
        // The page history is there without regions.
        if !self.by_page() && !self.by_block() && self.members().all(|t| t.snapshot.is_none()) {
            return Some(IdleReason::NoSnapshot);
        }
        let (open, first_obstacle) = self.open_targets();
        if open.is_empty() {
            return first_obstacle;
        }
        if !self.runner.quota.goals.is_empty() {
            let (out, back) = self.runner.effect.since(self.runner.patience.changed_ns());
            self.runner.patience.judge(self.world.now_ns, out, back);
        }
        let under_way = self.runner.in_flight();
        if self.runner.quota.turn(self.world.now_ns, under_way, self.world.meter, self.world.live) {
            let quota = &self.runner.quota;
            if quota.spec.is_limited() {
                let (scheme, esz) = (self.index as u32, quota.effective());
                self.world.tracer.trace(&TraceEvent::EffectiveQuota { context: 0, scheme, esz });
            }
            self.cut_pages(&open);
            self.runner.cut_off = self.cut_off(&open);
        }
        if self.runner.quota.left() == 0 {
            // Where nothing came of what was charged, it matters more why.
            return Some(self.runner.refused.clone().map_or_else(|| self.quota_reason(), IdleReason::Refused));
        }
        if self.world.actuator.pending(self.index) > MOST_PENDING {
            return Some(IdleReason::Busy);
        }
        if self.by_block() {
            self.all_blocks(&open);
        } else if self.by_page() {
            self.all_pages(&open);
        } else {
            self.all_regions(&open);
        }
        self.runner.quota.too_little_left |= self.tally.too_large;
        self.reason()
    }

    /// The targets that the scheme is for.
    fn members(&self) -> impl Iterator<Item = &'w TargetView> + use<'w> {
        let (targets, live) = (self.world.targets, self.world.live);
        live.iter().filter_map(move |live| targets.get(&live.target))
    }

    fn brake(&mut self) -> Option<IdleReason> {
        let (now, effect) = (self.world.now_ns, *self.runner.effect.effect());
        let brake = self.runner.brake.as_mut()?;
        let (cause, until) = brake.check(now, &effect, self.world.meter, self.world.live)?;
        Some(IdleReason::Brake { cause, left_ns: until.saturating_sub(now) })
    }

    /// The targets that the action is possible for, and why it is not for the first of the others.
    fn open_targets(&mut self) -> (BTreeSet<TargetId>, Option<IdleReason>) {
        let action = self.runner.scheme.action;
        let mut first = None;
        let mut open = BTreeSet::new();
        for t in self.members() {
            match self.world.actuator.obstacle(action, t.live) {
                None => {
                    open.insert(t.live.target);
                }
                Some(text) => first = first.or_else(|| Some(obstacle(action, &text))),
            }
        }
        (open, first)
    }

    /// Whether the victims are blocks, by the page history.
    fn by_block(&self) -> bool {
        self.runner.scheme.used_within_ns > 0
    }

    fn quota_reason(&self) -> IdleReason {
        let quota = &self.runner.quota;
        if let Some(e) = quota.goals.iter().find_map(|g| g.error.as_ref()) {
            return IdleReason::Meter(e.to_string());
        }
        if quota.is_room_used_up() {
            return IdleReason::RoomUsed;
        }
        if !quota.is_used_up() {
            return IdleReason::PaceUsed;
        }
        if quota.effective() < PAGE_SIZE && !quota.goals.is_empty() {
            let score = quota.goals.iter().filter_map(|g| g.score()).max();
            return score.map_or(IdleReason::GoalUnknown, |score| IdleReason::GoalMet { score });
        }
        IdleReason::QuotaUsed { effective: quota.effective() }
    }

    pub(super) fn submit(&mut self, t: &TargetView, ranges: Vec<AddrRange>) -> Go {
        let has_room = self.world.actuator.pending(self.index) <= MOST_PENDING;
        if has_room {
            self.trace(t, &ranges);
        }
        let bytes = total_len(&ranges);
        let (scheme, now, target) = (&self.runner.scheme, self.world.now_ns, t.live.target);
        let request = Request {
            scheme: self.index,
            target: t.live,
            action: scheme.action,
            ranges: ranges.clone(),
            destinations: scheme.destinations.clone(),
        };
        if !has_room || self.world.actuator.submit(request).is_err() {
            self.tally.busy = true;
            return Go::Stop;
        }
        self.runner.asked_idle_ns = self.runner.idle_ns(self.world.by_region);
        // A dry run counts everything once. What goes page by page is seen to have gone once that is finished.
        let left_out = self.runner.left_out.entry(target).or_default();
        let once = self.world.dry_run || scheme.used_within_ns > 0;
        if once || (scheme.action != Action::Stat && !scheme.action.harms_hot_pages()) {
            left_out.treat(&ranges, now);
        } else if scheme.action.harms_hot_pages() {
            ranges.iter().for_each(|&r| left_out.in_flight.insert(r));
        }
        self.runner.quota.charge(bytes);
        self.runner.stats.nr_tried += 1;
        self.runner.stats.sz_tried += bytes;
        self.tally.submitted += bytes;
        Go::On
    }

    /// Forgets what was treated in `target` long enough ago.
    pub(super) fn expire(&mut self, target: TargetId) {
        let (keep_ns, share) = (self.runner.keep_treated_ns(self.world.dry_run), self.runner.quota.share());
        if let Some(left_out) = self.runner.left_out.get_mut(&target) {
            left_out.expire(self.world.now_ns, keep_ns, share);
        }
    }

    /// Tells what is about to be done, with the figures of the region that each range begins in.
    fn trace(&mut self, t: &TargetView, ranges: &[AddrRange]) {
        let regions = t.snapshot.as_ref().map_or(&[][..], |s| &s.regions);
        for range in ranges {
            let region = regions.get(regions.partition_point(|r| r.end <= range.start));
            let region = region.filter(|r| r.start <= range.start);
            let event = TraceEvent::BeforeApply {
                context: 0,
                scheme: self.index as u32,
                target: t.live.target.into(),
                start: range.start,
                end: range.end,
                nr_accesses: region.map_or(0, |r| r.nr_accesses),
                age: region.map_or(0, |r| r.age),
                nr_regions: regions.len() as u32,
            };
            if !self.world.tracer.trace(&event) {
                break;
            }
        }
    }

    fn reason(&mut self) -> Option<IdleReason> {
        if self.tally.submitted > 0 {
            return self.runner.refused.clone().map(IdleReason::Refused);
        }
        if self.tally.known > 0 && self.tally.idle == 0 {
            // Nothing has changed since the last turn.
            return self.runner.idle.take();
        }
        Some(match (self.tally.why_nothing(self.runner.quota.effective()), &self.runner.refused) {
            // It is left alone as what was treated is, but nothing was done to it.
            (IdleReason::DoneAlready, Some(why)) => IdleReason::Refused(why.clone()),
            (reason, _) => reason,
        })
    }
}
