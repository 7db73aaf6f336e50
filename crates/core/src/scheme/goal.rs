//! Goals: what the user wants to see, and how far from it the world is.

use super::growth::{Grown, Growth};
use crate::feedback::{GOAL, next_input};
use crate::figure::Value;
use crate::meter::{LiveTarget, Meter, MeterError, Metric, MetricKind};
use std::str::FromStr;

/// What a goal is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GoalMetric {
    /// A value that a program pushes (`isotherm ctl goal`), in the unit of the target.
    UserInput,
    /// A figure that is read.
    Read(Metric),
}

/// A goal of a quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Goal {
    /// What is looked at.
    pub metric: GoalMetric,
    /// The value wished for, in the unit of the metric; for counters, the growth within [`window_ns`](Self::window_ns).
    pub target: u64,
    /// Over which time a counter's growth is taken, ns. 0: the quota's reset interval, as in DAMOS.
    pub window_ns: u64,
    /// Whether more of the scheme makes the value fall (resident memory under pageout): then being above the target
    /// asks for more. As in DAMOS, false for pressure: being below asks for more.
    pub falls: bool,
}

/// How goals set the quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tuner {
    /// A steady rate that follows the feedback function.
    #[default]
    Consist,
    /// All at once until the goal is reached, then nothing.
    Temporal,
}

/// A name that no tuner has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a tuner; use consist or temporal")]
pub struct UnknownTuner(String);

impl FromStr for Tuner {
    type Err = UnknownTuner;

    fn from_str(name: &str) -> Result<Self, UnknownTuner> {
        match name {
            "consist" => Ok(Self::Consist),
            "temporal" => Ok(Self::Temporal),
            other => Err(UnknownTuner(other.to_owned())),
        }
    }
}

/// Why a goal is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GoalError {
    /// A target of zero can never be compared with.
    #[error("a goal of 0 cannot be tuned for; give a target above 0")]
    Zero,
}

impl Goal {
    /// Checks the values.
    pub fn validate(&self) -> Result<(), GoalError> {
        if self.target == 0 { Err(GoalError::Zero) } else { Ok(()) }
    }

    /// Over which time a counter's growth is taken, ns; `reset_ns` is the quota's reset interval.
    pub const fn span_ns(&self, reset_ns: u64) -> u64 {
        if self.window_ns == 0 { reset_ns } else { self.window_ns }
    }

    /// A value of it in base units: a share of one, bytes; of what grows, of each second. What a program pushes is what
    /// it is.
    pub fn in_base(&self, value: u64, reset_ns: u64) -> f64 {
        let GoalMetric::Read(metric) = &self.metric else { return value as f64 };
        let value = metric.unit().in_base(Value::Whole(value)).real();
        match metric.kind() {
            MetricKind::Level => value,
            MetricKind::Counter => value / (self.span_ns(reset_ns).max(1) as f64 / 1e9),
        }
    }

    /// How well a value meets it: 10 000 on target, less asks for more of the scheme.
    pub fn score(&self, current: u64) -> u64 {
        let (a, b) = if self.falls { (self.target, current) } else { (current, self.target) };
        (u128::from(a) * u128::from(GOAL) / u128::from(b.max(1))).min(u128::from(u64::MAX)) as u64
    }
}

/// A goal with what was seen of its metric.
#[derive(Debug, Clone)]
pub struct GoalState {
    /// The goal.
    pub goal: Goal,
    /// Readings (time, value) within the window, for counters.
    readings: Growth,
    /// The last value, in the unit of the target; `None` before the first.
    pub current: Option<u64>,
    pushed: Option<u64>,
    /// Why the metric could not be read the last time.
    pub error: Option<MeterError>,
}

impl GoalState {
    /// A goal whose metric has not been read.
    pub fn new(goal: Goal) -> Self {
        Self { goal, readings: Growth::default(), current: None, pushed: None, error: None }
    }

    /// Takes in a value pushed by a program.
    pub fn push(&mut self, value: u64) {
        self.pushed = Some(value);
    }

    /// Reads the metric at `now_ns`. `reset_ns` is the quota's reset interval.
    pub fn update(&mut self, now_ns: u64, reset_ns: u64, meter: &mut dyn Meter, targets: &[LiveTarget]) {
        let metric = match &self.goal.metric {
            GoalMetric::UserInput => {
                self.current = self.pushed.or(self.current);
                return;
            }
            GoalMetric::Read(metric) => metric,
        };
        let reading = match meter.read(metric, targets) {
            Ok(value) => value,
            Err(e) => {
                self.error = Some(e);
                self.current = None;
                return;
            }
        };
        self.error = None;
        if metric.kind() == MetricKind::Level {
            self.current = Some(reading);
            return;
        }
        let window = self.goal.span_ns(reset_ns);
        let Grown { by, over_ns } = self.readings.note(now_ns, reading, window);
        if over_ns > 0 {
            // Until the window is full, what was seen is not extrapolated.
            let in_window = || u128::from(by) * u128::from(window) / u128::from(over_ns);
            self.current = Some(if over_ns < window { by } else { in_window() as u64 });
        }
    }

