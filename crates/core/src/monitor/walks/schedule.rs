//! When a target is walked next, and what a walk of it may clear, by what the last ones have cost.

use crate::history::pages::PageHistory;
use crate::history::table::{HIGHEST_LEVEL, Learnt};
use crate::history::tracked::{Allowance, CLEAR_NS};
use crate::target::Start;
use std::cmp::Reverse;

/// Time between walks where nobody asks about shorter ages and the budget pays for it, ns: the shortest window of a
/// working set.
const WISH_NS: u64 = 1_000_000_000;
/// And the shortest time between walks, however young the memory that somebody asks about, ns.
const SHORTEST_NS: u64 = 50_000_000;
/// Walks in the shortest age that somebody asks about.
const PER_AGE: u64 = 4;
/// Part of the walks' budget that reading and reporting may take; the rest is for clearing.
pub(super) const READ_PART: f64 = 0.4;
/// The same while much has never been cleared.
pub(super) const READ_PART_AT_FIRST: f64 = 0.3;
/// Time between two frames of a target, ns, ...
pub(super) const FRAME_NS: u64 = 1_000_000_000;
/// ... unless they cost more than this part of what reading costs.
pub(super) const FRAME_PART: f64 = 0.5;
/// Walks that would lie further apart are of a sample of the page tables, unless somebody asks about single pages, ns.
pub(super) const LONGEST_NS: f64 = 10e9;
/// The second walk of a target comes at most so long after the first, ns: then it knows what was idle for 10 s.
const SECOND_NS: f64 = 10.3e9;
/// Of more pages than this part of a target the next walk is the first to tell whether they are used: it is not put off.
const OPEN_PART: f64 = 0.05;
/// What it costs to see that a target has not run, ns.
const REST_NS: f64 = 3_000.0;
/// However long a target has not run, it is walked again after this time: pages may have been taken away without its
/// resident memory telling, ns.
const LONGEST_REST_NS: u64 = 300_000_000_000;
/// For each page that it tells of for the first time a walk may come so much earlier than its turn, ns, ...
const EARLIER_NS_PER_PAGE: u64 = 1_000_000;
/// ... but no more than this: else it would be the turn of new processes alone, where many come and go.
const MOST_EARLIER_NS: u64 = 20_000_000_000;
/// Pages that cannot be observed may become so by as many walks.
const BLIND_WALKS: u64 = 4;
/// Part of what is left for clearing that pages in use have, whatever was never cleared.
const AGAIN_PART: f64 = 0.25;
/// Real over estimated price of clearing until that is known: rather too little is cleared than too much.
const FIRST_PRICE_FACTOR: f64 = 1.3;
/// Of what the first walk costs, reading is at least this part.
const LEAST_READ: f64 = 0.2;
/// Less than this cleared, in one walk or several, tells nothing of its price, ns.
const ENOUGH_NS: f64 = 300_000.0;
/// Walks are put so many times further apart, or closer together, at once.
const STRETCH: f64 = 1.2;
/// Weight of the newest measurement in averages.
pub(super) const NEWEST: f64 = 0.3;

