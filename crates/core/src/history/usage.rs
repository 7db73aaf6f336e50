//! How likely pages in use are to be used again, from what walks have seen.
//!
//! A page that one walk cleared and the next finds accessed was used in between. Uses of a page are taken to come at
//! random moments at a rate of its own (a Poisson process), and rates of pages to differ by orders of magnitude, as those
//! of real programs do: [`Rates`]. Then the share of pages that are used again between two walks tells what to expect of
//! any shorter or longer time. With one rate for all pages, a few that are not used again would say that all are used
//! about that seldom, however constantly the others are.

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
    fn note(&mut self, cleared: u64, accessed: u64) {
        self.cleared = self.cleared * REMEMBERED + cleared as f32;
        self.accessed = self.accessed * REMEMBERED + accessed as f32;
    }

    fn rates(&self) -> Option<Rates> {
        (self.cleared >= LEAST).then(|| Rates::of_share(f64::from(self.accessed) / f64::from(self.cleared)))
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
    /// Halvings of the interval that holds [`ln_highest`](Self::ln_highest).
    const STEPS: u32 = 50;

    /// Those of pages of which `share` (0 to 1) is used between two walks, of those used between the two before.
    ///
    /// Used in both of two intervals are those used in the one and those used in the other, less those used in either:
    /// `2 ln(1 + h) - ln(1 + 2 h)`.
    fn of_share(share: f64) -> Self {
        let used_again = |ln: f64| 2.0 - used(ln + std::f64::consts::LN_2) / used(ln);
        let (mut low, mut high) = (Self::LINEAR, 1e4);
        if share >= used_again(high) {
            return Self::CONSTANT;
        }
        for _ in 0..Self::STEPS {
            let middle = (low + high) / 2.0;
            if used_again(middle) < share { low = middle } else { high = middle }
        }
        Self { ln_highest: low as f32 }
    }

    /// Of pages used within `within` intervals between walks, the share that is not used within `time` of these.
    fn idle(self, time: f64, within: f64) -> f64 {
        if self == Self::CONSTANT {
            return 0.0;
        }
        let ln_highest = f64::from(self.ln_highest);
        1.0 - used(ln_highest + time.ln()) / used(ln_highest + within.ln())
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
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reuse {
    seen: Again,
    left_set: Again,
    /// What follows from both; `None`: not known.
    rates: [Option<Rates>; 2],
}

impl Reuse {
    /// A walk found `again` of the `used` pages accessed that the walk before had found accessed and cleared, and `held`
    /// of the `tried` that had been left set until that one cleared them.
    pub fn note(&mut self, (used, again): (u64, u64), (tried, held): (u64, u64)) {
        self.seen.note(used, again);
        self.left_set.note(tried, held);
        self.rates = [self.seen.rates(), self.left_set.rates()];
    }

    /// For the last walk, at `walk_ns`, and the one `interval_ns` before. Where too little was seen, pages in use are
    /// taken to be all the time.
    pub fn usage(&self, walk_ns: u64, interval_ns: u64) -> Usage {
        let [again, held] = self.rates;
        Usage {
            walk_ns,
            interval_ns,
            again: again.unwrap_or(Rates::CONSTANT),
            held: held.or(again).unwrap_or(Rates::CONSTANT),
        }
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
}

impl Usage {
    /// Pages in use are all the time, as of walks at `walk_ns`.
    pub const fn constant(walk_ns: u64) -> Self {
        Self { walk_ns, interval_ns: 1, again: Rates::CONSTANT, held: Rates::CONSTANT }
    }

    /// Of pages used once at least within the last `within_ns`, and left set or cleared by the last walk for the first
    /// time since, the share that is to be expected not to have been used for `ns`.
    pub fn idle(&self, ns: u64, within_ns: u64) -> f64 {
        // Whoever was left set for longer belongs to those that have to be tried.
        let rates = if within_ns <= self.interval_ns * 3 / 2 { self.again } else { self.held };
        let intervals = |ns: u64| ns as f64 / self.interval_ns.max(1) as f64;
        let within_ns = within_ns.max(1);
        rates.idle(intervals(ns.min(within_ns)), intervals(within_ns))
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

    #[test]
    fn shorter_and_longer_times_follow_from_the_time_between_walks() {
        let mut reuse = Reuse::default();
        assert_eq!(reuse.usage(100 * S, 10 * S), Usage { interval_ns: 10 * S, ..Usage::constant(100 * S) });
        // With a highest rate of 12.0 in 10 s: 2 ln 13 - ln 25 of ln 13.
        reuse.note((100_000, 74_504), (0, 0));
        let usage = reuse.usage(100 * S, 10 * S);
        assert_eq!(usage.held, usage.again, "nobody has tried pages left set");
        near(usage.idle(5 * S, 10 * S), 1.0 - 7f64.ln() / 13f64.ln());
        near(usage.idle(0, 10 * S), 1.0);
        near(usage.idle(10 * S, 10 * S), 0.0);
        near(usage.idle(10 * S, 1000 * S), 1.0 - 13f64.ln() / 1201f64.ln());
        reuse.note((0, 0), (100, 100));
        assert_eq!(reuse.usage(110 * S, 10 * S).held, Rates::CONSTANT);
    }

    #[test]
    fn pages_never_used_again_were_used_at_any_time() {
        let mut reuse = Reuse::default();
        reuse.note((1000, 0), (1000, 0));
        let usage = reuse.usage(100 * S, 10 * S);
        near(usage.idle(3 * S, 10 * S), 0.7);
        near(usage.idle(3 * S, 30 * S), 0.9);
        near(Usage::constant(S).idle(S, 5 * S), 0.0);
    }

    #[test]
    fn a_few_pages_left_alone_say_nothing_of_those_used_all_the_time() {
        let mut reuse = Reuse::default();
        reuse.note((12_850, 12_835), (12_850, 12_835));
        let usage = reuse.usage(100 * S, 25 * S);
        assert!(usage.idle(S, 25 * S) < 0.02, "{}", usage.idle(S, 25 * S));
        assert!(usage.idle(S, 75 * S) < 0.02, "{}", usage.idle(S, 75 * S));
    }
}
