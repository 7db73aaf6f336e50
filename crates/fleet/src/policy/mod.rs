//! What policies would have done: `what-if` for one, `tune` for the best.
//!
//! * [`grid`]: which; [`replay`]: reads windows, [`groups`]: replays them; [`outcome`]: what came out; [`what_if`], [`tune`]: the
//!   commands; [`split`]: on which time `tune` chooses; [`rules`]: a file for agents.

mod grid;
mod groups;
mod outcome;
mod replay;
mod rules;
mod split;
#[cfg(test)]
mod sql_tests;
pub mod tune;
pub mod what_if;

use isotherm_core::scheme::threshold;
use isotherm_core::units::{UnitError, parse_time_ns};

/// Why a value is not used.
#[derive(Debug, thiserror::Error)]
enum ValueError {
    #[error(transparent)]
    Unit(#[from] UnitError),
    #[error("write a share of the working set for a minute, as in 0.2%/min")]
    Rate,
    #[error("a percentile lies between 0 and 100")]
    Percentile,
    #[error("windows are told apart by whole seconds; write a whole number of them")]
    Seconds,
}

/// `0.2%/min` as a share of one for a minute.
fn rate(text: &str) -> Result<f64, ValueError> {
    threshold::parse_rate(text).ok_or(ValueError::Rate)
}

/// `98` or `98%` as a share of one.
fn percentile(text: &str) -> Result<f64, ValueError> {
    threshold::parse_percentile(text).ok_or(ValueError::Percentile)
}

/// Whole seconds.
fn seconds(text: &str) -> Result<u64, ValueError> {
    let ns = parse_time_ns(text)?;
    if ns % 1_000_000_000 != 0 {
        return Err(ValueError::Seconds);
    }
    Ok(ns / 1_000_000_000)
}

/// A share of one as a number of percent, without what rounding leaves: what was given, and what a file of rules says.
fn in_percent(share: f64) -> f64 {
    (share * 1e11).round() / 1e9
}

/// A share of one as percent, for people: shares of windows over a limit, of which a tenth of a percent is too coarse.
fn two_digits(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_taken_as_they_are_given_or_refused() {
        assert_eq!((seconds("1.5m").unwrap(), seconds("0s").unwrap()), (90, 0));
        assert!(seconds("0.5s").unwrap_err().to_string().contains("whole number"));
        for text in ["50", "57", "99.9", "99.999", "0", "100"] {
            assert_eq!(in_percent(percentile(text).unwrap()).to_string(), text);
        }
    }
}
