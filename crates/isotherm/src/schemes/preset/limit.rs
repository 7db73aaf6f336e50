//! Value parsers of the presets: limits per time, shares, times.

use crate::args::refused::Refused;
use crate::schemes::value::{self, Scalar};
use isotherm_core::units::{parse_size, parse_time_ns};

/// Bytes per interval, or no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit(pub Option<Rate>);

/// Bytes per interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Bytes.
    pub bytes: u64,
    /// Interval, ns.
    pub per_ns: u64,
}

/// `128M/s`, `1M/100ms`, `128M` (per second) or `none`.
pub fn limit(text: &str) -> Result<Limit, Refused> {
    if text == "none" {
        return Ok(Limit(None));
    }
    let (size, per) = text.split_once('/').unwrap_or((text, "s"));
    let bytes = parse_size(size)?;
    let per = per.trim();
    let count = if per.starts_with(|c: char| c.is_ascii_digit()) { "" } else { "1" };
    let per_ns = value::time_ns(&Scalar::Text(format!("{count}{per}")))
        .map_err(|_| Refused::new(text, "is not a limit; write for example 128M/s, 1M/100ms or none"))?;
    Ok(Limit(Some(Rate { bytes, per_ns })))
}

/// A time that a quota allows, ns, or `none`.
pub fn quota_time(text: &str) -> Result<Option<u64>, Refused> {
    if text == "none" { Ok(None) } else { time(text).map(Some) }
}

/// A time, ns.
pub fn time(text: &str) -> Result<u64, Refused> {
    // Its own error is shorter than that of a scheme file.
    parse_time_ns(text)?;
    value::time_ns(&text.into())
}

/// An age, microseconds.
pub fn age_us(text: &str) -> Result<u64, Refused> {
    value::us_of(&text.into(), time(text)?)
}

/// An age, ns, that is not none in microseconds.
pub fn age(text: &str) -> Result<u64, Refused> {
    age_us(text)?;
    time(text)
}

/// An access rate, basis points.
pub fn rate(text: &str) -> Result<u32, Refused> {
    value::share_bp(&text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_bytes_per_time() {
        let rate = |bytes, per_ns| Ok(Limit(Some(Rate { bytes, per_ns })));
        assert_eq!(limit("128M/s"), rate(128 << 20, 1_000_000_000));
        assert_eq!(limit("128M"), rate(128 << 20, 1_000_000_000));
        assert_eq!(limit("1M/100ms"), rate(1 << 20, 100_000_000));
        assert_eq!(limit("1G/m"), rate(1 << 30, 60_000_000_000));
        assert_eq!(limit("none"), Ok(Limit(None)));
        for bad in ["", "/s", "1M/", "1M/parsec", "fast", "1M/s/s"] {
            assert!(limit(bad).is_err(), "{bad}");
        }
        assert_eq!(quota_time("10ms"), Ok(Some(10_000_000)));
        assert_eq!(quota_time("none"), Ok(None));
    }

    #[test]
    fn an_age_is_never_rounded_to_none() {
        assert_eq!((age("0"), age("1.5us"), age_us("2s")), (Ok(0), Ok(1500), Ok(2_000_000)));
        for short in ["5ns", "0.5us"] {
            assert!(age(short).unwrap_err().to_string().contains("finer"), "{short}");
        }
    }
}
