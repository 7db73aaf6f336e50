//! The status as OpenMetrics text, for Prometheus and its kin.
//!
//! Counters and their meaning come from [`DESCRIPTIONS`], where they are declared. What is not known has no sample.

use super::openmetrics::{END, Family, Kind, Labels, Value, seconds};
use super::status::Status;
use isotherm_core::scheme::stats::{DESCRIPTIONS, Description, Unit};

pub fn write(status: &Status) -> String {
    let mut text = String::with_capacity(16 << 10);
    let out = &mut text;
    let none = Labels::new();
    Family::new(out, Kind::Info, "", "", "Which Isotherm this is.").add(&vec![("version", &status.version)], 1u64);
    Family::new(out, Kind::Gauge, "_uptime", "seconds", "For how long it has run.")
        .add(&none, seconds(status.uptime_ns));
    monitor(out, status);
    targets(out, status);
    schemes(out, status);
    goals(out, status);
    text.push_str(END);
    text
}

fn monitor(out: &mut String, status: &Status) {
    let m = &status.monitor;
    let none = Labels::new();
    Family::new(out, Kind::Counter, "_monitor_snapshots", "", "Snapshots drawn up.").add(&none, m.snapshots);
    Family::new(out, Kind::Gauge, "_monitor_regions", "", "Regions at present.")
        .add_known(&none, m.nr_regions.map(u64::from));
    Family::new(out, Kind::Gauge, "_monitor_sampling_interval", "seconds", "Sampling interval in force.")
        .add_known(&none, m.sample_us.map(|us| us as f64 / 1e6));
    Family::new(out, Kind::Gauge, "_monitor_aggregation_interval", "seconds", "Aggregation interval in force.")
        .add_known(&none, m.aggr_us.map(|us| us as f64 / 1e6));
    Family::new(out, Kind::Counter, "_monitor_cpu", "seconds", "CPU time that monitoring took, on either side.")
        .add_known(&vec![("side", "monitor")], m.monitor_ns.map(seconds))
        .add_known(&vec![("side", "target")], m.target_ns.map(seconds));
    Family::new(out, Kind::Gauge, "_monitor_cpu_budget", "ratio", "Share of one core that monitoring may take.")
        .add_known(&none, m.cpu_budget);
}

type OfTarget = fn(&super::status::TargetStatus) -> Option<u64>;