/// Of one target.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    /// When the next walk is due, ns.
    pub due_ns: u64,
    /// When the present walk, or the last one, began.
    pub begun_ns: u64,
    /// What reading costs, without clearing: the least of the last walks, ns.
    pub read_ns: f64,
    /// Pages that were resident before it was read for the first time.
    pub pages: u64,
    /// How its process began, where that is known.
    pub start: Option<Start>,
    /// Pages that the last complete walk found present, of these those that cannot be observed, and those that have
    /// never been cleared; before the first walk all have not.
    pub present: u64,
    pub blind: u64,
    pub unresolved: u64,
    /// Pages that have never been cleared before the last complete walk: what the next one is to tell of.
    open: u64,
    /// What a frame costs, ns.
    pub frame_ns: f64,
    /// When the last frame was drawn up.
    pub framed_ns: Option<u64>,
    /// Real over estimated price of clearing.
    pub price_factor: f64,
    /// Clearing since that was last learnt: a walk of a small target has too little to tell.
    clearing: Clearing,
    /// What the last complete walk would have cleared, had it been allowed to, ns; first clears not counted.
    pub demand_ns: f64,
    /// Complete walks.
    pub walks: u64,
    /// The same with those of an Isotherm before this one.
    pub history_walks: u64,
    /// Whether the history says when most pages were accessed.
    pub tells_ages: bool,
    /// It had not run when it was looked at last: that cost next to nothing.
    pub rests: bool,
    /// Resident memory, as last counted when it was walked, bytes; `None`: it was not counted.
    pub walked_rss: Option<u64>,
    /// The last complete walk could not clear all that it should have.
    left_set: bool,
    /// Sums over the slices of the present walk.
    pub walk: Spent,
    pub level: u8,
    /// Walks are so many times as far apart as reading alone would ask for: what changes from walk to walk must be
    /// cleared, too, and leaving it set would only put that off.
    pub stretch: f64,
}

/// What there is for walks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Means {
    /// Share of a core.
    pub share: f64,
    /// What reading all targets costs, ns.
    pub read_ns: f64,
    /// Pages of all targets, about.
    pub pages: u64,
    /// What this slice may spend beyond reading, ns.
    pub spare: Needs,
    /// Whether more first walks are left than can be done soon.
    pub many_firsts: bool,
}

/// What clearing costs, ns.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Needs {
    /// Pages that have never been cleared.
    pub first_ns: f64,
    /// Pages that have been, and are in use.
    pub again_ns: f64,
}

impl Needs {
    /// Those of two targets.
    pub fn and(self, other: Self) -> Self {
        Self { first_ns: self.first_ns + other.first_ns, again_ns: self.again_ns + other.again_ns }
    }

    /// Less of both where together they are more than `most_ns`.
    pub fn at_most(self, most_ns: f64) -> Self {
        let part = (most_ns / (self.first_ns + self.again_ns).max(1.0)).clamp(0.0, 1.0);
        Self { first_ns: self.first_ns * part, again_ns: self.again_ns * part }
    }

    /// Of `spare_ns` the part of a target that needs these, where all together need `all`.
    ///
    /// What nobody has looked at yet comes first: a page that is not used is cleared once, and from then on its age is
    /// known, while of a page in constant use clearing it again tells little that is new.
    pub fn share_of(self, all: Self, spare_ns: f64) -> Self {
        // That of a target that rested until now is not in the sum.
        let all = Self { first_ns: all.first_ns.max(self.first_ns), again_ns: all.again_ns.max(self.again_ns) };
        let least_ns = spare_ns * AGAIN_PART;
        let first_ns = spare_ns - least_ns.min(all.again_ns);
        let again_ns = (spare_ns - all.first_ns).max(least_ns);
        let part = |need: f64, all: f64| if all > 0.0 { (need / all).min(1.0) } else { 0.0 };
        Self {
            first_ns: first_ns * part(self.first_ns, all.first_ns),
            again_ns: again_ns * part(self.again_ns, all.again_ns),
        }
    }
}

#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Spent {
    pub spent_ns: f64,
    /// Of this, what was spent on reading; `None`: not measured apart.
    pub read_ns: Option<f64>,
    pub cleared_ns: f64,
    pub first_ns: f64,
    pub refused_ns: f64,
}

/// What clearing has cost, ns.
#[derive(Debug, Default, Clone, Copy)]
struct Clearing {
    estimated_ns: f64,
    real_ns: f64,
}

impl Schedule {
    /// Of a target whose first walk is due at `due_ns`.
    pub fn new(due_ns: u64) -> Self {
        Self { due_ns, price_factor: FIRST_PRICE_FACTOR, stretch: 1.0, ..Self::default() }
    }

