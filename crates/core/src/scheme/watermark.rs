//! Watermarks: a scheme works only while a metric says that it is needed.

use super::idle::IdleReason;
use crate::meter::{LiveTarget, Meter, MeterError, Metric};

/// What watermarks look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatermarkMetric {
    /// Free memory of the machine as a share of all, in basis points.
    FreeMemRate,
}

/// When a scheme is switched on and off. Values are basis points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watermarks {
    /// What is looked at.
    pub metric: WatermarkMetric,
    /// How often, in microseconds.
    pub interval_us: u64,
    /// Above this: off, since there is no need.
    pub high_bp: u32,
    /// Below this (and above `low_bp`): on.
    pub mid_bp: u32,
    /// Below this: off, since the kernel's own reclaim must have its way.
    pub low_bp: u32,
}

/// Why watermarks are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WatermarkError {
    /// Not high >= mid >= low.
    #[error("watermarks must not rise from high to mid to low")]
    Order,
    /// More than all.
    #[error("a watermark above 100% can never be reached")]
    AboveFull,
    /// Looked at all the time.
    #[error("the interval of the watermarks is below 1ms; give at least that")]
    ZeroInterval,
}

impl Watermarks {
    /// Checks the values.
    pub fn validate(&self) -> Result<(), WatermarkError> {
        if self.high_bp < self.mid_bp || self.mid_bp < self.low_bp {
            return Err(WatermarkError::Order);
        }
        if self.high_bp > 10_000 {
            return Err(WatermarkError::AboveFull);
        }
        if self.interval_us < 1_000 {
            return Err(WatermarkError::ZeroInterval);
        }
        Ok(())
    }
}

/// Where a scheme stands with respect to its watermarks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    /// On.
    Open,
    /// Off: the metric is above `high`, or between `mid` and `high` and has not been below `mid` since.
    High,
    /// Off: the metric is below `low`.
    Low,
}

impl Gate {
    /// The state after the metric was found to be `value_bp`. Between mid and high the state stays (hysteresis).
    pub fn next(self, w: &Watermarks, value_bp: u32) -> Self {
        if value_bp > w.high_bp {
            Self::High
        } else if value_bp < w.low_bp {
            Self::Low
        } else if value_bp < w.mid_bp {
            Self::Open
        } else {
            self
        }
    }
}

/// A scheme's watermarks with the state of their metric. Without watermarks it is always open.
#[derive(Debug)]
pub(super) struct WatermarkWatch {
    watermarks: Option<Watermarks>,
    gate: Gate,
    value_bp: u32,
    error: Option<MeterError>,
    next_ns: u64,
}

impl WatermarkWatch {
    /// Off until the metric was read, if there is one.
    pub fn new(watermarks: Option<Watermarks>) -> Self {
        let gate = if watermarks.is_some() { Gate::High } else { Gate::Open };
        Self { watermarks, gate, value_bp: 0, error: None, next_ns: 0 }
    }

    /// Whether the scheme is on.
    pub fn is_open(&self) -> bool {
        self.gate == Gate::Open
    }

    /// When the metric is to be read next; `None`: never.
    pub fn next_ns(&self) -> Option<u64> {
        self.watermarks.map(|_| self.next_ns)
    }

    /// Reads the metric if its time has come; tells why the scheme is off, if it was read and it is.
    pub fn turn(&mut self, now_ns: u64, meter: &mut dyn Meter, targets: &[LiveTarget]) -> Option<IdleReason> {
        let w = self.watermarks.filter(|_| now_ns >= self.next_ns)?;
        self.next_ns = now_ns + w.interval_us * 1000;
        let metric = match w.metric {
            WatermarkMetric::FreeMemRate => Metric::FreeMemRate,
        };
        match meter.read(&metric, targets) {
            Ok(value) => {
                self.value_bp = value.min(u64::from(u32::MAX)) as u32;
                self.gate = self.gate.next(&w, self.value_bp);
                self.error = None;
            }
            Err(e) => {
                self.gate = Gate::High;
                self.error = Some(e);
            }
        }
        self.reason()
    }

    /// Why the scheme is off; `None`: it is on.
    pub fn reason(&self) -> Option<IdleReason> {
        let value_bp = self.value_bp;
        let w = self.watermarks.filter(|_| !self.is_open())?;
        Some(match &self.error {
            Some(e) => IdleReason::Meter(e.to_string()),
            None if self.gate == Gate::Low => IdleReason::WatermarkLow { value_bp, low_bp: w.low_bp },
            None => IdleReason::WatermarkHigh { value_bp, mid_bp: w.mid_bp },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const W: Watermarks = Watermarks {
        metric: WatermarkMetric::FreeMemRate,
        interval_us: 5_000_000,
        high_bp: 5000,
        mid_bp: 4000,
        low_bp: 2000,
    };

    #[test]
    fn between_mid_and_high_the_state_stays() {
        assert_eq!(Gate::High.next(&W, 4500), Gate::High);
        assert_eq!(Gate::High.next(&W, 3999), Gate::Open);
        assert_eq!(Gate::Open.next(&W, 4500), Gate::Open);
        assert_eq!(Gate::Open.next(&W, 5001), Gate::High);
        assert_eq!(Gate::Open.next(&W, 1999), Gate::Low);
        assert_eq!(Gate::Low.next(&W, 4500), Gate::Low);
        assert_eq!(Gate::Low.next(&W, 2000), Gate::Open);
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(W.validate(), Ok(()));
        assert_eq!(Watermarks { mid_bp: 6000, ..W }.validate(), Err(WatermarkError::Order));
        assert_eq!(Watermarks { high_bp: 10_001, ..W }.validate(), Err(WatermarkError::AboveFull));
        assert_eq!(Watermarks { interval_us: 0, ..W }.validate(), Err(WatermarkError::ZeroInterval));
    }
}
