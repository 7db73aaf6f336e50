//! What each parameter set costs and saves, and which is best.

use super::figures::{Measured, median};
use super::parameters::Parameters;
use super::search::Wish;

/// A parameter set with its figures, as shares of the command alone in the same round.
#[derive(Debug, Clone, PartialEq)]
pub struct Scored {
    /// The set.
    pub parameters: Parameters,
    /// Runtime, median over the rounds; 1: as alone.
    pub runtime: f64,
    /// Memory, median over the rounds; 1: as alone.
    pub memory: f64,
    /// Bytes that the scheme was applied to, median over the rounds; `None`: of no run is that known.
    pub applied: Option<u64>,
    /// How many runs that is.
    pub runs: usize,
    /// Runtime and memory that all runs together let expect; `None` where none tell of others.
    pub expected: Option<(f64, f64)>,
}

impl Scored {
    /// For people: the parameters, and what they are good for.
    pub fn words(&self) -> String {
        let figures =
            |(runtime, memory): (f64, f64)| format!("{memory:.3} of the memory at {runtime:.3} of the runtime");
        let measured = figures((self.runtime, self.memory));
        let expected =
            self.expected.map_or_else(String::new, |e| format!("; by all runs, {} is to be expected", figures(e)));
        format!("{}: {measured}, measured in {} runs{expected}", self.parameters.words(), self.runs)
    }
}

/// Scores one set: `alone` and `with` are its rounds. `None` without any.
pub fn score(parameters: Parameters, alone: &[Measured], with: &[Measured]) -> Option<Scored> {
    let ratio = |figure: fn(&Measured) -> f64| {
        median(alone.iter().zip(with).map(|(a, w)| figure(w) / figure(a).max(f64::MIN_POSITIVE)))
    };
    let applied = median(with.iter().filter_map(|m| m.applied).map(|bytes| bytes as f64));
    Some(Scored {
        parameters,
        runtime: ratio(|m| m.seconds)?,
        memory: ratio(|m| m.memory)?,
        applied: applied.map(|bytes| bytes as u64),
        runs: with.len(),
        expected: None,
    })
}

/// The set with the best score among those that keep to the limit; of equal ones the fastest.
pub fn best(all: &[Scored], wish: Wish) -> Option<&Scored> {
    let score = |s: &Scored| wish.score(s.runtime, s.memory);
    all.iter()
        .filter(|s| s.runtime <= 1.0 + wish.max_slowdown)
        .max_by(|a, b| score(a).total_cmp(&score(b)).then(b.runtime.total_cmp(&a.runtime)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(seconds: f64, memory: f64) -> Measured {
        Measured { seconds, memory, applied: None, idle: None }
    }

    fn aged(min_age_us: u64) -> Parameters {
        Parameters { min_age_us, rate_bp: 0, confirm_us: 0 }
    }

    fn scored(age: u64, runtime: f64, memory: f64) -> Scored {
        Scored { parameters: aged(age), runtime, memory, applied: None, runs: 1, expected: None }
    }

    #[test]
    fn figures_are_compared_within_a_round() {
        // The machine was twice as slow in the second round.
        let alone = [measured(10.0, 100.0), measured(20.0, 100.0), measured(10.0, 100.0)];
        let with = [measured(11.0, 60.0), measured(22.0, 50.0), measured(11.0, 70.0)];
        let s = score(aged(1), &alone, &with).unwrap();
        assert!((s.runtime - 1.1).abs() < 1e-9 && (s.memory - 0.6).abs() < 1e-9, "{s:?}");
        assert_eq!((s.applied, score(aged(1), &[], &[])), (None, None), "not known is not 0");
    }

    #[test]
    fn the_least_memory_within_the_limit_is_best() {
        let all = [scored(1, 1.2, 0.3), scored(2, 1.04, 0.5), scored(3, 1.01, 0.5), scored(4, 1.0, 0.9)];
        let best = |all, max_slowdown, runtime_weight| {
            best(all, Wish { max_slowdown, runtime_weight }).map(|s| s.parameters.min_age_us)
        };
        assert_eq!(best(&all, 0.05, 0.0), Some(3));
        assert_eq!(best(&all, 0.5, 0.0), Some(1));
        assert_eq!(best(&all[..1], 0.05, 0.0), None);
        assert_eq!(best(&all, 0.5, 0.8), Some(3), "0.2 of runtime cost more than 0.2 of memory save");
    }
}