    /// Of walks that are due, the least comes first.
    ///
    /// Second walks do, since nothing is known of a target before: of thousands there are figures of ever more, instead of
    /// none until each was read once. With `firsts_first` first walks do. Otherwise the longest due, where those with much
    /// to tell come earlier: first walks, and third and later ones where those before could not clear all. Of those found
    /// at once, the largest.
    pub fn turn(&self, firsts_first: bool) -> impl Ord + use<> {
        let preferred = if firsts_first { 0 } else { 1 };
        let unknown = match self.walks {
            0 => self.pages,
            _ if self.is_open() => self.open,
            _ => 0,
        };
        let earlier_ns = unknown.saturating_mul(EARLIER_NS_PER_PAGE).min(MOST_EARLIER_NS);
        let is_known = self.rests && self.framed_ns.is_some();
        (self.walks != preferred || is_known, self.due_ns.saturating_sub(earlier_ns), Reverse(self.pages))
    }

    /// Whether the next walk, a third one or later, tells much that those before could not.
    fn is_open(&self) -> bool {
        self.walks > 1 && self.open as f64 > self.present as f64 * OPEN_PART
    }

    /// What its next turn is expected to cost, ns.
    pub fn price_ns(&self) -> f64 {
        if self.rests { REST_NS + self.frame_ns } else { self.read_ns }
    }

    /// Whether what its last walk saw still holds at `now_ns` if it has not run since: its memory, of `rss` bytes if that is
    /// counted, is as large as then.
    pub fn may_rest(&self, rss: Option<u64>, now_ns: u64) -> bool {
        let is_alike = rss.is_none() || rss == self.walked_rss;
        is_alike && now_ns < self.begun_ns + LONGEST_REST_NS
    }

    /// Whether another walk would clear much that was left set, although the target rests: then it is known from the begin
    /// what it accesses when it runs again. Only where nobody else needs a walk.
    pub fn is_worth_clearing(&self, now_ns: u64) -> bool {
        let is_much = |pages: u64| pages as f64 > self.present as f64 * OPEN_PART;
        let may_become_known = if self.walks < BLIND_WALKS { self.blind } else { 0 };
        let pause_ns = match () {
            () if is_much(self.unresolved) => WISH_NS,
            () if self.left_set || is_much(may_become_known) => SECOND_NS as u64,
            () => return false,
        };
        now_ns >= self.begun_ns + pause_ns
    }

    /// What clearing all that it should costs.
    pub fn needs(&self) -> Needs {
        // Who has not needed anything yet is not to go without altogether.
        let again_ns = self.demand_ns * self.price_factor + self.read_ns;
        Needs { first_ns: self.unresolved as f64 * CLEAR_NS * self.price_factor, again_ns }
    }

    /// What the last complete walk found.
    pub fn learn_pages(&mut self, history: &PageHistory) {
        let Learnt { present, blind, unresolved, .. } = *history.learnt();
        (self.present, self.blind, self.unresolved) = (present, blind, unresolved);
        (self.history_walks, self.tells_ages) = (history.walks(), history.tells_ages());
    }

    /// What the next slice may clear.
    pub fn allowance(&self, means: Option<Means>) -> Allowance {
        let Some(Means { spare, .. }) = means else { return Allowance::UNLIMITED };
        Allowance { again_ns: spare.again_ns / self.price_factor, first_ns: spare.first_ns / self.price_factor }
    }

