//! Whether a page was touched during some time: computed from the workload, without keeping state.

use crate::random::mix;
use crate::workload::members::Members;
use crate::workload::sweep::Sweep;
use crate::workload::truth::touches_after;
use crate::workload::{Plan, Workload};
use isotherm_core::addr::PAGE_SIZE;
use std::ops::Range;

/// A workload that runs at some rate, prepared for questions about single pages.
///
/// Areas that are gone through in rounds give exact answers. Random draws (Zipf) are independent Poisson processes per
/// page, so that a page of rate r is touched within t with a probability of 1 - exp(-r t); which moments those are
/// follows from seed and page alone, so that the answers to overlapping questions fit together.
#[derive(Debug, Clone)]
pub struct Activity {
    workload: Workload,
    rate: f64,
    cycle_ns: u64,
    /// Parts of the arena that are touched at some time, in address order, with who touches them.
    segments: Vec<Segment>,
}

#[derive(Debug, Clone)]
struct Segment {
    pages: Range<u64>,
    touched_by: Vec<Toucher>,
}

/// An area of a stage, with what answering about it needs.
#[derive(Debug, Clone)]
struct Toucher {
    /// When its stage begins within a cycle, ns.
    starts_ns: u64,
    /// When its stage ends within a cycle, ns.
    ends_ns: u64,
    first_page: u64,
    /// Pages of the area, touched or not.
    pages: u64,
    members: Members,
    plan: Plan,
    share: f64,
    seed: u64,
}

impl Activity {
    /// `workload` at `rate` touches per second (over all its areas).
    pub fn new(workload: Workload, rate: f64) -> Self {
        let mut touchers = Vec::new();
        let mut starts_ns = 0u64;
        for (s, stage) in workload.stages().iter().enumerate() {
            let ends_ns = starts_ns.saturating_add(stage.duration_ns);
            for (a, area) in stage.areas.iter().enumerate() {
                let first_page = area.range().start / PAGE_SIZE;
                let seed = mix(mix(workload.seed(), s as u64), a as u64);
                let (pages, members, plan) = (area.pages(), area.members(), *area.plan());
                let share = stage.share(a);
                let toucher = Toucher { starts_ns, ends_ns, first_page, pages, members, plan, share, seed };
                touchers.push((first_page..first_page + pages, toucher));
            }
            starts_ns = ends_ns;
        }
        let mut borders: Vec<u64> = touchers.iter().flat_map(|(p, _)| [p.start, p.end]).collect();
        borders.sort_unstable();
        borders.dedup();
        let mut segments: Vec<Segment> =
            borders.windows(2).map(|b| Segment { pages: b[0]..b[1], touched_by: Vec::new() }).collect();
        for (pages, toucher) in touchers {
            let first = segments.partition_point(|s| s.pages.start < pages.start);
            for segment in segments[first..].iter_mut().take_while(|s| s.pages.start < pages.end) {
                segment.touched_by.push(toucher.clone());
            }
        }
        segments.retain(|s| !s.touched_by.is_empty());
        Self { workload, rate, cycle_ns: starts_ns, segments }
    }

    pub const fn workload(&self) -> &Workload {
        &self.workload
    }

    /// Touches per second.
    pub const fn rate(&self) -> f64 {
        self.rate
    }

    /// Whether `page` of the arena was touched during `[from_ns, to_ns)` since the workload's start.
    pub fn touched(&self, page: u64, from_ns: u64, to_ns: u64) -> bool {
        self.overlapping(page..page + 1)
            .any(|(segment, _)| segment.touched_by.iter().any(|t| self.touched_by(t, page, from_ns, to_ns)))
    }

    /// Whether any of `pages` was touched during `[from_ns, to_ns)`.
    pub(crate) fn any_touched(&self, pages: Range<u64>, from_ns: u64, to_ns: u64) -> bool {
        self.overlapping(pages).any(|(segment, common)| {
            segment.touched_by.iter().any(|t| {
                let mut numbers = t.within(&common);
                (!numbers.is_empty() && self.all_touched_by(t, from_ns, to_ns))
                    || numbers.any(|number| self.number_touched_by(t, number, from_ns, to_ns))
            })
        })
    }

