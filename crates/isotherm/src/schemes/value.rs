//! Words and numbers of scheme lines and files, as the engine's units.

use crate::args::refused::Refused;
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::scheme::pattern::{Bounds, FULL_RATE_BP};
use isotherm_core::units::{parse_percent, parse_size, parse_time_ns};
use std::fmt;

/// A single value of a file, before anything is known of its meaning.
#[derive(Debug, Clone, PartialEq)]
pub enum Scalar {
    Text(String),
    /// A whole number that is not negative.
    Int(u64),
    Float(f64),
    Bool(bool),
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Int(n) => n.fmt(f),
            Self::Float(x) => x.fmt(f),
            Self::Bool(b) => b.fmt(f),
        }
    }
}

impl From<&str> for Scalar {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

pub fn text(value: &Scalar) -> Result<String, Refused> {
    match value {
        Scalar::Text(text) => Ok(text.clone()),
        other => Err(Refused::new(other, "must be a text")),
    }
}

/// Bytes: `4K`, or a number.
pub fn size(value: &Scalar) -> Result<u64, Refused> {
    match value {
        Scalar::Text(text) => Ok(parse_size(text)?),
        Scalar::Int(n) => Ok(*n),
        other => Err(Refused::new(other, "is not a size; write for example \"512M\" or a number of bytes")),
    }
}

/// Bytes a second: `1M` or `1M/s`, or a number.
pub fn size_per_second(value: &Scalar) -> Result<u64, Refused> {
    match value {
        Scalar::Text(text) => size(&text.trim().strip_suffix("/s").unwrap_or(text).into()),
        other => size(other),
    }
}

/// A hundred years in nanoseconds: what is longer is a mistake, and could not be added to a clock's time.
pub const LONGEST_NS: u64 = 100 * 365 * 86_400_000_000_000;

/// Nanoseconds: `5s`. A bare number has no unit, so only 0 will do.
pub fn time_ns(value: &Scalar) -> Result<u64, Refused> {
    let ns = parse_time_ns(&value.to_string())?;
    if ns > LONGEST_NS { Err(Refused::new(value, "is longer than 100 years")) } else { Ok(ns) }
}

/// Microseconds, rounded down, but never to none.
pub fn time_us(value: &Scalar) -> Result<u64, Refused> {
    us_of(value, time_ns(value)?)
}

/// Microseconds of the `ns` that `value` says, rounded down, but never to none.
pub fn us_of(value: &Scalar, ns: u64) -> Result<u64, Refused> {
    match ns {
        1..1000 => Err(Refused::new(value, "is finer than 1us; write 0 or at least 1us")),
        ns => Ok(ns / 1000),
    }
}

/// An age of so many aggregation intervals, in microseconds; more than [`LONGEST_NS`] is no limit.
pub fn age_us(intervals: u64, attrs: &MonitorAttrs) -> u64 {
    intervals.checked_mul(attrs.aggr_us).filter(|us| *us <= LONGEST_NS / 1000).unwrap_or(u64::MAX)
}

/// A share, as a fraction of one: `5%`; a bare number is a percentage, too.
pub fn share(value: &Scalar) -> Result<f64, Refused> {
    let fraction = match value {
        Scalar::Bool(_) => None,
        other => parse_percent(&other.to_string()).ok(),
    };
    fraction
        .filter(|f| f.is_finite())
        .ok_or_else(|| Refused::new(value, "is not a rate; write a percentage, for example \"5%\""))
}

/// A share of at most all, in basis points.
pub fn share_bp(value: &Scalar) -> Result<u32, Refused> {
    let bp = share(value)? * f64::from(FULL_RATE_BP);
    if bp > f64::from(FULL_RATE_BP) {
        return Err(Refused::new(value, "is more than 100%, which cannot be"));
    }
    let rounded = bp.round();
    if rounded == 0.0 && bp > 0.0 {
        return Err(Refused::new(value, "is finer than 0.01%; write 0% or at least 0.01%"));
    }
    Ok(rounded as u32)
}

pub fn count(value: &Scalar) -> Result<u64, Refused> {
    match value {
        Scalar::Int(n) => Ok(*n),
        Scalar::Text(text) => text.trim().parse().map_err(|_| Refused::new(text, "is not a whole number")),
        other => Err(Refused::new(other, "is not a whole number from 0")),
    }
}

/// A whole number that fits 32 bits.
pub fn count32(value: &Scalar) -> Result<u32, Refused> {
    let n = count(value)?;
    u32::try_from(n).map_err(|_| Refused::new(n, "is too large"))
}

pub fn flag(value: &Scalar) -> Result<bool, Refused> {
    match value {
        Scalar::Bool(b) => Ok(*b),
        other => Err(Refused::new(other, "is neither true nor false")),
    }
}

/// Which end of a range a word stands at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Least,
    Largest,
}

