//! How likely pages in use are to be used again, from what walks have seen.
//!
//! A page that one walk cleared and the next finds accessed was used in between. Uses of a page are taken to come at
//! random moments at a rate of its own (a Poisson process), and rates of pages to differ by orders of magnitude, as those
//! of real programs do: [`Rates`]. Then the share of pages that are used again between two walks tells what to expect of
//! any shorter or longer time. With one rate for all pages, a few that are not used again would say that all are used
//! about that seldom, however constantly the others are.
//!
//! Pages that were not used between the two walks before, or were not there, are *fresh*, and less likely to be used again:
//! a garbage collector touches much once. What share of them is used again is measured apart.

use super::table::{Learnt, Retried};

/// Of what earlier walks saw, so much counts at each further one.
const REMEMBERED: f32 = 0.7;
/// Fewer pages do not tell a share.
const LEAST: f32 = 64.0;

/// Pages that one walk cleared, and of these those that the next found accessed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Again {
    cleared: f32,
    accessed: f32,
}

impl Again {
    fn note(&mut self, Retried { cleared, accessed }: Retried) {
        self.cleared = self.cleared * REMEMBERED + cleared as f32;
        self.accessed = self.accessed * REMEMBERED + accessed as f32;
    }

    /// `None`: too few to tell.
    fn share(&self) -> Option<f32> {
        (self.cleared >= LEAST).then(|| self.accessed / self.cleared)
    }

    fn rates(&self, of_share: impl Fn(f64) -> Rates) -> Option<Rates> {
        self.share().map(|share| of_share(f64::from(share)))
    }
}

/// How often pages in use are used: their rates lie evenly on a logarithmic scale below a highest one.
///
/// With the density `exp(-r / h) / r` of a rate `r`, where `h` is the highest, the pages that are used within a time `t`
/// are as `ln(1 + h t)`: the integral of `(1 - exp(-r t)) exp(-r / h) / r` over `r`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rates {
    /// Logarithm of the highest rate, in uses between two walks. (One of these is kept for each address space: it is small.)
    ln_highest: f32,
}

impl Rates {
    /// All pages are used all the time.
    const CONSTANT: Self = Self { ln_highest: f32::INFINITY };
    /// Below this logarithm of a highest rate, and above, `ln(1 + h t)` is `h t`, and `ln(h t)`.
    const LINEAR: f64 = -16.0;
    const LOGARITHMIC: f64 = 40.0;
    /// The least logarithm that is looked for: with less, next to no page is used again.
    const LEAST_LN: f64 = -7.0;
    /// Halvings of the interval that holds [`ln_highest`](Self::ln_highest).
    const STEPS: u32 = 50;

    /// Those of pages of which `share` (0 to 1) is used between two walks, of those used in each of the two intervals before.
    ///
    /// Used in each of several intervals are those used in any one, less those used in any two, and so on: with `u(t)` for
    /// those used within `t`, `2 u(1) - u(2)` of two and `3 u(1) - 3 u(2) + u(3)` of three.
    fn of_steady(share: f64) -> Self {
        Self::of_share(share, |ln| {
            let [one, two, three] = [1.0f64, 2.0, 3.0].map(|t| used(ln + t.ln()));
            (3.0 * one - 3.0 * two + three) / (2.0 * one - two)
        })
    }

    /// The same of those used in the interval before, which are all that is known to have been used once at least.
    fn of_left_set(share: f64) -> Self {
        Self::of_share(share, |ln| 2.0 - used(ln + std::f64::consts::LN_2) / used(ln))
    }

    /// Those by which `share` is `used_again`, by the logarithm of the highest rate, with which it grows.
    fn of_share(share: f64, used_again: impl Fn(f64) -> f64) -> Self {
        let (mut low, mut high) = (Self::LEAST_LN, 1e4);
        if share >= used_again(high) {
            return Self::CONSTANT;
        }
        for _ in 0..Self::STEPS {
            let middle = (low + high) / 2.0;
            if used_again(middle) < share { low = middle } else { high = middle }
        }
        Self { ln_highest: low as f32 }
    }

    /// Of pages used in the last two intervals, the share not used in the last `part` (0 to 1) of them.
    ///
    /// Those used in the first interval, and those used in the rest of the second, which are `u(1) - u(part)` with those of
    /// the last part left out, less those used in either: `u(2) - u(1 + part)` of these were not used in the first.
    fn steady_idle(self, part: f64) -> f64 {
        let ln_highest = f64::from(self.ln_highest);
        let twice = used(ln_highest) - self.more(1.0, 2.0);
        match () {
            () if self == Self::CONSTANT => 0.0,
            // Uses are so rare that two are two of any moments.
            () if twice < 1e-4 * used(ln_highest) => 1.0 - part,
            () => (self.more(part, 1.0) - self.more(1.0 + part, 2.0)) / twice,
        }
    }

    /// Of pages used within `within` intervals between walks, the share that is not used within `time` of these.
    fn idle(self, time: f64, within: f64) -> f64 {
        if self == Self::CONSTANT {
            return 0.0;
        }
        let ln_highest = f64::from(self.ln_highest);
        1.0 - used(ln_highest + time.ln()) / used(ln_highest + within.ln())
    }

