//! Percentiles of a series.

use super::Point;

/// Percentiles shown unless others are asked for.
pub(crate) const DEFAULT_PERCENTILES: [f64; 7] = [0.0, 25.0, 50.0, 75.0, 95.0, 99.0, 100.0];

/// Values that can be asked for percentiles.
#[derive(Debug, Clone)]
pub struct Distribution {
    sorted: Vec<u64>,
}

impl Distribution {
    /// From values in any order.
    pub fn new(values: impl IntoIterator<Item = u64>) -> Self {
        let mut sorted: Vec<u64> = values.into_iter().collect();
        sorted.sort_unstable();
        Self { sorted }
    }

    /// From the points of a series.
    pub fn of(points: &[Point]) -> Self {
        Self::new(points.iter().map(|p| p.value))
    }

    /// The smallest value that at least `percent` of all values do not exceed (nearest rank); 0 gives the least. `None`
    /// if there is no value.
    pub fn percentile(&self, percent: f64) -> Option<u64> {
        self.sorted.get(rank(percent, self.sorted.len())?).copied()
    }

    /// Mean, rounded down. `None` if there is no value.
    pub fn mean(&self) -> Option<u64> {
        let sum: u128 = self.sorted.iter().map(|&v| u128::from(v)).sum();
        Some(sum.checked_div(self.sorted.len() as u128)? as u64)
    }

    pub fn max(&self) -> Option<u64> {
        self.sorted.last().copied()
    }
}

/// Position of the nearest rank among `len` values; `None` if there are none.
pub fn rank(percent: f64, len: usize) -> Option<usize> {
    // A tiny bit less, so that rounding errors (such as 0.07 * 100) do not move up a rank.
    let nearest = (percent.clamp(0.0, 100.0) / 100.0 * len as f64 - 1e-9).ceil() as usize;
    (len > 0).then(|| nearest.clamp(1, len) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nearest_ranks() {
        let d = Distribution::new([40, 10, 30, 20]);
        let p = |x| d.percentile(x);
        assert_eq!(
            [p(0.0), p(25.0), p(26.0), p(50.0), p(99.0), p(100.0)].map(Option::unwrap),
            [10, 10, 20, 20, 40, 40]
        );
        assert_eq!(d.mean(), Some(25));
        assert_eq!(Distribution::new([]).percentile(50.0), None);
        assert_eq!(Distribution::new([]).mean(), None);
    }

    proptest! {
        #[test]
        fn percentiles_are_monotone_and_occur(values in prop::collection::vec(any::<u64>(), 1..50),
                                              a in 0.0f64..=100.0, b in 0.0f64..=100.0) {
            let d = Distribution::new(values.clone());
            let (low, high) = (d.percentile(a.min(b)), d.percentile(a.max(b)));
            prop_assert!(low <= high);
            prop_assert!(values.contains(&low.expect("not empty")));
            let below = values.iter().filter(|&&v| Some(v) <= high).count() as f64;
            prop_assert!(below / values.len() as f64 * 100.0 >= a.max(b) - 1e-6);
        }
    }
}
