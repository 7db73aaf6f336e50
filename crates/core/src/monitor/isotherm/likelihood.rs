//! How strongly counts speak against "both places are accessed alike".

use super::cell::{Counts, Segment};

/// Log-likelihood of the counts under their own rate.
fn log_likelihood(c: Counts) -> f32 {
    let part = |x: f32| if x > 0.0 { x * (x / c.seen).ln() } else { 0.0 };
    if c.seen <= 0.0 { 0.0 } else { part(c.hits) + part(c.seen - c.hits) }
}

/// Log-likelihood ratio (natural logarithm) of "two rates" over "one rate" for binomial counts. 0: no difference at
/// all. Twice this value is the G statistic.
pub(super) fn ratio(a: Counts, b: Counts) -> f32 {
    if a.seen <= 0.0 || b.seen <= 0.0 || (a.hits <= 0.0 && b.hits <= 0.0) || (a.hits >= a.seen && b.hits >= b.seen) {
        return 0.0;
    }
    let both = Counts { hits: a.hits + b.hits, seen: a.seen + b.seen };
    (log_likelihood(a) + log_likelihood(b) - log_likelihood(both)).max(0.0)
}

/// The same for two segments over both of their counts.
pub(super) fn segments(a: &Segment, b: &Segment) -> f32 {
    ratio(a.aggr, b.aggr) + ratio(a.tick, b.tick)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn c(hits: f32, seen: f32) -> Counts {
        Counts { hits, seen }
    }

    #[test]
    fn grows_with_the_difference_and_the_evidence() {
        assert_eq!(ratio(c(0.0, 100.0), c(0.0, 5.0)), 0.0);
        // One hit of one against none of one: ln 4.
        assert!((ratio(c(1.0, 1.0), c(0.0, 1.0)) - 4f32.ln()).abs() < 1e-5);
        assert!(ratio(c(8.0, 16.0), c(0.0, 16.0)) < ratio(c(80.0, 160.0), c(0.0, 160.0)));
    }

    proptest! {
        #[test]
        fn is_symmetric_and_not_negative(h1 in 0u32..50, n1 in 0u32..50, h2 in 0u32..50, n2 in 0u32..50) {
            let a = c(h1.min(n1) as f32, n1 as f32);
            let b = c(h2.min(n2) as f32, n2 as f32);
            prop_assert!(ratio(a, b) >= 0.0);
            prop_assert!((ratio(a, b) - ratio(b, a)).abs() < 1e-3);
        }
    }
}
