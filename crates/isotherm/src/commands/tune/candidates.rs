//! Parameter sets around a scheme's own.

use isotherm_core::scheme::Scheme;
use isotherm_core::scheme::pattern::FULL_RATE_BP;
use isotherm_core::units::format_time;

/// Where ages begin for a scheme that names none, microseconds.
const FIRST_AGE_US: u64 = 4_000_000;
/// The rate that is tried beside 0 for a scheme that only takes what is not accessed at all: that of DAMON's
/// evaluation.
const LOW_RATE_BP: u32 = 500;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters {
    /// Least age, microseconds.
    pub min_age_us: u64,
    /// The bound of the access rate, basis points: the lower one for a scheme about hot memory, else the upper one.
    pub rate_bp: u32,
}

/// Whether the scheme is about hot memory: it asks for a least rate.
fn wants_hot(scheme: &Scheme) -> bool {
    scheme.pattern.rate_bp.min > 0
}

impl Parameters {
    /// Those of a scheme.
    pub fn of(scheme: &Scheme) -> Self {
        let rate = scheme.pattern.rate_bp;
        let rate_bp = if wants_hot(scheme) { rate.min } else { rate.max };
        Self { min_age_us: scheme.pattern.age_us.min, rate_bp }
    }

    /// The scheme with these parameters instead of its own; `None` if they contradict its other bounds.
    pub fn applied_to(self, scheme: &Scheme) -> Option<Scheme> {
        let mut scheme = scheme.clone();
        if wants_hot(&scheme) {
            scheme.pattern.rate_bp.min = self.rate_bp;
        } else {
            scheme.pattern.rate_bp.max = self.rate_bp;
        }
        scheme.pattern.age_us.min = self.min_age_us;
        scheme.validate().is_ok().then_some(scheme)
    }

    /// For people: `5.00 s, 5 %`.
    pub fn words(self) -> String {
        let age = self.min_age_us.saturating_mul(1000);
        format!("{}, {} %", format_time(age), f64::from(self.rate_bp) / 100.0)
    }
}

/// A quarter of the least age to four times of it, each with the rate and with half of or without it. Lists that are
/// given replace that. Sorted, each once.
pub fn around(scheme: &Scheme, ages_us: &[u64], rates_bp: &[u32]) -> Vec<Parameters> {
    let own = Parameters::of(scheme);
    let age = if own.min_age_us > 0 { own.min_age_us } else { FIRST_AGE_US };
    let ages: Vec<u64> = match ages_us {
        [] => [age / 4, age / 2, age, age.saturating_mul(2), age.saturating_mul(4)].to_vec(),
        given => given.to_vec(),
    };
    let rates: Vec<u32> = match rates_bp {
        [] if wants_hot(scheme) => vec![(own.rate_bp / 2).max(1), own.rate_bp, (own.rate_bp * 2).min(FULL_RATE_BP)],
        [] if own.rate_bp == 0 => vec![0, LOW_RATE_BP],
        // A scheme without bound stays without.
        [] if own.rate_bp >= FULL_RATE_BP => vec![own.rate_bp],
        [] => vec![0, own.rate_bp],
        given => given.to_vec(),
    };
    let mut all: Vec<Parameters> = ages
        .iter()
        .flat_map(|&min_age_us| rates.iter().map(move |&rate_bp| Parameters { min_age_us, rate_bp }))
        .filter(|p| p.applied_to(scheme).is_some())
        .collect();
    all.sort_by_key(|p| (p.min_age_us, p.rate_bp));
    all.dedup();
    all
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
        around(&scheme(line), &[], &[]).iter().map(|p| (p.min_age_us / 1000, p.rate_bp)).collect()
    }

    #[test]
    fn its_own_parameters_are_among_those_tried() {
        for line in ["4K max 0 5 8s max pageout", "2M max 20 max 1s max hugepage", "4K max 0 0 8s max pageout"] {
            let s = scheme(line);
            assert!(around(&s, &[], &[]).contains(&Parameters::of(&s)), "{line}");
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
        let given = around(&scheme("4K max 0 5 8s max pageout"), &[3_000_000, 1_000_000, 3_000_000], &[100]);
        assert_eq!(given.iter().map(|p| p.min_age_us).collect::<Vec<_>>(), [1_000_000, 3_000_000]);
        let hot =
            Parameters { min_age_us: 0, rate_bp: 7000 }.applied_to(&scheme("2M max 20 max 1s max hugepage")).unwrap();
        assert_eq!((hot.pattern.rate_bp.min, hot.pattern.rate_bp.max), (7000, 10_000));
    }
}