    /// Calls `visit` for runs of pages, in order and disjoint, that cover just those of `pages` that were touched
    /// during `[from_ns, to_ns)`.
    pub(crate) fn for_each_touched(
        &self,
        pages: Range<u64>,
        from_ns: u64,
        to_ns: u64,
        mut visit: impl FnMut(Range<u64>),
    ) {
        for (segment, common) in self.overlapping(pages) {
            let whole = |t: &Toucher| t.members == Members::All && self.all_touched_by(t, from_ns, to_ns);
            if segment.touched_by.iter().any(whole) {
                visit(common);
                continue;
            }
            if let [t] = &segment.touched_by[..] {
                let all = self.all_touched_by(t, from_ns, to_ns);
                for number in t.within(&common) {
                    if all || self.number_touched_by(t, number, from_ns, to_ns) {
                        let page = t.first_page + t.members.page(number, t.pages);
                        visit(page..page + 1);
                    }
                }
                continue;
            }
            for page in common {
                if segment.touched_by.iter().any(|t| self.touched_by(t, page, from_ns, to_ns)) {
                    visit(page..page + 1);
                }
            }
        }
    }

    /// When `page` is touched for the first time at `from_ns` or later; `None`: never again.
    pub(crate) fn next_touch(&self, page: u64, from_ns: u64) -> Option<u64> {
        let (segment, _) = self.overlapping(page..page + 1).next()?;
        segment.touched_by.iter().filter_map(|t| self.next_touch_by(t, page, from_ns)).min()
    }

    /// Which of `pages` anybody touches at any time: runs, in order.
    pub(crate) fn ever_touched(&self, pages: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        self.overlapping(pages).map(|(_, common)| common)
    }

    /// The share of the touches, 0 to 1, that go to `pages` in the stage that is in force at `at_ns`.
    pub(crate) fn share_of(&self, pages: Range<u64>, at_ns: u64) -> f64 {
        let at = at_ns % self.cycle_ns;
        self.overlapping(pages)
            .map(|(segment, common)| {
                let now = segment.touched_by.iter().filter(|t| t.starts_ns <= at && at < t.ends_ns);
                now.map(|t| t.share * t.weight(t.within(&common))).sum::<f64>()
            })
            .sum()
    }

    /// When the stage that is in force at `at_ns` ends.
    pub fn stage_end_ns(&self, at_ns: u64) -> u64 {
        self.workload.at(at_ns).end_ns
    }

    fn overlapping(&self, pages: Range<u64>) -> impl Iterator<Item = (&Segment, Range<u64>)> {
        let first = self.segments.partition_point(|s| s.pages.end <= pages.start);
        self.segments[first..].iter().take_while(move |s| s.pages.start < pages.end).map(move |s| {
            let common = s.pages.start.max(pages.start)..s.pages.end.min(pages.end);
            (s, common)
        })
    }

