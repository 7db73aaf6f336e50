//! A summary for people.

use super::Summary;
use super::idle::Idle;
use crate::error::ViewError;
use crate::names;
use crate::units::format_percent;
use isotherm_core::event::Mode;
use isotherm_core::units::{format_size, format_time};
use std::io::Write;

/// Mappings listed.
const MAPPINGS: usize = 10;
/// Width of a line's heading.
const HEAD: usize = 16;

/// Writes the page of one target.
pub fn write(s: &Summary, out: &mut dyn Write) -> Result<(), ViewError> {
    writeln!(out, "{}", s.target.title())?;
    line(out, "recorded", &recorded(s))?;
    writeln!(out)?;
    line(out, "working set", &working_set(s))?;
    line(out, "resident", &resident(s))?;
    cold(&s.idle, out)?;
    writeln!(out)?;
    mappings(s, out)?;
    writeln!(out)?;
    for (head, text) in [("monitor's cost", cost(s)), ("confidence", confidence(s))] {
        line(out, head, &text)?;
    }
    Ok(())
}

/// Words that stay on the line of the number before them.
const UNITS: [&str; 10] = ["%", "B", "KiB", "MiB", "GiB", "TiB", "us", "ms", "s", "checks/s"];

/// A heading and a text, wrapped to 80 columns.
fn line(out: &mut dyn Write, head: &str, text: &str) -> Result<(), ViewError> {
    let mut head = head;
    let mut current = String::new();
    for word in words(text) {
        if !current.is_empty() && HEAD + current.chars().count() + 1 + word.chars().count() > 80 {
            writeln!(out, "{head:HEAD$}{current}")?;
            head = "";
            current.clear();
        }
        if !current.is_empty() {
            current.push(' ');
        }
        current.push_str(&word);
    }
    writeln!(out, "{head:HEAD$}{current}")?;
    Ok(())
}

/// The words of a text; a number and its unit are one.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        let unit = word.trim_end_matches([',', ';', ':', ')']);
        match words.last_mut() {
            Some(last) if UNITS.contains(&unit) => {
                last.push(' ');
                last.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
    }
    words
}

fn recorded(s: &Summary) -> String {
    let mut text = format_time(s.target.end_ns.saturating_sub(s.target.start_ns));
    text += &format!(", {} snapshots", s.target.snapshots);
    if let Some(run) = &s.run {
        text += &format!(", source {}", run.source);
        if !run.algorithm.is_empty() {
            text += &format!(", algorithm {}", run.algorithm);
        }
    }
    if let Some((time_ns, why)) = s.target.ended {
        let what = match why {
            isotherm_core::event::TargetEnd::Exited => "exited",
            isotherm_core::event::TargetEnd::Replaced => "executed another program",
        };
        text += &format!("; it {what} after {}", format_time(time_ns.saturating_sub(s.target.start_ns)));
    }
    text
}

fn working_set(s: &Summary) -> String {
    let w = &s.working_set;
    let (p50, p95, p99) = (format_size(w.p50), format_size(w.p95), format_size(w.p99));
    let mut text = format!("{p50} (p50), {p95} (p95), {p99} (p99): memory accessed in one aggregation interval");
    if w.skipped > 0 {
        text += &format!(", the first {} left out", w.skipped);
    }
    text
}

fn resident(s: &Summary) -> String {
    let Some(r) = s.resident else { return "not recorded".to_owned() };
    let mut text = format!("{} of {} virtual", format_size(r.last), format_size(r.vsz));
    if r.highest > r.last {
        text += &format!(", at most {}", format_size(r.highest));
    }
    if let Some(swap) = r.swap.filter(|&b| b > 0) {
        text += &format!(", {} swapped out", format_size(swap));
    }
    if r.last > 0 {
        text +=
            &format!("; the working set (p50) is {} of it", format_percent(s.working_set.p50 as f64 / r.last as f64));
        if s.working_set.p50 > r.last {
            text += " (regions reach over pages that are not present)";
        }
    }
    text
}

fn cold(idle: &Idle, out: &mut dyn Write) -> Result<(), ViewError> {
    let kind =
        if idle.present_only { "present memory" } else { "mapped memory; the source does not tell what is present" };
    for (i, c) in idle.cold.iter().enumerate() {
        let head = format!("cold > {}", threshold(c.for_ns));
        let text = match c.bytes {
            Some(bytes) if i == 0 => format!("{} of {kind}", format_size(bytes)),
            Some(bytes) => format_size(bytes),
            None => "not known: not watched for that long".to_owned(),
        };
        line(out, &head, &text)?;
    }
    if idle.not_observable > 0 {
        line(out, "not observable", &format!("{}: neither hot nor cold", format_size(idle.not_observable)))?;
    }
    if idle.not_visited > 0 {
        line(out, "not looked at", &format!("{} yet: neither hot nor cold", format_size(idle.not_visited)))?;
    }
    Ok(())
}

