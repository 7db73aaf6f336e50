//! Sizes, times and rates as people write them, and back.
//!
//! Sizes take `K`, `M`, `G`, `T` (powers of 1024, an optional `iB` or `B`), times `ns`, `us`, `ms`, `s`, `m`, `h`, `d`,
//! rates a percentage with or without `%`.

use std::time::Duration;

/// Nanoseconds in a second.
pub const NS_PER_S: u64 = 1_000_000_000;

/// Why a text is not a size, time or rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a {what}: {why}")]
pub struct UnitError {
    /// What was written.
    pub text: String,
    /// `size`, `time` or `rate`.
    pub what: &'static str,
    /// The reason and an example.
    pub why: &'static str,
}

fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let t = text.trim();
    let split = t.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(t.len());
    let number: f64 = t[..split].parse().ok()?;
    Some((number, t[split..].trim()))
}

fn scaled(
    text: &str,
    what: &'static str,
    why: &'static str,
    factor: impl Fn(&str) -> Option<f64>,
) -> Result<u64, UnitError> {
    let err = || UnitError { text: text.to_owned(), what, why };
    let (number, unit) = number_and_unit(text).ok_or_else(err)?;
    let factor = factor(unit).ok_or_else(err)?;
    // Whole numbers exactly, to the last: binary fractions end at 2^53.
    if let Ok(whole) = text.trim()[..text.trim().len() - unit.len()].trim().parse::<u64>() {
        let exact = whole.checked_mul(factor as u64);
        return exact.ok_or_else(|| UnitError { text: text.to_owned(), what, why: "it is too large" });
    }
    let value = number * factor;
    if !value.is_finite() || value >= 18_446_744_073_709_549_568.0 {
        return Err(UnitError { text: text.to_owned(), what, why: "it is too large" });
    }
    Ok(value.round() as u64)
}

/// Parses a size such as `4096`, `4K`, `1.5GiB` into bytes.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    scaled(text, "size", "write a number with B, K, M, G or T, for example 512M", |u| {
        let u = u.to_ascii_uppercase();
        let u = u.strip_suffix("IB").or_else(|| u.strip_suffix('B')).unwrap_or(&u).to_owned();
        Some(match u.as_str() {
            "" => 1.0,
            "K" => 1024.0,
            "M" => 1024.0f64.powi(2),
            "G" => 1024.0f64.powi(3),
            "T" => 1024.0f64.powi(4),
            "P" => 1024.0f64.powi(5),
            "E" => 1024.0f64.powi(6),
            _ => return None,
        })
    })
}

/// Parses a time such as `5ms` or `1.5s` into nanoseconds. A bare number other than 0 is refused: its unit would be a
/// guess.
pub fn parse_time_ns(text: &str) -> Result<u64, UnitError> {
    if text.trim() == "0" {
        return Ok(0);
    }
    scaled(text, "time", "write a number with us, ms, s, m, h or d, for example 100ms", |u| {
        Some(match u {
            "ns" => 1.0,
            "us" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" | "min" => 60e9,
            "h" => 3600e9,
            "d" => 86400e9,
            _ => return None,
        })
    })
}

/// Parses a rate such as `1%` or `0.5` (both in percent) into a fraction of one.
pub fn parse_percent(text: &str) -> Result<f64, UnitError> {
    let err = || UnitError { text: text.to_owned(), what: "rate", why: "write a percentage, for example 1%" };
    let (number, unit) = number_and_unit(text).ok_or_else(err)?;
    if !(unit.is_empty() || unit == "%") {
        return Err(err());
    }
    Ok(number / 100.0)
}

/// Nanoseconds of a duration; `u64::MAX` for one that is longer than so many can tell (584 years).
pub fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Microseconds of a duration, at most `u64::MAX`.
pub fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Bytes for people: `1.50 GiB`, `12.0 MiB`, `4.00 KiB`, `0 B`.
pub fn format_size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{} {}", three_digits(value), UNITS[unit]) }
}

/// Nanoseconds for people: `250 us`, `1.20 s`, `3 m 05 s`, `2 h 10 m`.
pub fn format_time(ns: u64) -> String {
    let v = ns as f64;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} us", three_digits(v / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", three_digits(v / 1e6)),
        1_000_000_000..60_000_000_000 => format!("{} s", three_digits(v / 1e9)),
        60_000_000_000..3_600_000_000_000 => {
            let s = ns / 1_000_000_000;
            format!("{} m {:02} s", s / 60, s % 60)
        }
        _ => {
            let m = ns / 60_000_000_000;
            format!("{} h {:02} m", m / 60, m % 60)
        }
    }
}

fn three_digits(value: f64) -> String {
    if value >= 99.95 {
        format!("{value:.0}")
    } else if value >= 9.995 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(parse_size("4K"), Ok(4096));
        assert_eq!(parse_size("1.5GiB"), Ok(1_610_612_736));
        assert_eq!(parse_size("10 MB"), Ok(10 << 20));
        assert_eq!(parse_size("7"), Ok(7));
        assert_eq!(parse_size("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(parse_size("9007199254740993"), Ok((1 << 53) + 1));
        for bad in ["", "K", "-1K", "1X", "1e9", "99999999999999T"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_need_a_unit() {
        assert_eq!(parse_time_ns("5ms"), Ok(5_000_000));
        assert_eq!(parse_time_ns("2m"), Ok(120_000_000_000));
        assert_eq!(parse_time_ns("0"), Ok(0));
        assert!(parse_time_ns("5").is_err());
        assert!(parse_time_ns("-5ms").is_err());
    }

    #[test]
    fn percent_is_a_fraction() {
        assert_eq!(parse_percent("1%"), Ok(0.01));
        assert_eq!(parse_percent("0.5"), Ok(0.005));
        assert!(parse_percent("1s").is_err());
    }

    #[test]
    fn formats_keep_three_digits() {
        assert_eq!(format_size(0), "0 B");
        assert_eq!(format_size(4096), "4.00 KiB");
        assert_eq!(format_size(123 << 20), "123 MiB");
        assert_eq!(format_time(5_000_000), "5.00 ms");
        assert_eq!(format_time(185_000_000_000), "3 m 05 s");
    }
}
