//! Parameter sets around a scheme's own.

use isotherm_core::scheme::Scheme;
use isotherm_core::scheme::pattern::FULL_RATE_BP;
use isotherm_core::tuning::parameters::{Parameters, wants_hot};
use isotherm_core::tuning::search::Point;

/// Where ages begin for a scheme that names none, microseconds.
const FIRST_AGE_US: u64 = 4_000_000;
/// The shortest age that is worth a try, microseconds: pages are not looked at much more often.
const SHORTEST_AGE_US: u64 = 100_000;
/// How far from the scheme's own age a search goes, in halves of an octave: an eighth of it to eight times of it.
const HALF_OCTAVES: i32 = 6;
/// The rate that is tried beside 0 for a scheme that only takes what is not accessed at all: that of DAMON's
/// evaluation.
const LOW_RATE_BP: u32 = 500;

/// What of a scheme is varied, and how.
#[derive(Debug, Clone, Copy)]
struct Variation {
    own: Parameters,
    /// Whether the scheme [chooses pages](Scheme::chooses_pages): rates mean nothing to it.
    pages: bool,
    /// Whether `confirm` is what is tuned, as the scheme asks for no age.
    by_confirm: bool,
    /// The age from which others are found, microseconds.
    centre_us: u64,
}

impl Variation {
    fn of(scheme: &Scheme, by_region: bool) -> Self {
        let own = Parameters::of(scheme);
        let pages = scheme.chooses_pages(by_region);
        let age_us = if pages { own.age_us() } else { own.min_age_us };
        Self {
            own,
            pages,
            by_confirm: pages && own.min_age_us == 0 && own.confirm_us > 0,
            centre_us: if age_us > 0 { age_us } else { FIRST_AGE_US },
        }
    }

    /// The scheme's own set with another age, and another rate where that means something. `confirm` never exceeds the
    /// age, which it would replace otherwise.
    fn with(&self, age_us: u64, rate_bp: u32) -> Parameters {
        let own = self.own;
        match (self.by_confirm, self.pages) {
            (true, _) => Parameters { confirm_us: age_us, ..own },
            (false, true) => Parameters { min_age_us: age_us, confirm_us: own.confirm_us.min(age_us), ..own },
            (false, false) => Parameters { min_age_us: age_us, rate_bp, ..own },
        }
    }
}

/// A quarter of the age to four times of it, each with the rate and with half of or without it. Lists that are given
/// replace that. Sorted, each once.
pub fn around(scheme: &Scheme, ages_us: &[u64], rates_bp: &[u32], by_region: bool) -> Vec<Parameters> {
    let variation = Variation::of(scheme, by_region);
    let age = variation.centre_us;
    let ages: Vec<u64> = match ages_us {
        [] => [age / 4, age / 2, age, age.saturating_mul(2), age.saturating_mul(4)].to_vec(),
        given => given.to_vec(),
    };
    let rates = if rates_bp.is_empty() { rates_around(scheme) } else { rates_bp.to_vec() };
    let mut all: Vec<Parameters> = ages
        .iter()
        .flat_map(|&age_us| rates.iter().map(move |&rate_bp| variation.with(age_us, rate_bp)))
        .filter(|p| p.applied_to(scheme).is_some())
        .collect();
    all.sort_by_key(|p| (p.age_us(), p.rate_bp));
    all.dedup();
    all
}

/// The rates that are tried: the scheme's own and what is next to it, each once, in order.
fn rates_around(scheme: &Scheme) -> Vec<u32> {
    let own = Parameters::of(scheme).rate_bp;
    let mut rates = match own {
        _ if wants_hot(scheme) => vec![(own / 2).max(1), own, (own * 2).min(FULL_RATE_BP)],
        0 => vec![0, LOW_RATE_BP],
        // A scheme without bound stays without.
        FULL_RATE_BP => vec![own],
        _ => vec![0, own],
    };
    rates.dedup();
    rates
}

/// What a search may try of a scheme.
#[derive(Debug, Clone)]
pub struct Space {
    /// The sets; the scheme's own is the first.
    pub sets: Vec<Parameters>,
    hot: bool,
    rates: Vec<u32>,
}