    /// The parts of `[from_ns, to_ns)` in which the stage of `t` is in force, as times since that stage began. Cycles
    /// repeat exactly, so a time of a cycle or more needs one.
    fn active<'a>(&self, t: &'a Toucher, from_ns: u64, to_ns: u64) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        let length = to_ns.saturating_sub(from_ns);
        let from = from_ns % self.cycle_ns;
        let to = from.saturating_add(length.min(self.cycle_ns));
        [0, self.cycle_ns].into_iter().filter_map(move |cycle| {
            let start = t.starts_ns.saturating_add(cycle);
            let (a, b) = (from.max(start), to.min(t.ends_ns.saturating_add(cycle)));
            (a < b).then(|| (a - start, b - start))
        })
    }

    fn touched_by(&self, t: &Toucher, page: u64, from_ns: u64, to_ns: u64) -> bool {
        t.number_of(page).is_some_and(|number| self.number_touched_by(t, number, from_ns, to_ns))
    }

    /// Whether `t` touched the page with this number among its pages.
    fn number_touched_by(&self, t: &Toucher, number: u64, from_ns: u64, to_ns: u64) -> bool {
        self.active(t, from_ns, to_ns).any(|(a, b)| match &t.plan {
            Plan::Round(sweep) => {
                sweep.hits(number, touches_after(self.rate, t.share, a), touches_after(self.rate, t.share, b))
            }
            Plan::Draw { ranks, order } => {
                let per_ns = self.rate * t.share * ranks.probability(order.position_of(number)) / 1e9;
                poisson_event(mix(t.seed, number), per_ns, a, b)
            }
        })
    }

    fn next_touch_by(&self, t: &Toucher, page: u64, from_ns: u64) -> Option<u64> {
        let number = t.number_of(page)?;
        // A cycle repeats the one before, so the second tells what all later ones hold.
        let cycle_start = from_ns - from_ns % self.cycle_ns;
        [cycle_start, cycle_start.saturating_add(self.cycle_ns)].into_iter().find_map(|cycle| {
            let start = cycle.saturating_add(t.starts_ns);
            let length = t.ends_ns - t.starts_ns;
            let after = from_ns.saturating_sub(start);
            let moment = match &t.plan {
                Plan::Round(sweep) => self.next_in_round(t, sweep, number, after),
                Plan::Draw { ranks, order } => {
                    let per_ns = self.rate * t.share * ranks.probability(order.position_of(number)) / 1e9;
                    next_poisson_event(mix(t.seed, number), per_ns, after, length)
                }
            };
            moment.filter(|&m| m < length).map(|m| start.saturating_add(m))
        })
    }

    /// The first moment from `after` on, in time of the stage, at which a round comes to the page with this number.
    fn next_in_round(&self, t: &Toucher, sweep: &Sweep, number: u64, after: u64) -> Option<u64> {
        let touches = |ns: u64| touches_after(self.rate, t.share, ns);
        let per_ns = self.rate * t.share / 1e9;
        if per_ns <= 0.0 {
            return None;
        }
        let k = sweep.next_visit(number, touches(after))?;
        // Touch k falls into the ns within which the count of touches passes it. The quotient may be off by rounding.
        let guess = ((k + 1) as f64 / per_ns).floor();
        if guess >= 9e18 {
            return None;
        }
        let mut moment = guess as u64;
        while moment > after && touches(moment) > k {
            moment -= 1;
        }
        while touches(moment + 1) <= k {
            moment += 1;
        }
        Some(moment.max(after))
    }

    /// Whether `t` certainly touched each of the pages that it touches.
    fn all_touched_by(&self, t: &Toucher, from_ns: u64, to_ns: u64) -> bool {
        let Plan::Round(sweep) = &t.plan else { return false };
        self.active(t, from_ns, to_ns).any(|(a, b)| {
            let [a, b] = [a, b].map(|ns| touches_after(self.rate, t.share, ns));
            b - a >= sweep.pages()
        })
    }
}

impl Toucher {
    /// The number of a page among those that are touched.
    fn number_of(&self, page: u64) -> Option<u64> {
        self.members.index_of(page - self.first_page, self.pages)
    }

    /// The numbers of those of `pages` that are touched.
    fn within(&self, pages: &Range<u64>) -> Range<u64> {
        self.members.within(pages.start - self.first_page..pages.end - self.first_page, self.pages)
    }

    /// The share of its touches that go to the pages with these numbers.
    fn weight(&self, numbers: Range<u64>) -> f64 {
        match &self.plan {
            Plan::Round(sweep) => (numbers.end - numbers.start) as f64 / sweep.pages() as f64,
            Plan::Draw { ranks, order } if order.is_sequential() => {
                ranks.probability_below(numbers.end) - ranks.probability_below(numbers.start)
            }
            Plan::Draw { ranks, order } => numbers.map(|n| ranks.probability(order.position_of(n))).sum(),
        }
    }
}

/// Whether a Poisson process of `per_ns` events a nanosecond has one in `[from, to)`.
fn poisson_event(seed: u64, per_ns: f64, from: u64, to: u64) -> bool {
    poisson_cells(per_ns, from, to).any(|(cell, cell_ns)| {
        poisson_moments(seed, cell, cell_ns).any(|moment| from as f64 <= moment && moment < to as f64)
    })
}

