//! Sizes, times and rates in damo's words.

use crate::args::refused::Refused;
use crate::schemes::value::{self, LONGEST_NS, Scalar};
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::scheme::pattern::FULL_RATE_BP;
use isotherm_core::units::parse_time_ns;

/// Nanoseconds in a microsecond: the unit of bare numbers behind keys that end in `_us`.
pub const US: u64 = 1_000;
/// The same for `_ms`.
pub const MS: u64 = 1_000_000;

/// A text without the commas that set off thousands.
fn plain(value: &Scalar) -> Scalar {
    match value {
        Scalar::Text(text) => Scalar::Text(text.replace(',', "").trim().to_owned()),
        other => other.clone(),
    }
}

/// A whole number without a unit; one beyond 64 bits is the largest. `None`: not a bare number.
fn bare(value: &Scalar) -> Option<u64> {
    match value {
        Scalar::Int(n) => Some(*n),
        Scalar::Float(x) if *x >= 0.0 => Some(*x as u64),
        Scalar::Text(text) if text == "max" => Some(u64::MAX),
        Scalar::Text(text) if text == "min" => Some(0),
        Scalar::Text(text) if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) => {
            Some(text.parse().unwrap_or(u64::MAX))
        }
        _ => None,
    }
}

pub fn flag(value: &Scalar) -> Result<bool, Refused> {
    match value {
        Scalar::Text(text) if text == "true" => Ok(true),
        Scalar::Text(text) if text == "false" => Ok(false),
        other => value::flag(other),
    }
}

pub fn count(value: &Scalar) -> Result<u64, Refused> {
    bare(&plain(value)).ok_or_else(|| Refused::new(value, "is not a whole number"))
}

/// A whole number that fits 32 bits.
pub fn count32(value: &Scalar) -> Result<u32, Refused> {
    count(value).and_then(|n| u32::try_from(n).map_err(|_| Refused::new(value, "is too large")))
}

/// Bytes.
pub fn size(value: &Scalar) -> Result<u64, Refused> {
    let plain = plain(value);
    bare(&plain).map_or_else(|| value::size(&plain), Ok)
}

/// Nanoseconds, from `1 m 30 s` or from a bare number of `unit_ns`. `max` is `u64::MAX`.
pub fn time_ns(value: &Scalar, unit_ns: u64) -> Result<u64, Refused> {
    let plain = plain(value);
    if let Some(n) = bare(&plain) {
        return Ok(n.saturating_mul(unit_ns));
    }
    let text = plain.to_string();
    let words: Vec<&str> = text.split_whitespace().collect();
    let parts: Vec<String> = match words.as_slice() {
        [one] => vec![(*one).to_owned()],
        many if many.len() % 2 == 0 && !many.is_empty() => many.chunks(2).map(<[&str]>::concat).collect(),
        _ => return Err(Refused::new(value, "is not a time; write for example \"1 m 30 s\"")),
    };
    parts.iter().try_fold(0u64, |sum, part| {
        let ns = parse_time_ns(part)?;
        Ok(sum.saturating_add(ns))
    })
}

/// Like [`time_ns`], but no more than what can be added to a clock's time.
pub fn interval_ns(value: &Scalar, unit_ns: u64) -> Result<u64, Refused> {
    time_ns(value, unit_ns).map(|ns| ns.min(LONGEST_NS))
}

/// Basis points, from a percentage or from a bare number of parts in `whole`.
pub fn share_bp(value: &Scalar, whole: f64) -> Result<u32, Refused> {
    let plain = plain(value);
    let number = match &plain {
        Scalar::Text(text) if text.ends_with('%') => return value::share_bp(&text.replace(' ', "").as_str().into()),
        Scalar::Text(text) => text.parse::<f64>().ok(),
        Scalar::Int(n) => Some(*n as f64),
        Scalar::Float(x) => Some(*x),
        Scalar::Bool(_) => None,
    };
    let share = number.filter(|n| n.is_finite() && *n >= 0.0).map(|n| n / whole);
    let share = share.ok_or_else(|| Refused::new(value, "is not a share; write for example \"50 %\""))?;
    if share > 1.0 {
        return Err(Refused::new(value, "is more than all"));
    }
    Ok((share * f64::from(FULL_RATE_BP)).round() as u32)
}

/// An access rate in basis points: `5 %`, `3 samples`, or a bare percentage. More than all is all.
pub fn rate_bp(value: &Scalar, attrs: &MonitorAttrs) -> Result<u32, Refused> {
    let plain = plain(value);
    let full = u64::from(FULL_RATE_BP);
    let text = plain.to_string();
    if let Some(samples) = text.strip_suffix("samples") {
        let (samples, most) = (count(&samples.into())?, u64::from(attrs.max_nr_accesses()));
        let bp = u128::from(samples.min(most)) * u128::from(full) / u128::from(most);
        // Only what was never accessed has a rate of 0.
        return Ok((bp as u32).max(u32::from(samples > 0)));
    }
    let percent = text.strip_suffix('%').unwrap_or(&text).trim();
    match percent {
        "max" => return Ok(FULL_RATE_BP),
        "min" => return Ok(0),
        _ => {}
    }
    let is_number = percent.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let number = percent.parse::<f64>().ok().filter(|_| is_number);
    let number =
        number.ok_or_else(|| Refused::new(value, "is not a rate; write for example \"5 %\" or \"3 samples\""))?;
    if number >= 100.0 { Ok(FULL_RATE_BP) } else { value::share_bp(&Scalar::Float(number)) }
}

/// An age in microseconds: a time, or `30 aggr_intervals`.
pub fn age_us(value: &Scalar, attrs: &MonitorAttrs) -> Result<u64, Refused> {
    let text = plain(value).to_string();
    if let Some(intervals) = text.strip_suffix("aggr_intervals") {
        return Ok(value::age_us(count(&intervals.into())?, attrs));
    }
    let ns = time_ns(value, US)?;
    if ns == u64::MAX { Ok(u64::MAX) } else { value::us_of(value, ns) }
}