fn targets(out: &mut String, status: &Status) {
    let figures: [(&str, &'static str, OfTarget); 3] = [
        ("_target_resident", "Resident memory of a target.", |t| t.rss),
        ("_target_swapped", "Memory of a target that is swapped out.", |t| t.swap),
        (
            "_target_accessed",
            "Memory of a target in use within the last second, or in the last snapshot where only regions are known.",
            |t| t.accessed,
        ),
    ];
    for (name, help, figure) in figures {
        let mut family = Family::new(out, Kind::Gauge, name, "bytes", help);
        for t in &status.targets {
            let (index, pid) = (t.target.to_string(), t.pid.map(|pid| pid.to_string()).unwrap_or_default());
            family.add_known(&vec![("target", &index), ("pid", &pid), ("name", &t.name)], figure(t));
        }
    }
}

/// Name and unit in base units, and what a value is to be multiplied by.
fn base_unit(d: &Description) -> (&'static str, &'static str, Option<f64>) {
    match d.unit {
        Unit::Count => (d.name, "", None),
        Unit::Bytes => (d.name, "bytes", None),
        Unit::Nanoseconds => (d.name.strip_suffix("_ns").unwrap_or(d.name), "seconds", Some(1e-9)),
        Unit::Microseconds => (d.name.strip_suffix("_us").unwrap_or(d.name), "seconds", Some(1e-6)),
    }
}

fn schemes(out: &mut String, status: &Status) {
    let indices: Vec<String> = status.schemes.iter().map(|s| s.scheme.to_string()).collect();
    let labels = |i: usize| -> Labels<'_> { vec![("scheme", &indices[i]), ("action", &status.schemes[i].action)] };
    let counters: Vec<serde_json::Value> =
        status.schemes.iter().map(|s| serde_json::to_value(&s.stats).unwrap_or_default()).collect();
    for description in DESCRIPTIONS {
        let kind = if description.falls { Kind::Gauge } else { Kind::Counter };
        let (base, unit, factor) = base_unit(description);
        let mut family = Family::new(out, kind, &format!("_scheme_{base}"), unit, description.help);
        for (i, counters) in counters.iter().enumerate() {
            let Some(value) = counters[description.name].as_u64() else { continue };
            let value = factor.map_or(Value::Whole(value), |f| Value::Real(value as f64 * f));
            family.add(&labels(i), value);
        }
    }
    let help = "1 while the scheme acts, 0 while something holds it back.";
    let mut family = Family::new(out, Kind::Gauge, "_scheme_active", "", help);
    for (i, s) in status.schemes.iter().enumerate() {
        family.add(&labels(i), u64::from(s.idle_reason.is_none()));
    }
}

fn goals(out: &mut String, status: &Status) {
    type OfGoal = fn(&super::status::GoalStatus) -> Option<Value>;
    let figures: [(&str, &'static str, OfGoal); 3] = [
        ("_goal_current", "Last value of a goal's metric, in its own unit.", |g| g.current.map(Value::Whole)),
        ("_goal_target", "Value that a goal wishes for, in the metric's own unit.", |g| Some(Value::Whole(g.target))),
        ("_goal_score", "How well a goal is met: 1 on target, less asks for more of the scheme.", |g| {
            g.score.map(|s| Value::Real(s as f64 / 1e4))
        }),
    ];
    for (name, help, figure) in figures {
        let mut family = Family::new(out, Kind::Gauge, name, "", help);
        for s in &status.schemes {
            let scheme = s.scheme.to_string();
            for (i, g) in s.goals.iter().enumerate() {
                let goal = i.to_string();
                family.add_known(&vec![("scheme", &scheme), ("goal", &goal), ("metric", &g.metric)], figure(g));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::openmetrics::checked;
    use crate::control::testing;
    use std::collections::BTreeSet;

    #[test]
    fn it_keeps_to_the_format_and_to_the_figures() {
        let status = testing::status();
        let samples = checked(&write(&status));
        let at = |series: &str| *samples.get(series).unwrap_or_else(|| panic!("no {series} in {samples:#?}"));
        assert_eq!(at("isotherm_scheme_sz_tried_bytes_total{scheme=\"0\",action=\"pageout\"}"), 8192.0);
        assert_eq!(at("isotherm_scheme_action_seconds_total{scheme=\"0\",action=\"pageout\"}"), 2.5);
        assert_eq!(at("isotherm_scheme_saved_now_bytes{scheme=\"0\",action=\"pageout\"}"), 4096.0);
        assert_eq!(at("isotherm_monitor_cpu_seconds_total{side=\"monitor\"}"), 0.5);
        let goal = "{scheme=\"0\",goal=\"0\",metric=\"some_mem_psi\"}";
        assert_eq!(
            (at(&format!("isotherm_goal_current{goal}")), at(&format!("isotherm_goal_score{goal}"))),
            (5000.0, 0.1)
        );
        let name = "\\\\odd \\\"name\\\"\\n";
        let target = format!("isotherm_target_resident_bytes{{target=\"0\",pid=\"42\",name=\"{name}\"}}");
        assert_eq!(at(&target), 12288.0);
        for Description { name, .. } in DESCRIPTIONS {
            let base = name.trim_end_matches("_ns").trim_end_matches("_us");
            let known = status.schemes.iter().any(|s| !serde_json::to_value(&s.stats).unwrap()[name].is_null());
            let there = samples.keys().any(|k| k.starts_with(&format!("isotherm_scheme_{base}")));
            assert!(there || !known, "{name} has no sample");
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
        let described: BTreeSet<&str> = DESCRIPTIONS.iter().map(|d| d.name).collect();
        assert_eq!(counted, described);
    }
}
