//! A turn of a scheme about idle memory: its victims are single pages, chosen by the page history; with DAMON's
//! algorithm those of matching regions, else wherever they lie.
//!
//! Regions alone would be wrong about cold pages among hot ones. The history is exact to the page and to the time
//! between two walks; what has been used since the last walk is seen by a last look at the accessed bits before
//! anything is done.

use super::action::Preference;
use super::apply::{ALL_ADDRESSES, Go, LOOK_AT_ONCE, LOOK_PER_TURN, Turn};
use super::filter::{Verdict, split};
use super::page_rule::{PageFacts, PageRule};
use super::pattern::Bounds;
use super::runner::Runner;
use super::supply::Walks;
use super::target_view::TargetView;
use super::victims::{Found, Search, portions, stretches};
use crate::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN, total_len};
use crate::history::pages::{Codes, PageHistory};
use crate::history::table::Table;
use crate::history::tracked::still_idle;
use crate::mask::NO_PAGES;
use crate::pages::push_range;
use crate::target::TargetId;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// The addresses of a target by what filters on mappings say of them.
#[derive(Default)]
pub(super) struct Parts {
    /// What may be acted on, as a whole or after a look at single pages; each verdict once.
    pub passing: Vec<(Verdict, Vec<AddrRange>)>,
    pub rejected: Vec<AddrRange>,
}

impl Parts {
    /// Where memory of that verdict goes.
    fn of(&mut self, verdict: Verdict) -> &mut Vec<AddrRange> {
        if verdict == Verdict::Reject {
            return &mut self.rejected;
        }
        let known = self.passing.iter().position(|(known, _)| *known == verdict);
        let at = known.unwrap_or_else(|| {
            self.passing.push((verdict, Vec::new()));
            self.passing.len() - 1
        });
        &mut self.passing[at].1
    }
}

impl Runner {
    /// Whether the action may not be done to anything below a table in memory of that verdict.
    fn rejects(&self, table: &Table, verdict: Verdict) -> bool {
        let leaf = if table.huge { TABLE_SPAN } else { PAGE_SIZE };
        if !PageRule::of(&self.scheme.filters, verdict).passes(PageFacts { young: false, leaf }) {
            return true;
        }
        let least = u64::from(self.scheme.min_density_bp) * 512;
        let mut present = 0;
        if least > 0 {
            table.count(|code, n| present += if code > 0 { n } else { 0 });
        }
        present * 10_000 < least
    }

    pub(super) fn parts(&self, t: &TargetView, ranges: &[AddrRange]) -> Parts {
        let (mut parts, mut pieces) = (Parts::default(), Vec::new());
        for &range in ranges {
            pieces.clear();
            split(&self.scheme.filters, &t.subject(), range, &mut pieces);
            for piece in &pieces {
                push_range(parts.of(piece.verdict), piece.range);
            }
        }
        parts
    }
}

impl Turn<'_, '_> {
    /// Serves all targets; oldest pages first where the quota does not suffice for all.
    pub(super) fn all_pages(&mut self, open: &BTreeSet<TargetId>) -> Go {
        let (now, idle_ns) = (self.world.now_ns, self.runner.idle_ns(self.world.by_region));
        self.tally.idle_ns = Some(idle_ns);
        let latest = now.checked_sub(idle_ns);
        let matches = self.matches(0);
        let cut = self.runner.supply.cut_ns.filter(|&cut| latest.is_some_and(|latest| cut <= latest));
        self.tally.cut = cut.is_some();
        let targets = self.world.targets;
        let mut room = self.runner.quota.left().min(LOOK_PER_TURN);
        let turns: &[bool] = if cut.is_some() { &[true, false] } else { &[true] };
        for &first in turns {
            let turn = |by_ns: u64| match cut {
                Some(cut) if first => by_ns < cut,
                Some(cut) => by_ns == cut,
                None => true,
            };
            for id in open {
                if self.target_pages(&targets[id], |by_ns| matches(by_ns) && turn(by_ns), &mut room) == Go::Stop {
                    return Go::Stop;
                }
            }
        }
        Go::On
    }

