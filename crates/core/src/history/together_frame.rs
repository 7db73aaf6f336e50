//! All targets together, and what of its pages then counts for each.

use super::frame::{IdlePages, PageAges};
use serde::{Deserialize, Serialize};

/// Where fewer pages than one in so many were idle for an age when they were compared, since that had just become known, they say
/// nothing of the others.
const FAIR_PART: u64 = 4;

/// All targets together: a page that several of them map counts once, and is idle only where none of them used it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TogetherFrame {
    /// When, ns of CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// Targets counted.
    pub targets: u32,
    /// One in so many frames was compared between the targets, in the coarser of the samples, to find pages that
    /// several of them map.
    pub one_in: u32,
    /// Their pages.
    pub ages: PageAges,
    /// The same by target, in order of their numbers. Empty where that is not known; records do not keep it.
    pub owned: Vec<Owned>,
}

/// A target's part of a [`TogetherFrame`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owned {
    /// Which target.
    pub target: u32,
    /// When its pages had been walked last, ns of CLOCK_MONOTONIC.
    pub walked_ns: u64,
    /// All that it mapped.
    pub mapped: PageAges,
    /// Of these, those that are its own: a page that several map is the first one's.
    pub ages: PageAges,
}

impl Owned {
    /// Of what it maps by a later walk, the part that is its own: in each figure the same as it was, or as for the longest of
    /// the shorter ages that had [enough](FAIR_PART) of its pages, or as of its resident pages where none had. No more is idle for
    /// a longer age than for a shorter one, of which more is known. What was not known because of other targets
    /// stays so. Targets are walked more often than pages are compared between them, and are known for longer ages later.
    pub fn of_later(&self, mapped: &PageAges) -> PageAges {
        let otherwise = if self.mapped.resident > 0 { (self.ages.resident, self.mapped.resident) } else { (1, 1) };
        let resident = part(self.ages.resident, self.mapped.resident, mapped.resident, otherwise);
        // More than its part of what its own walk did not tell is due to others. It lies in the `known` pages of its walk.
        let not_known = |own: u64, (was, is): (u64, u64), known: (u64, u64)| {
            let by_itself = own.min(part(otherwise.0, otherwise.1, was, otherwise));
            let by_others = part(own - by_itself, known.0, known.1, (0, 1));
            (part(by_itself, was, is, otherwise) + by_others).min(resident)
        };
        // The last that was known when pages were compared. Nothing was compared for a longer age: what was another's of the
        // pages idle for this one is no less another's then.
        let last = (self.mapped.idle.len() + self.mapped.longer.len()).saturating_sub(1);
        let mut ratios = [otherwise; 3];
        let idle = |i: usize| {
            let (before, was, is) = (self.ages.at(i.min(last)), self.mapped.at(i.min(last)), mapped.at(i));
            let figures = |idle: IdlePages| [idle.least, idle.pages, idle.most];
            let mut own = figures(is);
            for (k, (before, was)) in figures(before).into_iter().zip(figures(was)).enumerate() {
                if was > 0 && was.saturating_mul(FAIR_PART) >= own[k] {
                    ratios[k] = (before, was);
                }
                own[k] = part(ratios[k].0, ratios[k].1, own[k], otherwise).min(resident);
            }
            let [least, pages, most] = own;
            let pages = pages.max(least);
            let unresolved = not_known(before.unresolved, (was.unresolved, is.unresolved), (was.pages, is.pages));
            let unresolved = unresolved.min(resident - pages);
            IdlePages { pages, least, most: most.max(pages + unresolved), unresolved }
        };
        let known = mapped.idle.len();
        let mut idle: Vec<IdlePages> = (0..known + mapped.longer.len()).map(idle).collect();
        let (was, is) = (self.mapped.unobservable, mapped.unobservable);
        let observable = (self.mapped.resident.saturating_sub(was), mapped.resident.saturating_sub(is));
        let longer = idle.split_off(known);
        let unobservable = not_known(self.ages.unobservable, (was, is), observable);
        PageAges { resident, unobservable, idle, longer }.lowered()
    }
}

