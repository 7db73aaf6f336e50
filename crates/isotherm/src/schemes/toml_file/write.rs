//! Schemes as a TOML file that reads back as the same schemes.

use crate::schemes::metric::{MetricName, Written, falls};
use isotherm_core::meter::Metric;
use isotherm_core::scheme::Scheme;
use isotherm_core::scheme::filter::{Filter, FilterType};
use isotherm_core::scheme::goal::{Goal, GoalMetric, Tuner};
use isotherm_core::scheme::pattern::Bounds;
use isotherm_core::scheme::quota::QuotaSpec;
use std::fmt::Write;

/// The text of a file with these schemes. What the action brings with it (proof, density, brake) is written out.
pub fn to_toml(schemes: &[Scheme]) -> String {
    let mut out = String::new();
    for (i, scheme) in schemes.iter().enumerate() {
        let gap = if i > 0 { "\n" } else { "" };
        put(&mut out, format_args!("{gap}[[scheme]]"));
        write_scheme(&mut out, scheme);
    }
    out
}

fn put(out: &mut String, line: std::fmt::Arguments) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{line}");
}

fn write_scheme(out: &mut String, s: &Scheme) {
    put(out, format_args!("action = \"{}\"", s.action));
    if s.apply_ns > 0 {
        put(out, format_args!("apply_interval = {}", time(s.apply_ns)));
    }
    if let Some(group) = &s.group {
        put(out, format_args!("group = {}", quoted(group)));
    }
    let usual = Scheme::new(s.action, s.pattern);
    if s.confirm_ns.max(usual.confirm_ns) > 0 {
        put(out, format_args!("confirm = {}", time(s.confirm_ns)));
    }
    if s.min_density_bp.max(usual.min_density_bp) > 0 {
        put(out, format_args!("min_density = \"{}\"", share(s.min_density_bp)));
    }
    if s.used_within_ns > 0 {
        put(out, format_args!("used_within = {}", time(s.used_within_ns)));
    }
    if !s.destinations.is_empty() {
        let list: Vec<String> =
            s.destinations.iter().map(|d| format!("{{ node = {}, weight = {} }}", d.node, d.weight)).collect();
        put(out, format_args!("destinations = [{}]", list.join(", ")));
    }
    match &s.brake {
        None if usual.brake.is_none() => {}
        None => put(out, format_args!("brake = false")),
        Some(b) => {
            let (ratio, psi) = (fraction(b.refault_ratio), fraction(b.some_psi));
            put(out, format_args!("brake = {{ refault_ratio = {ratio}, some_psi = {psi} }}"));
        }
    }
    let p = &s.pattern;
    put(out, format_args!("[scheme.pattern]"));
    put(out, format_args!("size = {}", range(p.size, size)));
    put(out, format_args!("access_rate = [\"{}\", \"{}\"]", share(p.rate_bp.min), share(p.rate_bp.max)));
    put(out, format_args!("age = {}", range(p.age_us, |us| time_of(us, 1000))));
    write_quota(out, &s.quota);
    s.quota.goals.iter().for_each(|g| write_goal(out, g, s));
    if let Some(w) = &s.watermarks {
        put(out, format_args!("[scheme.watermarks]"));
        put(out, format_args!("metric = \"free_mem_rate\""));
        put(out, format_args!("interval = {}", time_of(w.interval_us, 1000)));
        for (key, bp) in [("high", w.high_bp), ("mid", w.mid_bp), ("low", w.low_bp)] {
            put(out, format_args!("{key} = \"{}\"", share(bp)));
        }
    }
    s.filters.iter().for_each(|f| write_filter(out, f));
}

fn write_quota(out: &mut String, q: &QuotaSpec) {
    put(out, format_args!("[scheme.quota]"));
    if let Some(bytes) = q.bytes {
        put(out, format_args!("bytes = {}", size(bytes)));
    }
    if let Some(ns) = q.time_ns {
        put(out, format_args!("time = {}", time(ns)));
    }
    put(out, format_args!("reset_interval = {}", time(q.reset_ns)));
    let w = q.weights;
    let weights = format!("size = {}, access_rate = {}, age = {}", w.size, w.access_rate, w.age);
    put(out, format_args!("weights = {{ {weights} }}"));
    if q.tuner == Tuner::Temporal {
        put(out, format_args!("tuner = \"temporal\""));
    }
}

