//! Which parameters are worth the next run, by all runs so far. It runs nothing itself.
//!
//! Runtime and memory each have an ensemble of [monotone curves](curves); after every run those that explain it gain
//! weight. The next run goes where what it may tell is worth most for the choice at the end: for each point, outcomes
//! are drawn from the curves, learned on trial, and the value of what would be chosen then is averaged (the "knowledge
//! gradient" of Frazier, Powell and Dayanik, 2008).

mod baseline;
mod curves;
#[cfg(test)]
mod simulated;

pub use curves::Point;

use super::figures::Figures;
use curves::{Curves, Figure, normal};
use fastrand::Rng;

/// Curves that trial outcomes are judged by, and how many outcomes.
const JUDGES: usize = 240;
const OUTCOMES: usize = 12;
/// How much of the score is not worth a run.
const NEGLIGIBLE: f64 = 0.001;
/// Least probability that the limit is kept for a point to be chosen.
const LIKELY: f64 = 0.5;

/// What is wanted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wish {
    /// How much longer than alone the command may take; 0.05: 5 %.
    pub max_slowdown: f64,
    /// Weight of the runtime in the score, 0 to 1; the rest is the memory's.
    pub runtime_weight: f64,
}

impl Wish {
    /// The score of these shares of the command alone, as DAMOOS has it: the weighted sum of what is saved of runtime and
    /// of memory, as a fraction of one.
    pub fn score(self, runtime: f64, memory: f64) -> f64 {
        self.runtime_weight * (1.0 - runtime) + (1.0 - self.runtime_weight) * (1.0 - memory)
    }

    /// How much of the score counts: all of it within the limit, nothing from twice the limit on. So little is lost where
    /// a point's runtime differs from the limit by less than can be measured.
    pub fn kept(self, runtime: f64) -> f64 {
        let over = runtime - 1.0 - self.max_slowdown;
        (1.0 - over / self.max_slowdown.max(0.01)).clamp(0.0, 1.0)
    }
}

/// A run that has been made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    /// Which point; `None`: the command alone.
    pub point: Option<usize>,
    /// What was measured.
    pub figures: Figures,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Run the command alone.
    Alone,
    /// Run it with the parameters of this point.
    Try(usize),
    /// All runs have been made.
    Done,
}

/// What is believed of a point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Belief {
    /// Runtime, as a share of alone.
    pub runtime: f64,
    /// Memory, as a share of alone.
    pub memory: f64,
    /// Probability that the runtime is within the limit.
    pub within: f64,
    /// The score, as far as it counts.
    pub value: f64,
}

/// A search over points.
#[derive(Debug, Clone)]
pub struct Search {
    /// What may be tried.
    pub points: Vec<Point>,
    /// The point that is tried first: the scheme's own.
    pub first: usize,
    /// What is wanted.
    pub wish: Wish,
    /// What is believed before the first run.
    runtime: Curves,
    memory: Curves,
}

impl Search {
    /// A search over `points`. `takes`: the scheme takes memory away; see [`Curves::prior`].
    pub fn new(points: Vec<Point>, first: usize, wish: Wish, takes: bool) -> Self {
        // Always the same curves: what is proposed depends on the runs alone.
        let mut rng = Rng::with_seed(1);
        let runtime = Curves::prior(&points, Figure::Runtime, takes, &mut rng);
        let memory = Curves::prior(&points, Figure::Memory, takes, &mut rng);
        Self { points, first, wish, runtime, memory }
    }

    /// What to do after these runs, of which `runs` may be made in all. `earlier`: runs of earlier tunings.
    pub fn next(&self, done: &[Run], runs: usize, earlier: &[Vec<Run>]) -> Step {
        if done.len() >= runs {
            return Step::Done;
        }
        if alone_turns(runs).contains(&done.len()) {
            return Step::Alone;
        }
        if !self.shares(done, earlier).is_empty() {
            Step::Try(self.most_telling(done, earlier))
        } else {
            Step::Try(self.first)
        }
    }

    /// What is believed of every point.
    pub fn beliefs(&self, done: &[Run], earlier: &[Vec<Run>]) -> Vec<Belief> {
        let (runtime, memory, _) = self.learned(done, earlier);
        let values = self.values(&runtime, &memory);
        let within = runtime.expect(|r| f64::from(r <= 1.0 + self.wish.max_slowdown));
        (runtime.expected().into_iter().zip(memory.expected()).zip(within).zip(values))
            .map(|(((runtime, memory), within), value)| Belief { runtime, memory, within, value })
            .collect()
    }

