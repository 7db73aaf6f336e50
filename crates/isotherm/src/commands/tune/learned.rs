//! A tuning that learns from its runs: what the search and the history say, in terms of schemes.

use super::candidates::Space;
use super::history::{Entry, Known};
use isotherm_core::scheme::Scheme;
use isotherm_core::scheme::action::Action;
use isotherm_core::tuning::figures::Measured;
use isotherm_core::tuning::figures::median;
use isotherm_core::tuning::parameters::{Parameters, wants_hot};
use isotherm_core::tuning::score::Scored;
use isotherm_core::tuning::search::{Run, Search, Step, Wish};

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Alone,
    Try(Parameters),
    Done,
}

/// Whether the scheme can only take memory away, and time.
fn takes_memory(scheme: &Scheme) -> bool {
    let takes = matches!(
        scheme.action,
        Action::Cold | Action::PageOut | Action::LruDeprio | Action::MigrateCold | Action::NoHugePage | Action::Stat
    );
    takes && !wants_hot(scheme)
}

/// One tuning, with what earlier ones know.
#[derive(Debug)]
pub struct Learned {
    space: Space,
    search: Search,
    runs: usize,
    earlier: Vec<Vec<Run>>,
    done: Vec<Run>,
    /// Of all runs of earlier tunings and this one, what the scheme did.
    applied: Vec<(usize, u64)>,
}

impl Learned {
    /// A tuning of `scheme` of `runs` runs, at most. `known`: earlier runs; those of the tuning `this` count as its own.
    pub fn new(scheme: &Scheme, by_region: bool, wish: Wish, runs: usize, known: &Known, this: i64) -> Self {
        let mut space = Space::of(scheme, by_region);
        let (mut earlier, mut done, mut applied) = (Vec::new(), Vec::new(), Vec::new());
        for tuning in known.tunings() {
            let mut run = |entry: &Entry| {
                let point = entry.parameters.map(|set| space.index(set));
                applied.extend(point.zip(entry.applied_bytes));
                Run { point, figures: entry.figures() }
            };
            let all: Vec<Run> = tuning.iter().map(|entry| run(entry)).collect();
            if tuning.first().is_some_and(|e| e.tuning == this) {
                done = all;
            } else {
                earlier.push(all);
            }
        }
        let search = Search::new(space.points(), 0, wish, takes_memory(scheme));
        Self { space, search, runs, earlier, done, applied }
    }

    /// How many runs have been made, and may be.
    pub fn turn(&self) -> (usize, usize) {
        (self.done.len(), self.runs)
    }

    pub fn next(&self) -> Next {
        match self.search.next(&self.done, self.runs, &self.earlier) {
            Step::Alone => Next::Alone,
            Step::Try(point) => Next::Try(self.space.sets[point]),
            Step::Done => Next::Done,
        }
    }

    /// Takes a run into account: of the command alone, or with these parameters.
    pub fn learn(&mut self, parameters: Option<Parameters>, measured: &Measured) {
        let point = parameters.and_then(|set| self.space.sets.iter().position(|s| *s == set));
        self.applied.extend(point.zip(measured.applied));
        self.done.push(Run { point, figures: measured.figures() });
    }

    /// All sets that were tried, by age and rate.
    pub fn scored(&self) -> Vec<Scored> {
        let beliefs = self.search.beliefs(&self.done, &self.earlier);
        let shares = self.search.shares(&self.done, &self.earlier);
        let mut all: Vec<Scored> = Vec::new();
        for (point, (&parameters, belief)) in self.space.sets.iter().zip(&beliefs).enumerate() {
            let of: Vec<_> = shares.iter().filter(|(p, _)| *p == point).map(|(_, share)| share).collect();
            let runtime = median(of.iter().map(|s| s.seconds));
            let memory = median(of.iter().map(|s| s.memory));
            let (Some(runtime), Some(memory)) = (runtime, memory) else { continue };
            let applied = self.applied.iter().filter(|(p, _)| *p == point).map(|(_, bytes)| *bytes as f64);
            all.push(Scored {
                parameters,
                runtime,
                memory,
                applied: median(applied).map(|bytes| bytes as u64),
                runs: of.len(),
                expected: Some((belief.runtime, belief.memory)),
            });
        }
        all.sort_by_key(|s| (s.parameters.age_us(), s.parameters.rate_bp));
        all
    }

    /// The parameters to choose; `None` if none that was tried is likely to be within the limit.
    pub fn best(&self) -> Option<Parameters> {
        self.search.best(&self.done, &self.earlier).map(|point| self.space.sets[point])
    }
}
