//! Text in the OpenMetrics form, for Prometheus and its kin.

use std::fmt::Write;

/// The type of such text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
pub const END: &str = "# EOF\n";

/// How a metric behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows; its samples end with `_total`.
    Counter,
    Gauge,
    /// Tells something by its labels.
    Info,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Info => "info",
        }
    }

    const fn suffix(self) -> &'static str {
        match self {
            Self::Counter => "_total",
            Self::Gauge => "",
            Self::Info => "_info",
        }
    }
}

/// A value as it is written.
#[derive(Debug, Clone, Copy)]
pub enum Value {
    Whole(u64),
    Real(f64),
}

impl From<u64> for Value {
    fn from(n: u64) -> Self {
        Self::Whole(n)
    }
}

impl From<f64> for Value {
    fn from(x: f64) -> Self {
        Self::Real(x)
    }
}

/// Names and values, in the order in which they are written.
pub type Labels<'a> = Vec<(&'static str, &'a str)>;

/// One metric family: head first, then its samples. Without a sample nothing is written.
pub struct Family<'a> {
    text: &'a mut String,
    name: String,
    unit: &'static str,
    help: &'static str,
    kind: Kind,
    begun: bool,
}

impl<'a> Family<'a> {
    /// The family `isotherm_NAME`, with the unit at the end of its name as the format asks.
    pub fn new(text: &'a mut String, kind: Kind, name: &str, unit: &'static str, help: &'static str) -> Self {
        let separator = if unit.is_empty() { "" } else { "_" };
        Self { text, name: format!("isotherm{name}{separator}{unit}"), unit, help, kind, begun: false }
    }

    pub fn add(&mut self, labels: &Labels<'_>, value: impl Into<Value>) -> &mut Self {
        if !self.begun {
            self.begun = true;
            let (name, kind) = (&self.name, self.kind.name());
            let _ = writeln!(self.text, "# TYPE {name} {kind}");
            if !self.unit.is_empty() {
                let _ = writeln!(self.text, "# UNIT {name} {}", self.unit);
            }
            let _ = writeln!(self.text, "# HELP {name} {}", escaped(self.help));
        }
        self.text.push_str(&self.name);
        self.text.push_str(self.kind.suffix());
        for (i, (key, value)) in labels.iter().enumerate() {
            let open = if i == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{open}{key}=\"{}\"", escaped(value));
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = match value.into() {
            Value::Whole(n) => writeln!(self.text, " {n}"),
            Value::Real(x) => writeln!(self.text, " {x}"),
        };
        self
    }

    /// A sample, if there is one.
    pub fn add_known(&mut self, labels: &Labels<'_>, value: Option<impl Into<Value>>) -> &mut Self {
        match value {
            Some(value) => self.add(labels, value),
            None => self,
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Nanoseconds as the format wants them.
pub fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Checks `text` against the format's rules; the samples by name and labels.
#[cfg(test)]
pub fn checked(text: &str) -> std::collections::BTreeMap<String, f64> {
    use std::collections::{BTreeMap, BTreeSet};
    let mut samples = BTreeMap::new();
    let mut families = BTreeSet::new();
    let (mut family, mut kind, mut unit) = (String::new(), String::new(), String::new());
    assert!(text.ends_with("\n# EOF\n") && text.matches("# EOF").count() == 1);
    for line in text.strip_suffix("# EOF\n").unwrap().lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let (keyword, rest) = rest.split_once(' ').unwrap();
            let (name, rest) = rest.split_once(' ').unwrap();
            match keyword {
                "TYPE" => {
                    assert!(families.insert(name.to_owned()), "{name} comes twice");
                    (family, kind, unit) = (name.to_owned(), rest.to_owned(), String::new());
                    assert!(["counter", "gauge", "info"].contains(&rest));
                }
                "UNIT" => {
                    assert_eq!(name, family);
                    assert!(family.ends_with(&format!("_{rest}")), "{family} does not end with its unit");
                    unit = rest.to_owned();
                }
                "HELP" => assert!(name == family && !rest.is_empty()),
                other => panic!("{other}"),
            }
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let name = series.split('{').next().unwrap();
        assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'), "{name}");
        let suffix = name.strip_prefix(&family).unwrap_or_else(|| panic!("{name} is not of {family}"));
        match kind.as_str() {
            "counter" => assert_eq!(suffix, "_total"),
            "info" => assert!(suffix == "_info" && value == "1" && unit.is_empty()),
            _ => assert_eq!(suffix, ""),
        }
        if let Some(labels) = series.strip_prefix(name).filter(|l| !l.is_empty()) {
            let inner = labels.strip_prefix('{').and_then(|l| l.strip_suffix('}')).unwrap();
            // Quotes that are not escaped come in pairs.
            let quotes = inner.replace("\\\\", "").replace("\\\"", "").matches('"').count();
            assert!(quotes > 0 && quotes % 2 == 0, "{labels}");
        }
        let value: f64 = value.parse().unwrap();
        assert!(value.is_finite());
        assert!(samples.insert(series.to_owned(), value).is_none(), "{series} comes twice");
    }
    samples
}