    /// The best of the points that were tried; `None` if none of them is likely to be within the limit.
    pub fn best(&self, done: &[Run], earlier: &[Vec<Run>]) -> Option<usize> {
        let beliefs = self.beliefs(done, earlier);
        let mut tried: Vec<usize> = self.shares(done, earlier).into_iter().map(|(point, _)| point).collect();
        tried.retain(|&p| beliefs[p].within >= LIKELY);
        tried.into_iter().max_by(|&a, &b| beliefs[a].value.total_cmp(&beliefs[b].value))
    }

    /// Each run with parameters as a share of the command alone at its time.
    pub fn shares(&self, done: &[Run], earlier: &[Vec<Run>]) -> Vec<(usize, Figures)> {
        let mut shares = Vec::new();
        for session in earlier.iter().map(Vec::as_slice).chain([done]) {
            let alone = alone(session);
            for (turn, run) in session.iter().enumerate() {
                if let (Some(point), Some(base)) = (run.point, baseline::alone_at(&alone, turn)) {
                    let (seconds, memory) = (run.figures.seconds / base.seconds, run.figures.memory / base.memory);
                    shares.push((point, Figures { seconds, memory }));
                }
            }
        }
        shares
    }

    /// The curves after all runs, and the noise of a run.
    fn learned(&self, done: &[Run], earlier: &[Vec<Run>]) -> (Curves, Curves, Figures) {
        let (mut runtime, mut memory) = (self.runtime.clone(), self.memory.clone());
        let figures = |session: &[Run]| alone(session).into_iter().map(|(_, figures)| figures).collect();
        let all_alone: Vec<Vec<Figures>> = earlier.iter().map(Vec::as_slice).chain([done]).map(figures).collect();
        let noise = baseline::noise(&all_alone);
        for (point, share) in self.shares(done, earlier) {
            runtime.learn(point, share.seconds, noise.seconds);
            memory.learn(point, share.memory, noise.memory);
        }
        (runtime, memory, noise)
    }

    /// The score that is expected to count at every point.
    fn values(&self, runtime: &Curves, memory: &Curves) -> Vec<f64> {
        let kept = runtime.expect(|r| self.wish.kept(r));
        let kept_runtime = runtime.expect(|r| self.wish.kept(r) * r);
        // Runtime and memory are independent of one another where both are known to depend on the point.
        (kept.into_iter().zip(kept_runtime).zip(memory.expected()))
            .map(|((kept, kept_runtime), memory)| {
                let weight = self.wish.runtime_weight;
                weight * (kept - kept_runtime) + (1.0 - weight) * kept * (1.0 - memory)
            })
            .collect()
    }

    /// The point whose next run is worth most.
    fn most_telling(&self, done: &[Run], earlier: &[Vec<Run>]) -> usize {
        let (runtime, memory, noise) = self.learned(done, earlier);
        let (runtime, memory) = (runtime.drawn(JUDGES), memory.drawn(JUDGES));
        let mut rng = Rng::with_seed(2);
        // The same chances for all points.
        let chances: Vec<_> = (0..OUTCOMES)
            .map(|_| (rng.usize(..JUDGES), rng.usize(..JUDGES), normal(&mut rng), normal(&mut rng)))
            .collect();
        let worth = |point: usize| -> f64 {
            let after = |&(slow, large, off_slow, off_large): &(usize, usize, f64, f64)| {
                let (mut runtime_then, mut memory_then) = (runtime.clone(), memory.clone());
                runtime_then.learn(point, runtime.curve(slow)[point] + noise.seconds * off_slow, noise.seconds);
                memory_then.learn(point, memory.curve(large)[point] + noise.memory * off_large, noise.memory);
                self.values(&runtime_then, &memory_then).into_iter().fold(0.0, f64::max)
            };
            chances.iter().map(after).sum()
        };
        let worths: Vec<f64> = (0..self.points.len()).map(|p| worth(p) / OUTCOMES as f64).collect();
        let most = worths.iter().copied().fold(0.0, f64::max);
        let values = self.values(&runtime, &memory);
        // Where hardly anything is to be learned, what would be chosen is run again: its figures are those that count.
        (0..self.points.len())
            .filter(|&p| worths[p] >= most - NEGLIGIBLE)
            .max_by(|&a, &b| values[a].total_cmp(&values[b]))
            .unwrap_or(self.first)
    }
}

/// The runs of the command alone, with their turns, steadied.
fn alone(session: &[Run]) -> Vec<(usize, Figures)> {
    let alone = session.iter().enumerate().filter(|(_, r)| r.point.is_none());
    baseline::steadied(&alone.map(|(turn, r)| (turn, r.figures)).collect::<Vec<_>>())
}

/// At which turns the command runs alone: about every third, the first and the last among them, so that a machine whose
/// speed changes is noticed.
fn alone_turns(runs: usize) -> Vec<usize> {
    match ((3 * runs + 5) / 10).max(1) {
        1 => vec![0],
        count => (0..count).map(|n| n * (runs - 1) / (count - 1)).collect(),
    }
}