/// Of `is` pages so many as `own` were of `was`; of none, as `otherwise`, a ratio.
fn part(own: u64, was: u64, is: u64, otherwise: (u64, u64)) -> u64 {
    let (own, was) = if was > 0 { (own, was) } else { otherwise };
    (u128::from(is) * u128::from(own) / u128::from(was)).min(is.into()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ages(resident: u64, idle: u64) -> PageAges {
        let idle = IdlePages { pages: idle, least: idle / 2, most: resident, unresolved: (resident - idle) / 2 };
        PageAges { resident, unobservable: resident / 100, idle: vec![idle; 4], longer: Vec::new() }
    }

    fn owned(mapped: PageAges, own: PageAges) -> Owned {
        Owned { target: 1, walked_ns: 0, mapped, ages: own }
    }

    #[test]
    fn what_nobody_shares_is_what_the_last_walk_says() {
        let later = ages(1500, 1300);
        assert_eq!(owned(ages(1000, 0), ages(1000, 0)).of_later(&later), later);
    }

    #[test]
    fn of_shared_pages_the_same_part_stays_its_own() {
        let own = owned(ages(1000, 500), ages(400, 100)).of_later(&ages(2000, 800));
        assert_eq!((own.resident, own.idle[0].pages), (800, 160));
        assert_eq!(own.idle.len(), 4);
        // Nothing was idle when they were compared: as of all its pages.
        let own = owned(ages(1000, 0), ages(400, 0)).of_later(&ages(1000, 100));
        assert_eq!(own.idle[0].pages, 40);
        let later = ages(100, 50);
        assert_eq!(owned(ages(0, 0), ages(0, 0)).of_later(&later), later, "nothing of it was others'");
    }

    #[test]
    fn what_is_not_known_because_of_others_stays_so() {
        // All of it is shared with a child whose pages were walked once, a tenth of which cannot be observed.
        let idle = |pages, unresolved| vec![IdlePages { pages, least: 0, most: pages + unresolved, unresolved }; 4];
        let mapped = |pages| PageAges { resident: 1000, unobservable: 0, idle: idle(pages, 0), longer: Vec::new() };
        let own = PageAges { resident: 1000, unobservable: 100, idle: idle(0, 800), longer: Vec::new() };
        let own = owned(mapped(900), own);
        assert_eq!(own.of_later(&mapped(900)), own.ages, "the same walk");
        let later = own.of_later(&mapped(450));
        assert_eq!((later.idle[0].pages, later.idle[0].unresolved, later.unobservable), (0, 400, 100));
        // What its own walk does not tell is no more than that.
        let itself = PageAges { idle: idle(0, 800), ..mapped(0) };
        let own = owned(itself.clone(), itself);
        let later = own.of_later(&mapped(800));
        assert_eq!((later.idle[0].pages, later.idle[0].unresolved), (800, 0));
    }

    #[test]
    fn of_what_was_idle_for_the_longest_age_known_no_more_is_its_own_for_longer_ones() {
        // It sleeps; a quarter of its pages is others' too, who use it. When they were compared 10 s were known.
        let idle = |pages| IdlePages { pages, least: pages, most: pages, unresolved: 0 };
        let mapped = |ages| PageAges { resident: 1000, idle: vec![idle(1000); ages], ..PageAges::default() };
        let own = owned(mapped(3), PageAges { idle: vec![idle(750); 3], ..mapped(3) });
        assert_eq!(own.of_later(&mapped(6)).idle, [idle(750); 6]);
        let longer = PageAges { longer: vec![idle(1000); 2], ..mapped(4) };
        assert_eq!(own.of_later(&longer).longer, [idle(750); 2]);
        // Nor where none of it had been idle for so long then.
        let younger = |own: u64, all: u64| {
            let idle = |pages| vec![idle(pages), idle(0)];
            owned(PageAges { idle: idle(all), ..mapped(0) }, PageAges { idle: idle(own), ..mapped(0) })
        };
        assert_eq!(younger(750, 1000).of_later(&mapped(2)).idle, [idle(750); 2]);
    }

    #[test]
    fn a_few_pages_of_an_age_that_has_just_become_known_say_nothing_of_all_others() {
        let idle = |pages| IdlePages { pages, least: pages, most: pages, unresolved: 0 };
        let ages =
            |resident, pages: [u64; 2]| PageAges { resident, idle: pages.map(idle).to_vec(), ..PageAges::default() };
        // A program's own pages, a quarter of which it uses, and libraries that a hundred others map. When pages were compared, 18
        // were known to have been idle for the longer age, of which by chance most were its own, or most were not.
        for chance in [17, 2] {
            let own = owned(ages(364, [316, 18]), ages(67, [51, chance]));
            let later = own.of_later(&ages(364, [316, 316]));
            assert_eq!(later.idle, [idle(51), idle(51)], "{chance}");
        }
    }

    /// Figures for so many ages, each in the order that they are in, and no more for a longer age than for a shorter one.
    fn any_ages() -> impl Strategy<Value = PageAges> {
        let idle = proptest::collection::vec([0u64..5000, 0..5000, 0..5000, 0..5000], 0..6);
        (0u64..5000, idle, 0usize..6).prop_map(|(resident, figures, shown)| {
            let idle = figures.into_iter().map(|mut figures| {
                figures.iter_mut().for_each(|figure| *figure = (*figure).min(resident));
                figures.sort_unstable();
                let [least, pages, with_open, most] = figures;
                IdlePages { pages, least, most, unresolved: with_open - pages }
            });
            let mut idle: Vec<IdlePages> = idle.collect();
            let longer = idle.split_off(shown.min(idle.len()));
            PageAges { resident, unobservable: resident / 100, idle, longer }.in_order()
        })
    }

    proptest! {
        #[test]
        fn figures_keep_their_order(a in 0u64..5000, b in 0u64..5000, c in 0u64..5000, own in 0u64..5000) {
            let (mapped, later) = (ages(a.max(b), a.min(b)), ages(b.max(c), b.min(c)));
            let own = ages(own.min(mapped.resident), own.min(mapped.resident) / 3);
            prop_assert_eq!(owned(mapped.clone(), own.clone()).of_later(&mapped).resident, own.resident);
            let of_later = owned(mapped, own).of_later(&later);
            for idle in &of_later.idle {
                prop_assert!(idle.least <= idle.pages && idle.pages + idle.unresolved <= idle.most, "{idle:?}");
                prop_assert!(idle.most <= of_later.resident && of_later.resident <= later.resident);
            }
        }

        #[test]
        fn no_more_is_idle_for_longer_however_much_longer_it_is_known(
            (mapped, own, later) in (any_ages(), any_ages(), any_ages()),
        ) {
            let of_later = owned(mapped, own).of_later(&later);
            prop_assert_eq!((of_later.idle.len(), of_later.longer.len()), (later.idle.len(), later.longer.len()));
            let mut shorter = IdlePages { pages: u64::MAX, least: u64::MAX, most: u64::MAX, unresolved: 0 };
            for idle in of_later.idle.iter().chain(&of_later.longer) {
                prop_assert!(idle.least <= idle.pages && idle.pages + idle.unresolved <= idle.most, "{idle:?}");
                prop_assert!(idle.least <= shorter.least && idle.most <= shorter.most, "{idle:?} {shorter:?}");
                prop_assert!(idle.pages <= shorter.pages, "{idle:?} {shorter:?}");
                let (open, before) = (idle.pages + idle.unresolved, shorter.pages + shorter.unresolved);
                prop_assert!(open <= before && idle.most <= of_later.resident, "{idle:?} {shorter:?}");
                shorter = *idle;
            }
        }
    }
}
