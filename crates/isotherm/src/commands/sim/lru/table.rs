//! The figures as a table for people.

use isotherm_sim::predict::Outcome;
use isotherm_sim::replay::{Figures, GroupFigures};
use std::io::{self, Write};

type Column = (&'static str, Vec<String>);

fn count(n: Option<u64>) -> String {
    n.map_or(String::new(), |n| n.to_string())
}

/// Writes the figures; columns that are empty throughout are left out. What a machine makes of them, and those of
/// groups, follow as tables of their own.
pub fn write(out: &mut dyn Write, results: &[Figures]) -> io::Result<()> {
    let columns: [Column; 11] = [
        ("policy", results.iter().map(|f| f.policy.to_owned()).collect()),
        ("size", results.iter().map(|f| f.size.to_string()).collect()),
        ("miss ratio", results.iter().map(|f| format!("{:.4}", f.miss_ratio)).collect()),
        ("+-", results.iter().map(error).collect()),
        ("misses", results.iter().map(|f| f.misses.to_string()).collect()),
        ("refaults", results.iter().map(|f| f.refaults.to_string()).collect()),
        ("scanned", results.iter().map(|f| count(f.work.pages_scanned)).collect()),
        ("ptes read", results.iter().map(|f| count(f.work.ptes_read)).collect()),
        ("tables skipped", results.iter().map(|f| count(f.work.tables_skipped)).collect()),
        ("list moves", results.iter().map(|f| count(f.work.list_moves)).collect()),
        ("M/s", results.iter().map(speed).collect()),
    ];
    lines(out, &columns)?;
    if results.iter().any(|f| f.machine.is_some()) {
        writeln!(out)?;
        lines(out, &predictions(results))?;
    }
    if results.iter().any(|f| !f.groups.is_empty()) {
        writeln!(out)?;
        lines(out, &groups(results))?;
    }
    Ok(())
}

fn predictions(results: &[Figures]) -> [Column; 9] {
    let cell = |f: &Figures, text: &dyn Fn(&Outcome) -> String| match &f.machine {
        Some(machine) if machine.out_of_memory => "out of memory".to_owned(),
        machine => machine.as_ref().and_then(|m| m.outcome.as_ref()).map_or(String::new(), text),
    };
    let all = |text: &dyn Fn(&Outcome) -> String| results.iter().map(|f| cell(f, text)).collect();
    let percent = |share: f64| format!("{:.2}%", share * 100.0);
    let dash = |f: &Figures, text: &dyn Fn(&Outcome) -> String| match &f.machine {
        Some(machine) if machine.out_of_memory => "-".to_owned(),
        _ => cell(f, text),
    };
    let rest = |text: &dyn Fn(&Outcome) -> String| results.iter().map(|f| dash(f, text)).collect();
    [
        ("policy", results.iter().map(|f| f.policy.to_owned()).collect()),
        ("size", results.iter().map(|f| f.size.to_string()).collect()),
        ("requests/s", all(&|o| short(o.requests_per_second))),
        ("some", rest(&|o| percent(o.some))),
        ("full", rest(&|o| percent(o.full))),
        ("major faults", rest(&|o| o.major_faults.to_string())),
        ("us each", rest(&|o| short(o.major_fault_us))),
        ("direct reclaims", rest(&|o| o.direct_reclaims.to_string())),
        ("resident", rest(&|o| o.resident.to_string())),
    ]
}

fn groups(results: &[Figures]) -> [Column; 9] {
    let all = |text: &dyn Fn(&Figures, &GroupFigures) -> String| {
        results.iter().flat_map(|f| f.groups.iter().map(|g| text(f, g))).collect()
    };
    [
        ("policy", all(&|f, _| f.policy.to_owned())),
        ("size", all(&|f, _| f.size.to_string())),
        ("group", all(&|_, g| g.group.clone())),
        ("requests", all(&|_, g| g.requests.to_string())),
        ("miss ratio", all(&|_, g| g.miss_ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.4}")))),
        ("refaults", all(&|_, g| g.refaults.to_string())),
        ("evictions", all(&|_, g| count(g.evictions))),
        ("resident", all(&|_, g| count(g.resident))),
        ("low events", all(&|_, g| count(g.low_events))),
    ]
}

fn lines(out: &mut dyn Write, columns: &[Column]) -> io::Result<()> {
    let rows = columns.first().map_or(0, |c| c.1.len());
    let shown: Vec<_> = columns.iter().filter(|(_, cells)| cells.iter().any(|c| !c.is_empty())).collect();
    let widths: Vec<usize> = shown
        .iter()
        .map(|(name, cells)| cells.iter().map(|cell| cell.chars().count()).max().unwrap_or(0).max(name.len()))
        .collect();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::new();
        for (i, (cell, width)) in cells.zip(&widths).enumerate() {
            let width = *width;
            if i == 0 {
                text += &format!("{cell:width$}");
            } else {
                text += &format!("  {cell:>width$}");
            }
        }
        writeln!(out, "{}", text.trim_end())
    };
    line(&mut shown.iter().map(|c| c.0))?;
    for row in 0..rows {
        line(&mut shown.iter().map(|c| c.1[row].as_str()))?;
    }
    Ok(())
}

fn error(f: &Figures) -> String {
    match (f.sample_rate, f.miss_ratio_error) {
        (None, _) => String::new(),
        (Some(_), Some(error)) => format!("{error:.4}"),
        (Some(_), None) => "?".to_owned(),
    }
}

/// Requests simulated per second, millions.
fn speed(f: &Figures) -> String {
    let simulated = f.requests as f64 * f.sample_rate.unwrap_or(1.0);
    if f.seconds > 0.0 { short(simulated / f.seconds / 1e6) } else { String::new() }
}

/// A number with three digits or so.
pub fn short(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}").trim_end_matches('0').trim_end_matches('.').to_owned(),
        v => format!("{v:.3}").trim_end_matches('0').trim_end_matches('.').to_owned(),
    }
}