    /// A walk is complete: learns its prices, and how much of what is used all the time is to be cleared by the next.
    /// They may be `longest_ns` apart.
    pub fn learn(&mut self, means: Option<Means>, wish_ns: u64, longest_ns: f64) {
        let walk = std::mem::take(&mut self.walk);
        let cleared_ns = walk.cleared_ns + walk.first_ns;
        self.open = self.unresolved + (walk.first_ns / CLEAR_NS) as u64;
        // Where it is not measured: what is not for clearing, and never more than a walk in all.
        let first = self.walks == 0;
        self.walks += 1;
        self.read_ns = match walk.read_ns {
            Some(ns) if first => ns,
            Some(ns) => self.read_ns + (ns - self.read_ns) * NEWEST,
            None if first => (walk.spent_ns - self.price_factor * cleared_ns).max(walk.spent_ns * LEAST_READ),
            None => (self.read_ns * 1.02).min(walk.spent_ns),
        }
        .max(1.0);
        // Where reading is not measured apart, little clearing cannot be told from a walk that read for longer.
        if walk.read_ns.is_some() || cleared_ns > self.read_ns {
            self.clearing.estimated_ns += cleared_ns;
            self.clearing.real_ns += walk.spent_ns - walk.read_ns.unwrap_or(self.read_ns);
        }
        if self.clearing.estimated_ns > ENOUGH_NS {
            let Clearing { estimated_ns, real_ns } = std::mem::take(&mut self.clearing);
            self.price_factor += ((real_ns / estimated_ns).clamp(0.1, 20.0) - self.price_factor) * NEWEST;
        }
        self.demand_ns = walk.cleared_ns + walk.refused_ns;
        self.left_set = walk.refused_ns > 0.0 || self.level > 0;
        let Some(Means { share, read_ns, .. }) = means else {
            (self.level, self.stretch) = (0, 1.0);
            return;
        };
        // Its part of what an interval brings beyond the price of reading.
        let interval_ns = (wish_ns as f64).max(read_ns / (share * READ_PART));
        let affordable_ns = (share * interval_ns - read_ns).max(0.0) * (self.read_ns / read_ns).min(1.0);
        let load = self.demand_ns * self.price_factor / affordable_ns.max(1.0);
        let most = (longest_ns / interval_ns).max(1.0);
        match load / self.stretch {
            l if l > 0.8 && self.level < HIGHEST_LEVEL => self.level += 1,
            l if l > 0.8 => self.stretch = (self.stretch * STRETCH).min(most),
            l if l < 0.3 && self.stretch > 1.0 => self.stretch = (self.stretch / STRETCH).max(1.0),
            l if l < 0.3 => self.level = self.level.saturating_sub(1),
            _ => {}
        }
    }

    /// It has not run until `now_ns`: when that is looked at again.
    pub fn put_off(&mut self, means: Option<Means>, wish_ns: u64, now_ns: u64) {
        // Its first figures are not put off.
        let means = means.filter(|_| self.framed_ns.is_some());
        let affordable_ns = means.map_or(0.0, |m| m.read_ns / (m.share * READ_PART));
        self.due_ns = now_ns + wish_ns.max(affordable_ns as u64);
    }

    /// When the next walk is due, where this one ends at `now_ns`. `at_first`: much was never cleared.
    pub fn put_next(&mut self, means: Option<Means>, wish_ns: u64, at_first: bool, now_ns: u64) {
        // Reading all targets may take its part of the budget, reporting included.
        let part = if at_first { READ_PART_AT_FIRST } else { READ_PART };
        let frames_ns = self.frame_ns * wish_ns as f64 / FRAME_NS as f64;
        let reading_ns = |m: Means| m.read_ns * (1.0 + (frames_ns / self.read_ns).min(FRAME_PART));
        let affordable_ns = means.map_or(0.0, |m| reading_ns(m) / (m.share * part));
        // The second walk is the first to tell ages, and later ones of what the first did not clear: nobody waits long for
        // them.
        let longest_ns = if self.walks == 1 || self.is_open() { SECOND_NS } else { f64::INFINITY };
        let stretched_ns = self.stretch * affordable_ns.max(wish_ns as f64);
        let interval_ns = wish_ns.max(stretched_ns.min(longest_ns) as u64);
        // In step with the clock, so that windows of whole seconds hold whole walks; but the first ones of many targets
        // come one after the other, and the second of each is to come so long after it.
        let since_ns = if self.walks == 1 { self.begun_ns } else { self.due_ns };
        // Who was late is not to be early the next time: what is left beside reading is for clearing.
        let next_ns = since_ns + interval_ns;
        self.due_ns = if next_ns < now_ns + interval_ns * 3 / 4 { now_ns + interval_ns } else { next_ns };
    }
}

