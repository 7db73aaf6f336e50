//! What is known of a page's last access, and of one that several targets map.

use super::epoch::{ABSENT, BLIND, Epoch, Epochs, STANDING};
use super::frame::IdlePages;
use super::usage::Usage;

/// By when a page was accessed for the last time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct By {
    /// Not after, ns.
    pub ns: u64,
    /// For certain not after, ns. Later where another process has the page as [`Copied`](Known::Copied): the kernel may have
    /// cleared a bit there before anybody looked.
    pub certain_ns: u64,
    /// Whether it was in use up to then, as far as anybody knows: then its process stopped running.
    pub in_use: bool,
}

impl By {
    /// For certain by `ns`.
    pub const fn certain(ns: u64) -> Self {
        Self { ns, certain_ns: ns, in_use: false }
    }

    fn max(self, other: Self) -> Self {
        let (ns, in_use) = (self.ns, self.in_use).max((other.ns, other.in_use));
        Self { ns, certain_ns: self.certain_ns.max(other.certain_ns), in_use }
    }

    /// The same of a page of a process that has not run since `since_ns`.
    fn not_since(self, since_ns: u64) -> Self {
        let in_use = self.in_use || self.ns >= since_ns;
        Self { ns: self.ns.min(since_ns), certain_ns: self.certain_ns.min(since_ns), in_use }
    }

    fn or_copied(self, ns: u64) -> Self {
        Self { certain_ns: self.certain_ns.max(ns), ..self }
    }

    const fn later(self, ns: u64) -> Self {
        Self { ns: self.ns + ns, certain_ns: self.certain_ns + ns, ..self }
    }
}

/// What is known of a present page's last access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Known {
    /// Nothing: it cannot be observed.
    Blind,
    /// It was there before the watch, and when it was used then is not known: accessed after the one moment (ns; `None`: at
    /// any time) and by the other (`None`: until now, for its bit has never been cleared).
    Open {
        /// Not before.
        after_ns: Option<u64>,
        /// Not after.
        by: Option<By>,
    },
    /// Of a process that began shortly before the watch, a page whose bit was clear then, ns: it came by a fork, and this
    /// process has not accessed it. When others did, their figures tell.
    Copied(u64),
    /// After this moment; when, nobody knows, since its bit has not been cleared.
    Standing(u64),
    /// In an interval.
    In {
        /// Not before, ns.
        after_ns: u64,
        /// Not after.
        by: By,
    },
}

impl Known {
    /// What the byte `code` says; `None`: the page is not present. `started_ns`: of a process that began shortly before the
    /// watch, when; what it has accessed, it has since.
    pub fn of(code: u8, epochs: &Epochs, started_ns: Option<u64>) -> Option<Self> {
        const NEVER: u8 = STANDING | Epochs::BEFORE;
        match code {
            ABSENT => None,
            BLIND => Some(Self::Blind),
            NEVER => Some(Self::Open { after_ns: started_ns, by: None }),
            c if c & STANDING != 0 => Some(Self::Standing(epochs.of(c).by_ns)),
            Epochs::BEFORE if started_ns.is_some() => Some(Self::Copied(epochs.begin_ns())),
            c => {
                let Epoch { after_ns, by_ns } = epochs.of(c);
                let by = By::certain(by_ns);
                Some(match after_ns {
                    Some(after_ns) => Self::In { after_ns, by },
                    None => Self::Open { after_ns: started_ns, by: Some(by) },
                })
            }
        }
    }

    /// What is known of the last access to a page by either of two who map it.
    pub fn or(self, other: Self) -> Self {
        use Known::{Blind, Copied, In, Open, Standing};
        match (self, other) {
            (Blind, _) | (_, Blind) => Blind,
            (Copied(a), Copied(b)) => Copied(a.max(b)),
            (Copied(ns), Open { after_ns, by }) | (Open { after_ns, by }, Copied(ns)) => {
                Open { after_ns, by: by.map(|by| by.or_copied(ns)) }
            }
            (Copied(ns), In { after_ns, by }) | (In { after_ns, by }, Copied(ns)) => {
                In { after_ns, by: by.or_copied(ns) }
            }
            (Copied(_), Standing(a)) | (Standing(a), Copied(_)) => Standing(a),
            (Standing(a), Standing(b)) => Standing(a.max(b)),
            (Standing(a), Open { after_ns, .. }) | (Open { after_ns, .. }, Standing(a)) => {
                Standing(after_ns.map_or(a, |after| after.max(a)))
            }
            (Standing(a), In { after_ns, .. }) | (In { after_ns, .. }, Standing(a)) => Standing(after_ns.max(a)),
            (Open { after_ns: a, by }, In { after_ns: b, by: in_by })
            | (In { after_ns: b, by: in_by }, Open { after_ns: a, by }) => {
                let after_ns = a.map_or(b, |a| a.max(b));
                match by {
                    Some(by) => In { after_ns, by: by.max(in_by) },
                    None => Open { after_ns: Some(after_ns), by },
                }
            }
            (Open { after_ns: a, by: a_by }, Open { after_ns: b, by: b_by }) => {
                Open { after_ns: a.max(b), by: a_by.zip(b_by).map(|(a, b)| a.max(b)) }
            }
            (In { after_ns: a, by: a_by }, In { after_ns: b, by: b_by }) => {
                In { after_ns: a.max(b), by: a_by.max(b_by) }
            }
        }
    }