    /// Whether it cannot be followed: its metric cannot be read, or no program has pushed a value yet.
    pub const fn is_unknown(&self) -> bool {
        self.error.is_some() || matches!(self.goal.metric, GoalMetric::UserInput) && self.current.is_none()
    }

    /// Bytes that are still to go, where the goal is a number of bytes that the scheme makes smaller.
    pub fn missing(&self) -> Option<u64> {
        let in_bytes = matches!(self.goal.metric, GoalMetric::Read(Metric::TargetRss | Metric::CgroupMemUsed(_)));
        let current = self.current.filter(|_| in_bytes && self.goal.falls)?;
        Some(current.saturating_sub(self.goal.target))
    }

    /// How well the goal is met: 10 000 on target, less asks for more of the scheme. `None` while nothing is known.
    pub fn score(&self) -> Option<u64> {
        self.current.map(|value| self.goal.score(value))
    }
}

/// The next effective quota in basis points of a byte, from the last one: several goals, the least aggressive rules.
pub fn tune(tuner: Tuner, last_bp: u64, goals: &[GoalState], unlimited: u64) -> u64 {
    let Some(score) = goals.iter().filter_map(GoalState::score).max() else { return last_bp };
    match tuner {
        Tuner::Consist => next_input(last_bp.max(GOAL), score),
        Tuner::Temporal if score >= GOAL => 0,
        Tuner::Temporal => unlimited,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(u64);

    impl Meter for Fixed {
        fn read(&mut self, _: &Metric, _: &[LiveTarget]) -> Result<u64, MeterError> {
            Ok(self.0)
        }
    }

    fn user(target: u64, value: u64) -> GoalState {
        let mut g = GoalState::new(Goal { metric: GoalMetric::UserInput, target, window_ns: 0, falls: false });
        g.push(value);
        g.update(0, 0, &mut Fixed(0), &[]);
        g
    }

    const S: u64 = 1_000_000_000;

    #[test]
    fn the_quota_follows_the_published_scores() {
        let mut bp = 1 << 40;
        for (score, rises) in [(0, true), (15_000, false), (5_000, true), (18_000, false)] {
            let next = tune(Tuner::Consist, bp, &[user(10_000, score)], u64::MAX);
            assert_eq!(next > bp, rises, "{score}");
            bp = next;
        }
    }

    #[test]
    fn the_least_aggressive_goal_rules() {
        let goals = [user(100, 10), user(100, 150)];
        assert_eq!(tune(Tuner::Consist, 1_000_000, &goals, 7), 500_000);
        assert_eq!(tune(Tuner::Temporal, 1_000_000, &goals, 7), 0);
        assert_eq!(tune(Tuner::Temporal, 0, &goals[..1], 7), 7);
        assert_eq!(tune(Tuner::Consist, 5, &[], 7), 5);
    }

    #[test]
    fn a_counter_is_taken_over_its_window() {
        let metric = GoalMetric::Read(Metric::SomeMemPsi(None));
        let mut g = GoalState::new(Goal { metric, target: 50_000, window_ns: 10 * S, falls: false });
        for (second, total) in [(0, 1000), (5, 2000), (10, 51_000), (15, 102_000)] {
            g.update(second * S, S, &mut Fixed(total), &[]);
        }
        assert_eq!(g.current, Some(100_000), "from second 5 to 15");
        assert_eq!(g.score(), Some(20_000));
        g.update(16 * S, S, &mut Fixed(7), &[]);
        assert_eq!(g.readings.grown().over_ns, 0, "a falling counter starts anew");
    }

    #[test]
    fn each_metric_has_a_base_unit() {
        let of = |metric, window_s: u64| Goal { metric, target: 1, window_ns: window_s * S, falls: false };
        let read = |metric, window_s| of(GoalMetric::Read(metric), window_s);
        assert_eq!(read(Metric::SomeMemPsi(None), 1).in_base(5000, S), 0.005, "seconds a second");
        assert_eq!(read(Metric::SomeMemPsi(None), 0).in_base(5000, S / 2), 0.01, "of the reset interval");
        assert_eq!(read(Metric::SwapIn, 5).in_base(5 << 20, S), f64::from(1 << 20), "bytes a second");
        assert_eq!(read(Metric::FreeMemRate, 0).in_base(2000, S), 0.2);
        assert_eq!(read(Metric::TargetRss, 0).in_base(4096, S), 4096.0);
        assert_eq!(of(GoalMetric::UserInput, 0).in_base(70, S), 70.0);
    }

    #[test]
    fn a_value_that_the_scheme_lowers_is_compared_the_other_way() {
        let metric = GoalMetric::Read(Metric::TargetRss);
        let mut g = GoalState::new(Goal { metric, target: 100, window_ns: 0, falls: true });
        g.update(0, S, &mut Fixed(200), &[]);
        assert_eq!(g.score(), Some(5_000), "twice the wanted memory: more of it");
        g.update(1, S, &mut Fixed(50), &[]);
        assert_eq!(g.score(), Some(20_000));
    }
}