    /// Serves the pages of a target by when they were accessed last.
    fn target_pages(&mut self, t: &TargetView, ages: impl Fn(u64) -> bool, room: &mut u64) -> Go {
        let target = t.live.target;
        let source = self.world.source.as_deref();
        let Some(history) = source.and_then(|s| s.page_history(target)) else { return Go::On };
        self.tally.watched_ns = self.tally.watched_ns.max(self.world.now_ns.saturating_sub(history.begin_ns()));
        let wanted = history.codes(ages);
        if !wanted.contains(&true) {
            if !self.tally.cut {
                self.tally.in_use += history.learnt().present * PAGE_SIZE;
            }
            return Go::On;
        }
        let done = &self.runner.left_out.entry(target).or_default().after_walk(history.walks()).done;
        if wanted.iter().zip(done).all(|(wanted, done)| !wanted || *done) {
            self.tally.known += 1;
            return Go::On;
        }
        let ranges = if self.is_regional() { self.matching(t, ALL_ADDRESSES) } else { t.mapped() };
        let parts = self.runner.parts(t, &ranges);
        let mut whole = true;
        for (verdict, ranges) in &parts.passing {
            let (victims, found) = self.search(t, ranges, &wanted, *verdict, *room);
            whole &= found.full_at.is_none() && !found.too_large;
            *room -= found.taken;
            for portion in portions(&victims, LOOK_AT_ONCE) {
                if self.look_and_submit(t, &portion) == Go::Stop {
                    return Go::Stop;
                }
            }
        }
        if let Some(left_out) = self.runner.left_out.get_mut(&target).filter(|_| whole) {
            left_out.asked.done.iter_mut().zip(wanted).for_each(|(done, wanted)| *done |= wanted);
        }
        self.rejected(t, &parts.rejected, &wanted);
        if *room < PAGE_SIZE { Go::Stop } else { Go::On }
    }

    /// The pages of `ranges` that may be acted on, as far as the page history tells; at most `room` bytes.
    fn search(
        &mut self,
        t: &TargetView,
        ranges: &[AddrRange],
        wanted: &Codes,
        verdict: Verdict,
        room: u64,
    ) -> (Vec<AddrRange>, Found) {
        let (target, mut victims) = (t.live.target, Vec::new());
        self.expire(target);
        let (runner, source) = (&*self.runner, self.world.source.as_deref());
        let Some(history) = source.and_then(|s| s.page_history(target)) else { return (victims, Found::default()) };
        let search = Search {
            history,
            wanted,
            rejects: &|table| runner.rejects(table, verdict),
            leaves_out: &|base| runner.leaves_out(target, base),
        };
        let found = search.run(&self.of_size(history, ranges, 0), room, &mut victims);
        if found.matched == 0 {
            let (present, unseen) = history.present_bytes(ranges);
            self.tally.in_use += present - unseen;
        }
        self.tally.idle += found.matched;
        self.tally.too_large |= found.too_large;
        self.tally.filtered += found.rejected;
        if let Some(left_out) = runner.left_out.get(&target).filter(|_| found.left_out > 0) {
            self.tally.treated +=
                if left_out.treated.is_empty() && left_out.stuck.is_empty() { 0 } else { found.left_out };
            self.tally.busy |= !left_out.in_flight.is_empty();
        }
        self.runner.stats.sz_filtered += found.rejected;
        (victims, found)
    }

    /// Counts what filters on mappings keep from being done.
    fn rejected(&mut self, t: &TargetView, ranges: &[AddrRange], wanted: &Codes) {
        let source = self.world.source.as_deref();
        let Some(history) = source.and_then(|s| s.page_history(t.live.target)).filter(|_| !ranges.is_empty()) else {
            return;
        };
        let search = Search { history, wanted, rejects: &|_| true, leaves_out: &|_| NO_PAGES };
        let found = search.run(ranges, u64::MAX, &mut Vec::new());
        self.tally.filtered += found.rejected;
        self.runner.stats.sz_filtered += found.rejected;
    }

    /// Hands over those of `pages` that nobody has used since the last walk.
    fn look_and_submit(&mut self, t: &TargetView, pages: &[AddrRange]) -> Go {
        let target = t.live.target;
        let Some(source) = self.world.source.as_deref_mut() else { return Go::On };
        let mut free = Vec::new();
        // A target that has just gone is the monitor's to notice.
        if still_idle(source, target, pages, &mut free).is_err() {
            return Go::On;
        }
        let spared = total_len(pages) - total_len(&free);
        self.tally.in_use += spared;
        self.runner.stats.sz_filtered += spared;
        if !free.is_empty() && self.submit(t, free) == Go::Stop {
            return Go::Stop;
        }
        self.runner.supply.take(total_len(pages));
        let walks = self.world.source.as_deref().and_then(|s| s.page_history(target)).map_or(0, |h| h.walks());
        let asked = self.runner.left_out.entry(target).or_default().after_walk(walks);
        pages.iter().for_each(|&r| asked.pages.insert(r));
        Go::On
    }

