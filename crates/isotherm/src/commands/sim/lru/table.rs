//! The figures as a table for people.

use isotherm_sim::replay::Figures;
use std::io::{self, Write};

/// Writes the table; columns that are empty throughout are left out.
pub fn write(out: &mut dyn Write, results: &[Figures]) -> io::Result<()> {
    let count = |n: Option<u64>| n.map_or(String::new(), |n| n.to_string());
    let columns: [(&str, Vec<String>); 10] = [
        ("policy", results.iter().map(|f| f.policy.to_owned()).collect()),
        ("size", results.iter().map(|f| f.size.to_string()).collect()),
        ("miss ratio", results.iter().map(|f| format!("{:.4}", f.miss_ratio)).collect()),
        ("+-", results.iter().map(error).collect()),
        ("misses", results.iter().map(|f| f.misses.to_string()).collect()),
        ("refaults", results.iter().map(|f| f.refaults.to_string()).collect()),
        ("scanned", results.iter().map(|f| count(f.pages_scanned)).collect()),
        ("ptes read", results.iter().map(|f| count(f.ptes_read)).collect()),
        ("list moves", results.iter().map(|f| count(f.list_moves)).collect()),
        ("M/s", results.iter().map(speed).collect()),
    ];
    let shown: Vec<_> = columns.iter().filter(|(_, cells)| cells.iter().any(|c| !c.is_empty())).collect();
    let widths: Vec<usize> =
        shown.iter().map(|(name, cells)| cells.iter().map(String::len).max().unwrap_or(0).max(name.len())).collect();
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
    for row in 0..results.len() {
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