impl Space {
    /// Ages from an eighth of the scheme's own to eight times of it. Of a scheme that [chooses
    /// pages](Scheme::chooses_pages) rates are left alone; `confirm` follows, and is itself what is tuned where the
    /// scheme asks for no age.
    pub fn of(scheme: &Scheme, by_region: bool) -> Self {
        let variation = Variation::of(scheme, by_region);
        let (own, centre) = (variation.own, variation.centre_us);
        let rates = if variation.pages { vec![own.rate_bp] } else { rates_around(scheme) };
        let ages = (-HALF_OCTAVES..=HALF_OCTAVES).filter(|n| *n != 0).map(|n| {
            let age = centre as f64 * 2f64.powf(f64::from(n) / 2.0);
            // To three digits, for people.
            let unit = 10f64.powf((age.log10() - 2.0).floor());
            ((age / unit).round() * unit) as u64
        });
        let ages: Vec<u64> = ages.chain([centre]).filter(|age| *age >= SHORTEST_AGE_US || *age == centre).collect();
        let mut sets = vec![own];
        for set in ages.iter().flat_map(|&age| rates.iter().map(move |&rate| variation.with(age, rate))) {
            if !sets.contains(&set) && set.applied_to(scheme).is_some() {
                sets.push(set);
            }
        }
        Self { sets, hot: wants_hot(scheme), rates }
    }

    /// The number of a set, which becomes one of those that may be tried if it was not.
    pub fn index(&mut self, set: Parameters) -> usize {
        self.sets.iter().position(|s| *s == set).unwrap_or_else(|| {
            self.sets.push(set);
            self.sets.len() - 1
        })
    }

