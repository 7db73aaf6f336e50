//! The status as metrics.

use super::status::{self, GoalStatus, SchemeStatus};
use isotherm_core::figure::{FigureKind, Value};
use isotherm_daemon::openmetrics::{Exposition, Family, Labels};
use isotherm_daemon::service::Status;

impl Status for status::Status {
    fn write_metrics(&self, out: &mut Exposition) {
        self.instance.write_metrics(out);
        out.figures("", &[(Labels::new(), &self.monitor)]);
        let targets = self.targets.iter().map(|t| {
            let pid = t.pid.map(|pid| pid.to_string()).unwrap_or_default();
            (vec![("target", t.target.to_string()), ("pid", pid), ("name", t.name.clone())], t)
        });
        out.figures("target_", &targets.collect::<Vec<_>>());
        let labels = |s: &SchemeStatus| vec![("scheme", s.scheme.to_string()), ("action", s.action.clone())];
        let stats: Vec<_> = self.schemes.iter().map(|s| (labels(s), &s.stats)).collect();
        out.figures("scheme_", &stats);
        let effects: Vec<_> = self.schemes.iter().map(|s| (labels(s), &s.stats.effect)).collect();
        out.figures("scheme_", &effects);
        let active = Family {
            name: "scheme_active",
            kind: FigureKind::Gauge,
            unit: "",
            help: "1 while the scheme acts, 0 while something holds it back.",
        };
        let acts = |s: &SchemeStatus| Some(Value::Whole(s.idle_reason.is_none().into()));
        out.family(&active, stats.iter().map(|(labels, _)| labels).zip(self.schemes.iter().map(acts)));
        let goals = self.schemes.iter().flat_map(|s| s.goals.iter().enumerate().map(move |g| (s, g)));
        let goals: Vec<(Labels, &GoalStatus)> = goals
            .map(|(s, (i, g))| {
                let scheme = s.scheme.to_string();
                (vec![("scheme", scheme), ("goal", i.to_string()), ("metric", g.metric.clone())], g)
            })
            .collect();
        out.figures("goal_", &goals);
        let ahead = self.ahead.iter().map(|ahead| (Labels::new(), ahead));
        out.figures("ahead_", &ahead.collect::<Vec<_>>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::schemes::control::testing;
    use isotherm_core::figure::Figured;
    use isotherm_core::scheme::effect::Effect;
    use isotherm_core::scheme::stats::SchemeStats;
    use isotherm_daemon::openmetrics_check::checked;
    use std::collections::BTreeSet;

    fn write(status: &status::Status) -> String {
        let mut out = Exposition::default();
        status.write_metrics(&mut out);
        out.finish()
    }

    #[test]
    fn it_keeps_to_the_format_and_to_the_figures() {
        let status = testing::status();
        let samples = checked(&write(&status));
        let at = |series: &str| *samples.get(series).unwrap_or_else(|| panic!("no {series} in {samples:#?}"));
        assert_eq!(at("isotherm_scheme_sz_tried_bytes_total{scheme=\"0\",action=\"pageout\"}"), 8192.0);
        assert_eq!(at("isotherm_scheme_action_seconds_total{scheme=\"0\",action=\"pageout\"}"), 2.5);
        assert_eq!(at("isotherm_scheme_saved_now_bytes{scheme=\"0\",action=\"pageout\"}"), 4096.0);
        assert_eq!(at("isotherm_monitor_cpu_seconds_total"), 0.5);
        let goal = "{scheme=\"0\",goal=\"0\",metric=\"some_mem_psi\"}";
        assert_eq!(
            (at(&format!("isotherm_goal_current{goal}")), at(&format!("isotherm_goal_score{goal}"))),
            (0.0005, 0.1)
        );
        assert_eq!(at(&format!("isotherm_goal_target{goal}")), 0.005, "a share of the time, not microseconds");
        let json = serde_json::to_value(&status.schemes[0].goals[0]).unwrap();
        assert_eq!((&json["current"], &json["target"]), (&5000.into(), &50_000.into()));
        let name = "\\\\odd \\\"name\\\"\\n";
        let target = format!("isotherm_target_resident_bytes{{target=\"0\",pid=\"42\",name=\"{name}\"}}");
        assert_eq!(at(&target), 12288.0);
        let stats = serde_json::to_value(&status.schemes[0].stats).unwrap();
        let figures = SchemeStats::FIGURES.iter().map(|f| (f.name, f.base().0));
        for (name, base) in figures.chain(Effect::FIGURES.iter().map(|f| (f.name, f.base().0))) {
            let there = samples.keys().any(|k| k.starts_with(&format!("isotherm_scheme_{base}")));
            assert!(there || stats[name].is_null(), "{name} has no sample");
        }
    }

    #[test]
    fn what_is_not_known_has_no_sample() {
        let mut status = testing::status();
        assert!(write(&status).contains("isotherm_scheme_major_faults_total"));
        status.schemes[0].stats.major_faults = None;
        status.targets[0].rss = None;
        status.schemes[0].goals[0].current = None;
        let text = write(&status);
        checked(&text);
        for absent in ["major_faults", "_target_resident", "_goal_current"] {
            assert!(!text.contains(absent), "{absent}");
        }
    }

    #[test]
    fn what_is_described_is_what_is_counted() {
        let counted = serde_json::to_value(&testing::status().schemes[0].stats).unwrap();
        let counted: BTreeSet<&str> = counted.as_object().unwrap().keys().map(String::as_str).collect();
        let described = SchemeStats::FIGURES.iter().map(|f| f.name).chain(Effect::FIGURES.iter().map(|f| f.name));
        assert_eq!(counted, described.collect());
    }
}
