//! One turn of one scheme: from the targets' regions to work for the actuator.

use super::action::{Action, Preference};
use super::engine::{Runner, TargetView};
use super::filter::{Piece, Subject, Verdict, split};
use super::idle::{IdleReason, obstacle};
use super::lap::Place;
use super::look::{dense_blocks, passing_pages};
use super::pattern::{Mismatch, age_us, rate_bp};
use super::priority::{Histogram, score};
use super::tally::Tally;
use super::watermark::Gate;
use crate::actuator::{Actuator, Request};
use crate::addr::{AddrRange, PAGE_SIZE, total_len};
use crate::meter::{LiveTarget, Meter};
use crate::pages::{PageSet, push_range};
use crate::snapshot::{RegionInfo, Snapshot};
use crate::source::{AccessSource, TargetId};
use std::collections::{BTreeMap, BTreeSet};

/// Memory looked at page by page in one turn, at most: so that sampling stays on time.
const LOOK_PER_TURN: u64 = 1 << 30;
/// Memory looked at in one go.
const LOOK_AT_ONCE: u64 = 64 << 20;
/// How often a page is looked at while it waits to be proven cold.
const LOOKS_WHILE_WAITING: u64 = 4;
/// Until something that lasts is done again, ns: memory that is mapped anew at the same place has lost it.
const RETRY_NS: u64 = 10_000_000_000;
/// With more than this handed over and not finished, nothing more is: proof that a page is cold does not keep for long.
const MOST_PENDING: u64 = 128 << 20;

/// What a turn may use.
pub(super) struct World<'a> {
    pub targets: &'a BTreeMap<TargetId, TargetView>,
    pub live: &'a [LiveTarget],
    pub actuator: &'a mut dyn Actuator,
    pub meter: &'a mut dyn Meter,
    pub source: Option<&'a mut (dyn AccessSource + 'a)>,
    pub now_ns: u64,
    pub dry_run: bool,
}

/// Whether to go on with the next region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Go {
    On,
    /// The quota, the time or the actuator has no more room; the next turn goes on at this place.
    Stop,
}

/// One turn of one scheme.
pub(super) struct Turn<'a, 'w> {
    index: usize,
    runner: &'a mut Runner,
    world: &'a mut World<'w>,
    tally: Tally,
    /// Where it began.
    from: Place,
}

impl<'a, 'w> Turn<'a, 'w> {
    pub fn new(index: usize, runner: &'a mut Runner, world: &'a mut World<'w>) -> Self {
        Self { index, runner, world, tally: Tally::default(), from: (0, 0) }
    }