    /// The same of a page whose process has not run since this moment, ns: nor has it accessed the page, whether its bit can be
    /// cleared or not.
    pub fn not_since(self, since_ns: u64) -> Self {
        let any_time = By::certain(u64::MAX);
        match self {
            Self::Blind => Self::Open { after_ns: None, by: Some(any_time.not_since(since_ns)) },
            Self::Open { after_ns, by } => {
                let by = by.unwrap_or(any_time).not_since(since_ns.max(after_ns.unwrap_or(0)));
                Self::Open { after_ns, by: Some(by) }
            }
            Self::Copied(by_ns) => Self::Copied(by_ns.min(since_ns)),
            Self::Standing(after_ns) => Self::In { after_ns, by: any_time.not_since(since_ns.max(after_ns)) },
            Self::In { after_ns, by } => Self::In { after_ns, by: by.not_since(since_ns.max(after_ns)) },
        }
    }

    /// The same of an access so much later, ns.
    pub fn later(self, ns: u64) -> Self {
        match self {
            Self::Blind => self,
            Self::Open { after_ns, by } => {
                Self::Open { after_ns: after_ns.map(|after| after + ns), by: by.map(|by| by.later(ns)) }
            }
            Self::Copied(by_ns) => Self::Copied(by_ns + ns),
            Self::Standing(after_ns) => Self::Standing(after_ns + ns),
            Self::In { after_ns, by } => Self::In { after_ns: after_ns + ns, by: by.later(ns) },
        }
    }