    /// The pages used within `long` intervals (above 0) and not within a `short`er part of them.
    fn more(self, short: f64, long: f64) -> f64 {
        if self == Self::CONSTANT {
            return (long / short).ln();
        }
        let ln_highest = f64::from(self.ln_highest);
        used(ln_highest + long.ln()) - used(ln_highest + short.ln())
    }

    /// Of fresh pages, the share that is used again between the next two walks.
    ///
    /// If `u(t)` are the pages used within `t` intervals, `u(2) - u(1)` are not used in a first one and used in a second;
    /// and `u(3) - u(2)` of them are not used in the third either.
    fn fresh_again(self) -> f64 {
        1.0 - self.more(2.0, 3.0) / self.more(1.0, 2.0)
    }

    /// Of pages that became fresh in the first of the last `within` intervals, the share not used in the last `time` (at
    /// most `within`) of these.
    ///
    /// Those not used in the interval before either, but in between: within at most one interval.
    fn fresh_idle(self, time: f64, within: f64) -> f64 {
        self.more(1.0 + time, 1.0 + within.min(1.0 + time)) / self.more(1.0, 2.0)
    }
}

/// `ln(1 + x)`, of the logarithm of `x`.
fn used(ln: f64) -> f64 {
    match ln {
        ln if ln < Rates::LINEAR => ln.exp(),
        ln if ln > Rates::LOGARITHMIC => ln,
        ln => ln.exp().ln_1p(),
    }
}

/// What the walks of an address space have seen of pages in use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reuse {
    steady: Again,
    fresh: Again,
    left_set: Again,
    /// What follows from the steady ones, ...
    again: Rates,
    /// ... and from those left set.
    held: Rates,
}

impl Default for Reuse {
    fn default() -> Self {
        let (nothing, rates) = (Again::default(), Rates::CONSTANT);
        Self { steady: nothing, fresh: nothing, left_set: nothing, again: rates, held: rates }
    }
}

impl Reuse {
    /// A walk has learnt this.
    pub fn note(&mut self, learnt: &Learnt) {
        self.steady.note(learnt.steady);
        self.fresh.note(learnt.fresh);
        self.left_set.note(learnt.held);
        self.again = self.steady.rates(Rates::of_steady).unwrap_or(Rates::CONSTANT);
        self.held = self.left_set.rates(Rates::of_left_set).unwrap_or(self.again);
    }

    /// For the last walk, at `walk_ns`, and the one `interval_ns` before. Where too little was seen, pages in use are
    /// taken to be all the time.
    pub fn usage(&self, walk_ns: u64, interval_ns: u64) -> Usage {
        let Self { again, held, .. } = *self;
        let fresh_again = self.fresh.share().unwrap_or_else(|| again.fresh_again() as f32);
        Usage { walk_ns, interval_ns, again, held, fresh_again, is_fresh: false }
    }
}

/// What to expect of pages in use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Usage {
    /// When the last walk was, ns, and the time between walks.
    pub walk_ns: u64,
    interval_ns: u64,
    /// Of pages that a walk found accessed.
    again: Rates,
    /// Of pages that were left set.
    held: Rates,
    /// Share of fresh pages that is used again between the next two walks.
    fresh_again: f32,
    /// Whether the pages are fresh.
    is_fresh: bool,
}

impl Usage {
    /// Pages in use are all the time, as of walks at `walk_ns`.
    pub const fn constant(walk_ns: u64) -> Self {
        let (again, held) = (Rates::CONSTANT, Rates::CONSTANT);
        Self { walk_ns, interval_ns: 1, again, held, fresh_again: 1.0, is_fresh: false }
    }

    /// That of fresh pages, or of others.
    pub const fn of(self, is_fresh: bool) -> Self {
        Self { is_fresh, ..self }
    }

    /// Of pages used once at least within the last `within_ns`, and left set or cleared by the last walk for the first
    /// time since, the share that is to be expected not to have been used for `ns`.
    pub fn idle(&self, ns: u64, within_ns: u64) -> f64 {
        let within_ns = within_ns.max(1);
        let ns = ns.min(within_ns);
        // Whoever was left set for longer belongs to those that have to be tried.
        let is_recent = within_ns <= self.interval_ns * 3 / 2;
        let intervals = |ns: u64| ns as f64 / self.interval_ns.max(1) as f64;
        let rates = if is_recent { self.again } else { self.held };
        let (time, within) = (intervals(ns), intervals(within_ns));
        if !self.is_fresh {
            return if is_recent { rates.steady_idle(time / within) } else { rates.idle(time, within) };
        }
        // Where fewer are used again than the rates tell, some were used once and never again, at any moment of the first
        // interval; where more are, some are steady.
        let (seen, expected) = (f64::from(self.fresh_again), self.again.fresh_again());
        let within = within.max(1.0);
        let as_rates_tell = self.again.fresh_idle(time, within);
        if seen >= expected {
            return as_rates_tell * (1.0 - seen) / (1.0 - expected);
        }
        let once = 1.0 - seen / expected;
        once * (within - time).min(1.0) + (1.0 - once) * as_rates_tell
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[track_caller]
    fn near(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-3, "{a} {b}");
    }

