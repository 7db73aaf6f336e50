//! A goal in one word, for command lines: `some_mem_psi=0.5%`, `rss=2G`, `cgroup_mem_used:/system.slice=1G`.

use super::metric::{MetricName, falls};
use super::value::{self, Scalar};
use isotherm_core::scheme::action::Action;
use isotherm_core::scheme::goal::{Goal, GoalMetric};

const EXAMPLE: &str = "write for example psi=0.5% or rss=2G";

/// Reads `METRIC[:NODE-OR-CGROUP]=TARGET` for a scheme that does `action`. `psi` and `rss` are short for `some_mem_psi` and
/// `target_rss`.
pub fn parse(text: &str, action: Action) -> Result<Goal, String> {
    let fail = |why: String| format!("goal '{text}': {why}");
    // A path may hold an equals sign; a target does not.
    let (what, target) = text.rsplit_once('=').ok_or_else(|| fail(EXAMPLE.to_owned()))?;
    let (name, place) = match what.split_once(':') {
        Some((name, place)) => (name, Some(place)),
        None => (what, None),
    };
    let name: MetricName = match name.trim() {
        "psi" => MetricName::SomeMemPsi,
        "rss" => MetricName::TargetRss,
        name => name.parse().map_err(fail)?,
    };
    let (node, path) = match place {
        Some(place) if name.wants_node() => (Some(value::count32(&Scalar::from(place)).map_err(fail)?), None),
        place => (None, place),
    };
    if let Some(why) = name.unwanted(node, path) {
        return Err(fail(why));
    }
    let window_ns = name.default_window_ns();
    let metric = name.metric(node, path).map_err(fail)?;
    let target = name.target(&Scalar::from(target.trim()), window_ns).map_err(fail)?;
    let falls = match &metric {
        GoalMetric::UserInput => false,
        GoalMetric::Read(metric) => falls(metric, action),
    };
    Ok(Goal { metric, target, window_ns, falls })
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::meter::Metric;

    #[test]
    fn goals_are_read() {
        let goal = |text| parse(text, Action::PageOut).unwrap();
        assert_eq!(goal("psi=0.5%"), goal("some_mem_psi=0.5%"));
        assert_eq!((goal("psi=0.5%").target, goal("psi=0.5%").window_ns), (50_000, 10_000_000_000));
        assert!(goal("rss=2G").falls && !goal("psi=1%").falls);
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
            "nothing=5",
            "rss:1=2G",
            "node_mem_used=5%",
            "cgroup_mem_used=1G",
            "node_mem_used:x=5%",
        ] {
            let error = parse(text, Action::PageOut).unwrap_err();
            assert!(error.contains(&format!("'{text}'")), "{error}");
        }
    }
}
