//! Which regions a scheme is about: closed ranges of size, access rate and age.

use crate::snapshot::{RegionInfo, Snapshot};

/// Ten thousand basis points: every sample found an access.
pub const FULL_RATE_BP: u32 = 10_000;

/// A closed range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds<T> {
    /// Least value that matches.
    pub min: T,
    /// Largest value that matches.
    pub max: T,
}

impl<T: PartialOrd + Copy> Bounds<T> {
    /// The range from `min` to `max`, both included.
    pub const fn new(min: T, max: T) -> Self {
        Self { min, max }
    }

    /// Whether `value` lies inside.
    pub fn contains(&self, value: T) -> bool {
        self.min <= value && value <= self.max
    }
}

/// An access pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessPattern {
    /// Region size in bytes.
    pub size: Bounds<u64>,
    /// Access rate in basis points: the share of samples that found an access.
    pub rate_bp: Bounds<u32>,
    /// For how long the rate has been about the same, in microseconds.
    pub age_us: Bounds<u64>,
}

impl Default for AccessPattern {
    fn default() -> Self {
        Self { size: Bounds::new(0, u64::MAX), rate_bp: Bounds::new(0, FULL_RATE_BP), age_us: Bounds::new(0, u64::MAX) }
    }
}

/// What kept a region from matching.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mismatch {
    /// It could not be observed, so nothing is known of its rate.
    NotObserved,
    /// Its size.
    Size,
    /// Its access rate.
    Rate,
    /// Its age.
    Age,
}

/// Why a pattern is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Least above largest.
    #[error("the least {0} of the pattern is above the largest")]
    MinAboveMax(&'static str),
    /// More than every sample.
    #[error("an access rate of more than 100% cannot be")]
    RateAboveFull,
}

impl AccessPattern {
    /// Checks that it can match anything at all.
    pub fn validate(&self) -> Result<(), PatternError> {
        if self.size.min > self.size.max {
            return Err(PatternError::MinAboveMax("size"));
        }
        if self.rate_bp.min > self.rate_bp.max {
            return Err(PatternError::MinAboveMax("access rate"));
        }
        if self.age_us.min > self.age_us.max {
            return Err(PatternError::MinAboveMax("age"));
        }
        if self.rate_bp.min > FULL_RATE_BP {
            return Err(PatternError::RateAboveFull);
        }
        Ok(())
    }

    /// Whether `region` of `snapshot` matches, and if not, why. What could not be observed has no rate: it matches only
    /// a pattern that does not ask for one.
    pub fn check(&self, region: &RegionInfo, snapshot: &Snapshot) -> Result<(), Mismatch> {
        let any_rate = self.rate_bp.min == 0 && self.rate_bp.max >= FULL_RATE_BP;
        let unseen = region.evidence.is_some_and(|e| e.pages == 0 || e.is_blind());
        if unseen && !any_rate {
            return Err(Mismatch::NotObserved);
        }
        if !self.rate_bp.contains(rate_bp(region, snapshot.max_nr_accesses)) {
            return Err(Mismatch::Rate);
        }
        if !self.age_us.contains(age_us(region, snapshot)) {
            return Err(Mismatch::Age);
        }
        if !self.size.contains(region.len()) {
            return Err(Mismatch::Size);
        }
        Ok(())
    }
}

/// The access rate of a region in basis points; 0 only where no access was seen.
pub fn rate_bp(region: &RegionInfo, max_nr_accesses: u32) -> u32 {
    if region.nr_accesses == 0 {
        return 0;
    }
    let counted = u64::from(region.nr_accesses) * u64::from(FULL_RATE_BP) / u64::from(max_nr_accesses.max(1));
    let touched = region.accessed.map_or(counted, |bytes| {
        (u128::from(bytes) * u128::from(FULL_RATE_BP) / u128::from(region.len().max(1))) as u64
    });
    counted.min(touched).clamp(1, u64::from(FULL_RATE_BP)) as u32
}

/// The age of a region in microseconds.
pub fn age_us(region: &RegionInfo, snapshot: &Snapshot) -> u64 {
    u64::from(region.age) * snapshot.aggr_us
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Evidence;

    fn region(pages: u64, nr_accesses: u32, age: u32) -> RegionInfo {
        RegionInfo { start: 0, end: pages * 4096, nr_accesses, age, evidence: None, accessed: None }
    }

    fn snapshot() -> Snapshot {
        Snapshot {
            target: 0,
            pid: None,
            start_ns: 0,
            end_ns: 100_000_000,
            sample_us: 5_000,
            aggr_us: 100_000,
            max_nr_accesses: 20,
            regions: Vec::new(),
        }
    }

    #[test]
    fn ranges_are_closed() {
        let p = AccessPattern {
            size: Bounds::new(4096, 8192),
            rate_bp: Bounds::new(0, 2500),
            age_us: Bounds::new(1_000_000, 2_000_000),
        };
        assert_eq!(p.check(&region(1, 0, 10), &snapshot()), Ok(()));
        assert_eq!(p.check(&region(2, 5, 20), &snapshot()), Ok(()));
        assert_eq!(p.check(&region(3, 0, 10), &snapshot()), Err(Mismatch::Size));
        assert_eq!(p.check(&region(1, 6, 10), &snapshot()), Err(Mismatch::Rate));
        assert_eq!(p.check(&region(1, 0, 9), &snapshot()), Err(Mismatch::Age));
        assert_eq!(p.check(&region(1, 0, 21), &snapshot()), Err(Mismatch::Age));
    }

    #[test]
    fn what_was_not_seen_is_not_cold() {
        let cold = AccessPattern { rate_bp: Bounds::new(0, 0), ..Default::default() };
        let mut r = region(8, 0, 100);
        r.evidence = Some(Evidence::default());
        assert_eq!(cold.check(&r, &snapshot()), Err(Mismatch::NotObserved));
        r.evidence = Some(Evidence { checks: 4, pages: 4, present: 4, blind: 4 });
        assert_eq!(cold.check(&r, &snapshot()), Err(Mismatch::NotObserved));
        assert_eq!(AccessPattern::default().check(&r, &snapshot()), Ok(()));
        r.evidence = Some(Evidence { checks: 4, pages: 4, present: 4, blind: 0 });
        assert_eq!(cold.check(&r, &snapshot()), Ok(()));
    }

    #[test]
    fn a_stray_access_is_never_a_rate_of_zero() {
        let mut r = region(1_000_000, 1, 0);
        r.accessed = Some(4096);
        assert_eq!(rate_bp(&r, 20), 1);
        r.accessed = Some(r.len());
        assert_eq!(rate_bp(&r, 20), 500);
    }

    #[test]
    fn contradicting_ranges_are_refused() {
        let p = AccessPattern { size: Bounds::new(2, 1), ..Default::default() };
        assert!(p.validate().unwrap_err().to_string().contains("size"));
        assert_eq!(AccessPattern::default().validate(), Ok(()));
    }
}
