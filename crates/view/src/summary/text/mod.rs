//! Summaries for people.

use super::cost::Cost;
use super::idle::Idle;
use super::mapping_pages::MappingUse;
use super::mappings::MappingHeat;
use super::pages::ResidentPages;
use super::total::{Shared, Total};
use super::working_set::{Window, WorkingSet};
use super::{Mappings, Resident, Rest, Summaries, Summary};
use crate::basis::Basis;
use crate::error::ViewError;
use crate::names;
use crate::overview::told;
use crate::units::{format_percent, format_percent_exactly, format_us};
use isotherm_core::event::{Mode, RunInfo};
use isotherm_core::units::{format_size, format_time};
use std::io::Write;

/// Mappings listed where there is one target, and where there are several.
const MAPPINGS: (usize, usize) = (10, 5);
/// Width of a line's heading.
const HEAD: usize = 16;

/// Writes the total, then the targets that hold most cold memory; one target is its own total.
pub fn write(all: &Summaries, out: &mut dyn Write) -> Result<(), ViewError> {
    if let [one] = all.targets.as_slice() {
        target(one, MAPPINGS.0, out)?;
        writeln!(out)?;
        line(out, "monitor's cost", &cost(one.cost))?;
        return trust(one, out);
    }
    total(all, out)?;
    let (shown, rest) = all.shown();
    for s in shown {
        writeln!(out)?;
        target(s, MAPPINGS.1, out)?;
        trust(s, out)?;
    }
    if let Some(rest) = rest {
        writeln!(out, "\n{}; --target N shows one", not_shown(&rest))?;
    }
    Ok(())
}

/// The targets that are not shown one by one.
fn not_shown(rest: &Rest) -> String {
    let cold = match (rest.cold, rest.cold_unknown) {
        (None, _) => "not known how much is cold > 10 s".to_owned(),
        (Some(cold), 0) => format!("{} cold > 10 s", format_size(cold)),
        (Some(cold), unknown) => format!("{} cold > 10 s (of {unknown} not known)", format_size(cold)),
    };
    let working_set = format_size(rest.working_set);
    let resident = rest.resident.map_or_else(
        || "not recorded how much is resident".to_owned(),
        |bytes| format!("{} resident", format_size(bytes)),
    );
    format!("and {} more targets: {cold}, {working_set} in their working sets (p50), {resident}", rest.targets)
}

fn total(all: &Summaries, out: &mut dyn Write) -> Result<(), ViewError> {
    let t = &all.total;
    match (all.gone(), t.targets) {
        (0, all) => writeln!(out, "all {all} targets together")?,
        (n, 1) => writeln!(out, "the one target left at the end, without {n} that had ended")?,
        (n, _) => writeln!(out, "the {} targets at the end together, without {n} that had ended", t.targets)?,
    }
    let start = all.targets.iter().map(|s| s.target.start_ns).min().unwrap_or(0);
    let end = all.targets.iter().map(|s| s.target.end_ns).max().unwrap_or(0);
    let run = all.targets.first().and_then(|s| s.run.as_ref());
    line(
        out,
        "recorded",
        &recorded(end.saturating_sub(start), all.targets.iter().map(|s| s.target.snapshots).sum(), run),
    )?;
    line(out, "shared pages", shared(t))?;
    writeln!(out)?;
    figures(&t.working_set, resident(&t.working_set, t.resident, t.targets > 1), &t.idle, t.pages, out)?;
    writeln!(out)?;
    line(out, "monitor's cost", &cost(t.cost))
}

fn shared(t: &Total) -> &'static str {
    match t.shared {
        Shared::CountedOnce => "count once, and are cold where none of the targets used them",
        Shared::CountedForEachTarget => "count for each target: who maps the same pages is not known",
    }
}