    /// When the youngest page that the quota of the window that begins suffices for was accessed last, if it does not
    /// for all.
    pub(super) fn cut_pages(&mut self, open: &BTreeSet<TargetId>) {
        let quota = self.runner.quota.effective();
        let scheme = &self.runner.scheme;
        // Where regions decide, their priority does, too.
        let aged = scheme.action.preference() == Preference::Cold && scheme.quota.weights.age > 0;
        let ordered = aged && !self.is_regional();
        self.runner.supply.cut_ns = None;
        let Some(source) = self.world.source.as_deref().filter(|_| ordered && quota < u64::MAX) else { return };
        let walks = self.walks(open);
        // What is large enough changes with time, too: whatever will be before the window ends is counted.
        let window_ns = self.runner.scheme.quota.reset_ns;
        if self.size().is_some() || !self.runner.supply.is_of(&walks) {
            let mut bytes = BTreeMap::new();
            for (target, history) in open.iter().filter_map(|&id| Some((id, source.page_history(id)?))) {
                // What was looked at before a walk counts again.
                self.runner.left_out.entry(target).or_default().after_walk(history.walks());
                let (runner, t) = (&*self.runner, &self.world.targets[&target]);
                let parts = runner.parts(t, &t.mapped());
                for (verdict, ranges) in &parts.passing {
                    let rejects = |table: &Table| runner.rejects(table, *verdict);
                    let leaves_out = |base| runner.leaves_out(target, base);
                    let search = Search { history, wanted: &[true; 256], rejects: &rejects, leaves_out: &leaves_out };
                    search.ages(&self.of_size(history, ranges, window_ns), &mut bytes);
                }
            }
            self.runner.supply.count(walks, bytes);
        }
        self.runner.supply.cut(quota, self.earliest_ns());
    }

    /// Pages that were accessed last before this moment are too old for the scheme, ns.
    fn earliest_ns(&self) -> u64 {
        let most_us = if self.is_regional() { u64::MAX } else { self.runner.scheme.pattern.age_us.max };
        self.world.now_ns.saturating_sub(most_us.saturating_mul(1000))
    }

    /// Whether pages accessed last at a moment, ns, are of the age that the scheme asks for, or will be in `within_ns`.
    fn matches(&self, within_ns: u64) -> impl Fn(u64) -> bool + use<> {
        let then_ns = self.world.now_ns.saturating_add(within_ns);
        let latest_ns = then_ns.checked_sub(self.runner.idle_ns(self.world.by_region));
        let earliest_ns = self.earliest_ns();
        move |by_ns| latest_ns.is_some_and(|latest| by_ns <= latest) && by_ns >= earliest_ns
    }

    /// The sizes of memory that the scheme asks for; `None`: any. Those of regions are looked at elsewhere.
    fn size(&self) -> Option<Bounds<u64>> {
        let size = self.runner.scheme.pattern.size;
        (!self.is_regional() && (size.min > PAGE_SIZE || size.max < u64::MAX)).then_some(size)
    }

    /// The parts of `ranges` that lie in idle memory of a size that the scheme asks for, or will in `within_ns`. Memory that
    /// a quota has no room for now counts as well: else it would be cut into parts too small for anybody.
    fn of_size<'r>(&self, history: &PageHistory, ranges: &'r [AddrRange], within_ns: u64) -> Cow<'r, [AddrRange]> {
        match self.size() {
            Some(size) => stretches(history, &history.codes(self.matches(within_ns)), ranges, size).into(),
            None => ranges.into(),
        }
    }

    /// How often each target has been walked.
    fn walks(&self, open: &BTreeSet<TargetId>) -> Walks {
        let Some(source) = self.world.source.as_deref() else { return Vec::new() };
        open.iter().filter_map(|&id| Some((id, source.page_history(id)?.walks()))).collect()
    }

    /// Whether the victims are idle pages; nobody keeps a history of pages where there is no source.
    pub(super) fn by_page(&self) -> bool {
        self.runner.idle_ns(self.world.by_region) > 0 && self.world.source.is_some()
    }

    fn is_regional(&self) -> bool {
        self.runner.is_regional(self.world.by_region)
    }
}
