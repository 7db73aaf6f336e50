//! Which of the matching regions are served when the quota does not suffice for all.
//!
//! Source of the formulas: DAMOS (kernel `mm/damon/ops-common.c`); see docs/schemes.md. DAMOS documents a weight for
//! the size but does not use it; here it counts: the larger, the sooner.

use super::action::Preference;
use super::pattern::FULL_RATE_BP;

/// The highest score.
pub(crate) const MAX_SCORE: u32 = 99;

/// How much size, access rate and age count. Only their ratios matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weights {
    /// Of the region's size.
    pub size: u32,
    /// Of its access rate.
    pub access_rate: u32,
    /// Of its age.
    pub age: u32,
}

impl Default for Weights {
    fn default() -> Self {
        Self { size: 0, access_rate: 1, age: 1 }
    }
}

/// The priority of a region, 0 to 99; higher is served first. `rate_bp` is 0 only where no access was seen.
pub fn score(preference: Preference, weights: Weights, size: u64, rate_bp: u32, age_us: u64) -> u32 {
    let base = match preference {
        Preference::None => return MAX_SCORE,
        Preference::Hot => hotness(weights, rate_bp, age_us),
        Preference::Cold => MAX_SCORE - hotness(weights, rate_bp, age_us),
    };
    if weights.size == 0 {
        return base;
    }
    let (by_size, others) = (u64::from(weights.size), u64::from(weights.access_rate) + u64::from(weights.age));
    // 4 KiB: 0; 16 TiB and more: 99.
    let size_score = u64::from((size / 4096).checked_ilog2().unwrap_or(0).min(32) * MAX_SCORE / 32);
    ((by_size * size_score + others * u64::from(base)) / (by_size + others)) as u32
}

/// DAMOS's hotness, 0 to 99: the older an unaccessed region, the lower; the older an accessed one, the higher.
fn hotness(weights: Weights, rate_bp: u32, age_us: u64) -> u32 {
    let rate = u64::from(rate_bp.min(FULL_RATE_BP)) * 100 / u64::from(FULL_RATE_BP);
    let age_log = (age_us / 1_000_000).checked_ilog2().map_or(0, |log| (log as i64 + 1).min(32));
    let signed = if rate_bp == 0 { -age_log } else { age_log };
    let age = ((signed + 32) * 100 / 64) as u64;
    let (by_rate, by_age) = (u64::from(weights.access_rate), u64::from(weights.age));
    let sum = by_rate * rate + by_age * age;
    let hotness = sum.checked_div(by_rate + by_age).unwrap_or(sum);
    (hotness * u64::from(MAX_SCORE) / 100) as u32
}

/// Bytes of matching regions by score.
#[derive(Debug, Clone)]
pub(crate) struct Histogram {
    bytes: [u64; MAX_SCORE as usize + 1],
}

impl Default for Histogram {
    fn default() -> Self {
        Self { bytes: [0; MAX_SCORE as usize + 1] }
    }
}

impl Histogram {
    /// Counts a region.
    pub fn add(&mut self, score: u32, bytes: u64) {
        let slot = &mut self.bytes[score.min(MAX_SCORE) as usize];
        *slot = slot.saturating_add(bytes);
    }

    /// The lowest score that is served when `quota` bytes may be: cumulated from the top, the score at which the quota
    /// is reached; 0 where all of it fits.
    pub(crate) fn cut_off(&self, quota: u64) -> u32 {
        let mut sum = 0u64;
        for score in (0..=MAX_SCORE).rev() {
            sum = sum.saturating_add(self.bytes[score as usize]);
            if sum >= quota {
                return score;
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EVEN: Weights = Weights { size: 0, access_rate: 1, age: 1 };
    const S: u64 = 1_000_000;

    #[test]
    fn follows_the_published_formula() {
        // Rate 50 %, age 0: age part (0 + 32) * 100 / 64 = 50; mean 50; times 99 / 100.
        assert_eq!(score(Preference::Hot, EVEN, 4096, 5000, 0), 49);
        assert_eq!(score(Preference::Cold, EVEN, 4096, 5000, 0), 50);
        // Idle for 8 s: ilog2(8) + 1 = 4; (32 - 4) * 100 / 64 = 43; mean with rate 0: 21; 20 of 99.
        assert_eq!(score(Preference::Cold, EVEN, 4096, 0, 8 * S), 99 - 20);
        // Only the age counts, as in DAMON_RECLAIM.
        let age_only = Weights { size: 0, access_rate: 0, age: 1 };
        assert_eq!(score(Preference::Cold, age_only, 4096, 0, 120 * S), 99 - 38);
        assert_eq!(score(Preference::None, EVEN, 4096, 5000, S), 99);
        let none = Weights { size: 0, access_rate: 0, age: 0 };
        assert_eq!(score(Preference::Cold, none, 4096, 5000, S), 99);
    }

    #[test]
    fn the_cut_off_is_where_the_quota_is_reached() {
        let mut h = Histogram::default();
        h.add(99, 10);
        h.add(50, 10);
        h.add(0, 100);
        assert_eq!(h.cut_off(10), 99);
        assert_eq!(h.cut_off(11), 50);
        assert_eq!(h.cut_off(21), 0);
        assert_eq!(h.cut_off(10_000), 0);
    }

    proptest! {
        #[test]
        fn scores_stay_in_range_and_order(rate in 0u32..=10_000, age in 0u64..1_000_000 * S, w in 1u32..1000, v in 1u32..1000, z in 0u32..1000) {
            let w = Weights { size: z, access_rate: w, age: v };
            for p in [Preference::Hot, Preference::Cold, Preference::None] {
                prop_assert!(score(p, w, 1 << 30, rate, age) <= MAX_SCORE);
            }
            prop_assert!(score(Preference::Cold, w, 4096, 0, age * 2) >= score(Preference::Cold, w, 4096, 0, age));
            prop_assert!(score(Preference::Hot, w, 4096, rate, age) <= score(Preference::Hot, w, 4096, 10_000, age));
            prop_assert!(score(Preference::Cold, w, 1 << 30, rate, age) >= score(Preference::Cold, w, 4096, rate, age));
        }

        #[test]
        fn what_is_above_the_cut_off_fits(list in prop::collection::vec((0u32..100, 1u64..1000), 1..50), quota in 1u64..20_000) {
            let mut h = Histogram::default();
            list.iter().for_each(|&(s, b)| h.add(s, b));
            let cut = h.cut_off(quota);
            let above: u64 = list.iter().filter(|l| l.0 > cut).map(|l| l.1).sum();
            prop_assert!(above < quota);
        }
    }
}