    /// Goes through all targets; tells what held the scheme back, if anything did.
    pub fn run(mut self) -> Option<IdleReason> {
        if self.runner.gate != Gate::Open {
            return Some(self.runner.gate_reason());
        }
        if self.world.targets.is_empty() {
            return Some(IdleReason::NoTarget);
        }
        if let Some(reason) = self.brake() {
            return Some(reason);
        }
        if self.world.targets.values().all(|t| t.snapshot.is_none()) {
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
        if self.runner.quota.turn(self.world.now_ns, self.world.meter, self.world.live) {
            self.runner.cut_off = self.cut_off(&open);
        }
        if self.runner.quota.is_full() {
            return Some(self.quota_reason());
        }
        if self.world.actuator.pending(self.index) > MOST_PENDING {
            return Some(IdleReason::Busy);
        }
        if self.world.now_ns < self.runner.next_look_ns {
            return self.runner.idle.take();
        }
        let all = self.all_regions(&open);
        if all == Go::On && self.tally.looked > 0 {
            // All that was cold is taken, and the rest needs time: it need not be looked at in every turn.
            self.runner.next_look_ns = self.world.now_ns + self.confirm_ns() / LOOKS_WHILE_WAITING;
        }
        self.reason()
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
        for t in self.world.targets.values() {
            match self.world.actuator.obstacle(action, t.live) {
                None => {
                    open.insert(t.live.target);
                }
                Some(text) => first = first.or_else(|| Some(obstacle(action, &text))),
            }
        }
        (open, first)
    }

    fn quota_reason(&self) -> IdleReason {
        let quota = &self.runner.quota;
        if let Some(e) = quota.goals.iter().find_map(|g| g.error.as_ref()) {
            return IdleReason::Meter(e.to_string());
        }
        if quota.effective() < PAGE_SIZE {
            return IdleReason::GoalMet { score: quota.goals.iter().filter_map(|g| g.score()).max() };
        }
        IdleReason::QuotaUsed { effective: quota.effective() }
    }

    fn score(&self, region: &RegionInfo, snapshot: &Snapshot) -> u32 {
        let scheme = &self.runner.scheme;
        let rate = rate_bp(region, snapshot.max_nr_accesses);
        let (preference, weights) = (scheme.action.preference(), scheme.quota.weights);
        score(preference, weights, region.len(), rate, age_us(region, snapshot))
    }

    /// The lowest priority that the quota of the window that begins suffices for.
    fn cut_off(&self, open: &BTreeSet<TargetId>) -> u32 {
        let quota = self.runner.quota.effective();
        if quota == u64::MAX || self.runner.scheme.action.preference() == Preference::None {
            return 0;
        }
        let mut histogram = Histogram::default();
        let mut pieces = Vec::new();
        for t in open.iter().filter_map(|id| self.world.targets.get(id)) {
            let Some(snapshot) = &t.snapshot else { continue };
            let subject = subject(t);
            for region in &snapshot.regions {
                if self.runner.scheme.pattern.check(region, snapshot).is_err() {
                    continue;
                }
                pieces.clear();
                split(&self.runner.scheme.filters, &subject, range_of(region), &mut pieces);
                let passing = pieces.iter().filter(|p| p.verdict != Verdict::Reject).map(|p| p.range.len()).sum();
                histogram.add(self.score(region, snapshot), present_of(region, passing));
            }
        }
        histogram.cut_off(quota)
    }

    /// Serves regions in order of their addresses, from where the last window stopped.
    fn all_regions(&mut self, open: &BTreeSet<TargetId>) -> Go {
        let targets = self.world.targets;
        let from = self.runner.quota.resume.take();
        self.from = from.or_else(|| open.first().map(|&id| (id, 0))).unwrap_or_default();
        self.runner.lap.begin(self.world.now_ns);
        let order: Vec<TargetId> = match from {
            Some((target, _)) => open.range(target..).chain(open.range(..target)).copied().collect(),
            None => open.iter().copied().collect(),
        };
        let start_at = |id: TargetId| from.filter(|f| f.0 == id).map_or(0, |f| f.1);
        let mut go = Go::On;
        for &id in &order {
            go = self.target(&targets[&id], start_at(id), u64::MAX);
            if go == Go::Stop {
                break;
            }
        }
        // The first target was begun in its middle: now its lower part.
        if let Some((id, addr)) = from.filter(|f| f.1 > 0 && go == Go::On && open.contains(&f.0)) {
            go = self.target(&targets[&id], 0, addr);
        }
        if go == Go::On {
            self.runner.lap.end();
        }
        go
    }

    fn target(&mut self, t: &TargetView, from: u64, to: u64) -> Go {
        let Some(snapshot) = &t.snapshot else { return Go::On };
        let subject = subject(t);
        let (mut pieces, mut passing, mut ahead) = (Vec::new(), Vec::<Piece>::new(), Vec::new());
        // What is done block by block must not depend on where the monitor happens to cut a region in two.
        let blocks = self.runner.scheme.min_density_bp > 0;
        for region in snapshot.regions.iter().filter(|r| r.end > from && r.start < to) {
            if let Err(why) = self.runner.scheme.pattern.check(region, snapshot) {
                let age_us = age_us(region, snapshot);
                self.tally.near.add(why, age_us, &self.runner.scheme.pattern);
                if why == Mismatch::Age && self.soon(age_us) {
                    ahead.push(range_of(region));
                }
                continue;
            }
            self.tally.near.regions += 1;
            self.tally.matched += 1;
            if self.score(region, snapshot) < self.runner.cut_off {
                self.tally.below_cut_off += 1;
                continue;
            }
            pieces.clear();
            let part = AddrRange::new(region.start.max(from), region.end.min(to));
            split(&self.runner.scheme.filters, &subject, part, &mut pieces);
            for piece in &pieces {
                if piece.verdict == Verdict::Reject {
                    self.tally.filtered += piece.range.len();
                    self.runner.stats.sz_filtered += piece.range.len();
                    continue;
                }
                let joins = |w: &Piece| w.verdict == piece.verdict && w.range.end == piece.range.start;
                match passing.last_mut().filter(|w| blocks && joins(w)) {
                    Some(last) => last.range.end = piece.range.end,
                    None => passing.push(*piece),
                }
            }
        }
        self.watch_ahead(t, &subject, &ahead);
        let stopped = passing.into_iter().any(|piece| self.parts(t, piece) == Go::Stop);
        if stopped { Go::Stop } else { Go::On }
    }

    /// For how long a page must be seen unused at present, ns.
    fn confirm_ns(&self) -> u64 {
        self.runner.patience.stretch(self.runner.scheme.confirm_ns)
    }

    /// Whether a region of this age will be old enough by the time that its pages have been watched, if that begins now.
    fn soon(&self, age_us: u64) -> bool {
        let scheme = &self.runner.scheme;
        let least = scheme.pattern.age_us.min;
        age_us < least && age_us.saturating_add(self.confirm_ns() / 1000) >= least
    }

    /// Begins to watch the pages of regions that are about to match, so that proof is there when they do.
    fn watch_ahead(&mut self, t: &TargetView, subject: &Subject, regions: &[AddrRange]) {
        let confirm_ns = self.confirm_ns();
        let Some(source) = self.world.source.as_deref_mut().filter(|_| confirm_ns > 0) else { return };
        let mut pieces = Vec::new();
        regions.iter().for_each(|&r| split(&self.runner.scheme.filters, subject, r, &mut pieces));
        let mut ranges = Vec::new();
        pieces.iter().filter(|p| p.verdict != Verdict::Reject).for_each(|p| push_range(&mut ranges, p.range));
        let (ranges, _) = clip(&ranges, LOOK_PER_TURN.saturating_sub(self.tally.looked));
        if ranges.is_empty() {
            return;
        }
        if let Ok(found) = source.confirm_cold(t.live.target, &ranges, confirm_ns, self.world.now_ns, &mut Vec::new()) {
            self.tally.looked += found.present;
        }
    }

    /// The parts of a piece that were not treated lately.
    fn parts(&mut self, t: &TargetView, piece: Piece) -> Go {
        let mut parts = Vec::new();
        self.untreated(t.live.target, piece.range, &mut parts);
        self.tally.treated += piece.range.len() - total_len(&parts);
        for range in parts {
            if self.piece(t, Piece { range, verdict: piece.verdict }) == Go::Stop {
                return Go::Stop;
            }
        }
        Go::On
    }

    fn untreated(&mut self, target: TargetId, range: AddrRange, out: &mut Vec<AddrRange>) {
        // A dry run counts each byte once.
        let scheme = &self.runner.scheme;
        // What lasts is not done again in every turn, nor is a block that could not be collapsed tried again.
        let stays = scheme.action.lasts() || scheme.action == Action::MigrateCold;
        let least_ns = if stays { RETRY_NS } else { 0 };
        let keep_ns =
            if self.world.dry_run { u64::MAX } else { scheme.pattern.age_us.min.saturating_mul(1000).max(least_ns) };
        match self.runner.treated.get_mut(&target) {
            Some(treated) => {
                treated.expire(self.world.now_ns, keep_ns);
                treated.untreated(range, out);
            }
            None => out.push(range),
        }
    }

    /// A part of a matching region that the filters on mappings let pass.
    fn piece(&mut self, t: &TargetView, piece: Piece) -> Go {
        let scheme = &self.runner.scheme;
        let per_page = piece.verdict != Verdict::Allow && scheme.filters.iter().any(|f| f.what.is_per_page());
        let looks = self.world.source.is_some()
            && (scheme.action.harms_hot_pages() || scheme.confirm_ns > 0 || per_page || scheme.min_density_bp > 0);
        if !looks {
            return self.whole(t, piece.range);
        }
        let mut at = piece.range.start;
        while at < piece.range.end {
            if self.runner.quota.is_full() {
                return self.stop(t, at);
            }
            if self.tally.looked >= LOOK_PER_TURN {
                let confirm_ns = self.confirm_ns();
                let here = (t.live.target, at);
                let next = if confirm_ns > 0 { self.runner.lap.next(self.from, here, confirm_ns) } else { here };
                self.runner.quota.resume = Some(next);
                return Go::Stop;
            }
            let chunk = AddrRange::new(at, piece.range.end.min((at / LOOK_AT_ONCE + 1) * LOOK_AT_ONCE));
            let mut pages = self.pages(t, chunk, per_page);
            if let Some(in_flight) = self.runner.in_flight.get(&t.live.target).filter(|f| !f.is_empty()) {
                let mut free = PageSet::of(&pages);
                free.subtract(in_flight);
                pages = free.ranges();
            }
            let left = self.runner.quota.left();
            let (now, rest) = clip(&pages, left);
            if !now.is_empty() && self.submit(t, now) == Go::Stop {
                return self.stop(t, at);
            }
            if let Some(rest) = rest {
                return self.stop(t, rest);
            }
            at = chunk.end;
        }
        Go::On
    }

    fn stop(&mut self, t: &TargetView, at: u64) -> Go {
        self.runner.quota.resume = Some((t.live.target, at));
        Go::Stop
    }

    /// Acts on all of a range, as far as the quota goes.
    fn whole(&mut self, t: &TargetView, range: AddrRange) -> Go {
        let (now, rest) = clip(&[range], self.runner.quota.left());
        if now.is_empty() {
            return self.stop(t, range.start);
        }
        if self.submit(t, now) == Go::Stop {
            return self.stop(t, range.start);
        }
        match rest {
            Some(rest) => self.stop(t, rest),
            None => Go::On,
        }
    }

    /// The pages of a chunk that may be acted on: present, observable, passing the filters that look at pages, and, where
    /// the scheme asks for proof, unused for long enough.
    fn pages(&mut self, t: &TargetView, chunk: AddrRange, per_page: bool) -> Vec<AddrRange> {
        let target = t.live.target;
        let confirm_ns = self.confirm_ns();
        let Some(source) = self.world.source.as_deref_mut() else { return Vec::new() };
        let scheme = &self.runner.scheme;
        let stats = &mut self.runner.stats;
        let mut pages = Vec::new();
        if scheme.min_density_bp > 0 {
            let Ok(sparse) = dense_blocks(source, target, chunk, scheme.min_density_bp, &mut pages) else {
                return Vec::new();
            };
            self.tally.filtered += sparse;
            stats.sz_filtered += sparse;
            return pages;
        }
        if scheme.confirm_ns > 0 {
            // A target that has just gone is the monitor's to notice.
            let Ok(found) = source.confirm_cold(target, &[chunk], confirm_ns, self.world.now_ns, &mut pages) else {
                return Vec::new();
            };
            self.tally.looked += found.present;
            self.tally.waiting += found.waiting;
            self.tally.young += found.young;
            stats.sz_filtered += found.young + found.blind;
        }
        if scheme.confirm_ns == 0 || per_page {
            let within = if scheme.confirm_ns == 0 { vec![chunk] } else { std::mem::take(&mut pages) };
            let filters: &[_] = if per_page { &scheme.filters } else { &[] };
            let Ok(present) = passing_pages(source, target, &within, filters, &mut pages) else { return Vec::new() };
            let rejected = present - total_len(&pages).min(present);
            self.tally.filtered += rejected;
            stats.sz_filtered += rejected;
            if scheme.confirm_ns == 0 {
                self.tally.looked += present;
            }
        }
        pages
    }

    fn submit(&mut self, t: &TargetView, ranges: Vec<AddrRange>) -> Go {
        let bytes = total_len(&ranges);
        let (scheme, now, target) = (&self.runner.scheme, self.world.now_ns, t.live.target);
        let request = Request {
            scheme: self.index,
            target: t.live,
            action: scheme.action,
            ranges: ranges.clone(),
            destinations: scheme.destinations.clone(),
        };
        if self.world.actuator.pending(self.index) > MOST_PENDING || self.world.actuator.submit(request).is_err() {
            self.tally.busy = true;
            return Go::Stop;
        }
        // A dry run counts everything once. What goes page by page is seen to have gone once that is finished.
        if self.world.dry_run || (scheme.action != Action::Stat && !scheme.action.harms_hot_pages()) {
            let treated = self.runner.treated.entry(target).or_default();
            ranges.iter().for_each(|&r| treated.insert(r, now));
        } else if scheme.action.harms_hot_pages() {
            let in_flight = self.runner.in_flight.entry(target).or_default();
            ranges.iter().for_each(|&r| in_flight.insert(r));
        }
        self.runner.quota.charge(bytes);
        self.runner.stats.nr_tried += 1;
        self.runner.stats.sz_tried += bytes;
        self.tally.submitted += bytes;
        Go::On
    }

    fn reason(&self) -> Option<IdleReason> {
        if self.tally.submitted > 0 {
            return self.runner.refused.clone().map(IdleReason::Refused);
        }
        Some(self.tally.why_nothing())
    }
}

fn subject(t: &TargetView) -> Subject<'_> {
    Subject { target: t.live.target, cgroup: t.cgroup.as_deref(), mappings: &t.mappings }
}

