//! A region of damo's JSON, in the units that the record has.

use super::json_text::{Number, whole};
use isotherm_core::snapshot::RegionInfo;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
struct JsonAccesses {
    #[serde(default)]
    samples: Option<Number>,
    #[serde(default)]
    hz: Option<Number>,
    #[serde(default)]
    percent: Option<Number>,
}

#[derive(Debug, Deserialize)]
struct JsonAge {
    #[serde(default)]
    usec: Option<Number>,
    #[serde(default)]
    aggr_intervals: Option<Number>,
}

#[derive(Debug, Deserialize)]
pub(super) struct JsonRegion {
    start: Number,
    end: Number,
    #[serde(default)]
    nr_accesses: Option<JsonAccesses>,
    #[serde(default)]
    age: Option<JsonAge>,
}

/// How often a region was accessed, in the unit that the record has.
#[derive(Debug, Clone, Copy)]
enum Accesses {
    Samples(u64),
    Percent(f64),
    Hz(f64),
}

/// How long a region has been as it is.
#[derive(Debug, Clone, Copy)]
enum Age {
    Intervals(u64),
    Microseconds(u64),
}

/// A region whose figures still are in the record's units: they are converted with intervals.
#[derive(Debug, Clone, Copy)]
pub(super) struct RawRegion {
    start: u64,
    end: u64,
    accesses: Accesses,
    age: Age,
}

impl From<JsonRegion> for RawRegion {
    fn from(region: JsonRegion) -> Self {
        let accesses =
            region.nr_accesses.as_ref().map_or(Accesses::Samples(0), |a| match (a.samples, a.percent, a.hz) {
                (Some(n), ..) => Accesses::Samples(n.count()),
                (_, Some(percent), _) => Accesses::Percent(percent.real()),
                (.., Some(hz)) => Accesses::Hz(hz.real()),
                _ => Accesses::Samples(0),
            });
        let age = region.age.as_ref().map_or(Age::Intervals(0), |a| match (a.aggr_intervals, a.usec) {
            (Some(n), _) => Age::Intervals(n.count()),
            (_, Some(time)) => Age::Microseconds(time.ns(1000) / 1000),
            _ => Age::Intervals(0),
        });
        Self { start: region.start.count(), end: region.end.count(), accesses, age }
    }
}

impl RawRegion {
    /// Whether its figures depend on the intervals.
    pub const fn needs_intervals(&self) -> bool {
        !matches!((self.accesses, self.age), (Accesses::Samples(_), Age::Intervals(_)))
    }

    /// With an aggregation interval of `aggr_us` and so many samples in it.
    pub fn figures(self, samples: u32, aggr_us: u64) -> RegionInfo {
        let nr = match self.accesses {
            Accesses::Samples(n) => n,
            Accesses::Percent(percent) => whole(percent * f64::from(samples) / 100.0),
            Accesses::Hz(hz) => whole(hz * aggr_us as f64 / 1e6),
        };
        let age = match self.age {
            Age::Intervals(n) => n,
            Age::Microseconds(us) => us / aggr_us.max(1),
        };
        let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        RegionInfo {
            start: self.start,
            end: self.end,
            nr_accesses: small(nr),
            age: small(age),
            evidence: None,
            accessed: None,
        }
    }
}
