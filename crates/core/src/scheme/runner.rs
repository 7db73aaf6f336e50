//! A scheme with its state: quota, watermarks, brake, figures, and what it leaves out for now.

use super::Scheme;
use super::action::Action;
use super::brake::Brake;
use super::effect::EffectTracker;
use super::idle::IdleReason;
use super::left_out::LeftOut;
use super::patience::Patience;
use super::quota::Quota;
use super::stats::SchemeStats;
use super::supply::Supply;
use super::watermark::WatermarkWatch;
use crate::actuator::Outcome;
use crate::addr::total_len;
use crate::mask::{NO_PAGES, PageMask};
use crate::pages::PageSet;
use crate::source::AccessSource;
use crate::target::TargetId;
use std::collections::HashMap;

/// Until something that lasts is done again, ns: memory that is mapped anew at the same place has lost it.
const RETRY_NS: u64 = 10_000_000_000;

/// A scheme at work.
#[derive(Debug)]
pub(super) struct Runner {
    pub scheme: Scheme,
    pub quota: Quota,
    pub watermarks: WatermarkWatch,
    pub brake: Option<Brake>,
    pub effect: EffectTracker,
    pub patience: Patience,
    pub stats: SchemeStats,
    pub left_out: HashMap<TargetId, LeftOut>,
    /// Idle pages that the quota could be spent on.
    pub supply: Supply,
    /// For how long pages had been idle at least that were asked for last, ns.
    pub asked_idle_ns: u64,
    /// The lowest priority of a region that is served in this quota window.
    pub cut_off: u32,
    pub idle: Option<IdleReason>,
    /// What the system said of the last work, if nothing of it was done.
    pub refused: Option<String>,
    /// When the next turn is due; `None`: at every aggregation interval.
    next_apply_ns: Option<u64>,
    base: Option<Base>,
}

/// Counters as they were when the scheme began.
#[derive(Debug, Clone, Copy)]
struct Base {
    major_faults: Option<u64>,
    stall_us: Option<u64>,
}

impl Runner {
    pub fn new(scheme: Scheme) -> Self {
        Self {
            quota: Quota::new(scheme.quota.clone()),
            watermarks: WatermarkWatch::new(scheme.watermarks),
            brake: scheme.brake.map(Brake::new),
            effect: EffectTracker::default(),
            patience: Patience::default(),
            stats: SchemeStats::default(),
            left_out: HashMap::new(),
            supply: Supply::default(),
            next_apply_ns: (scheme.apply_ns > 0).then_some(0),
            asked_idle_ns: 0,
            cut_off: 0,
            idle: Some(IdleReason::NoSnapshot),
            refused: None,
            base: None,
            scheme,
        }
    }

    /// Goes on where `old`, which had the same action, ended.
    pub(crate) fn learn_from(&mut self, old: Self) {
        self.quota.follow(old.quota);
        (self.effect, self.stats, self.base, self.patience) = (old.effect, old.stats, old.base, old.patience);
        (self.left_out, self.asked_idle_ns) = (old.left_out, old.asked_idle_ns);
        if let (Some(brake), Some(old)) = (&mut self.brake, old.brake) {
            brake.follow(old);
        }
        if self.scheme.watermarks == old.scheme.watermarks {
            self.watermarks = old.watermarks;
        }
        // Another pattern may want what the old one passed over.
        self.left_out.values_mut().for_each(LeftOut::look_anew);
    }

    /// When its next turn is due, if not at every aggregation interval.
    pub(crate) const fn next_apply_ns(&self) -> Option<u64> {
        self.next_apply_ns
    }

    /// Whether its turn has come; `aggregated`: an aggregation interval has just ended. There are no more turns than samples, as
    /// in DAMOS: `sample_ns` apart at least.
    pub(crate) fn is_due(&mut self, now_ns: u64, aggregated: bool, sample_ns: u64) -> bool {
        let every_ns = self.scheme.apply_ns.max(sample_ns);
        match &mut self.next_apply_ns {
            None => aggregated,
            Some(next) if now_ns < *next => false,
            Some(next) => {
                // A turn that came late is not made up for.
                *next = (*next + every_ns).max(now_ns + every_ns / 2);
                true
            }
        }
    }

    /// Forgets a target that has gone or runs another program.
    pub(crate) fn drop_target(&mut self, target: TargetId) {
        self.effect.forget(target);
        self.left_out.remove(&target);
    }

    /// Whether regions tell where the victims lie; `by_region`: the monitor's algorithm is DAMON's.
    pub(crate) fn is_regional(&self, by_region: bool) -> bool {
        !self.scheme.chooses_pages(by_region)
    }