/// One end of a range within `all`: `min`, `max`, `null` (no bound at this end), or a value.
pub fn end_of<T: Copy>(
    value: &Scalar,
    end: End,
    all: Bounds<T>,
    read: impl Fn(&Scalar) -> Result<T, Refused>,
) -> Result<T, Refused> {
    match (value, end) {
        (Scalar::Text(t), _) if t.eq_ignore_ascii_case("min") => Ok(all.min),
        (Scalar::Text(t), _) if t.eq_ignore_ascii_case("max") => Ok(all.max),
        (Scalar::Text(t), End::Least) if t.eq_ignore_ascii_case("null") => Ok(all.min),
        (Scalar::Text(t), End::Largest) if t.eq_ignore_ascii_case("null") => Ok(all.max),
        _ => read(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_bytes_and_percentages() {
        assert_eq!(size(&Scalar::Int(4096)), Ok(4096));
        assert_eq!(size(&"4K".into()), Ok(4096));
        assert_eq!(size_per_second(&"1M/s".into()), Ok(1 << 20));
        assert_eq!(share_bp(&Scalar::Int(5)), Ok(500));
        assert_eq!(share_bp(&Scalar::Float(0.5)), Ok(50));
        assert_eq!(share_bp(&"0.5%".into()), Ok(50));
        assert_eq!(time_us(&"5s".into()), Ok(5_000_000));
        assert_eq!(time_us(&Scalar::Int(0)), Ok(0));
    }

    #[test]
    fn what_would_be_a_guess_is_refused() {
        assert!(time_ns(&Scalar::Int(5)).is_err(), "5 what?");
        assert!(time_ns(&"36501d".into()).unwrap_err().to_string().contains("100 years"));
        assert!(time_us(&"5ns".into()).unwrap_err().to_string().contains("finer"));
        assert!(size(&Scalar::Float(0.5)).is_err());
        assert!(size(&Scalar::Bool(true)).is_err());
        assert!(share(&Scalar::Bool(true)).is_err());
        assert!(share(&Scalar::Float(f64::NAN)).is_err());
        assert!(share_bp(&"101%".into()).unwrap_err().to_string().contains("100%"));
        assert!(share_bp(&"0.001%".into()).unwrap_err().to_string().contains("finer"));
        assert!(count(&Scalar::Float(-1.0)).is_err());
    }

    #[test]
    fn words_stand_for_ends() {
        let all = Bounds::new(3, 9);
        let read = |v: &Scalar| count(v);
        assert_eq!(end_of(&"null".into(), End::Least, all, read), Ok(3));
        assert_eq!(end_of(&"null".into(), End::Largest, all, read), Ok(9));
        assert_eq!(end_of(&"min".into(), End::Largest, all, read), Ok(3));
        assert_eq!(end_of(&"max".into(), End::Least, all, read), Ok(9));
        assert_eq!(end_of(&"5".into(), End::Least, all, read), Ok(5));
    }
}
