//! How well the figures are founded.

use isotherm_core::snapshot::Snapshot;
use serde::Serialize;

/// Counts of checks above this are lumped together.
const MOST: usize = 4096;

/// How often regions were looked at.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Confidence {
    /// Page observations of a region in an aggregation interval: the median over regions and time.
    pub median_checks: u32,
    /// The same for the tenth of regions that was looked at least.
    pub low_checks: u32,
    /// Share of the observed bytes whose regions were not looked at in an aggregation interval (a mean over time).
    pub unchecked: f64,
    /// The lowest access rate that the median region would show in one aggregation interval with a probability of 95 %:
    /// `1 - 0.05^(1/median_checks)`, taking checks as independent. 1 where there were none.
    pub detectable_rate: f64,
}

#[derive(Debug, Default)]
pub(crate) struct ConfidenceBuilder {
    /// Regions by number of checks.
    counts: Vec<u64>,
    unchecked: f64,
    bytes: f64,
}

impl ConfidenceBuilder {
    /// Adds a snapshot; regions without evidence or that could not be observed do not count.
    pub fn add(&mut self, snapshot: &Snapshot) {
        for r in &snapshot.regions {
            let Some(e) = r.evidence.filter(|e| !e.is_blind()) else { continue };
            self.counts.resize(MOST + 1, 0);
            self.counts[(e.checks as usize).min(MOST)] += 1;
            self.bytes += r.len() as f64;
            if e.checks == 0 {
                self.unchecked += r.len() as f64;
            }
        }
    }

    /// The result; `None` if no region had evidence.
    pub fn finish(self) -> Option<Confidence> {
        let total: u64 = self.counts.iter().sum();
        if total == 0 {
            return None;
        }
        let at = |share: f64| {
            let mut left = (total as f64 * share) as u64;
            self.counts
                .iter()
                .position(|&n| {
                    if n > left {
                        true
                    } else {
                        left -= n;
                        false
                    }
                })
                .unwrap_or(MOST) as u32
        };
        let median_checks = at(0.5);
        let detectable_rate = match median_checks {
            0 => 1.0,
            n => 1.0 - 0.05f64.powf(1.0 / f64::from(n)),
        };
        Some(Confidence {
            median_checks,
            low_checks: at(0.1),
            unchecked: if self.bytes > 0.0 { self.unchecked / self.bytes } else { 0.0 },
            detectable_rate,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata::{MIB, region, seen, snapshot};

    #[test]
    fn medians_of_checks() {
        let with = |start: u64, checks| {
            let mut r = seen(region(start * MIB, (start + 1) * MIB, 0, 0), 10, 0);
            if let Some(e) = &mut r.evidence {
                e.checks = checks;
            }
            r
        };
        let mut b = ConfidenceBuilder::default();
        b.add(&snapshot(0, 0, vec![with(0, 0), with(1, 20), with(2, 20), with(3, 90_000)]));
        let c = b.finish().expect("has evidence");
        assert_eq!((c.median_checks, c.low_checks), (20, 0));
        assert_eq!(c.unchecked, 0.25);
        assert!((c.detectable_rate - 0.139).abs() < 0.001);
    }

    #[test]
    fn no_evidence_no_figure() {
        let mut b = ConfidenceBuilder::default();
        b.add(&snapshot(0, 0, vec![region(0, MIB, 0, 0), seen(region(MIB, 2 * MIB, 0, 0), 10, 10)]));
        assert_eq!(b.finish(), None);
    }
}