    /// For how long a page must have been idle before it is touched, ns; 0: that does not matter.
    pub(crate) fn idle_ns(&self, by_region: bool) -> u64 {
        let age_ns = if self.is_regional(by_region) { 0 } else { self.scheme.pattern.age_us.min.saturating_mul(1000) };
        age_ns.max(self.patience.stretch(self.scheme.confirm_ns))
    }

    /// The shortest age of a page that it asks about, ns; 0: none.
    pub(crate) fn asked_ns(&self, by_region: bool) -> u64 {
        if self.scheme.used_within_ns > 0 { self.scheme.used_within_ns } else { self.idle_ns(by_region) }
    }

    /// For how long what was treated is let be, ns.
    pub(crate) fn keep_treated_ns(&self, dry_run: bool) -> u64 {
        // A dry run counts each byte once.
        let counts = self.scheme.action == Action::Stat && self.scheme.used_within_ns > 0;
        if dry_run || counts {
            return u64::MAX;
        }
        // What lasts is not done again in every turn, nor is what could not be collapsed or moved tried again.
        let stays = self.scheme.action.lasts() || self.scheme.action == Action::MigrateCold;
        let least_ns = if stays { RETRY_NS } else { 0 };
        self.scheme.pattern.age_us.min.saturating_mul(1000).max(least_ns).max(self.scheme.used_within_ns)
    }

    /// Work that was handed over and is not finished, bytes.
    pub(crate) fn in_flight(&self) -> u64 {
        self.left_out.values().map(|left_out| left_out.in_flight.len()).sum()
    }

    /// Pages below the table at `base` that are not to be asked for now.
    pub(crate) fn leaves_out(&self, target: TargetId, base: u64) -> PageMask {
        self.left_out.get(&target).map_or(NO_PAGES, |l| l.mask(base))
    }

    /// Takes in what became of a piece of work. `source`: where pages that were to go can be looked for.
    pub fn finished(&mut self, outcome: &Outcome, source: Option<&mut dyn AccessSource>, now_ns: u64) {
        let request = &outcome.request;
        let (target, ranges) = (request.target.target, PageSet::of(&request.ranges));
        let asked = total_len(&request.ranges);
        self.quota.learn(asked, outcome.took_ns);
        self.stats.action_ns += outcome.took_ns;
        self.stats.nr_applied += outcome.nr_applied;
        // Nothing is kept for a target that has gone meanwhile.
        let mut left_out = self.left_out.get_mut(&target);
        if let Some(left_out) = &mut left_out {
            left_out.in_flight.subtract(&ranges);
        }
        let mut applied = outcome.applied;
        if let Some(source) = source.filter(|_| request.action == Action::PageOut) {
            match self.effect.paged_out(source, target, &ranges, (outcome.done_ns.min(now_ns), self.asked_idle_ns)) {
                Ok(gone) => {
                    applied = gone.len();
                    // What stayed although it was to go is not asked for again at once.
                    let mut stayed = ranges;
                    stayed.subtract(&gone);
                    if let Some(left_out) = &mut left_out {
                        stayed.ranges().into_iter().for_each(|range| left_out.stuck.insert(range, now_ns));
                    }
                }
                Err(_) => self.effect.forget(target),
            }
        }
        if let Some(left_out) = left_out.filter(|_| request.action == Action::MigrateCold) {
            // It is still there and still cold, and would be moved again and again at the cost of the quota.
            left_out.treat(&request.ranges, now_ns);
        }
        self.stats.sz_applied += applied;
        self.refused = if applied == 0 { outcome.error.clone() } else { None };
    }

    /// Its figures. `faults`, `stall_us`: the counters now, where they are known.
    pub fn stats(&mut self, faults: Option<u64>, stall_us: Option<u64>) -> SchemeStats {
        let base = self.base.get_or_insert(Base { major_faults: faults, stall_us });
        // Not every reader asks for all of them.
        (base.major_faults, base.stall_us) = (base.major_faults.or(faults), base.stall_us.or(stall_us));
        let base = *base;
        let since = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        // A target that ended takes its count along; what was seen until then stays.
        self.stats.major_faults = self.stats.major_faults.max(since(faults, base.major_faults));
        SchemeStats {
            qt_exceeds: self.quota.exceeds,
            effective_quota: Some(self.quota.effective()).filter(|&q| q != u64::MAX && self.quota.spec.is_limited()),
            effect: *self.effect.effect(),
            brake_pulled: self.brake.as_ref().map_or(0, |b| b.pulled()),
            stall_us: since(stall_us, base.stall_us),
            ..self.stats.clone()
        }
    }
}
