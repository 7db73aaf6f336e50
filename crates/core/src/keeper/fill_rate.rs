//! How fast memory is filled.

/// Readings closer together than this say too little, ns.
const LEAST_NS: u64 = 20_000_000;

/// Bytes filled a second, a moving average.
#[derive(Debug, Clone, Default)]
pub(crate) struct FillRate {
    per_second: f64,
    /// What it was last computed from: time, bytes.
    last: Option<(u64, u64)>,
}

impl FillRate {
    /// At `now` (ns), so many bytes have been filled in all: those in use, and those evicted so far.
    pub fn note(&mut self, filled: u64, now: u64) {
        if let Some((then, before)) = self.last {
            let past = now.saturating_sub(then);
            if past < LEAST_NS {
                return;
            }
            let seconds = past as f64 / 1e9;
            let rate = filled.saturating_sub(before) as f64 / seconds;
            // Rises at once, falls slowly.
            let fallen = self.per_second + (rate - self.per_second) * seconds.min(1.0);
            self.per_second = rate.max(fallen);
        }
        self.last = Some((now, filled));
    }

    /// The rate.
    pub const fn per_second(&self) -> f64 {
        self.per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn it_rises_at_once_and_falls_slowly() {
        let mut rate = FillRate::default();
        rate.note(1000, 0);
        assert_eq!(rate.per_second(), 0.0);
        rate.note(1 << 40, 10 * MS);
        assert_eq!(rate.per_second(), 0.0, "too soon to tell");
        rate.note(2000, 100 * MS);
        assert_eq!(rate.per_second(), 10_000.0);
        rate.note(2000, 600 * MS);
        assert_eq!(rate.per_second(), 5_000.0);
        rate.note(1000, 10_000 * MS);
        assert_eq!(rate.per_second(), 0.0, "less than before is nothing filled");
    }
}
