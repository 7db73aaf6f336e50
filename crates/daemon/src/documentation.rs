//! Figures as a table for the documentation.

use isotherm_core::figure::{FigureKind, Figured};
use std::fmt::Write;

/// A table in Markdown of the figures of `T`: the field in JSON, the metric (which begins with `prefix`), what it
/// means.
pub fn table<T: Figured>(prefix: &str) -> String {
    let mut text = "| JSON | metric | what |\n|---|---|---|\n".to_owned();
    for figure in T::FIGURES {
        let (base, unit) = figure.base();
        let separator = if unit.is_empty() { "" } else { "_" };
        let total = if figure.kind == FigureKind::Counter { "_total" } else { "" };
        let metric = format!("isotherm_{prefix}{base}{separator}{unit}{total}");
        let _ = writeln!(text, "| `{}` | `{metric}` | {} |", figure.name, figure.help);
    }
    text
}
