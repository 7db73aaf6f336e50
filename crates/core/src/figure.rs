//! Figures: what a running Isotherm counts and measures, declared once.
//!
//! [`figures!`](crate::figures) declares a struct and, for each figure in it, its unit and its meaning. JSON (by
//! serde), OpenMetrics, texts and the table in the documentation all follow from that one place.

use crate::units::{format_size, format_time};

/// How a figure behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FigureKind {
    /// Only grows.
    Counter,
    /// Rises and falls.
    Gauge,
}

/// In what a figure is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Things, or 0 and 1 for no and yes.
    Count,
    /// Bytes.
    Bytes,
    /// Bytes a second.
    BytesPerSecond,
    /// Nanoseconds; the field's name ends with `_ns`.
    Nanoseconds,
    /// Microseconds; the field's name ends with `_us`.
    Microseconds,
    /// A share of one.
    Ratio,
    /// Ten thousandths of one.
    BasisPoints,
}

impl Unit {
    /// The base unit in which metrics are given (the end of their names), and what a value is divided by for that:
    /// multiplied by the inverse, 50000 us would be 0.049999999999999996 s.
    const fn base(self) -> (&'static str, Option<f64>) {
        match self {
            Self::Count => ("", None),
            Self::Bytes => ("bytes", None),
            Self::BytesPerSecond => ("bytes_per_second", None),
            Self::Nanoseconds => ("seconds", Some(1e9)),
            Self::Microseconds => ("seconds", Some(1e6)),
            Self::Ratio => ("ratio", None),
            Self::BasisPoints => ("", Some(1e4)),
        }
    }

    /// A value of it in the base unit.
    pub const fn in_base(self, value: Value) -> Value {
        match self.base().1 {
            None => value,
            Some(divisor) => Value::Real(value.real() / divisor),
        }
    }
}

/// A figure's value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// Counted.
    Whole(u64),
    /// Measured.
    Real(f64),
}

impl Value {
    /// As a real number.
    pub const fn real(self) -> f64 {
        match self {
            Self::Whole(n) => n as f64,
            Self::Real(x) => x,
        }
    }
}

/// What can be a figure. `None`: not known, which is never zero.
pub trait ToValue {
    /// Its value.
    fn to_value(&self) -> Option<Value>;
}

impl ToValue for u64 {
    fn to_value(&self) -> Option<Value> {
        Some(Value::Whole(*self))
    }
}

impl ToValue for u32 {
    fn to_value(&self) -> Option<Value> {
        Some(Value::Whole((*self).into()))
    }
}

impl ToValue for bool {
    fn to_value(&self) -> Option<Value> {
        Some(Value::Whole((*self).into()))
    }
}

impl ToValue for f64 {
    fn to_value(&self) -> Option<Value> {
        Some(Value::Real(*self))
    }
}

impl<T: ToValue> ToValue for Option<T> {
    fn to_value(&self) -> Option<Value> {
        self.as_ref().and_then(T::to_value)
    }
}

/// One figure of `T`.
#[derive(Debug)]
pub struct Figure<T> {
    /// The field's name, which is that in JSON.
    pub name: &'static str,
    /// Name of the metric, without the program's name before it and the unit after it.
    pub metric: &'static str,
    /// How it behaves.
    pub kind: FigureKind,
    /// In what it is counted.
    pub unit: Unit,
    /// What it means, in a sentence.
    pub help: &'static str,
    /// Its value in `unit`.
    pub read: fn(&T) -> Option<Value>,
}

impl<T> Figure<T> {
    /// Name of the metric without its unit, and the unit.
    pub fn base(&self) -> (&'static str, &'static str) {
        let name = self.metric;
        let name = name.strip_suffix("_ns").or_else(|| name.strip_suffix("_us")).unwrap_or(name);
        (name, self.unit.base().0)
    }

    /// The value in the metric's base unit.
    pub fn base_value(&self, of: &T) -> Option<Value> {
        (self.read)(of).map(|value| self.unit.in_base(value))
    }

