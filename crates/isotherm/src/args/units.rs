//! Value parsers for clap: sizes, times, rates.

use super::refused::Refused;
use isotherm_core::units::{UnitError, parse_percent, parse_size, parse_time_ns};
use std::time::Duration;

/// A size in bytes.
pub fn size(text: &str) -> Result<u64, UnitError> {
    parse_size(text)
}

pub fn time(text: &str) -> Result<Duration, UnitError> {
    parse_time_ns(text).map(Duration::from_nanos)
}

/// How long to run: more than no time at all.
pub fn duration(text: &str) -> Result<Duration, Refused> {
    match time(text)? {
        Duration::ZERO => Err(Refused::new(text, "does nothing; leave it out to run until Ctrl-C")),
        time => Ok(time),
    }
}

/// A percentage as a fraction of one.
pub fn percent(text: &str) -> Result<f64, UnitError> {
    parse_percent(text)
}

/// A share of a whole: a percentage of at most 100 %, as a fraction of one.
pub fn share(text: &str) -> Result<f64, Refused> {
    match percent(text)? {
        share if share > 1.0 => Err(Refused::new(text, "is more than 100 %")),
        share => Ok(share),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_runs_for_no_time() {
        assert_eq!(duration("1s"), Ok(Duration::from_secs(1)));
        for text in ["0", "0s", "0.1ns"] {
            assert!(duration(text).unwrap_err().to_string().contains("does nothing"), "{text}");
        }
        assert!(duration("5").unwrap_err().to_string().contains("for example 100ms"));
    }

    #[test]
    fn a_share_is_no_more_than_the_whole() {
        assert_eq!((share("5%"), share("100%")), (Ok(0.05), Ok(1.0)));
        assert!(share("200%").unwrap_err().to_string().contains("more than 100 %"));
    }
}