/// The ns of the first event in `[from, to)`.
fn next_poisson_event(seed: u64, per_ns: f64, from: u64, to: u64) -> Option<u64> {
    poisson_cells(per_ns, from, to).find_map(|(cell, cell_ns)| {
        let within = poisson_moments(seed, cell, cell_ns).filter(|&m| from as f64 <= m && m < to as f64);
        within.reduce(f64::min).map(|moment| moment as u64)
    })
}

/// The cells of time, and their length, that `[from, to)` reaches into: one event is expected in each.
fn poisson_cells(per_ns: f64, from: u64, to: u64) -> impl Iterator<Item = (u64, f64)> {
    let cell_ns = (1.0 / per_ns).max(1.0);
    let cells = if per_ns <= 0.0 || to <= from {
        0..0
    } else {
        (from as f64 / cell_ns) as u64..(to as f64 / cell_ns).ceil() as u64
    };
    cells.map(move |cell| (cell, cell_ns))
}

/// The moments of the events in a cell. Their number and they themselves are drawn from `seed` and the cell's number,
/// so any question about the process can be answered without keeping it.
fn poisson_moments(seed: u64, cell: u64, cell_ns: f64) -> impl Iterator<Item = f64> {
    /// Distribution function of a Poisson variate of mean 1.
    const AT_MOST: [f64; 7] =
        [0.367_879_441, 0.735_758_882, 0.919_698_603, 0.981_011_843, 0.996_340_153, 0.999_405_815, 0.999_916_759];
    let state = mix(seed, cell);
    let draw = unit(state);
    let events = AT_MOST.iter().take_while(|&&p| draw >= p).count();
    (0..events).map(move |event| (cell as f64 + unit(mix(state, event as u64 + 1))) * cell_ns)
}

