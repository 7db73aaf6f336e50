//! A series as damo's percentile table with bars, and as JSON.

use super::distribution::{DEFAULT_PERCENTILES, Distribution, rank};
use super::{Measure, Point, Series, SeriesOptions};
use crate::basis::Basis;
use crate::error::ViewError;
use crate::exact;
use crate::overview::Overview;
use crate::replay::Replay;
use serde::Serialize;
use std::io::Write;

/// Width of the bars in damo's table.
const BAR_WIDTH: usize = 59;

/// What the percentages of a table go along.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    /// From the smallest value to the largest: percentiles.
    #[default]
    Size,
    /// From the begin of the record to its end.
    Time,
}

/// How to print series.
#[derive(Debug, Clone)]
pub struct TableOptions {
    /// Rows, in percent.
    pub percentiles: Vec<f64>,
    /// What they go along.
    pub order: Order,
}

impl Default for TableOptions {
    fn default() -> Self {
        Self { percentiles: DEFAULT_PERCENTILES.to_vec(), order: Order::Size }
    }
}

#[derive(Serialize)]
struct Row {
    percentile: f64,
    value: u64,
    /// End of the snapshot, where the table goes along time.
    #[serde(skip_serializing_if = "Option::is_none")]
    time_ns: Option<u64>,
}

#[derive(Serialize)]
struct SeriesReport<'a> {
    /// Null: the sum over all targets.
    target: Option<u32>,
    pid: Option<u32>,
    name: Option<&'a str>,
    measure: &'static str,
    /// What it is drawn from; of pages it is what was accessed within a second.
    basis: Basis,
    unit: &'static str,
    order: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_rate: Option<f64>,
    snapshots: usize,
    skipped: usize,
    average: u64,
    percentiles: Vec<Row>,
    /// All points, where the table goes along time.
    #[serde(skip_serializing_if = "Option::is_none")]
    points: Option<&'a [Point]>,
}

/// Writes the tables of all series.
pub fn write_text(
    events: &(impl Replay + Sized),
    options: &SeriesOptions,
    table: &TableOptions,
    out: &mut dyn Write,
) -> Result<(), ViewError> {
    let overview = Overview::read(events)?;
    for (i, series) in super::read(events, options)?.iter().enumerate() {
        if i > 0 {
            writeln!(out)?;
        }
        write_table(series, &overview, options, table, out)?;
    }
    Ok(())
}

