//! Numbers as damo writes them into JSON: plain, or as text with commas and units ("4,096", "3 s 100 ms", "12.000
//! MiB").

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use std::fmt;
use std::io::{self, Read};

/// Units of texts, as factors.
const TIMES: [(&str, f64); 7] =
    [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 60e9), ("h", 3600e9), ("d", 86400e9)];

/// A number. Times with a unit are in ns; whether a text had a unit is kept, since a bare number takes the field's
/// unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    /// A whole number.
    Whole(i128),
    /// One with a fraction.
    Real(f64),
    /// A time with a unit, in ns.
    TimeNs(f64),
}

/// The nearest whole number that is not negative.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast of a float saturates")]
pub(crate) fn whole(x: f64) -> u64 {
    x.round() as u64
}

impl Number {
    /// As a count, at least 0.
    pub(crate) fn count(self) -> u64 {
        match self {
            Self::Whole(n) => u64::try_from(n.max(0)).unwrap_or(u64::MAX),
            Self::Real(x) | Self::TimeNs(x) => whole(x),
        }
    }

    /// As ns; a bare number counts units of `unit_ns`.
    pub(crate) fn ns(self, unit_ns: u64) -> u64 {
        match self {
            Self::Whole(_) => self.count().saturating_mul(unit_ns),
            Self::Real(x) => whole(x * unit_ns as f64),
            Self::TimeNs(x) => whole(x),
        }
    }

    pub(crate) fn real(self) -> f64 {
        match self {
            Self::Whole(n) => n as f64,
            Self::Real(x) | Self::TimeNs(x) => x,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let bare: String = text.chars().filter(|c| *c != ',').collect();
        let bare = bare.trim();
        match bare {
            "max" => return Some(Self::Whole(i128::from(u64::MAX))),
            "min" => return Some(Self::Whole(0)),
            _ => {}
        }
        if let Ok(n) = bare.parse::<i64>() {
            return Some(Self::Whole(i128::from(n)));
        }
        if let Ok(n) = bare.parse::<u64>() {
            return Some(Self::Whole(i128::from(n)));
        }
        if let Some(x) = bare.parse::<f64>().ok().filter(|x| x.is_finite()) {
            return Some(Self::Real(x));
        }
        let (negative, bare) = bare.strip_prefix('-').map_or((false, bare), |rest| (true, rest));
        let words: Vec<&str> = split_units(bare);
        let mut sum = 0.0;
        for pair in words.chunks(2) {
            let [number, unit] = pair else { return None };
            let number: f64 = number.parse().ok()?;
            if let Some((_, factor)) = TIMES.iter().find(|(name, _)| name == unit) {
                sum += number * factor;
                continue;
            }
            // Anything but a time stands alone.
            return (words.len() == 2).then_some(Self::Real(number * other_unit(unit)?));
        }
        (!words.is_empty()).then_some(Self::TimeNs(if negative { -sum } else { sum }))
    }
}

/// Splits `3 s 100 ms` or `5ms` into numbers and units.
fn split_units(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    for word in text.split_ascii_whitespace() {
        let end = word.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(word.len());
        let (number, unit) = word.split_at(end);
        parts.extend([number, unit].into_iter().filter(|p| !p.is_empty()));
    }
    parts
}

fn other_unit(unit: &str) -> Option<f64> {
    if unit == "%" || unit == "B" || unit == "hz" {
        return Some(1.0);
    }
    let power = "KMGTPE".find(unit.chars().next()?)? + 1;
    matches!(&unit[1..], "" | "B" | "iB").then(|| (0..power).fold(1.0, |factor, _| factor * 1024.0))
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V;
        impl Visitor<'_> for V {
            type Value = Number;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, or a text such as \"4,096\" or \"5 ms\"")
            }

            fn visit_u64<E: Error>(self, n: u64) -> Result<Number, E> {
                Ok(Number::Whole(n.into()))
            }

            fn visit_i64<E: Error>(self, n: i64) -> Result<Number, E> {
                Ok(Number::Whole(n.into()))
            }

            fn visit_f64<E: Error>(self, x: f64) -> Result<Number, E> {
                Ok(Number::Real(x))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Number, E> {
                Number::parse(text).ok_or_else(|| E::custom(format_args!("'{}' is not a number", clip(text))))
            }
        }
        deserializer.deserialize_any(V)
    }
}

fn clip(text: &str) -> String {
    text.chars().take(40).collect()
}

/// Refuses JSON with a text or number of more than [`Self::MAX`] bytes, which a parser would hold in memory.
#[derive(Debug)]
pub(crate) struct TokenLimit<R> {
    inner: R,
    len: usize,
    in_text: bool,
    escaped: bool,
}

impl<R> TokenLimit<R> {
    const MAX: usize = 1 << 20;

    pub(crate) fn new(inner: R) -> Self {
        Self { inner, len: 0, in_text: false, escaped: false }
    }
}

impl<R: Read> Read for TokenLimit<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        for &b in &buffer[..n] {
            self.len += 1;
            if self.in_text {
                self.in_text = self.escaped || b != b'"';
                self.escaped = !self.escaped && b == b'\\';
            } else {
                self.in_text = b == b'"';
                if matches!(b, b'"' | b',' | b':' | b'{' | b'}' | b'[' | b']') || b.is_ascii_whitespace() {
                    self.len = 0;
                }
            }
            if self.len > Self::MAX {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a text of more than 1 MiB"));
            }
        }
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damos_texts_are_read() {
        let parse = |t| Number::parse(t).unwrap();
        assert_eq!(parse("139,637,976,727,552"), Number::Whole(139_637_976_727_552));
        assert_eq!(parse("-1"), Number::Whole(-1));
        assert_eq!(parse("max"), Number::Whole(i128::from(u64::MAX)));
        assert_eq!(parse("3 s 100 ms").ns(1), 3_100_000_000);
        assert_eq!(parse("5ms").ns(1), 5_000_000);
        assert_eq!(parse("5").ns(1000), 5000);
        assert_eq!(parse("12.500 MiB").count(), 13_107_200);
        assert_eq!(parse("45 %").real(), 45.0);
        assert_eq!(parse("-3 ms").ns(1), 0);
        for bad in ["", "x", "5 parsecs", "1 2", "5 s 3", "1 s 2 MiB", "nan"] {
            assert_eq!(Number::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn endless_texts_are_refused() {
        let text = [b"[\"".to_vec(), b"\\\"".repeat(1 << 20)].concat();
        assert!(TokenLimit::new(&text[..]).read_to_end(&mut Vec::new()).is_err());
        let fine = b"[\"a\\\\\", 1], ".repeat(1 << 17);
        assert_eq!(TokenLimit::new(&fine[..]).read_to_end(&mut Vec::new()).unwrap(), fine.len());
    }
}
