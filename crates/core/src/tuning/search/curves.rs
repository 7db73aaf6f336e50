//! What is believed about a figure at every point: many curves that never rise or never fall with the least age, each
//! weighted by how well it explains the runs so far.

use fastrand::Rng;

/// How many curves. More change what is chosen hardly at all.
const CURVES: usize = 3000;
/// Degrees of freedom of the noise (Student's t): a single run that something disturbed counts little.
const FREEDOM: f64 = 4.0;

/// Parameters as the curves see them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Binary logarithm of the least age in seconds.
    pub log_age: f64,
    /// How far the access rate lets the scheme go: 0, the most careful rate, to 1.
    pub rate: f64,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    Runtime,
    Memory,
}

/// The curves of one figure, as shares of the command alone, with what was learned.
#[derive(Debug, Clone)]
pub struct Curves {
    /// Values at the points, curve after curve.
    values: Vec<f64>,
    points: usize,
    log_weights: Vec<f64>,
}

impl Curves {
    /// What is believed before the first run. `takes`: the scheme takes memory away, so that runtime can only rise and
    /// memory only fall; else either may go either way.
    pub fn prior(points: &[Point], figure: Figure, takes: bool, rng: &mut Rng) -> Self {
        let low = points.iter().map(|p| p.log_age).fold(f64::INFINITY, f64::min);
        let high = points.iter().map(|p| p.log_age).fold(f64::NEG_INFINITY, f64::max);
        let mut values = Vec::with_capacity(CURVES * points.len());
        for _ in 0..CURVES {
            let sign = if takes || rng.bool() { 1.0 } else { -1.0 };
            // Also without any effect of the ages: what watching costs, and what all figures have in common by chance.
            let (floor, height) = match figure {
                Figure::Runtime => (0.003 + 0.008 * normal(rng), sign * log_uniform(rng, 0.003, 3.0)),
                Figure::Memory => (0.005 * normal(rng), -sign * 0.97 * rng.f64()),
            };
            // Memory is used again after times of its own: one or two steps, sharp or over many ages.
            let share = if rng.bool() { 1.0 } else { rng.f64() };
            let mut step = || (low - 1.0 + (high - low + 2.0) * rng.f64(), log_uniform(rng, 0.05, 1.5));
            let steps = [(share, step()), (1.0 - share, step())];
            // A rate that lets more be taken acts like an age that is shorter by so much.
            let shift = 3.0 * rng.f64() * rng.f64();
            values.extend(points.iter().map(|p| {
                let x = p.log_age - shift * p.rate;
                let part: f64 = steps.iter().map(|&(share, (at, width))| share * logistic((at - x) / width)).sum();
                1.0 + floor + height * part
            }));
        }
        Self { values, points: points.len(), log_weights: vec![0.0; CURVES] }
    }

    /// Takes a value into account that was measured at a point, with this standard error.
    pub fn learn(&mut self, point: usize, value: f64, sigma: f64) {
        for (curve, weight) in self.values.chunks_exact(self.points).zip(&mut self.log_weights) {
            *weight += log_likelihood(value - curve[point], sigma);
        }
    }

    /// The expected value at every point.
    pub fn expected(&self) -> Vec<f64> {
        self.expect(|value| value)
    }

    /// The expected value of `of` at every point.
    pub fn expect(&self, of: impl Fn(f64) -> f64) -> Vec<f64> {
        let weights = normalised(&self.log_weights);
        let mut sums = vec![0.0; self.points];
        for (curve, weight) in self.values.chunks_exact(self.points).zip(weights) {
            if weight > 0.0 {
                sums.iter_mut().zip(curve).for_each(|(sum, &value)| *sum += weight * of(value));
            }
        }
        sums
    }

    /// `count` of the curves, each as often as its weight says, with equal weights.
    pub fn drawn(&self, count: usize) -> Self {
        let weights = normalised(&self.log_weights);
        let mut values = Vec::with_capacity(count * self.points);
        let (mut below, mut taken) = (0.0, 0);
        for (curve, weight) in self.values.chunks_exact(self.points).zip(weights) {
            below += weight;
            while taken < count && (taken as f64 + 0.5) / (count as f64) < below {
                values.extend_from_slice(curve);
                taken += 1;
            }
        }
        let taken = taken.max(1);
        values.resize(taken * self.points, 1.0);
        Self { values, points: self.points, log_weights: vec![0.0; taken] }
    }

    /// The values of the `n`th curve, counted round.
    pub fn curve(&self, n: usize) -> &[f64] {
        let n = n % self.log_weights.len();
        &self.values[n * self.points..(n + 1) * self.points]
    }
}

/// Student's t, but for a constant.
fn log_likelihood(off: f64, sigma: f64) -> f64 {
    let z = off / sigma;
    -f64::midpoint(FREEDOM, 1.0) * (1.0 + z * z / FREEDOM).ln()
}

/// Weights that add up to 1.
fn normalised(log_weights: &[f64]) -> Vec<f64> {
    let most = log_weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = log_weights.iter().map(|w| (w - most).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|w| w / sum).collect()
}

fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn log_uniform(rng: &mut Rng, low: f64, high: f64) -> f64 {
    low * (high / low).powf(rng.f64())
}

/// Normally distributed: mean 0, variance 1 (Box and Muller).
pub fn normal(rng: &mut Rng) -> f64 {
    (-2.0 * (1.0 - rng.f64()).ln()).sqrt() * (std::f64::consts::TAU * rng.f64()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points() -> Vec<Point> {
        (-3..=3).flat_map(|age| [0.0, 1.0].map(|rate| Point { log_age: f64::from(age), rate })).collect()
    }

    #[test]
    fn every_curve_of_a_scheme_that_takes_memory_is_monotone() {
        let points = points();
        let runtime = Curves::prior(&points, Figure::Runtime, true, &mut Rng::with_seed(1));
        let memory = Curves::prior(&points, Figure::Memory, true, &mut Rng::with_seed(2));
        for n in 0..CURVES {
            let (slow, large) = (runtime.curve(n), memory.curve(n));
            for i in 0..points.len() {
                // The next age at the same rate; the more careful rate at the same age.
                if i + 2 < points.len() {
                    assert!(slow[i + 2] <= slow[i] && large[i + 2] >= large[i]);
                }
                if points[i].rate > 0.0 {
                    assert!(slow[i - 1] <= slow[i] && large[i - 1] >= large[i]);
                }
            }
        }
    }

    #[test]
    fn what_is_measured_is_believed_there_and_beyond() {
        let points = points();
        let mut runtime = Curves::prior(&points, Figure::Runtime, true, &mut Rng::with_seed(1));
        let before = runtime.expect(|v| f64::from(v <= 1.05));
        runtime.learn(6, 1.3, 0.02);
        let after = runtime.expect(|v| f64::from(v <= 1.05));
        assert!((runtime.expected()[6] - 1.3).abs() < 0.03);
        assert!(after[0] < 0.01 && before[0] > 0.1, "shorter ages cost no less: {} {}", before[0], after[0]);
        assert!(after[12] > 0.1, "longer ones may");
        // One run that something disturbed does not outweigh three.
        (0..3).for_each(|_| runtime.learn(6, 1.02, 0.02));
        assert!(runtime.expected()[6] < 1.1);
        let drawn = runtime.drawn(50).expected();
        assert!(drawn.iter().zip(runtime.expected()).all(|(a, b)| (a - b).abs() < 0.05));
    }
}