fn write_goal(out: &mut String, g: &Goal, s: &Scheme) {
    let name = MetricName::of(g);
    put(out, format_args!("[[scheme.goal]]"));
    put(out, format_args!("metric = \"{name}\""));
    match name.written(g.target, g.window_ns) {
        Written::Number(n) => put(out, format_args!("target = {}", number(n))),
        Written::Size(n) => put(out, format_args!("target = {}", size(n))),
        Written::Percent(p) => put(out, format_args!("target = \"{p}%\"")),
    }
    if name.has_window() {
        put(out, format_args!("window = {}", time(g.window_ns)));
    }
    if let GoalMetric::Read(metric) = &g.metric {
        match metric {
            Metric::NodeMemUsed(node) | Metric::NodeMemFree(node) => put(out, format_args!("node = {node}")),
            Metric::CgroupMemUsed(path) | Metric::CgroupMemFree(path) => {
                put(out, format_args!("path = {}", quoted(path)))
            }
            Metric::SomeMemPsi(Some(path)) | Metric::FullMemPsi(Some(path)) => {
                put(out, format_args!("path = {}", quoted(path)));
            }
            _ => {}
        }
    }
    let usual = matches!(&g.metric, GoalMetric::Read(metric) if falls(metric, s.action));
    if g.falls != usual {
        put(out, format_args!("falls = {}", g.falls));
    }
}

fn write_filter(out: &mut String, f: &Filter) {
    put(out, format_args!("[[scheme.filter]]"));
    put(out, format_args!("type = \"{}\"", f.what.name()));
    match &f.what {
        FilterType::Addr(r) => put(out, format_args!("start = \"{:#x}\"\nend = \"{:#x}\"", r.start, r.end)),
        FilterType::Target(index) => put(out, format_args!("index = {index}")),
        FilterType::Cgroup(path) => put(out, format_args!("path = {}", quoted(path))),
        FilterType::HugepageSize { min, max } => {
            put(out, format_args!("min = {}\nmax = {}", size(*min), end(*max, size)));
        }
        FilterType::Mapping(re) => {
            put(out, format_args!("matching = {}\ninvert = {}", quoted(re.as_str()), !f.matching));
        }
        FilterType::Anon | FilterType::Locked | FilterType::Young => {}
    }
    if !matches!(f.what, FilterType::Mapping(_)) {
        put(out, format_args!("matching = {}", f.matching));
    }
    put(out, format_args!("allow = {}", f.allow));
}

fn range(b: Bounds<u64>, one: impl Fn(u64) -> String) -> String {
    format!("[{}, {}]", end(b.min, &one), end(b.max, &one))
}

fn end(v: u64, one: impl Fn(u64) -> String) -> String {
    if v == u64::MAX { "\"max\"".to_owned() } else { one(v) }
}

/// The largest unit that divides it.
fn size(bytes: u64) -> String {
    let unit = [("T", 40), ("G", 30), ("M", 20), ("K", 10)]
        .into_iter()
        .find(|&(_, s)| bytes > 0 && bytes.is_multiple_of(1 << s));
    match unit {
        Some((name, shift)) => format!("\"{}{name}\"", bytes >> shift),
        None => number(bytes),
    }
}

/// TOML's numbers end at 2^63.
fn number(n: u64) -> String {
    if i64::try_from(n).is_ok() { n.to_string() } else { format!("\"{n}\"") }
}

fn time(ns: u64) -> String {
    time_of(ns, 1)
}

/// `value` times `unit_ns` nanoseconds, in the largest unit that divides it.
fn time_of(value: u64, unit_ns: u64) -> String {
    if value == 0 {
        return "\"0s\"".to_owned();
    }
    let units =
        [("h", 3_600_000_000_000), ("m", 60_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
    let fit = units.into_iter().filter(|u| u.1 >= unit_ns).find(|u| value.is_multiple_of(u.1 / unit_ns));
    match fit {
        Some((name, ns)) => format!("\"{}{name}\"", value / (ns / unit_ns)),
        None => format!("\"{value}ns\""),
    }
}

fn share(bp: u32) -> String {
    format!("{}%", f64::from(bp) / 100.0)
}

fn fraction(x: f64) -> String {
    // Four digits behind the point of a percentage are more than such limits mean; they hide what binary fractions add.
    format!("\"{}%\"", (x * 1e6).round() / 1e4)
}

/// A TOML string. JSON's escapes are TOML's, but for one character that JSON leaves as it is.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}