    fn learnt(steady: (u32, u32), held: (u32, u32)) -> Learnt {
        let retried = |(cleared, accessed)| Retried { cleared, accessed };
        Learnt { steady: retried(steady), held: retried(held), ..Learnt::default() }
    }

    #[test]
    fn shorter_and_longer_times_follow_from_the_time_between_walks() {
        let mut reuse = Reuse::default();
        let fresh_again = Rates::CONSTANT.fresh_again() as f32;
        let nothing_seen = Usage { interval_ns: 10 * S, fresh_again, ..Usage::constant(100 * S) };
        assert_eq!(reuse.usage(100 * S, 10 * S), nothing_seen);
        // With a highest rate of 12.0 in 10 s: 3 ln 13 - 3 ln 25 + ln 37 of 2 ln 13 - ln 25.
        reuse.note(&learnt((100_000, 86_293), (0, 0)));
        let usage = reuse.usage(100 * S, 10 * S);
        assert_eq!(usage.held, usage.again, "nobody has tried pages left set");
        let twice = 2.0 * 13f64.ln() - 25f64.ln();
        near(usage.idle(5 * S, 10 * S), ((13f64 / 7.0).ln() - (25f64 / 19.0).ln()) / twice);
        near(usage.idle(0, 10 * S), 1.0);
        near(usage.idle(10 * S, 10 * S), 0.0);
        near(usage.idle(10 * S, 1000 * S), 1.0 - 13f64.ln() / 1201f64.ln());
        reuse.note(&learnt((0, 0), (100, 100)));
        assert_eq!(reuse.usage(110 * S, 10 * S).held, Rates::CONSTANT);
    }

    #[test]
    fn pages_never_used_again_were_used_at_any_time() {
        let mut reuse = Reuse::default();
        reuse.note(&learnt((1000, 0), (1000, 0)));
        let usage = reuse.usage(100 * S, 10 * S);
        near(usage.idle(3 * S, 10 * S), 0.7);
        near(usage.idle(3 * S, 30 * S), 0.9);
        near(Usage::constant(S).idle(S, 5 * S), 0.0);
    }

    #[test]
    fn a_few_pages_left_alone_say_nothing_of_those_used_all_the_time() {
        let mut reuse = Reuse::default();
        reuse.note(&learnt((12_850, 12_835), (12_850, 12_835)));
        let usage = reuse.usage(100 * S, 25 * S);
        assert!(usage.idle(S, 25 * S) < 0.02, "{}", usage.idle(S, 25 * S));
        assert!(usage.idle(S, 75 * S) < 0.02, "{}", usage.idle(S, 75 * S));
    }

    /// With `walks` of 10 s that found `fresh` used again.
    fn usage_of_fresh(fresh: Option<(u32, u32)>) -> Usage {
        let mut reuse = Reuse::default();
        let fresh = fresh.map_or(Retried::default(), |(cleared, accessed)| Retried { cleared, accessed });
        reuse.note(&Learnt { fresh, ..learnt((100_000, 100_000), (0, 0)) });
        reuse.usage(100 * S, 10 * S).of(true)
    }

    #[test]
    fn fresh_pages_are_expected_to_be_used_again_as_others_were() {
        // Uses at rates of all orders of magnitude: ln(2 / 1.5) / ln 2 of those used in an interval and not in the one before.
        near(usage_of_fresh(None).idle(5 * S, 10 * S), (2.0f64 / 1.5).ln() / 2f64.ln());
        near(usage_of_fresh(Some((1000, 0))).idle(5 * S, 10 * S), 0.5);
        near(usage_of_fresh(Some((1000, 1000))).idle(5 * S, 10 * S), 0.0);
        near(usage_of_fresh(None).of(false).idle(5 * S, 10 * S), 0.0);
        for fresh in [None, Some((1000, 0)), Some((1000, 300)), Some((1000, 900))] {
            near(usage_of_fresh(fresh).idle(10 * S, 10 * S), 0.0);
        }
        // Left set for longer: what was touched once, in the first 10 of 40 s, is idle.
        near(usage_of_fresh(Some((1000, 0))).idle(20 * S, 40 * S), 1.0);
        near(usage_of_fresh(Some((1000, 0))).idle(35 * S, 40 * S), 0.5);
        near(usage_of_fresh(None).idle(20 * S, 40 * S), (4.0f64 / 3.0).ln() / 2f64.ln());
        near(usage_of_fresh(None).idle(35 * S, 40 * S), (5.0f64 / 4.5).ln() / 2f64.ln());
    }

    #[test]
    fn seldom_used_pages_were_used_at_any_time() {
        let mut reuse = Reuse::default();
        reuse.note(&learnt((1000, 0), (1000, 0)));
        near(reuse.usage(100 * S, 10 * S).of(true).idle(3 * S, 10 * S), 0.7);
    }
}
