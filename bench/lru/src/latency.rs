//! Latencies, counted in steps of about 1 %.

/// Steps for each doubling.
const STEPS: usize = 64;

/// How often each latency occurred.
#[derive(Debug, Clone)]
pub struct Latencies {
    counts: Vec<u64>,
    total: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { counts: vec![0; 64 * STEPS], total: 0 }
    }
}

fn step(ns: u64) -> usize {
    let ns = ns.max(STEPS as u64);
    let doublings = ns.ilog2() as usize;
    doublings * STEPS + (ns >> (doublings - STEPS.ilog2() as usize)) as usize % STEPS
}

/// The largest value of a step.
fn value(step: usize) -> u64 {
    let (doublings, part) = (step / STEPS, step % STEPS);
    let shift = doublings - STEPS.ilog2() as usize;
    ((STEPS + part + 1) as u64) << shift
}

impl Latencies {
    /// Counts one.
    pub fn add(&mut self, ns: u64) {
        self.counts[step(ns)] += 1;
        self.total += 1;
    }

    /// How many there are.
    pub const fn len(&self) -> u64 {
        self.total
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// What this share of them does not exceed, ns.
    pub fn quantile(&self, share: f64) -> u64 {
        let rank = (self.total as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = self.counts.iter().position(|&n| {
            seen += n;
            seen >= rank
        });
        found.map_or(0, |s| if s / STEPS < STEPS.ilog2() as usize { 0 } else { value(s) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_two_percent() {
        let mut l = Latencies::default();
        (1..=100_000u64).for_each(|i| l.add(i * 100));
        for (share, exact) in [(0.5, 5_000_000.0), (0.99, 9_900_000.0), (0.001, 10_000.0)] {
            let found = l.quantile(share) as f64;
            assert!((found / exact - 1.0).abs() < 0.02, "{share}: {found}");
        }
        assert_eq!(l.len(), 100_000);
        assert_eq!(Latencies::default().quantile(0.5), 0);
    }
}
