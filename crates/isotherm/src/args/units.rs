//! Value parsers for clap: sizes, times, rates.

use isotherm_core::units::{UnitError, parse_percent, parse_size, parse_time_ns};
use std::time::Duration;

/// A size in bytes.
pub fn size(text: &str) -> Result<u64, UnitError> {
    parse_size(text)
}

pub fn time(text: &str) -> Result<Duration, UnitError> {
    parse_time_ns(text).map(Duration::from_nanos)
}

/// A percentage as a fraction of one.
pub fn percent(text: &str) -> Result<f64, UnitError> {
    parse_percent(text)
}
