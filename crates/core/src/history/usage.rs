//! How likely pages in use are to be used again, from what walks have seen.
//!
//! A page that one walk cleared and the next finds accessed was used in between. Uses are taken to come at random moments
//! at a constant rate (a Poisson process), so that the share of such pages, over the time between two walks, tells what
//! to expect of any shorter or longer time.

/// Of what earlier walks saw, so much counts at each further one.
const REMEMBERED: f64 = 0.7;
/// Fewer pages do not tell a share.
const LEAST: f64 = 64.0;

/// Pages that one walk cleared, and of these those that the next found accessed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Again {
    cleared: f64,
    accessed: f64,
}

impl Again {
    fn note(&mut self, cleared: u64, accessed: u64) {
        self.cleared = self.cleared * REMEMBERED + cleared as f64;
        self.accessed = self.accessed * REMEMBERED + accessed as f64;
    }

    fn share(&self) -> Option<f64> {
        (self.cleared >= LEAST).then(|| (self.accessed / self.cleared).clamp(0.0, 1.0))
    }
}

/// What the walks of an address space have seen of pages in use.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reuse {
    seen: Again,
    left_set: Again,
}

impl Reuse {
    /// A walk found `again` of the `used` pages accessed that the walk before had found accessed and cleared, and `held`
    /// of the `tried` that had been left set until that one cleared them.
    pub fn note(&mut self, (used, again): (u64, u64), (tried, held): (u64, u64)) {
        self.seen.note(used, again);
        self.left_set.note(tried, held);
    }

    /// For the last walk, at `walk_ns`, and the one `interval_ns` before. Where too little was seen, pages in use are
    /// taken to be all the time.
    pub fn usage(&self, walk_ns: u64, interval_ns: u64) -> Usage {
        let again = self.seen.share();
        Usage {
            walk_ns,
            interval_ns,
            again: again.unwrap_or(1.0),
            held: self.left_set.share().or(again).unwrap_or(1.0),
        }
    }
}

/// What to expect of pages in use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Usage {
    /// When the last walk was, ns, and the time between walks.
    pub walk_ns: u64,
    pub interval_ns: u64,
    /// Of the pages that a walk found accessed, the share that the next one finds accessed, too.
    pub again: f64,
    /// The same of pages that were left set.
    pub held: f64,
}

impl Usage {
    /// Pages in use are all the time, as of walks at `walk_ns`.
    pub const fn constant(walk_ns: u64) -> Self {
        Self { walk_ns, interval_ns: 1, again: 1.0, held: 1.0 }
    }

    /// Of pages used once at least within the last `within_ns`, and left set or cleared by the last walk for the first
    /// time since, the share that is to be expected not to have been used for `ns`.
    pub fn idle(&self, ns: u64, within_ns: u64) -> f64 {
        // Whoever was left set for longer belongs to those that have to be tried.
        let again = if within_ns <= self.interval_ns * 3 / 2 { self.again } else { self.held };
        let not_used = |ns: u64| (1.0 - again).powf(ns as f64 / self.interval_ns.max(1) as f64);
        let (ns, within_ns) = (ns.min(within_ns), within_ns.max(1));
        if again < 0.001 {
            return 1.0 - ns as f64 / within_ns as f64;
        }
        (not_used(ns) - not_used(within_ns)) / (1.0 - not_used(within_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn shorter_and_longer_times_follow_from_the_time_between_walks() {
        let mut reuse = Reuse::default();
        assert_eq!(reuse.usage(100 * S, 10 * S), Usage { interval_ns: 10 * S, ..Usage::constant(100 * S) });
        reuse.note((1000, 750), (0, 0));
        let usage = reuse.usage(100 * S, 10 * S);
        assert_eq!((usage.again, usage.held), (0.75, 0.75), "nobody has tried pages left set");
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        near(usage.idle(5 * S, 10 * S), 1.0 / 3.0);
        near(usage.idle(0, 10 * S), 1.0);
        near(usage.idle(10 * S, 10 * S), 0.0);
        near(usage.idle(5 * S, 1000 * S), 0.5);
        near(usage.idle(20 * S, 1000 * S), 0.0625);
        reuse.note((0, 0), (100, 100));
        assert_eq!(reuse.usage(110 * S, 10 * S).held, 1.0);
    }

    #[test]
    fn pages_never_used_again_were_used_at_any_time() {
        let mut reuse = Reuse::default();
        reuse.note((1000, 0), (1000, 0));
        let usage = reuse.usage(100 * S, 10 * S);
        assert!((usage.idle(3 * S, 10 * S) - 0.7).abs() < 1e-9);
        assert!((usage.idle(3 * S, 30 * S) - 0.9).abs() < 1e-9);
        assert_eq!(Usage::constant(S).idle(S, 5 * S), 0.0);
    }
}