    /// All sets as the search sees them.
    pub fn points(&self) -> Vec<Point> {
        let above = |rate: u32| self.rates.iter().filter(|r| **r < rate).count() as f64;
        let most = (self.rates.len() - 1).max(1) as f64;
        let point = |p: &Parameters| {
            let part = (above(p.rate_bp) / most).min(1.0);
            // Below a greater highest rate there is more memory, above a greater least rate there is less.
            let rate = if self.hot { 1.0 - part } else { part };
            Point { log_age: (p.age_us().max(SHORTEST_AGE_US) as f64 / 1e6).log2(), rate }
        };
        self.sets.iter().map(point).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schemes::parse_line;
    use isotherm_core::attrs::MonitorAttrs;

    fn scheme(line: &str) -> Scheme {
        parse_line(line, &MonitorAttrs::default()).unwrap()
    }

    fn tried(line: &str) -> Vec<(u64, u32)> {
        around(&scheme(line), &[], &[], true).iter().map(|p| (p.min_age_us / 1000, p.rate_bp)).collect()
    }

    #[test]
    fn its_own_parameters_are_among_those_tried() {
        for line in ["4K max 0 5 8s max pageout", "2M max 20 max 1s max hugepage", "4K max 0 0 8s max pageout"] {
            let s = scheme(line);
            for by_region in [false, true] {
                assert!(around(&s, &[], &[], by_region).contains(&Parameters::of(&s)), "{line}");
            }
        }
        let rates = [0, 500];
        let wanted: Vec<_> =
            [2000, 4000, 8000, 16_000, 32_000].into_iter().flat_map(|a| rates.map(|r| (a, r))).collect();
        assert_eq!(tried("4K max 0 5 8s max pageout"), wanted);
        assert_eq!(tried("4K max 0 0 8s max pageout"), wanted);
        assert_eq!(tried("2M max 20 max 4s max hugepage")[..3], [(1000, 1000), (1000, 2000), (1000, 4000)]);
        assert_eq!(tried("4K max null null null null stat").len(), 5);
    }

    #[test]
    fn what_contradicts_the_scheme_is_left_out() {
        assert_eq!(tried("4K max 0 0 8s 20s pageout").last(), Some(&(16_000, 500)));
        let given = around(&scheme("4K max 0 5 8s max pageout"), &[3_000_000, 1_000_000, 3_000_000], &[100], true);
        assert_eq!(given.iter().map(|p| p.min_age_us).collect::<Vec<_>>(), [1_000_000, 3_000_000]);
        let hot = Parameters { min_age_us: 0, rate_bp: 7000, confirm_us: 0 }
            .applied_to(&scheme("2M max 20 max 1s max hugepage"))
            .unwrap();
        assert_eq!((hot.pattern.rate_bp.min, hot.pattern.rate_bp.max), (7000, 10_000));
    }

    #[test]
    fn of_pages_all_sets_that_are_tried_differ() {
        let ages = [100_000, 500_000, 1_000_000, 8_000_000];
        let tried = around(&scheme("4K max 0 5 5s max pageout"), &ages, &[], false);
        let confirm: Vec<_> = tried.iter().map(|p| (p.min_age_us, p.rate_bp, p.confirm_us)).collect();
        assert_eq!(confirm, [100_000, 500_000, 1_000_000, 8_000_000].map(|age| (age, 500, age.min(2_000_000))));
        assert_eq!(around(&scheme("4K max 0 5 8s max pageout"), &[], &[], false).len(), 5);
        // Without an age, `confirm` is what is tried.
        let tried = around(&scheme("4K max 0 100 0s max pageout"), &ages, &[], false);
        assert_eq!(tried.iter().map(|p| (p.min_age_us, p.confirm_us)).collect::<Vec<_>>(), ages.map(|age| (0, age)));
    }

    fn space(line: &str) -> Space {
        Space::of(&scheme(line), false)
    }

    #[test]
    fn pages_are_searched_by_age_alone_and_confirm_follows() {
        let space = space("4K max 0 5 5s max pageout");
        assert_eq!(space.sets[0], Parameters { min_age_us: 5_000_000, rate_bp: 500, confirm_us: 2_000_000 });
        assert_eq!(space.sets.len(), 13);
        assert!(space.sets.contains(&Parameters { min_age_us: 1_770_000, rate_bp: 500, confirm_us: 1_770_000 }));
        let ages = || space.sets.iter().map(|s| s.min_age_us);
        assert_eq!((ages().min(), ages().max()), (Some(625_000), Some(40_000_000)));
        // Without an age, `confirm` is what decides.
        let space = Space::of(&scheme("4K max 0 100 0s max pageout"), false);
        assert!(space.sets.iter().all(|s| s.min_age_us == 0 && s.rate_bp == 10_000));
        assert_eq!(space.sets.iter().map(|s| s.confirm_us).max(), Some(16_000_000));
    }

    #[test]
    fn regions_are_searched_by_age_and_rate() {
        let by_region = Space::of(&scheme("4K max 0 5 5s max pageout"), true);
        assert_eq!(by_region.sets.len(), 26);
        assert!(by_region.sets.iter().all(|s| s.confirm_us == 2_000_000));
        let points = by_region.points();
        assert_eq!((points[0].log_age, points[0].rate), (5f64.log2(), 1.0), "5 % takes more than 0 %");
        let hot = space("2M max 20 max 1s max collapse");
        let least = hot.sets.iter().position(|s| s.rate_bp == 1000).unwrap();
        assert_eq!((hot.points()[least].rate, hot.points()[0].rate), (1.0, 0.5), "a lower least rate takes more");
        // An age that the scheme does not ask for is begun to be asked for.
        assert!(space("2M max 20 max null null collapse").sets.len() > 30);
    }

    #[test]
    fn a_set_of_an_earlier_tuning_is_one_more() {
        let mut space = space("4K max 0 5 5s max pageout");
        let own = space.sets[0];
        assert_eq!(space.index(own), 0);
        let other = Parameters { min_age_us: 3_000_000, ..own };
        assert_eq!((space.index(other), space.index(other), space.points().len()), (13, 13, 14));
    }

    #[test]
    fn sets_that_contradict_the_scheme_are_not_searched() {
        let space = space("4K max 0 0 8s 20s pageout");
        assert_eq!(space.sets.iter().map(|s| s.min_age_us).max(), Some(16_000_000));
    }
}
