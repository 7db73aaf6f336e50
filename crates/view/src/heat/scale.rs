//! From rates to levels of a colour scale: logarithmic, so that rare accesses show.

/// Most decades between the ends of a scale, and fewest.
const DECADES: (i32, i32) = (3, 2);
/// The share of rates that may lie below a scale's begin.
const BELOW: f64 = 0.01;
/// The level of the lowest rate above zero.
const FIRST: f64 = 1.0;

/// A logarithmic scale of rates. Zero has a level of its own; every rate above zero, however small, has a higher one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateScale {
    /// The rate (fraction of one) of the highest level.
    pub top: f64,
    /// Decades from the lowest level to the highest.
    pub decades: i32,
}

impl RateScale {
    /// A scale that fits `rates`: its top is the highest rounded up to 1, 2 or 5 times a power of ten, at most 1. It
    /// spans three decades, or two if nearly all rates above zero lie in these.
    pub fn fitting(rates: impl Iterator<Item = f64> + Clone) -> Self {
        let max = rates.clone().fold(0.0, f64::max);
        if max <= 0.0 {
            return Self { top: 1.0, decades: DECADES.0 };
        }
        let power = 10f64.powf(max.log10().floor());
        let top = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|&t| t >= max * (1.0 - 1e-9));
        let top = top.unwrap_or(1.0).min(1.0);
        let short = top / 10f64.powi(DECADES.1);
        let above_zero = rates.clone().filter(|&r| r > 0.0).count() as f64;
        let low = rates.filter(|&r| r > 0.0 && r < short).count() as f64;
        Self { top, decades: if low <= BELOW * above_zero { DECADES.1 } else { DECADES.0 } }
    }

    /// The rate at which the scale begins; lower rates have the same level.
    pub fn bottom(&self) -> f64 {
        self.top / 10f64.powi(self.decades)
    }

    /// The level of a rate: 0 for no access at all, 1 to 255 above.
    pub fn level(&self, rate: f64) -> u8 {
        if rate.is_nan() || rate <= 0.0 {
            return 0;
        }
        (FIRST + self.position(rate) * (255.0 - FIRST)).round() as u8
    }

    /// Where on the scale a rate lies, 0 to 1.
    pub fn position(&self, rate: f64) -> f64 {
        (1.0 + (rate / self.top).log10() / f64::from(self.decades)).clamp(0.0, 1.0)
    }

    /// The rate of a level; the inverse of [`level`](Self::level) inside the scale.
    pub fn rate(&self, level: u8) -> f64 {
        if level == 0 {
            return 0.0;
        }
        let position = (f64::from(level) - FIRST) / (255.0 - FIRST);
        self.top * 10f64.powf((position - 1.0) * f64::from(self.decades))
    }

    /// Rates to write along a legend, from the bottom to the top: one a decade.
    pub fn ticks(&self) -> Vec<f64> {
        (0..=self.decades).rev().map(|d| self.top / 10f64.powi(d)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fitting(rates: &[f64]) -> RateScale {
        RateScale::fitting(rates.iter().copied())
    }

    #[test]
    fn tops_are_round() {
        for (max, top) in [(1.0, 1.0), (0.051, 0.1), (0.05, 0.05), (0.013, 0.02), (0.0, 1.0), (0.7, 1.0)] {
            assert!((fitting(&[0.0, max]).top - top).abs() < 1e-12, "{max}");
        }
    }

    #[test]
    fn the_span_follows_the_rates() {
        assert_eq!(fitting(&[0.0, 0.5, 0.05]).decades, 2);
        assert_eq!(fitting(&[0.0, 0.5, 0.001]).decades, 3);
        assert_eq!(fitting(&[]).ticks(), [0.001, 0.01, 0.1, 1.0]);
    }

    proptest! {
        #[test]
        fn anything_accessed_is_visible(max in 1e-9f64..=1.0, rate in 1e-12f64..=1.0) {
            let scale = fitting(&[max]);
            prop_assert!(scale.top >= max * 0.999_999);
            prop_assert!(scale.level(rate) >= 1);
            prop_assert_eq!(scale.level(0.0), 0);
        }

        #[test]
        fn levels_and_rates_are_inverse(level in 1u8..=255, decades in 2..=3) {
            let scale = RateScale { top: 0.5, decades };
            prop_assert_eq!(scale.level(scale.rate(level)), level);
        }
    }
}
