//! Monitoring attributes: intervals and region limits.

use serde::{Deserialize, Serialize};

/// Intervals and region limits of a monitor. Defaults are DAMON's, with damo's update interval of one second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MonitorAttrs {
    /// Sampling interval in microseconds.
    pub sample_us: u64,
    /// Aggregation interval in microseconds.
    pub aggr_us: u64,
    /// Interval in microseconds at which mappings are read again.
    pub update_us: u64,
    /// Least number of regions over all targets.
    pub min_regions: u32,
    /// Largest number of regions over all targets.
    pub max_regions: u32,
}

impl Default for MonitorAttrs {
    fn default() -> Self {
        Self { sample_us: 5_000, aggr_us: 100_000, update_us: 1_000_000, min_regions: 10, max_regions: 1000 }
    }
}

/// Why a set of attributes is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AttrsError {
    /// The sampling interval is zero.
    #[error("the sampling interval is 0; give at least 100us")]
    ZeroSample,
    /// The sampling interval is below what a user-space loop can keep.
    #[error("the sampling interval {0} us is too short; give at least 100us")]
    SampleTooShort(u64),
    /// Aggregation below sampling.
    #[error("the aggregation interval ({aggr_us} us) is below the sampling interval ({sample_us} us)")]
    AggrBelowSample {
        /// Sampling interval.
        sample_us: u64,
        /// Aggregation interval.
        aggr_us: u64,
    },
    /// Update below aggregation.
    #[error("the update interval ({update_us} us) is below the aggregation interval ({aggr_us} us)")]
    UpdateBelowAggr {
        /// Aggregation interval.
        aggr_us: u64,
        /// Update interval.
        update_us: u64,
    },
    /// More samples in an aggregation than a counter holds.
    #[error("{0} samples in an aggregation interval are too many; the limit is 100000")]
    TooManySamples(u64),
    /// An interval of more than a day.
    #[error("the interval {0} us is longer than a day")]
    TooLong(u64),
    /// DAMON's rule: at least three regions.
    #[error("the least number of regions is {0}; give at least 3")]
    MinTooSmall(u32),
    /// Min above max.
    #[error("the least number of regions ({min}) is above the largest ({max})")]
    MinAboveMax {
        /// Least number.
        min: u32,
        /// Largest number.
        max: u32,
    },
    /// More regions than memory for them is sensible.
    #[error("{0} regions are too many; the limit is 1000000")]
    MaxTooLarge(u32),
}

impl MonitorAttrs {
    /// Checks every rule; the first broken one is the error.
    pub fn validate(&self) -> Result<(), AttrsError> {
        const DAY_US: u64 = 86_400_000_000;
        let Self { sample_us, aggr_us, update_us, min_regions, max_regions } = *self;
        if let Some(&long) = [sample_us, aggr_us, update_us].iter().find(|&&t| t > DAY_US) {
            return Err(AttrsError::TooLong(long));
        }
        match sample_us {
            0 => return Err(AttrsError::ZeroSample),
            1..100 => return Err(AttrsError::SampleTooShort(sample_us)),
            _ => {}
        }
        if aggr_us < sample_us {
            return Err(AttrsError::AggrBelowSample { sample_us, aggr_us });
        }
        if aggr_us / sample_us > 100_000 {
            return Err(AttrsError::TooManySamples(aggr_us / sample_us));
        }
        if update_us < aggr_us {
            return Err(AttrsError::UpdateBelowAggr { aggr_us, update_us });
        }
        if min_regions < 3 {
            return Err(AttrsError::MinTooSmall(min_regions));
        }
        if min_regions > max_regions {
            return Err(AttrsError::MinAboveMax { min: min_regions, max: max_regions });
        }
        if max_regions > 1_000_000 {
            return Err(AttrsError::MaxTooLarge(max_regions));
        }
        Ok(())
    }

    /// Samples in an aggregation: the largest possible `nr_accesses`.
    pub fn max_nr_accesses(&self) -> u32 {
        (self.aggr_us / self.sample_us.max(1)).max(1) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid() {
        let a = MonitorAttrs::default();
        assert_eq!(a.validate(), Ok(()));
        assert_eq!(a.max_nr_accesses(), 20);
    }

    #[test]
    fn broken_rules_are_named() {
        let a = MonitorAttrs::default();
        assert_eq!(MonitorAttrs { sample_us: 0, ..a }.validate(), Err(AttrsError::ZeroSample));
        assert_eq!(
            MonitorAttrs { aggr_us: 1000, ..a }.validate(),
            Err(AttrsError::AggrBelowSample { sample_us: 5000, aggr_us: 1000 })
        );
        assert_eq!(
            MonitorAttrs { min_regions: 2000, ..a }.validate(),
            Err(AttrsError::MinAboveMax { min: 2000, max: 1000 })
        );
        assert_eq!(MonitorAttrs { min_regions: 0, ..a }.validate(), Err(AttrsError::MinTooSmall(0)));
        assert_eq!(MonitorAttrs { update_us: u64::MAX, ..a }.validate(), Err(AttrsError::TooLong(u64::MAX)));
    }
}
