//! What tuning found: a table, JSON, a picture.

use isotherm_core::tuning::figures::Measured;
use isotherm_core::tuning::figures::{Figures, median};
use isotherm_core::tuning::score::Scored;
use isotherm_core::tuning::search::Wish;
use isotherm_core::units::{format_size, format_time};
use isotherm_view::picture::tradeoff;
use isotherm_view::plot::tradeoff::{Tradeoff, TradeoffPoint};
use serde_json::json;
use std::io::{self, Write};

/// All that is reported.
pub struct Summary<'a> {
    /// The command alone, by round.
    pub alone: &'a [Measured],
    pub scored: &'a [Scored],
    /// The best of them.
    pub best: Option<&'a Scored>,
    pub wish: Wish,
}

impl Summary<'_> {
    fn is_best(&self, s: &Scored) -> bool {
        self.best.is_some_and(|b| b == s)
    }

    /// Medians of the command alone; `None` if it was not run.
    fn alone(&self) -> Option<Figures> {
        let seconds = median(self.alone.iter().map(|m| m.seconds))?;
        Some(Figures { seconds, memory: median(self.alone.iter().map(|m| m.memory))? })
    }

    /// The table, on stdout.
    pub fn print_table(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if let Some(Figures { seconds, memory }) = self.alone() {
            let memory = format_size(memory as u64);
            writeln!(out, "alone: {seconds:.2} s, {memory} (medians of {})", self.alone.len())?;
        }
        let expects = self.scored.iter().any(|s| s.expected.is_some());
        let expected = if expects { format!("  {:>17}", "expected of both") } else { String::new() };
        writeln!(
            out,
            "{:>10} {:>7} {:>4}  {:>8} {:>8}{expected} {:>11}",
            "least age", "rate", "runs", "runtime", "memory", "applied"
        )?;
        for s in self.scored {
            let age = format_time(s.parameters.age_us().saturating_mul(1000));
            let rate = format!("{} %", f64::from(s.parameters.rate_bp) / 100.0);
            let mark = if self.is_best(s) { "  <- best" } else { "" };
            let applied = s.applied.map_or_else(|| "-".to_owned(), format_size);
            let expected =
                s.expected.map_or_else(String::new, |(runtime, memory)| format!("  {runtime:>8.3} {memory:>8.3}"));
            writeln!(
                out,
                "{age:>10} {rate:>7} {:>4}  {:>8.3} {:>8.3}{expected} {applied:>11}{mark}",
                s.runs, s.runtime, s.memory
            )?;
        }
        out.flush()
    }

    /// A line for each set, on stdout.
    pub fn print_json(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        let alone = self.alone();
        for s in self.scored {
            let line = json!({
                "min_age_us": s.parameters.min_age_us,
                "rate_bp": s.parameters.rate_bp,
                "confirm_us": s.parameters.confirm_us,
                "runs": s.runs,
                "runtime": s.runtime,
                "memory": s.memory,
                "score": self.wish.score(s.runtime, s.memory),
                "expected_runtime": s.expected.map(|e| e.0),
                "expected_memory": s.expected.map(|e| e.1),
                "sz_applied": s.applied,
                "alone_seconds": alone.map(|a| a.seconds),
                "alone_bytes": alone.map(|a| a.memory as u64),
                "best": self.is_best(s),
            });
            writeln!(out, "{line}")?;
        }
        out.flush()
    }

    pub fn svg(&self) -> String {
        let point = |s: &Scored| TradeoffPoint {
            runtime: s.runtime,
            memory: s.memory,
            label: s.parameters.words(),
            best: self.is_best(s),
        };
        tradeoff(&Tradeoff {
            title: "Runtime and memory under the scheme, by least age and rate".to_owned(),
            points: self.scored.iter().map(point).collect(),
            limit: Some(1.0 + self.wish.max_slowdown),
        })
        .svg()
    }
}
