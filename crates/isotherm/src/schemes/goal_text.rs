//! A goal in one word, for command lines: `psi=0.5%`, `target_rss=2G`, `cgroup_mem_used:/system.slice=1G`.

use super::metric::{MetricName, falls};
use super::value::{self, Scalar};
use crate::args::refused::Refused;
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

/// A goal as it is written: its direction depends on what is done for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoalText {
    metric: GoalMetric,
    target: u64,
    window_ns: u64,
}

/// Reads `METRIC[:NODE-OR-CGROUP]=TARGET`, with any metric of scheme files or a short name.
pub fn parse(text: &str) -> Result<GoalText, Refused> {
    let fail = |why: String| Refused::new(text, format!("is no goal: {why}"));
    // A path may hold an equals sign; a target does not.
    let (what, target) =
        text.rsplit_once('=').ok_or_else(|| fail("write for example psi=0.5% or rss=2G".to_owned()))?;
    let (name, place) = match what.split_once(':') {
        Some((name, place)) => (name, Some(place)),
        None => (what, None),
    };
    let name = match SHORT.iter().find(|(short, _)| *short == name) {
        Some(&(_, metric)) => metric,
        None => name.parse::<MetricName>().map_err(|e| fail(format!("{e}; or psi, stall, rss, free, swap-in")))?,
    };
    let (node, path) = match place {
        Some(place) if name.wants_node() => {
            (Some(value::count32(&Scalar::from(place)).map_err(|e| fail(e.to_string()))?), None)
        }
        place => (None, place),
    };
    if let Some(why) = name.unwanted(node, path) {
        return Err(fail(why.to_string()));
    }
    let needs = |_| {
        let place = if name.wants_node() { "0" } else { "/system.slice" };
        fail(format!("it does not say of what; write for example {name}:{place}={target}"))
    };
    let metric = name.metric(node, path).map_err(needs)?;
    let window_ns = name.default_window_ns();
    let target = name.target(&Scalar::from(target), window_ns).map_err(|e| fail(e.to_string()))?;
    Ok(GoalText { metric, target, window_ns })
}

impl GoalText {
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
    fn goals_are_read() {
        let goal = |text| parse(text).unwrap().of(Action::PageOut);
        let g = goal("psi=0.5%");
        assert_eq!((&g.metric, g.target, g.falls), (&GoalMetric::Read(Metric::SomeMemPsi(None)), 50_000, false));
        assert_eq!(g, goal("some_mem_psi=0.5%"));
        let g = goal("rss=2G");
        assert_eq!((g.metric, g.target, g.falls), (GoalMetric::Read(Metric::TargetRss), 2 << 30, true));
        assert_eq!(goal("user_input=7").metric, GoalMetric::UserInput);
        assert_eq!(goal("node_mem_free:1=20%").metric, GoalMetric::Read(Metric::NodeMemFree(1)));
        let path = "/a.slice/b@c:d=e";
        let group = goal(&format!("cgroup_mem_used:{path}=1G"));
        assert_eq!(group.metric, GoalMetric::Read(Metric::CgroupMemUsed(path.into())));
        assert_eq!(group.target, 1 << 30);
    }

    #[test]
    fn what_is_no_goal_is_refused_by_name() {
        for text in [
            "",
            "psi",
            "psi=",
            "=5",
            "psi=0%",
            "psi=200%",
            "luck=5",
            "rss=0",
            "rss=50%",
            "rss:1=2G",
            "node_mem_used=5%",
            "node_mem_used:x=5%",
            "cgroup_mem_used=1G",
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(&format!("'{text}'")), "{error}");
        }
    }
}