    /// Adds what is certain of `pages` pages that are to have been idle since `limit_ns` to `sum`; returns the share of
    /// them that is to be expected in addition.
    pub(super) fn idle(self, limit_ns: u64, usage: Usage, pages: u64, sum: &mut IdlePages) -> f64 {
        let (mut least, mut most, mut unresolved, mut expected) = (0, 0, 0, 0.0);
        match self {
            Self::Blind => {}
            Self::Open { by: Some(by), .. } | Self::In { by, .. } if by.certain_ns <= limit_ns => {
                (least, most) = (pages, pages);
            }
            Self::Open { by: Some(by), .. } | Self::In { by, .. } if by.ns <= limit_ns => {
                (most, expected) = (pages, 1.0)
            }
            Self::Copied(by_ns) if by_ns <= limit_ns => (least, most) = (pages, pages),
            Self::Open { after_ns: Some(after), .. } if after >= limit_ns => {}
            Self::Open { .. } | Self::Copied(_) => (most, unresolved) = (pages, pages),
            // Its bit is set again: it was used after that, and nobody knows whether it still is.
            Self::Standing(after_ns) if after_ns < limit_ns => {
                most = pages;
                expected = usage.idle(usage.walk_ns - limit_ns, usage.walk_ns - after_ns);
            }
            Self::In { after_ns: after, by } if after < limit_ns => {
                most = pages;
                expected = if by.in_use || by.ns == usage.walk_ns {
                    usage.idle(by.ns - limit_ns, by.ns - after)
                } else {
                    (limit_ns - after) as f64 / (by.ns - after) as f64
                };
            }
            Self::Standing(_) | Self::In { .. } => {}
        }
        sum.least += least;
        sum.most += most;
        sum.unresolved += unresolved;
        expected
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: u64 = 1_000_000_000;
    const NOW: u64 = 100 * S;

    fn within(after_ns: u64, by_ns: u64) -> Known {
        Known::In { after_ns, by: By::certain(by_ns) }
    }

    /// Of one page: for certain idle, to be expected, at most, and not resolved.
    fn idle(known: Known, age_s: u64) -> (u64, f64, u64, u64) {
        let mut sum = IdlePages::default();
        let expected = known.idle(NOW - age_s * S, Usage::constant(NOW), 1, &mut sum);
        (sum.least, expected, sum.most, sum.unresolved)
    }

    #[test]
    fn a_page_that_a_young_copy_has_left_alone_is_as_old_as_in_the_other_process() {
        let server = within(10 * S, 12 * S);
        let cleared_once = Known::Open { after_ns: None, by: Some(By::certain(12 * S)) };
        for page in [server, cleared_once] {
            assert_eq!(
                idle(page.or(Known::Copied(95 * S)), 60),
                (0, 1.0, 1, 0),
                "who knows who cleared a bit of the copy's"
            );
            assert_eq!(idle(page.or(Known::Copied(95 * S)), 5), (1, 0.0, 1, 0));
        }
        assert_eq!(idle(Known::Copied(95 * S), 60), (0, 0.0, 1, 1), "nobody else maps it any more");
        let copy_in_use = Known::Open { after_ns: Some(93 * S), by: None };
        assert_eq!(idle(copy_in_use, 60), (0, 0.0, 0, 0), "it was accessed since the process began");
        assert_eq!(idle(copy_in_use, 5), (0, 0.0, 1, 1));
        assert_eq!(idle(server.or(copy_in_use), 60), (0, 0.0, 0, 0));
    }

    #[test]
    fn bytes_of_a_process_that_began_lately_say_so() {
        let mut epochs = Epochs::new(90 * S);
        epochs.begin_walk(90 * S);
        let cleared = epochs.unknown();
        epochs.end_walk(90 * S, None);
        let of = |code, started_ns| Known::of(code, &epochs, started_ns).unwrap();
        let open = |after_ns, by_ns: Option<u64>| Known::Open { after_ns, by: by_ns.map(By::certain) };
        assert_eq!(of(Epochs::BEFORE, None), open(None, Some(90 * S)));
        assert_eq!(of(Epochs::BEFORE, Some(80 * S)), Known::Copied(90 * S));
        assert_eq!(of(STANDING | Epochs::BEFORE, Some(80 * S)), open(Some(80 * S), None));
        assert_eq!(of(cleared, Some(80 * S)), open(Some(80 * S), Some(90 * S)));
        assert_eq!(Known::of(ABSENT, &epochs, Some(80 * S)), None);
    }

    #[test]
    fn what_was_in_use_until_its_process_stopped_was_not_left_alone_before() {
        let (stopped, usage) = (NOW - 5 * S, Usage::constant(NOW));
        let expected = |known: Known, age_s: u64| {
            let mut sum = IdlePages::default();
            (known.idle(NOW - age_s * S, usage, 1, &mut sum), sum.least)
        };
        // Left set for a minute, found accessed by the last walk, which saw it stop, or by both of two processes that do.
        let found = within(NOW - 20 * S, NOW);
        for known in [Known::Standing(NOW - 60 * S), found, found.or(Known::Standing(NOW - 60 * S))] {
            let rests = known.not_since(stopped);
            assert_eq!((expected(rests, 1), expected(rests, 5)), ((0.0, 1), (0.0, 1)), "it does not run");
            assert_eq!(expected(rests, 10), (0.0, 0), "it was in use until then");
            assert_eq!(expected(rests.or(Known::Copied(stopped)), 10), (0.0, 0));
            assert_eq!(expected(rests.or(within(0, stopped - S)), 10), (0.0, 0));
        }
        // Found accessed some time before.
        let earlier = within(NOW - 20 * S, NOW - 10 * S).not_since(stopped);
        assert_eq!(expected(earlier, 15), (0.5, 0));
    }

    prop_compose! {
        /// Two moments, in order.
        fn moments()(a in 0..100u64, b in 0..100u64) -> (u64, u64) { (a.min(b) * S, a.max(b) * S) }
    }

    fn known() -> impl Strategy<Value = Known> {
        prop_oneof![
            Just(Known::Blind),
            (prop::option::of(0..50u64), prop::option::of(50..100u64)).prop_map(|(after, by)| Known::Open {
                after_ns: after.map(|s| s * S),
                by: by.map(|s| By::certain(s * S)),
            }),
            (0..100u64).prop_map(|at| Known::Copied(at * S)),
            (0..100u64).prop_map(|at| Known::Standing(at * S)),
            (moments(), any::<bool>()).prop_map(|((after_ns, by_ns), in_use)| Known::In {
                after_ns,
                by: By { in_use, ..By::certain(by_ns) },
            }),
        ]
    }

    proptest! {
        /// The order of those who map a page does not matter, and what one of them has certainly accessed is not idle.
        #[test]
        fn of_several_mappers_the_last_access_counts(a in known(), b in known(), c in known(), age in 0..100u64) {
            prop_assert_eq!(a.or(b), b.or(a));
            prop_assert_eq!(a.or(a), a);
            prop_assert_eq!(a.or(b).or(c), a.or(b.or(c)));
            if a == Known::Blind || b == Known::Blind {
                return Ok(());
            }
            let (least, expected, most, unresolved) = idle(a.or(b), age);
            prop_assert!(least <= most && unresolved <= most && least as f64 + expected <= 1.0);
            prop_assert!(least == idle(a, age).0.min(idle(b, age).0), "certain is what is certain of both");
            prop_assert!(most <= idle(a, age).2.min(idle(b, age).2));
        }

        /// Whoever does not run makes more certain, and of nothing that was.
        #[test]
        fn what_has_not_run_since_has_accessed_nothing_since(known in known(), since in 0..100u64, age in 0..100u64) {
            let resting = known.not_since(since * S);
            let (least, expected, most, unresolved) = idle(resting, age);
            prop_assert!(least >= idle(known, age).0 && unresolved <= idle(known, age).3.max(u64::from(known == Known::Blind)));
            prop_assert!(least as f64 + expected <= 1.0 && unresolved <= most);
            let accessed_before = match known {
                Known::Standing(after_ns) | Known::In { after_ns, .. } => after_ns.max(since * S),
                Known::Open { after_ns, .. } => after_ns.unwrap_or(0).max(since * S),
                _ => since * S,
            };
            if accessed_before <= NOW - age * S {
                prop_assert_eq!((least, most, unresolved), (1, 1, 0));
            }
            prop_assert_eq!(resting.not_since(since * S), resting);
        }
    }
}
