//! The scrambled Zipfian distribution of YCSB: few keys get most requests, and they lie anywhere.

use crate::random::{Random, mix};

/// YCSB's constant: the key of rank r gets a share proportional to 1 / r^0.99.
pub const THETA: f64 = 0.99;

/// Draws from `items` keys; the algorithm is that of Gray et al. 1994, as in YCSB.
#[derive(Debug, Clone)]
pub struct Zipf {
    items: u64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    /// For keys 0 to `items` - 1.
    pub fn new(items: u64) -> Self {
        let zeta = |n: u64| (1..=n).map(|r| (r as f64).powf(-THETA)).sum::<f64>();
        let all = zeta(items);
        let eta = (1.0 - (2.0 / items as f64).powf(1.0 - THETA)) / (1.0 - zeta(2) / all);
        Self { items, zeta: all, alpha: 1.0 / (1.0 - THETA), eta }
    }

    /// A rank, 0 for the most popular.
    fn rank(&self, random: &mut Random) -> u64 {
        let u = random.fraction();
        let uz = u * self.zeta;
        if uz < 1.0 {
            0
        } else if uz < 1.0 + 0.5f64.powf(THETA) {
            1
        } else {
            let rank = self.items as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha);
            (rank as u64).min(self.items - 1)
        }
    }

    /// A key.
    pub fn key(&self, random: &mut Random) -> u64 {
        mix(self.rank(random)) % self.items
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn popularity_falls_with_the_rank_as_it_should() {
        let (items, draws) = (1000, 200_000);
        let zipf = Zipf::new(items);
        let mut random = Random::new(1);
        let mut counts = vec![0u64; items as usize];
        for _ in 0..draws {
            counts[zipf.rank(&mut random) as usize] += 1;
        }
        for rank in [0, 1, 9, 99] {
            let expected = draws as f64 / zipf.zeta / (rank as f64 + 1.0).powf(THETA);
            // The algorithm is an approximation above the second rank.
            let off = (counts[rank] as f64 / expected - 1.0).abs();
            assert!(off < 0.3, "rank {rank}: {} instead of {expected:.0}", counts[rank]);
        }
        assert_eq!(counts.iter().sum::<u64>(), draws);
    }
}
