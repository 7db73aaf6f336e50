//! What is tuned of a scheme.

use crate::scheme::Scheme;
use crate::scheme::pattern::FULL_RATE_BP;
use crate::units::format_time;
use serde::{Deserialize, Serialize};

/// The parameters that are tuned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameters {
    /// Least age, microseconds.
    pub min_age_us: u64,
    /// The bound of the access rate, basis points: the lower one for a scheme about hot memory, else the upper one.
    pub rate_bp: u32,
    /// For how long a page must have been idle at least, microseconds.
    pub confirm_us: u64,
}

/// Whether the scheme is about hot memory: it asks for a least rate.
pub fn wants_hot(scheme: &Scheme) -> bool {
    scheme.pattern.rate_bp.min > 0
}

impl Parameters {
    /// Those of a scheme.
    pub fn of(scheme: &Scheme) -> Self {
        let rate = scheme.pattern.rate_bp;
        let rate_bp = if wants_hot(scheme) { rate.min } else { rate.max };
        Self { min_age_us: scheme.pattern.age_us.min, rate_bp, confirm_us: scheme.confirm_ns / 1000 }
    }

    /// The scheme with these parameters instead of its own; `None` if they contradict its other bounds.
    pub fn applied_to(self, scheme: &Scheme) -> Option<Scheme> {
        let mut scheme = scheme.clone();
        if wants_hot(&scheme) {
            scheme.pattern.rate_bp.min = self.rate_bp;
        } else {
            scheme.pattern.rate_bp.max = self.rate_bp;
        }
        scheme.pattern.age_us.min = self.min_age_us;
        scheme.confirm_ns = self.confirm_us.saturating_mul(1000);
        scheme.validate().is_ok().then_some(scheme)
    }

    /// Puts in the place of these parameters what says no more than which of them the scheme has: two schemes that are
    /// equal then differ in parameters alone.
    pub fn taken_from(self, scheme: &mut Scheme) {
        if wants_hot(scheme) {
            scheme.pattern.rate_bp.min = 1;
        } else {
            scheme.pattern.rate_bp.max = FULL_RATE_BP;
        }
        scheme.pattern.age_us.min = self.min_age_us.min(1);
        scheme.confirm_ns = 0;
    }

    /// The age that decides, microseconds: the least one, or `confirm` of a scheme that asks for no other.
    pub fn age_us(self) -> u64 {
        if self.min_age_us > 0 { self.min_age_us } else { self.confirm_us }
    }

    /// For people: `5.00 s, 5 %`.
    pub fn words(self) -> String {
        let age = format_time(self.age_us().saturating_mul(1000));
        format!("{age}, {} %", f64::from(self.rate_bp) / 100.0)
    }
}
