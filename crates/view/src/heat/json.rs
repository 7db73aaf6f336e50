//! A heatmap for programs.

use super::grid::Shown;
use super::map::{HeatMap, Measure};
use crate::error::ViewError;
use serde::Serialize;
use std::io::Write;

#[derive(Serialize)]
struct HeatMapJson<'a> {
    target: u32,
    pid: Option<u32>,
    name: &'a str,
    /// Begin of the first and end of the last column.
    start_ns: u64,
    end_ns: u64,
    cols: usize,
    /// What rates are a share of: `pages`, or `intervals` in which samples were taken.
    rates_of: &'static str,
    /// Of pages: those accessed within this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    within_ns: Option<u64>,
    /// Of intervals: the shortest and the longest.
    #[serde(skip_serializing_if = "Option::is_none")]
    sample_us: Option<[u64; 2]>,
    rows: Vec<RowJson<'a>>,
    /// For each row, for each column: a fraction of one; null where nothing is mapped or nothing could be observed.
    rates: Vec<Vec<Option<f64>>>,
    /// For each row: the columns that could not be observed.
    not_observable: Vec<Vec<usize>>,
}

#[derive(Serialize)]
struct RowJson<'a> {
    start: u64,
    end: u64,
    /// Mapped bytes; less than `end - start` where a gap is folded inside.
    bytes: u64,
    mapping: Option<&'a str>,
}

/// Writes one line of JSON.
pub fn write(map: &HeatMap, out: &mut dyn Write) -> Result<(), ViewError> {
    let shown = |row: usize| (0..map.grid.cols).map(move |col| map.grid.cell(row, col).shown());
    let rate = |s: Shown| match s {
        Shown::Rate(rate) => Some(rate),
        Shown::Nothing | Shown::Blind => None,
    };
    let blind = |row: usize| shown(row).enumerate().filter(|(_, s)| *s == Shown::Blind).map(|(col, _)| col).collect();
    let (rates_of, within_ns, sample_us) = match map.measure {
        Measure::Pages(ns) => ("pages", Some(ns), None),
        Measure::Intervals(shortest, longest) => ("intervals", None, Some([shortest, longest])),
    };
    let json = HeatMapJson {
        target: map.target.info.target,
        pid: map.target.info.pid,
        name: &map.target.info.name,
        start_ns: map.grid.start_ns,
        end_ns: map.grid.end_ns,
        cols: map.grid.cols,
        rates_of,
        within_ns,
        sample_us,
        rows: (0..map.grid.rows).map(|row| row_json(map, row)).collect(),
        rates: (0..map.grid.rows).map(|row| shown(row).map(rate).collect()).collect(),
        not_observable: (0..map.grid.rows).map(blind).collect(),
    };
    serde_json::to_writer(&mut *out, &json)?;
    out.write_all(b"\n")?;
    Ok(())
}

fn row_json(map: &HeatMap, row: usize) -> RowJson<'_> {
    let (from, to) = map.axis.offsets(row);
    let ranges = map.space.addresses(from, to);
    RowJson {
        start: ranges.first().map_or(0, |r| r.start),
        end: ranges.last().map_or(0, |r| r.end),
        bytes: to - from,
        mapping: map.name_at(from, to).map(|n| n.name.as_str()),
    }
}