/// Writes one line of JSON per series.
pub fn write_json(
    events: &(impl Replay + Sized),
    options: &SeriesOptions,
    table: &TableOptions,
    out: &mut dyn Write,
) -> Result<(), ViewError> {
    let overview = Overview::read(events)?;
    for series in super::read(events, options)? {
        let info = overview.targets.iter().map(|t| &t.info).find(|i| Some(i.target) == series.target);
        let (measure, unit, min_rate) = match options.measure {
            Measure::WorkingSet { min_rate } => ("wss", "bytes", Some(min_rate)),
            Measure::Regions => ("regions", "regions", None),
        };
        let report = SeriesReport {
            target: series.target,
            pid: info.and_then(|i| i.pid),
            name: info.map(|i| i.name.as_str()),
            measure,
            basis: series.basis,
            unit,
            order: if table.order == Order::Time { "time" } else { "size" },
            min_rate,
            snapshots: series.points.len(),
            skipped: series.skipped,
            average: Distribution::of(&series.points).mean().unwrap_or(0),
            percentiles: rows(&series.points, table),
            points: (table.order == Order::Time).then_some(&series.points[..]),
        };
        serde_json::to_writer(&mut *out, &report)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

fn write_table(
    series: &Series,
    overview: &Overview,
    options: &SeriesOptions,
    table: &TableOptions,
    out: &mut dyn Write,
) -> Result<(), ViewError> {
    let (column, format): (_, fn(u64) -> String) = match options.measure {
        Measure::WorkingSet { .. } => ("wss", exact::size),
        Measure::Regions => ("# regions", |n| n.to_string()),
    };
    match series.target {
        Some(target) => writeln!(out, "# target_id\t{target}")?,
        None => writeln!(out, "# target_id\tall")?,
    }
    if let Some(t) = overview.targets.iter().find(|t| Some(t.info.target) == series.target) {
        writeln!(out, "# {}", t.title())?;
    }
    match series.basis {
        Basis::Pages => write!(out, "# memory accessed within 1 s, at {} moments", series.points.len())?,
        Basis::Regions => write!(out, "# {} snapshots", series.points.len())?,
    }
    match series.skipped {
        0 => writeln!(out)?,
        n => writeln!(out, ", the first {n} left out (--skip)")?,
    }
    writeln!(out, "# <percentile> <{column}>")?;
    writeln!(out, "# avr:\t{}", format(Distribution::of(&series.points).mean().unwrap_or(0)))?;
    let rows = rows(&series.points, table);
    let max = rows.iter().map(|r| r.value).max().unwrap_or(0);
    for row in rows {
        let filled = (row.value as u128 * BAR_WIDTH as u128).checked_div(u128::from(max)).unwrap_or(0) as usize;
        let bar = format!("{}{}", "*".repeat(filled), " ".repeat(BAR_WIDTH - filled));
        write!(out, "{:>3} {:>15} |{bar}|", row.percentile, format(row.value))?;
        match row.time_ns {
            Some(ns) => writeln!(out, " {}", exact::time(round_ms(ns.saturating_sub(overview.start_ns))))?,
            None => writeln!(out)?,
        }
    }
    Ok(())
}

fn round_ms(ns: u64) -> u64 {
    (ns + 500_000) / 1_000_000 * 1_000_000
}

fn rows(points: &[Point], table: &TableOptions) -> Vec<Row> {
    let sorted = Distribution::of(points);
    let row = |&percentile: &f64| match table.order {
        Order::Size => sorted.percentile(percentile).map(|value| Row { percentile, value, time_ns: None }),
        Order::Time => rank(percentile, points.len()).map(|i| Row {
            percentile,
            value: points[i].value,
            time_ns: Some(points[i].time_ns),
        }),
    };
    table.percentiles.iter().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata::{paged_record, small_record};

    fn options() -> SeriesOptions {
        SeriesOptions { measure: Measure::WorkingSet { min_rate: 0.0 }, target: None, skip: Some(0) }
    }

    fn text(options: &SeriesOptions, table: &TableOptions) -> String {
        let mut out = Vec::new();
        write_text(&small_record(4), options, table, &mut out).expect("writes to memory");
        String::from_utf8(out).expect("is text")
    }

    #[test]
    fn by_size() {
        let table = TableOptions { percentiles: vec![0.0, 50.0, 75.0, 100.0], order: Order::Size };
        let expected = "\
# target_id\t0
# server --port 1 (pid 4242)
# 4 snapshots
# <percentile> <wss>
# avr:\t5.500 MiB
  0       4.000 MiB |*****************************                              |
 50       4.000 MiB |*****************************                              |
 75       6.000 MiB |********************************************               |
100       8.000 MiB |***********************************************************|
";
        assert_eq!(text(&options(), &table), expected);
    }

    #[test]
    fn of_pages() {
        let mut out = Vec::new();
        let table = TableOptions { percentiles: vec![50.0, 100.0], order: Order::Size };
        write_text(&paged_record(1, 4), &options(), &table, &mut out).expect("writes to memory");
        let expected = "\
# target_id\t0
# server --port 1 (pid 4242)
# memory accessed within 1 s, at 4 moments
# <percentile> <wss>
# avr:\t5.750 MiB
 50       5.250 MiB |*************************************************          |
100       6.250 MiB |***********************************************************|
";
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }

    #[test]
    fn by_time() {
        let table = TableOptions { percentiles: vec![0.0, 50.0, 100.0], order: Order::Time };
        let text = text(&options(), &table);
        let rows: Vec<&str> = text.lines().filter(|l| !l.starts_with('#')).collect();
        assert_eq!(
            rows,
            [
                "  0       4.000 MiB |*****************************                              | 100 ms",
                " 50       6.000 MiB |********************************************               | 200 ms",
                "100       8.000 MiB |***********************************************************| 400 ms",
            ]
        );
    }

    #[test]
    fn regions_have_no_unit() {
        let o = SeriesOptions { measure: Measure::Regions, target: None, skip: Some(1) };
        let text = text(&o, &TableOptions { percentiles: vec![50.0], order: Order::Size });
        assert!(text.contains("# 3 snapshots, the first 1 left out (--skip)\n# <percentile> <# regions>\n# avr:\t5\n"));
        assert!(text.contains("\n 50               5 |****"), "{text}");
    }

    #[test]
    fn json() {
        let mut out = Vec::new();
        let table = TableOptions { order: Order::Time, ..Default::default() };
        write_json(&small_record(4), &options(), &table, &mut out).expect("writes to memory");
        let v: serde_json::Value = serde_json::from_slice(&out).expect("one line of JSON");
        assert_eq!(v["unit"], "bytes");
        assert_eq!(v["percentiles"][2]["percentile"], 50.0);
        assert_eq!(v["percentiles"][2]["value"], 6 << 20);
        assert_eq!(v["points"].as_array().map(Vec::len), Some(4));
    }
}