/// The time between two walks that is wished for, where ages from `asked_ns` on are asked about.
pub(super) fn wish_ns(asked_ns: Option<u64>) -> u64 {
    asked_ns.map_or(WISH_NS, |age| (age / PER_AGE).clamp(SHORTEST_NS, WISH_NS))
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn schedule(walks: u64, due_s: u64, pages: u64) -> Schedule {
        Schedule { walks, pages, present: pages, ..Schedule::new(due_s * S) }
    }

    #[test]
    fn what_tells_most_comes_first_but_for_what_has_waited_long() {
        const MANY: u64 = 10_000;
        let open = |walks, due_s, open| Schedule { open, ..schedule(walks, due_s, MANY) };
        let in_turn = [
            ("second walk of a small one", schedule(1, 60, 10)),
            ("fifth walk, long due", open(4, 20, MANY)),
            ("first walk of a large one", schedule(0, 50, 4 * MANY)),
            ("first walk of a smaller one", schedule(0, 50, 2 * MANY)),
            ("third walk, all of it not known", open(2, 42, MANY)),
            ("fourth walk, half of it not known", open(3, 40, MANY / 2)),
            ("third walk, nearly all known", open(2, 40, MANY / 40)),
            ("first walk of a small one", schedule(0, 41, 10)),
        ];
        let turns: Vec<_> = in_turn.iter().map(|(_, s)| s.turn(false)).collect();
        for (i, pair) in turns.windows(2).enumerate() {
            assert!(pair[0] < pair[1], "{} before {}", in_turn[i].0, in_turn[i + 1].0);
        }
        assert!(in_turn[7].1.turn(true) < in_turn[0].1.turn(true), "first walks before second ones");
    }

    #[test]
    fn a_third_walk_that_tells_much_is_not_put_off() {
        let means = Means { share: 0.001, read_ns: 30e6, pages: 1000, spare: Needs::default(), many_firsts: false };
        // Before the second walk half was cleared, with the second the rest.
        let due_s = |cleared: f64| {
            let mut s = schedule(1, 30, 1000);
            s.walk = Spent { spent_ns: 1e6, first_ns: cleared * CLEAR_NS, ..Spent::default() };
            s.learn(Some(means), S, LONGEST_NS);
            s.put_next(Some(means), S, false, 31 * S);
            s.due_ns / S
        };
        assert_eq!((due_s(500.0), due_s(0.0)), (40, 105));
    }

    #[test]
    fn several_walks_that_clear_little_tell_its_price_as_one_that_clears_much_does() {
        let after = |walks: u32, cleared_ns: f64| {
            let mut s = schedule(1, 0, 1000);
            for _ in 0..walks {
                let (read_ns, real_ns) = (100_000.0, cleared_ns * 4.0);
                s.walk = Spent { spent_ns: read_ns + real_ns, read_ns: Some(read_ns), cleared_ns, ..Spent::default() };
                s.learn(None, S, LONGEST_NS);
            }
            s.price_factor
        };
        assert_eq!(after(1, ENOUGH_NS * 0.9), FIRST_PRICE_FACTOR, "too little to tell");
        let once = FIRST_PRICE_FACTOR + (4.0 - FIRST_PRICE_FACTOR) * NEWEST;
        assert!((after(1, ENOUGH_NS * 1.2) - once).abs() < 1e-6);
        assert!((after(4, ENOUGH_NS * 0.3) - once).abs() < 1e-6);
    }
}