/// How much of `bytes` of a region is in memory, as far as the monitor saw. What is out already must not take the place of
/// what could go; DAMOS has it sink by setting its age to 0.
fn present_of(region: &RegionInfo, bytes: u64) -> u64 {
    match region.evidence {
        Some(e) if e.pages > 0 => (u128::from(bytes) * u128::from(e.present) / u128::from(e.pages)) as u64,
        _ => bytes,
    }
}

fn range_of(region: &RegionInfo) -> AddrRange {
    AddrRange::new(region.start, region.end)
}

/// The first `bytes` of `ranges`, and where the rest begins.
fn clip(ranges: &[AddrRange], bytes: u64) -> (Vec<AddrRange>, Option<u64>) {
    let mut left = bytes;
    let mut out = Vec::new();
    for r in ranges {
        if left == 0 {
            return (out, Some(r.start));
        }
        let take = r.len().min(left);
        out.push(AddrRange::new(r.start, r.start + take));
        left -= take;
        if take < r.len() {
            return (out, Some(r.start + take));
        }
    }
    (out, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Evidence;

    #[test]
    fn what_is_not_in_memory_takes_no_place_in_the_quota() {
        let region = |evidence| RegionInfo { start: 0, end: 4096, nr_accesses: 0, age: 0, evidence, accessed: None };
        let seen = |pages, present| region(Some(Evidence { checks: pages, pages, present, blind: 0 }));
        assert_eq!(present_of(&seen(16, 0), 1 << 30), 0);
        assert_eq!(present_of(&seen(16, 4), 1 << 30), 1 << 28);
        assert_eq!(present_of(&seen(0, 0), 1 << 30), 1 << 30, "nobody looked: all of it counts");
        assert_eq!(present_of(&region(None), 1 << 30), 1 << 30);
    }
}
