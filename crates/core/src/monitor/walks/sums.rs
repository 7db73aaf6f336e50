//! What the targets are all together when a turn begins. Of thousands of targets each look at all of them costs as much as a walk: one
//! is enough.

use super::FIRST_FIGURES_NS;
use super::savings::least_share;
use super::schedule::{Needs, Schedule};
use crate::history::tracked::CLEAR_NS;

/// "Much": this part of the pages, unless it is cleared within [`FIRST_FIGURES_NS`] anyway.
const MUCH: f64 = 0.05;
/// Of pages that cannot be observed so large a part may soon be, since the source then clears all of a target at once.
const BLIND_PART: f64 = 0.25;

/// Sums over all targets.
#[derive(Debug, Default)]
pub(super) struct Sums {
    /// What reading costs, where targets that rest need none, ns.
    pub read_ns: f64,
    /// The same of all.
    pub read_all_ns: f64,
    /// Pages that were resident before the first walks.
    pub pages: u64,
    /// What clearing all that should be costs.
    pub needs: Needs,
    /// The largest of all; at least 1.
    pub stretch: f64,
    present: u64,
    blind: u64,
    unresolved: u64,
    /// Of `pages`, those of targets that were forked.
    forked: u64,
    /// Pages of targets of which ages are known, and of all that are waited for.
    known: u64,
    awaited: u64,
}

impl Sums {
    /// `began_ns`: when the watch began. Targets forked since then keep nobody waiting: their pages are their parents', and there may
    /// be new ones all the time.
    pub fn of<'a>(schedules: impl Iterator<Item = &'a Schedule>, began_ns: Option<u64>) -> Self {
        let began_ns = began_ns.unwrap_or(u64::MAX);
        let mut sums = Self { stretch: 1.0, ..Self::default() };
        for s in schedules {
            sums.read_ns += s.price_ns();
            sums.read_all_ns += s.read_ns;
            sums.pages += s.pages;
            sums.present += s.present;
            if !s.rests {
                sums.needs = sums.needs.and(s.needs());
                sums.stretch = sums.stretch.max(s.stretch);
                sums.blind += s.blind;
                sums.unresolved += s.unresolved;
            }
            let forked = s.start.filter(|start| start.forked);
            sums.forked += if forked.is_some() { s.pages } else { 0 };
            if !s.tells_ages && forked.is_some_and(|start| start.time_ns > began_ns) {
                continue;
            }
            let pages = if s.history_walks > 0 { s.present } else { s.pages };
            sums.awaited += pages;
            sums.known += if s.tells_ages { pages } else { 0 };
        }
        sums
    }

    /// What part of all pages is in targets of which ages are known, to an Isotherm before this one, too.
    pub fn known_part(&self) -> f64 {
        self.known as f64 / self.awaited.max(1) as f64
    }

    /// What part of all pages is in targets that were forked.
    pub fn forked_part(&self) -> f64 {
        self.forked as f64 / self.pages.max(1) as f64
    }

    /// Whether much has never been cleared, so much that it would take long with the usual share of `budget`.
    pub fn is_at_first(&self, budget: f64) -> bool {
        let is_blind = self.blind as f64 > BLIND_PART * self.present as f64;
        let unresolved = self.unresolved + if is_blind { self.blind } else { 0 };
        let affordable = least_share(budget) * FIRST_FIGURES_NS / CLEAR_NS;
        unresolved as f64 > (MUCH * self.present as f64).max(affordable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Start;

    #[test]
    fn what_is_known_does_not_wait_for_processes_forked_since() {
        let s = |history_walks, pages, forked_ns: Option<u64>| {
            let mut s = Schedule::new(0);
            (s.history_walks, s.tells_ages) = (history_walks, history_walks > 1);
            (s.pages, s.present) = (pages, pages);
            s.start = forked_ns.map(|time_ns| Start { time_ns, forked: true });
            s
        };
        let all = [s(2, 60, None), s(1, 30, Some(3)), s(0, 10, None), s(1, 900, Some(9)), s(2, 100, Some(9))];
        let sums = Sums::of(all.iter(), Some(5));
        assert_eq!((sums.known_part(), sums.forked_part()), (160.0 / 200.0, 1030.0 / 1100.0));
        assert_eq!(Sums::of([].iter(), None).known_part(), 0.0);
    }
}
