//! The table that people read.

use super::{ESTIMATED, Machine, Row};
use crate::error::ViewError;
use crate::names::{fit, fit_end, left};
use crate::summary::text::threshold;
use crate::summary::total::Shared;
use isotherm_core::units::format_size;
use std::io::Write;

/// What the rows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Columns {
    /// Processes, with their pids.
    Processes,
    /// Groups, with how many processes they have.
    Groups,
}

/// Width of a column of sizes with the blank before it.
const SIZE: usize = 9;
/// Names are not cut shorter than this.
const SHORTEST: usize = 12;

/// From this width on groups show what of files no process maps.
const WIDE: usize = 96;

/// Writes a table as wide as the screen, its total, and what its words mean. `label` is what a row is called, `cache` the
/// files in a group's memory that no process maps.
pub fn write(
    machine: &Machine,
    columns: Columns,
    width: usize,
    label: impl Fn(&Row) -> String,
    cache: impl Fn(&Row) -> Option<u64>,
    out: &mut dyn Write,
) -> Result<(), ViewError> {
    let for_ns = machine.longest_ns();
    let shows_cache = columns == Columns::Groups && width >= WIDE;
    let sizes = if shows_cache { 6 } else { 5 };
    let name_width = width.saturating_sub(8 + SIZE * sizes + 6).max(SHORTEST);
    let (rows, first, title) = match columns {
        Columns::Processes => (&machine.processes, "PID", "NAME"),
        Columns::Groups => (&machine.groups, "PROCS", "CGROUP"),
    };
    let head = ["RSS", "COLD", "USED", "UNSEEN", "SWAP"].map(|text| format!("{text:>SIZE$}"));
    let [rss, cold, used, unseen, swap] = head;
    let cached = if shows_cache { format!("{:>SIZE$}", "CACHE") } else { String::new() };
    writeln!(out, "{first:>7} {title:<name_width$}{rss}{cold}  COLD{used}{unseen}{swap}{cached}")?;
    let (mut is_estimated, mut is_young) = (false, false);
    let mut row = |row: &Row, name: &str| -> Result<(), ViewError> {
        let divided = for_ns.and_then(|ns| row.divided(ns));
        let in_sums = for_ns.and_then(|ns| row.in_sums(ns));
        is_young |= divided.is_none() && in_sums.is_some();
        let cold = divided.map(|d| d.cold);
        let (used, unseen) = (in_sums.map(|d| d.accessed), in_sums.map(|d| d.not_observable + d.not_resolved));
        let share = match divided {
            Some(d) if d.resident > 0 => {
                let mark = row.mark(d.within_ns);
                is_estimated |= mark == ESTIMATED;
                format!("{mark}{:.0}%", d.cold as f64 / d.resident as f64 * 100.0)
            }
            _ => "-".to_owned(),
        };
        let size = |bytes: Option<u64>| format!("{:>SIZE$}", bytes.map_or_else(|| "-".to_owned(), format_size));
        let number = match row.pid {
            Some(pid) => pid.to_string(),
            None => row.processes.to_string(),
        };
        // Of a command the begin says most, of a path its end.
        let name = if row.pid.is_some() { fit(name, name_width) } else { fit_end(name, name_width) };
        let sizes = [size(row.rss), size(cold), format!("{share:>6}"), size(used), size(unseen), size(row.swap)];
        let cached = if shows_cache { size(cache(row)) } else { String::new() };
        let sizes = sizes.concat();
        Ok(writeln!(out, "{number:>7} {}{sizes}{cached}", left(&name, name_width))?)
    };
    for each in rows {
        row(each, &label(each))?;
    }
    row(&machine.total, "total")?;
    match for_ns.map(threshold) {
        Some(time) => write!(out, "COLD: not accessed for {time}. USED: accessed within {time}.")?,
        None => write!(out, "COLD, USED: not known yet.")?,
    }
    writeln!(out, " UNSEEN: cannot be observed, or not yet known.")?;
    if is_young {
        writeln!(out, "COLD -: not watched for so long; --age tells of a shorter time.")?;
    }
    if is_estimated {
        writeln!(out, "{ESTIMATED}: estimated so far; its bounds (--json) are more than 5 % of RSS apart.")?;
    }
    if shows_cache {
        writeln!(out, "CACHE: files in its memory, and in that of groups below it, that no process maps.")?;
    }
    match machine.shared {
        Shared::CountedOnce if columns == Columns::Groups => {
            writeln!(out, "A page that several processes map counts once, for the group of the one watched first.")?;
        }
        Shared::CountedOnce => {
            writeln!(out, "A page that several processes map counts for each of them, and once in the total.")?;
        }
        Shared::CountedForEachTarget => {
            writeln!(out, "A page that several processes map counts for each of them, in the total, too.")?;
        }
    }
    match machine.total.not_watched {
        0 => Ok(()),
        1 => Ok(writeln!(out, "1 process has not been watched for long enough; its memory is in no sum.")?),
        n => Ok(writeln!(out, "{n} processes have not been watched for long enough; their memory is in no sum.")?),
    }
}