fn target(s: &Summary, most: usize, out: &mut dyn Write) -> Result<(), ViewError> {
    writeln!(out, "{}", s.target.title())?;
    let mut text = recorded(s.target.end_ns.saturating_sub(s.target.start_ns), s.target.snapshots, s.run.as_ref());
    if let Some((time_ns, why)) = s.target.ended {
        let what = match why {
            isotherm_core::target::TargetEnd::Exited => "exited",
            isotherm_core::target::TargetEnd::Replaced => "executed another program",
        };
        // That is noticed at the next look, which may be later than the last snapshot.
        text += &format!("; that it {what} was seen after {}", format_time(time_ns.saturating_sub(s.target.start_ns)));
    }
    line(out, "recorded", &text)?;
    writeln!(out)?;
    figures(&s.working_set, resident(&s.working_set, s.resident, false), &s.idle, s.pages, out)?;
    writeln!(out)?;
    match &s.mappings {
        Mappings::Regions(list) => hottest_mappings(list, most, out),
        Mappings::Pages(list) => coldest_mappings(list, most, out),
    }
}

fn figures(
    w: &WorkingSet,
    resident: String,
    idle: &Idle,
    pages: Option<ResidentPages>,
    out: &mut dyn Write,
) -> Result<(), ViewError> {
    line(out, "working set", &working_set(w))?;
    if w.basis == Basis::Pages {
        let windows: Vec<String> = w.windows.iter().map(window).collect();
        line(out, "  at the end", &windows.join(", "))?;
    }
    line(out, "resident", &resident)?;
    match pages {
        Some(p) => {
            cold_pages(idle, out)?;
            present(&p, out)
        }
        None => cold_regions(idle, out),
    }
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

fn recorded(ns: u64, snapshots: u64, run: Option<&RunInfo>) -> String {
    let s = if snapshots == 1 { "" } else { "s" };
    let mut text = format!("{}, {snapshots} snapshot{s}", format_time(ns));
    if let Some(run) = run {
        for (what, value) in [("source", &run.source), ("algorithm", &run.algorithm)] {
            text += &told(value).map_or_else(String::new, |value| format!(", {what} {value}"));
        }
    }
    text
}

fn working_set(w: &WorkingSet) -> String {
    let (p50, p95, p99) = (format_size(w.p50), format_size(w.p95), format_size(w.p99));
    let mut text = format!("{p50} (p50), {p95} (p95), {p99} (p99): memory accessed ");
    text += match w.basis {
        Basis::Pages => "within 1 s, over time",
        Basis::Regions => "in one aggregation interval, estimated from regions",
    };
    if w.skipped > 0 {
        text += &format!(", the first {} left out", w.skipped);
    }
    text
}

fn window(w: &Window) -> String {
    let within = threshold(w.within_ns);
    match w.estimate() {
        Some(e) => format!("{} within {within}", e.text()),
        None => format!("not known within {within}"),
    }
}

/// `several`: the sum over targets, each of which counts what it shares, so that nothing can be compared with it.
fn resident(w: &WorkingSet, r: Option<Resident>, several: bool) -> String {
    let Some(r) = r else { return "not recorded".to_owned() };
    let mut text = format!("{} of {} virtual", format_size(r.last), format_size(r.vsz));
    if r.highest > r.last {
        text += &format!(", at most {}", format_size(r.highest));
    }
    if let Some(swap) = r.swap.filter(|&b| b > 0) {
        text += &format!(", {} swapped out", format_size(swap));
    }
    if several {
        text += "; each target counts what it shares";
    } else if r.last > 0 {
        text += &format!("; the working set (p50) is {} of it", format_percent(w.p50 as f64 / r.last as f64));
        if w.p50 > r.last && w.basis == Basis::Regions {
            text += " (regions reach over pages that are not present)";
        }
    }
    text
}

fn cold_pages(idle: &Idle, out: &mut dyn Write) -> Result<(), ViewError> {
    for c in &idle.cold {
        let text = c.text().unwrap_or_else(|| "not known: not watched for that long".to_owned());
        line(out, &format!("cold > {}", threshold(c.for_ns)), &text)?;
    }
    Ok(())
}

/// Present memory without a rest.
fn present(p: &ResidentPages, out: &mut dyn Write) -> Result<(), ViewError> {
    let within = threshold(p.within_ns);
    let parts = [
        (p.accessed, format!("accessed within {within}")),
        (p.cold, format!("cold > {within}")),
        (p.not_resolved, "not resolved: accessed before the watch began, not known when".to_owned()),
        (p.not_observable, "not observable: neither hot nor cold".to_owned()),
    ];
    writeln!(out, "{:HEAD$}{} in pages:", "present", format_size(p.resident))?;
    for (bytes, what) in parts {
        writeln!(out, "{:HEAD$}{:>10}  {what}", "", format_size(bytes))?;
    }
    Ok(())
}

fn cold_regions(idle: &Idle, out: &mut dyn Write) -> Result<(), ViewError> {
    let kind = if idle.present_only {
        "present memory, estimated from regions"
    } else {
        "mapped memory, estimated from regions; the source does not tell what is present"
    };
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

fn hottest_mappings(list: &[MappingHeat], most: usize, out: &mut dyn Write) -> Result<(), ViewError> {
    writeln!(out, "{:<32} {:>11} {:>14} {:>10}", "hottest mappings", "size", "accessed", "at rate")?;
    for m in list.iter().take(most) {
        let name = names::left(&names::fit(names::short(&m.name), 30), 30);
        if let Some((bytes, why)) = m.unseen() {
            writeln!(out, "  {name} {:>11} {why:>25}", format_size(bytes))?;
            continue;
        }
        let rate = if m.accessed == 0 { "-".to_owned() } else { format_percent(m.rate) };
        writeln!(out, "  {name} {:>11} {:>14} {rate:>10}", format_size(m.bytes), format_size(m.accessed))?;
    }
    if list.len() > most {
        writeln!(out, "  and {} more", list.len() - most)?;
    }
    Ok(())
}

fn coldest_mappings(list: &[MappingUse], most: usize, out: &mut dyn Write) -> Result<(), ViewError> {
    let within = threshold(list.iter().map(|m| m.pages.within_ns).max().unwrap_or(0));
    let (used, cold) = (format!("used in {within}"), format!("cold > {within}"));
    let head = "mappings, most cold memory first";
    writeln!(out, "{head:<32} {:>10} {:>10} {used:>12} {cold:>12}", "size", "resident")?;
    let row = |name: &str, size: u64, p: &ResidentPages, out: &mut dyn Write| {
        let (name, size, resident) = (names::left(name, 30), format_size(size), format_size(p.resident));
        if p.not_observable == p.resident {
            return writeln!(out, "  {name} {size:>10} {resident:>10} {:>25}", "not observable");
        }
        let (used, cold) = (format_size(p.accessed), format_size(p.cold));
        writeln!(out, "  {name} {size:>10} {resident:>10} {used:>12} {cold:>12}")
    };
    let (shown, rest) = list.split_at(most.min(list.len()));
    for m in shown {
        row(&names::fit(names::short(&m.name), 30), m.bytes, &m.pages, out)?;
    }
    if !rest.is_empty() {
        let sum = |f: fn(&MappingUse) -> u64| rest.iter().map(f).sum();
        let pages = ResidentPages {
            resident: sum(|m| m.pages.resident),
            accessed: sum(|m| m.pages.accessed),
            cold: sum(|m| m.pages.cold),
            not_observable: sum(|m| m.pages.not_observable),
            ..ResidentPages::default()
        };
        row(&format!("and {} more", rest.len()), sum(|m| m.bytes), &pages, out)?;
    }
    Ok(())
}

fn cost(cost: Option<Cost>) -> String {
    let Some(c) = cost else { return "not recorded".to_owned() };
    let mut text = format!(
        "{} of one core ({} the monitor, {} the targets, estimated)",
        format_percent_exactly(c.total()),
        format_percent_exactly(c.monitor),
        format_percent_exactly(c.target)
    );
    text += &match c.budget {
        Some(budget) if c.is_above_budget() => format!(", above the budget of {}", format_percent_exactly(budget)),
        Some(budget) => format!(", within the budget of {}", format_percent_exactly(budget)),
        None => ", no budget set".to_owned(),
    };
    let mode = match c.mode {
        Mode::Sample => "sampling",
        Mode::Scan => "scanning",
    };
    text += &format!("; {mode} every {}, {:.0} checks/s", format_us(c.sample_us), c.checks_per_second);
    text
}

/// How far to trust figures of regions; those of pages show their ends.
fn trust(s: &Summary, out: &mut dyn Write) -> Result<(), ViewError> {
    if s.working_set.basis == Basis::Regions { line(out, "confidence", &confidence(s)) } else { Ok(()) }
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
mod tests;
