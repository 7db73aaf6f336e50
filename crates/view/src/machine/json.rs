//! A line of JSON for each process and group, and one for all.

use super::{Machine, Row};
use crate::error::ViewError;
use crate::summary::idle::Cold;
use crate::summary::total::Shared;
use crate::summary::working_set::Window;
use serde::Serialize;
use std::io::Write;

#[derive(Serialize)]
struct JsonLine<'a, E> {
    kind: &'static str,
    pid: Option<u32>,
    name: &'a str,
    cgroup: Option<&'a str>,
    rss_bytes: Option<u64>,
    swap_bytes: Option<u64>,
    /// Of several processes the sum; it adds up to what is resident with accessed and cold memory.
    unobservable_bytes: Option<u64>,
    /// In use when watching began, and not since its bit was cleared: nobody knows for how long it has been idle. As of 10 s, or of
    /// less where no more is known.
    unresolved_bytes: Option<u64>,
    cold: Option<Vec<ColdEntry>>,
    working_set: Option<&'a [Window]>,
    processes: usize,
    not_watched: usize,
    shared: Shared,
    #[serde(flatten)]
    more: E,
}

/// For one time; cold, used, unresolved and unobservable memory add up to what is resident.
#[derive(Serialize)]
struct ColdEntry {
    #[serde(flatten)]
    cold: Cold,
    /// Of which it is not known whether it was accessed within this time; `None`: not watched for so long.
    unresolved_bytes: Option<u64>,
}

impl ColdEntry {
    fn of(row: &Row, cold: Cold) -> Self {
        Self { cold, unresolved_bytes: row.divided(cold.for_ns).map(|divided| divided.not_resolved) }
    }
}

/// Writes what is wanted, the total last. `more` tells of a group what else is known of it.
pub fn write<E: Serialize + Default>(
    machine: &Machine,
    (processes, groups): (bool, bool),
    more: impl Fn(&Row) -> E,
    out: &mut dyn Write,
) -> Result<(), ViewError> {
    for row in machine.processes.iter().filter(|_| processes) {
        line("process", row, Shared::CountedForEachTarget, E::default(), out)?;
    }
    for row in machine.groups.iter().filter(|_| groups) {
        line("cgroup", row, machine.shared, more(row), out)?;
    }
    line("total", &machine.total, machine.shared, E::default(), out)
}

fn line<E: Serialize>(
    kind: &'static str,
    row: &Row,
    shared: Shared,
    more: E,
    out: &mut dyn Write,
) -> Result<(), ViewError> {
    let pages = row.pages();
    let (idle, windows) = (pages.map(|f| f.idle()), pages.map(|f| f.windows()));
    let line = JsonLine {
        kind,
        pid: row.pid,
        name: &row.name,
        cgroup: row.cgroup.as_deref(),
        rss_bytes: row.rss,
        swap_bytes: row.swap,
        unobservable_bytes: idle.map(|idle| idle.not_observable),
        unresolved_bytes: idle.map(|idle| idle.not_visited),
        cold: idle.as_ref().map(|idle| idle.cold.iter().map(|cold| ColdEntry::of(row, *cold)).collect()),
        working_set: windows.as_ref().map(|windows| &windows[..]),
        processes: row.processes,
        not_watched: row.not_watched,
        shared,
        more,
    };
    serde_json::to_writer(&mut *out, &line)?;
    Ok(out.write_all(b"\n")?)
}
