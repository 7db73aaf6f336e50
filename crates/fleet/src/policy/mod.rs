//! What policies would have done: `what-if` for one, `tune` for the best.
//!
//! * [`grid`]: which; [`replay`]: reads windows, [`groups`]: replays them; [`outcome`]: what came out; [`what_if`], [`tune`]: the
//!   commands; [`rules`]: a file for agents.

mod grid;
mod groups;
mod outcome;
mod replay;
mod rules;
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
    Ok(parse_time_ns(text)? / 1_000_000_000)
}