    /// The value for people.
    pub fn text(&self, of: &T) -> Option<String> {
        let value = (self.read)(of)?;
        let whole = match value {
            Value::Whole(n) => n,
            Value::Real(x) => x as u64,
        };
        Some(match self.unit {
            Unit::Count => whole.to_string(),
            Unit::Bytes => format_size(whole),
            Unit::BytesPerSecond => format!("{}/s", format_size(whole)),
            Unit::Nanoseconds => format_time(whole),
            Unit::Microseconds => format_time(whole.saturating_mul(1000)),
            Unit::Ratio => format!("{:.2} %", value.real() * 100.0),
            Unit::BasisPoints => format!("{:.2} %", value.real() / 100.0),
        })
    }
}

/// What has figures.
pub trait Figured: Sized + 'static {
    /// All of them.
    const FIGURES: &'static [Figure<Self>];

    /// The figure of that name.
    fn figure(name: &str) -> Option<&'static Figure<Self>> {
        Self::FIGURES.iter().find(|figure| figure.name == name)
    }
}

/// Declares a struct whose fields are figures, and after `and` those that are none.
///
/// A figure is `field: type = FigureKind Unit, "Meaning.";`, with `as "name"` after the unit where the metric is to be called
/// otherwise than the field. The meaning becomes the field's documentation, too.
#[macro_export]
macro_rules! figures {
    (
        $(#[$outer:meta])*
        pub struct $name:ident {
            $( $field:ident: $ty:ty = $kind:ident $unit:ident $(as $metric:literal)?, $help:literal; )*
        }
        $(and { $( $(#[$inner:meta])* $plain:ident: $plain_ty:ty; )* })?
    ) => {
        $(#[$outer])*
        pub struct $name {
            $( $( $(#[$inner])* pub $plain: $plain_ty, )* )?
            $( #[doc = $help] pub $field: $ty, )*
        }

        impl $crate::figure::Figured for $name {
            const FIGURES: &'static [$crate::figure::Figure<Self>] = &[
                $( $crate::figure::Figure {
                    name: stringify!($field),
                    metric: [$($metric,)? stringify!($field)][0],
                    kind: $crate::figure::FigureKind::$kind,
                    unit: $crate::figure::Unit::$unit,
                    help: $help,
                    read: |it| $crate::figure::ToValue::to_value(&it.$field),
                }, )*
            ];
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    figures! {
        /// Something that counts.
        #[derive(Default, serde::Serialize)]
        pub struct Sample {
            took_ns: u64 = Counter Nanoseconds, "How long it took.";
            rss: Option<u64> = Gauge Bytes as "resident", "Resident memory.";
            score: u64 = Gauge BasisPoints, "How well it went.";
        }
        and {
            /// What it is called.
            name: String;
        }
    }

    #[test]
    fn one_declaration_gives_every_form() {
        let sample = Sample { took_ns: 2_500_000_000, rss: Some(4096), score: 5000, name: "x".into() };
        let json = serde_json::to_value(&sample).unwrap();
        for figure in Sample::FIGURES {
            assert_eq!(json[figure.name].as_u64().map(Value::Whole), (figure.read)(&sample), "{}", figure.name);
        }
        let [took, rss, score] = Sample::FIGURES else { panic!("three figures") };
        assert_eq!((took.base(), took.base_value(&sample)), (("took", "seconds"), Some(Value::Real(2.5))));
        assert_eq!((rss.base(), rss.base_value(&sample)), (("resident", "bytes"), Some(Value::Whole(4096))));
        assert_eq!((score.base(), score.base_value(&sample)), (("score", ""), Some(Value::Real(0.5))));
        let texts = Sample::FIGURES.iter().filter_map(|f| f.text(&sample)).collect::<Vec<_>>();
        assert_eq!(texts, ["2.50 s", "4.00 KiB", "50.00 %"]);
        assert_eq!(rss.text(&Sample::default()), None, "what is not known is not zero");
    }
}
