//! The emergency brake: a scheme whose victims come back too soon, or under which pressure gets too high, is stopped
//! for a while, each time for longer.

use crate::meter::{LiveTarget, Meter, Metric};
use crate::scheme::effect::Effect;
use crate::scheme::growth::{Grown, Growth};
use crate::scheme::stops::Stops;

/// When the brake is pulled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BrakeSpec {
    /// Largest share of what went within 10 s that may have come back already.
    pub refault_ratio: f64,
    /// Largest share of time that some task may wait for memory, over 10 s (PSI).
    pub some_psi: f64,
}

impl Default for BrakeSpec {
    fn default() -> Self {
        Self { refault_ratio: 0.3, some_psi: 0.2 }
    }
}

/// Why the brake was pulled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cause {
    /// Memory came back: the share.
    Refaults(f64),
    /// Pressure: the share of time.
    Pressure(f64),
}

const FIRST_STOP_NS: u64 = 10_000_000_000;
const LONGEST_STOP_NS: u64 = 600_000_000_000;
const WINDOW_NS: u64 = 10_000_000_000;
const READ_EVERY_NS: u64 = 1_000_000_000;
/// Less than this gone within 10 s says nothing about a ratio.
const LEAST_OUT: u64 = 4 << 20;

/// The state of the brake.
#[derive(Debug, Clone)]
pub(crate) struct Brake {
    spec: BrakeSpec,
    stops: Stops,
    cause: Option<Cause>,
    pressure: Growth,
}

impl Brake {
    /// A brake that is not pulled.
    pub fn new(spec: BrakeSpec) -> Self {
        Self { spec, stops: Stops::new(FIRST_STOP_NS, LONGEST_STOP_NS), cause: None, pressure: Growth::default() }
    }

    /// How often it was pulled.
    pub const fn pulled(&self) -> u64 {
        self.stops.count
    }

    /// Goes on where `old` ended, with limits of its own.
    pub fn follow(&mut self, old: Self) {
        *self = Self { spec: self.spec, ..old };
    }

    /// Looks at effect and pressure. `None`: go on; otherwise why it stands still and until when.
    pub fn check(
        &mut self,
        now_ns: u64,
        effect: &Effect,
        meter: &mut dyn Meter,
        targets: &[LiveTarget],
    ) -> Option<(Cause, u64)> {
        let psi = self.psi(now_ns, meter, targets);
        if now_ns < self.stops.until_ns() {
            return self.cause.map(|c| (c, self.stops.until_ns()));
        }
        if self.cause.take().is_some() {
            // What had gone before the stop must not pull the brake again: it starts to count anew.
            self.pressure.clear();
            return None;
        }
        let ratio = effect.recent_back as f64 / effect.recent_out.max(1) as f64;
        let cause = if effect.recent_out >= LEAST_OUT && ratio > self.spec.refault_ratio {
            Cause::Refaults(ratio)
        } else if let Some(share) = psi.filter(|&share| share > self.spec.some_psi) {
            Cause::Pressure(share)
        } else {
            self.stops.go_on(now_ns);
            return None;
        };
        self.cause = Some(cause);
        Some((cause, self.stops.stop(now_ns)))
    }

    fn psi(&mut self, now_ns: u64, meter: &mut dyn Meter, targets: &[LiveTarget]) -> Option<f64> {
        if self.pressure.last_ns().is_none_or(|last_ns| now_ns >= last_ns + READ_EVERY_NS) {
            // Where the kernel does not tell pressure, refaults alone decide.
            let total_us = meter.read(&Metric::SomeMemPsi(None), targets).ok()?;
            self.pressure.note(now_ns, total_us, WINDOW_NS);
        }
        let Grown { by, over_ns } = self.pressure.grown();
        // A window that is not full would make a short stall look like a long one.
        (over_ns >= WINDOW_NS).then(|| by as f64 * 1e3 / over_ns as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::MeterError;

    struct Psi(u64);

    impl Meter for Psi {
        fn read(&mut self, _: &Metric, _: &[LiveTarget]) -> Result<u64, MeterError> {
            Ok(self.0)
        }
    }

    const S: u64 = 1_000_000_000;

    fn effect(out: u64, back: u64) -> Effect {
        Effect { recent_out: out << 20, recent_back: back << 20, ..Default::default() }
    }

    #[test]
    fn refaults_pull_it_for_longer_each_time() {
        let mut b = Brake::new(BrakeSpec::default());
        assert_eq!(b.check(0, &effect(100, 10), &mut Psi(0), &[]), None);
        assert_eq!(b.check(S, &effect(1, 1), &mut Psi(0), &[]), None, "too little to tell");
        assert_eq!(b.check(2 * S, &effect(100, 50), &mut Psi(0), &[]), Some((Cause::Refaults(0.5), 12 * S)));
        assert!(b.check(11 * S, &effect(0, 0), &mut Psi(0), &[]).is_some());
        assert_eq!(b.check(12 * S, &effect(0, 0), &mut Psi(0), &[]), None);
        assert_eq!(b.check(13 * S, &effect(100, 50), &mut Psi(0), &[]), Some((Cause::Refaults(0.5), 33 * S)));
        assert_eq!(b.pulled(), 2);
    }

    #[test]
    fn pressure_pulls_it() {
        let mut b = Brake::new(BrakeSpec::default());
        let mut last = None;
        for second in 0..=10 {
            last = b.check(second * S, &effect(0, 0), &mut Psi(second * 500_000), &[]);
        }
        assert_eq!(last, Some((Cause::Pressure(0.5), 20 * S)));
    }
}