/// A number in [0, 1) from 53 bits of `x`.
fn unit(x: u64) -> f64 {
    (x >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::patterns::{Parameters, Pattern};
    use crate::workload::{Area, Order, Stage};
    use isotherm_core::addr::AddrRange;
    use proptest::prelude::*;

    fn arb_workload() -> impl Strategy<Value = Workload> {
        let area =
            (0u64..30, 1u64..30, 1u32..4, any::<bool>(), 0u64..9).prop_map(|(start, len, weight, sequential, n)| {
                let range = AddrRange::new(start * PAGE_SIZE, (start + len) * PAGE_SIZE);
                let members = match n {
                    1..4 => Members::Every { nth: n },
                    4..7 => Members::Random { count: len.div_ceil(n), seed: n },
                    _ => Members::All,
                };
                let order = if sequential { Order::Sequential } else { Order::Scattered };
                Area::sparse(range, f64::from(weight), order, members)
            });
        let stage = (1u64..300, prop::collection::vec(area, 0..3)).prop_map(|(duration_ns, areas)| Stage {
            name: "s".into(),
            duration_ns,
            areas,
        });
        prop::collection::vec(stage, 1..4).prop_map(|stages| Workload::new("t", 60 * PAGE_SIZE, 1, stages).unwrap())
    }

    proptest! {
        #[test]
        fn agrees_with_doing_every_touch(w in arb_workload(), rate in 1e6f64..5e8, from in 0u64..1500, len in 0u64..1500) {
            let to = from + len;
            let mut touched = [false; 60];
            for (current, a, b) in w.during(from, to) {
                for (i, area) in current.stage.areas.iter().enumerate() {
                    let Plan::Round(sweep) = area.plan() else { unreachable!() };
                    let share = current.stage.share(i);
                    let [a, b] = [a, b].map(|t| touches_after(rate, share, t - current.start_ns));
                    for k in a..b {
                        touched[(area.range().start / PAGE_SIZE + area.page(sweep.page_at(k))) as usize] = true;
                    }
                }
            }
            let activity = Activity::new(w, rate);
            let mut runs = [false; 60];
            activity.for_each_touched(0..60, from, to, |pages| pages.for_each(|p| runs[p as usize] = true));
            for page in 0..60u64 {
                prop_assert_eq!(activity.touched(page, from, to), touched[page as usize], "page {}", page);
                prop_assert_eq!(runs[page as usize], touched[page as usize]);
            }
            prop_assert_eq!(activity.any_touched(10..40, from, to), touched[10..40].contains(&true));
        }

        #[test]
        fn random_draws_fit_together(from in 0u64..1_000_000, a in 0u64..1_000_000, b in 0u64..1_000_000, page in 0u64..50) {
            let w = Pattern::Zipf.build(&Parameters::new(50 * PAGE_SIZE)).unwrap();
            let activity = Activity::new(w, 5e4);
            let (mid, to) = (from + a, from + a + b);
            prop_assert_eq!(
                activity.touched(page, from, to),
                activity.touched(page, from, mid) || activity.touched(page, mid, to)
            );
        }
    }

    proptest! {
        #[test]
        fn the_next_touch_is_the_first_one(w in arb_workload(), rate in 1e6f64..2e9, from in 0u64..3000, page in 0u64..60) {
            next_is_first(&Activity::new(w, rate), page, from, 2500)?;
        }

        #[test]
        fn the_next_random_draw_is_the_first_one(rate in 1e6f64..5e8, from in 0u64..100_000, page in 0u64..50) {
            let w = Pattern::Zipf.build(&Parameters::new(50 * PAGE_SIZE)).unwrap();
            next_is_first(&Activity::new(w, rate), page, from, 20_000)?;
        }

        #[test]
        fn shares_of_all_pages_sum_up_to_one(w in arb_workload(), at in 0u64..1000, cut in 0u64..60) {
            let activity = Activity::new(w, 1e9);
            let sum = activity.share_of(0..cut, at) + activity.share_of(cut..60, at);
            let any = !activity.workload().at(at).stage.areas.is_empty();
            prop_assert!((sum - f64::from(u8::from(any))).abs() < 1e-9, "{}", sum);
        }
    }

    /// The next touch lies where `touched` says one is, and none before.
    fn next_is_first(activity: &Activity, page: u64, from: u64, horizon: u64) -> Result<(), TestCaseError> {
        match activity.next_touch(page, from) {
            Some(next) => {
                prop_assert!(next >= from && activity.touched(page, next, next + 1), "none at {}", next);
                prop_assert!(!activity.touched(page, from, next), "one before {}", next);
            }
            None => prop_assert!(!activity.touched(page, from, from + horizon)),
        }
        Ok(())
    }

    #[test]
    fn zipf_pages_have_their_share() {
        for scattered in [false, true] {
            let p = Parameters { scattered, ..Parameters::new(100 * PAGE_SIZE) };
            let activity = Activity::new(Pattern::Zipf.build(&p).unwrap(), 1e6);
            let all: f64 = (0..10).map(|i| activity.share_of(i * 10..i * 10 + 10, 5)).sum();
            assert!((all - 1.0).abs() < 1e-9, "{all}");
            assert!(scattered || activity.share_of(0..10, 5) > 0.5);
        }
    }

    #[test]
    fn random_draws_follow_the_exponential_law() {
        let (per_ns, trials) = (1e-6, 20_000u64);
        for span in [100_000u64, 700_000, 2_300_000] {
            let hits = (0..trials).filter(|&seed| poisson_event(mix(9, seed), per_ns, 350_000, 350_000 + span)).count();
            let expected = 1.0 - (-(span as f64) * per_ns).exp();
            let got = hits as f64 / trials as f64;
            assert!((got - expected).abs() < 0.02, "{span} ns: {got}, expected {expected}");
        }
    }

    #[test]
    fn terabytes_take_little_memory_and_time() {
        let p = Parameters { hot: Some(0.001), seed: 4, ..Parameters::new(5 << 40) };
        let w = Pattern::Stairs.build(&p).unwrap();
        let step = w.stages()[7].areas[0].range();
        let activity = Activity::new(w, 4e9);
        assert_eq!(activity.segments.len(), 1001);
        let page = step.start / PAGE_SIZE + 12_345;
        assert!(!activity.touched(page, 0, 35_000_000_000));
        assert!(activity.touched(page, 0, 36_000_000_000));
        assert!(activity.touched(page, 0, 5_000_000_000_000));
    }
}
