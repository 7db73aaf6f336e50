//! `--goal NAME=TARGET`.

use crate::schemes::metric::{MetricName, falls};
use isotherm_core::scheme::action::Action;
use isotherm_core::scheme::goal::{Goal, GoalMetric};

/// Short names of the goals that people ask for most.
const SHORT: [(&str, MetricName); 5] = [
    ("psi", MetricName::SomeMemPsi),
    ("stall", MetricName::TargetStall),
    ("rss", MetricName::TargetRss),
    ("free", MetricName::FreeMemRate),
    ("swap-in", MetricName::SwapIn),
];

/// A goal as the command line names it: the direction depends on what is done for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoalArg {
    metric: GoalMetric,
    target: u64,
    window_ns: u64,
}

/// Parses `psi=0.5%`, `rss=2G`, or any metric of scheme files that needs no node and no path.
pub fn goal(text: &str) -> Result<GoalArg, String> {
    let example = "write for example psi=0.5% or rss=2G";
    let (name, target) = text.split_once('=').ok_or_else(|| format!("'{text}' is not a goal; {example}"))?;
    let short = SHORT.iter().find(|(short, _)| *short == name).map(|&(_, metric)| metric);
    let name = match short {
        Some(metric) => metric,
        None => name.parse::<MetricName>().map_err(|e| format!("{e}; or psi, stall, rss, free, swap-in"))?,
    };
    let window_ns = name.default_window_ns();
    let metric = name.metric(None, None).map_err(|_| format!("{name} needs more than a target: use a scheme file"))?;
    let target = name.target(&target.into(), window_ns)?;
    Ok(GoalArg { metric, target, window_ns })
}

impl GoalArg {
    /// The goal of a scheme that does `action`.
    pub fn of(&self, action: Action) -> Goal {
        let falls = matches!(&self.metric, GoalMetric::Read(metric) if falls(metric, action));
        Goal { metric: self.metric.clone(), target: self.target, window_ns: self.window_ns, falls }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::meter::Metric;

    #[test]
    fn goals_have_short_names() {
        let g = goal("psi=0.5%").unwrap().of(Action::PageOut);
        assert_eq!((g.metric, g.target, g.falls), (GoalMetric::Read(Metric::SomeMemPsi(None)), 50_000, false));
        let g = goal("rss=2G").unwrap().of(Action::PageOut);
        assert_eq!((g.metric, g.target, g.falls), (GoalMetric::Read(Metric::TargetRss), 2 << 30, true));
        assert_eq!(goal("some_mem_psi=0.5%"), goal("psi=0.5%"));
        for bad in ["psi", "psi=", "psi=0%", "rss=50%", "luck=1", "node_mem_used=5%", "rss=0"] {
            assert!(goal(bad).is_err(), "{bad}");
        }
    }
}
