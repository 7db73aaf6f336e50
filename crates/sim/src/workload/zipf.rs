//! Zipf-distributed ranks: rank r (from 0) is drawn with a probability proportional to (r + 1)^-theta.

/// A Zipf distribution over ranks `0..n`.
///
/// Drawing takes constant time and memory for any `n`, by rejection-inversion (W. Hörmann, G. Derflinger,
/// "Rejection-inversion to generate variates from monotone discrete distributions", ACM TOMACS 6(3), 1996).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Zipf {
    n: u64,
    theta: f64,
    /// Sum of all (r + 1)^-theta.
    norm: f64,
    h_first: f64,
    h_last: f64,
    squeeze: f64,
}

impl Zipf {
    /// The distribution over `n` ranks (0 counts as 1) with exponent `theta`, which must be finite and not negative
    /// (anything else counts as 0: all ranks alike).
    pub fn new(n: u64, theta: f64) -> Self {
        let n = n.max(1);
        let theta = if theta.is_finite() { theta.max(0.0) } else { 0.0 };
        let mut z = Self { n, theta, norm: 0.0, h_first: 0.0, h_last: 0.0, squeeze: 0.0 };
        z.norm = z.weight_sum(n);
        z.h_first = z.integral(1.5) - 1.0;
        z.h_last = z.integral(n as f64 + 0.5);
        z.squeeze = 2.0 - z.integral_inverse(z.integral(2.5) - z.weight(2.0));
        z
    }

    pub const fn len(&self) -> u64 {
        self.n
    }

    /// Whether there is no rank; never true.
    pub const fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// Probability of `rank`.
    pub fn probability(&self, rank: u64) -> f64 {
        if rank >= self.n { 0.0 } else { self.weight(rank as f64 + 1.0) / self.norm }
    }

    /// Probability that a draw is below `rank`.
    pub(crate) fn probability_below(&self, rank: u64) -> f64 {
        self.weight_sum(rank.min(self.n)) / self.norm
    }

    /// Draws a rank; `uniform` yields numbers in [0, 1).
    pub fn draw(&self, mut uniform: impl FnMut() -> f64) -> u64 {
        loop {
            let u = self.h_last + uniform() * (self.h_first - self.h_last);
            let x = self.integral_inverse(u);
            let k = x.round().clamp(1.0, self.n as f64);
            if k - x <= self.squeeze || u >= self.integral(k + 0.5) - self.weight(k) {
                return k as u64 - 1;
            }
        }
    }

    fn weight(&self, x: f64) -> f64 {
        x.powf(-self.theta)
    }

    /// An antiderivative of x^-theta that is continuous in theta at 1.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        let e = (1.0 - self.theta) * log;
        if e.abs() < 1e-9 { log * (1.0 + e / 2.0) } else { e.exp_m1() / e * log }
    }

    fn integral_inverse(&self, y: f64) -> f64 {
        let t = (y * (1.0 - self.theta)).max(-1.0);
        if t.abs() < 1e-9 { (y * (1.0 - t / 2.0)).exp() } else { (t.ln_1p() / t * y).exp() }
    }

    /// Sum of the weights of the first `count` ranks: exact for the first 1000, Euler-Maclaurin's formula for the rest.
    fn weight_sum(&self, count: u64) -> f64 {
        const EXACT: u64 = 1000;
        let head: f64 = (1..=count.min(EXACT)).map(|r| self.weight(r as f64)).sum();
        if count <= EXACT {
            return head;
        }
        let (a, b) = (EXACT as f64, count as f64);
        let slope = |x: f64| -self.theta * x.powf(-self.theta - 1.0);
        head + self.integral(b) - self.integral(a)
            + (self.weight(b) - self.weight(a)) / 2.0
            + (slope(b) - slope(a)) / 12.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_sum_to_one() {
        for theta in [0.0, 0.5, 0.99, 1.0, 1.01, 2.5] {
            let z = Zipf::new(5000, theta);
            let sum: f64 = (0..5000).map(|r| z.probability(r)).sum();
            assert!((sum - 1.0).abs() < 1e-9, "theta {theta}: {sum}");
            let below: f64 = (0..3000).map(|r| z.probability(r)).sum();
            assert!((below - z.probability_below(3000)).abs() < 1e-9, "theta {theta}");
        }
    }

    #[test]
    fn draws_follow_the_probabilities() {
        for theta in [0.0, 0.8, 1.0, 1.5] {
            let z = Zipf::new(100, theta);
            let mut rng = fastrand::Rng::with_seed(7);
            let draws = 200_000;
            let mut counts = [0u32; 100];
            for _ in 0..draws {
                counts[z.draw(|| rng.f64()) as usize] += 1;
            }
            for (rank, &count) in counts.iter().enumerate() {
                let mean = z.probability(rank as u64) * f64::from(draws);
                let five_sigma = 5.0 * mean.sqrt() + 1.0;
                assert!((f64::from(count) - mean).abs() < five_sigma, "theta {theta} rank {rank}: {count} for {mean}");
            }
        }
    }

    #[test]
    fn one_rank_is_always_drawn() {
        assert_eq!(Zipf::new(1, 1.0).draw(|| 0.5), 0);
    }
}
