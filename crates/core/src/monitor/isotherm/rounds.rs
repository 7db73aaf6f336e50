//! When within an aggregation interval rates are measured.
//!
//! A rate is the probability that a page is found accessed after one sampling interval. If it were always measured in
//! the same sampling interval of each aggregation interval, a program that is periodic would be seen in beats: as never
//! accessed while its accesses fall beside that moment, as always accessed while they fall into it. So the moments are
//! drawn anew each time. They follow each other: a run of four sampling intervals holds one whole period, or a half, of
//! many programs, so that it tells more than four moments apart, and of waking up it takes five times instead of eight.

/// The sampling intervals of one aggregation interval in which a round of probes is watched. Round `i` is cleared at
/// the begin of sampling interval `ticks[i]` and looked at at its end.
#[derive(Debug, Clone, Default)]
pub(super) struct Rounds {
    /// Distinct, each below the number of sampling intervals.
    ticks: Vec<u32>,
}

impl Rounds {
    /// Draws `count` rounds over `per_aggr` sampling intervals, each of which is as likely as any other.
    pub fn draw(count: u32, per_aggr: u32, rng: &mut fastrand::Rng) -> Self {
        let first = rng.u32(0..per_aggr);
        Self { ticks: (0..count.min(per_aggr)).map(|i| (first + i) % per_aggr).collect() }
    }

    pub const fn none() -> Self {
        Self { ticks: Vec::new() }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.ticks.len()
    }

    /// The round that begins at `tick`.
    pub fn beginning(&self, tick: u32) -> Option<u8> {
        self.ticks.iter().position(|&t| t == tick).map(|i| i as u8)
    }

    /// The round that ends at `tick`.
    pub fn ending(&self, tick: u32) -> Option<u8> {
        self.beginning(tick.checked_sub(1)?)
    }

    /// The first tick after `tick` at which a round begins or ends.
    pub(crate) fn next_stop(&self, tick: u32) -> Option<u32> {
        self.ticks.iter().flat_map(|&t| [t, t + 1]).filter(|&t| t > tick).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rounds_are_apart_and_each_has_its_stops(count in 0u32..6, per_aggr in 1u32..50, seed: u64) {
            let rounds = Rounds::draw(count, per_aggr, &mut fastrand::Rng::with_seed(seed));
            let mut ticks = rounds.ticks.clone();
            ticks.sort_unstable();
            ticks.dedup();
            prop_assert_eq!(ticks.len(), rounds.len());
            prop_assert!(ticks.iter().all(|&t| t < per_aggr));
            prop_assert!(rounds.len() <= count as usize && (rounds.len() > 0) == (count > 0));
            let mut tick = 0;
            let mut stops = Vec::new();
            while let Some(next) = rounds.next_stop(tick) {
                stops.push(next);
                tick = next;
            }
            prop_assert!(ticks.iter().all(|t| *t == 0 || stops.contains(t)) && ticks.iter().all(|t| stops.contains(&(t + 1))));
        }
    }

    #[test]
    fn every_sampling_interval_is_as_likely_as_any_other() {
        let mut rng = fastrand::Rng::with_seed(1);
        for count in [1, 2, 4] {
            let mut drawn = [0u32; 20];
            for _ in 0..20_000 {
                Rounds::draw(count, 20, &mut rng).ticks.iter().for_each(|&t| drawn[t as usize] += 1);
            }
            let each = 1000 * count;
            assert!(drawn.iter().all(|d| d.abs_diff(each) < each / 5), "{count}: {drawn:?}");
        }
    }
}
