//! What a simulated run came to, for people and programs.

use super::Args;
use crate::commands::schemes::stats;
use isotherm_core::scheme::engine::SchemeEngine;
use isotherm_core::units::format_size;
use isotherm_sim::experiment::{Experiment, Figures};
use serde::Serialize;
use std::io::{self, Write};

/// How the schemes stood when somebody last looked.
#[derive(Debug, Default)]
pub struct Last {
    lines: Vec<u8>,
    words: Vec<String>,
}

impl Last {
    pub fn take(&mut self, engine: &mut SchemeEngine, now_ns: u64) -> io::Result<()> {
        self.lines.clear();
        stats::write_lines(&mut self.lines, engine, None, now_ns)?;
        self.words = engine.status().iter().enumerate().map(|(i, s)| stats::words(i, s, false)).collect();
        Ok(())
    }

    /// The lines of `--stats` as values.
    fn values(&self) -> serde_json::Result<Vec<serde_json::Value>> {
        serde_json::Deserializer::from_slice(&self.lines).into_iter().collect()
    }
}

/// What two runs have in common, in numbers: the one under schemes divided by the one without.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ratios {
    /// Resident memory, means over the runs.
    pub rss_ratio: f64,
    /// The part of it on the fast node.
    pub rss_fast_ratio: f64,
    /// Main memory taken, compressed pages included.
    pub memory_ratio: f64,
    /// Time until the work was done.
    pub runtime_ratio: f64,
}

impl Ratios {
    /// Compares two runs of the same work.
    pub fn new(with: &Figures, alone: &Figures) -> Self {
        let ratio = |a: u64, b: u64| a as f64 / b.max(1) as f64;
        Self {
            rss_ratio: ratio(with.rss, alone.rss),
            rss_fast_ratio: ratio(with.rss_fast, alone.rss_fast),
            memory_ratio: ratio(with.memory, alone.memory),
            // A run that was given up did not do the same work.
            runtime_ratio: with.slowdown / alone.slowdown,
        }
    }
}

#[derive(Serialize)]
struct Json<'a> {
    pattern: &'a str,
    size: u64,
    seed: u64,
    rate: f64,
    work_s: f64,
    swap: Option<&'static str>,
    #[serde(flatten)]
    figures: &'a Figures,
    #[serde(flatten)]
    ratios: Ratios,
    alone: &'a Figures,
    schemes: Vec<serde_json::Value>,
}

/// Writes the figures of one run.
pub fn print(
    out: &mut dyn Write,
    args: &Args,
    e: &Experiment,
    f: &Figures,
    alone: &Figures,
    last: &Last,
) -> io::Result<()> {
    let (swap, ratios) = (e.hardware.swap.map(|d| d.name), Ratios::new(f, alone));
    if args.json {
        let json = Json {
            pattern: e.workload.name(),
            size: e.workload.size(),
            seed: args.monitor.seed,
            rate: e.rate,
            work_s: e.work_ns as f64 / 1e9,
            swap,
            figures: f,
            ratios,
            alone,
            schemes: last.values()?,
        };
        serde_json::to_writer(&mut *out, &json)?;
        return writeln!(out);
    }
    let size = format_size(e.workload.size());
    let name = e.workload.name();
    writeln!(
        out,
        "{name} of {size}, {:.0} touches/s, seed {}, swap {}",
        e.rate,
        args.monitor.seed,
        swap.unwrap_or("none")
    )?;
    let given_up = if f.finished { "" } else { " (given up before the work was done)" };
    writeln!(out, "runtime      {:.2} s, {:.3} of that without schemes{given_up}", f.runtime_s, ratios.runtime_ratio)?;
    writeln!(
        out,
        "resident     {} on average, {:.3} of that without schemes; {} at the end",
        format_size(f.rss),
        ratios.rss_ratio,
        format_size(f.rss_at_end)
    )?;
    writeln!(
        out,
        "main memory  {} on average, {:.3}, compressed pages included",
        format_size(f.memory),
        ratios.memory_ratio
    )?;
    if e.hardware.slow.is_some() {
        let fast = format_size(f.rss_fast);
        writeln!(out, "fast node    {fast} of resident memory on average, {:.3}", ratios.rss_fast_ratio)?;
    }
    if f.huge_at_end > 0 {
        writeln!(out, "huge pages   {} at the end", format_size(f.huge_at_end))?;
    }
    writeln!(
        out,
        "swap         {} out, {} back in, {} faults, {:.2} % of the time waiting",
        format_size(f.swap_out),
        format_size(f.swap_in),
        f.major_faults,
        f.some_psi * 100.0
    )?;
    writeln!(
        out,
        "cost         {:.2} % of a core watching, {:.2} % lost by the program, {:.2} % moving memory",
        f.monitor_share * 100.0,
        f.target_share * 100.0,
        f.action_share * 100.0
    )?;
    if alone.major_faults > 0 {
        writeln!(
            out,
            "left alone   {:.2} s, {} resident on average, {} faults, {:.2} % of the time waiting",
            alone.runtime_s,
            format_size(alone.rss),
            alone.major_faults,
            alone.some_psi * 100.0
        )?;
    }
    last.words.iter().try_for_each(|words| writeln!(out, "{words}"))
}