/// `10 s`, `1 min`.
pub fn threshold(ns: u64) -> String {
    match ns / 1_000_000_000 {
        s if s >= 60 && s % 60 == 0 => format!("{} min", s / 60),
        s => format!("{s} s"),
    }
}

fn mappings(s: &Summary, out: &mut dyn Write) -> Result<(), ViewError> {
    writeln!(out, "{:<32} {:>11} {:>14} {:>10}", "hottest mappings", "size", "accessed", "at rate")?;
    for m in s.mappings.iter().take(MAPPINGS) {
        let name = names::fit(names::short(&m.name), 30);
        if let Some((bytes, why)) = m.unseen() {
            writeln!(out, "  {name:<30} {:>11} {why:>25}", format_size(bytes))?;
            continue;
        }
        let rate = if m.accessed == 0 { "-".to_owned() } else { format_percent(m.rate) };
        writeln!(out, "  {name:<30} {:>11} {:>14} {rate:>10}", format_size(m.bytes), format_size(m.accessed))?;
    }
    if s.mappings.len() > MAPPINGS {
        writeln!(out, "  and {} more", s.mappings.len() - MAPPINGS)?;
    }
    Ok(())
}

fn cost(s: &Summary) -> String {
    let Some(c) = s.cost else { return "not recorded".to_owned() };
    let mut text = format!(
        "{} of one core ({} the monitor, {} the targets, estimated)",
        format_percent(c.total()),
        format_percent(c.monitor),
        format_percent(c.target)
    );
    text += &match c.budget {
        Some(budget) if c.total() <= budget => format!(", within the budget of {}", format_percent(budget)),
        Some(budget) => format!(", ABOVE the budget of {}", format_percent(budget)),
        None => ", no budget set".to_owned(),
    };
    let mode = match c.mode {
        Mode::Sample => "sampling",
        Mode::Scan => "scanning",
    };
    text += &format!("; {mode} every {}, {:.0} checks/s", format_time(c.sample_us * 1000), c.checks_per_second);
    text
}

fn confidence(s: &Summary) -> String {
    let Some(c) = s.confidence else { return "the source does not tell how often it looked".to_owned() };
    let mut text = format!(
        "{} checks a region and interval (median; the least tenth {}): one interval shows what is accessed at a rate above \
         {} with 95 % probability",
        c.median_checks,
        c.low_checks,
        format_percent(c.detectable_rate)
    );
    if c.unchecked >= 0.001 {
        text += &format!("; {} of the memory was not looked at in an average interval", format_percent(c.unchecked));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overview::Overview;
    use crate::testdata::small_record;

    #[test]
    fn one_page() {
        let events = small_record(20);
        let overview = Overview::read(&events).expect("has snapshots");
        let summary = Summary::read(&events, &overview, &overview.targets[0]).expect("has snapshots");
        let mut out = Vec::new();
        write(&summary, &mut out).expect("writes to memory");
        let expected = "\
server --port 1 (pid 4242)
recorded        2.00 s, 20 snapshots, source sim, algorithm isotherm

working set     4.00 MiB (p50), 8.00 MiB (p95), 8.00 MiB (p99): memory accessed
                in one aggregation interval, the first 2 left out
resident        77.0 MiB of 83.0 MiB virtual; the working set (p50) is 5.2 % of
                it
cold > 10 s     not known: not watched for that long
cold > 1 min    not known: not watched for that long
cold > 5 min    not known: not watched for that long
not observable  1.00 MiB: neither hot nor cold

hottest mappings                        size       accessed    at rate
  [heap]                            16.0 MiB       4.50 MiB      100 %
  libdemo.so.1                      2.00 MiB       1.00 MiB        5 %
  anon                              64.0 MiB            0 B          -
  [anon:locked]                     1.00 MiB            not observable

monitor's cost  0.5 % of one core (0.4 % the monitor, 0.1 % the targets,
                estimated), within the budget of 1 %; sampling every 5.00 ms,
                40000 checks/s
confidence      20 checks a region and interval (median; the least tenth 20):
                one interval shows what is accessed at a rate above 14 % with
                95 % probability
";
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }
}
