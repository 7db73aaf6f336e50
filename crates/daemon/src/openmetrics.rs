//! Text in the OpenMetrics form, for Prometheus and its kin.

use isotherm_core::figure::{FigureKind, Figured, Value};
use std::fmt::Write;

/// The type of such text.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// What every name begins with.
const NAME: &str = "isotherm";

/// Names and values, in the order in which they are written.
pub type Labels = Vec<(&'static str, String)>;

/// Text under way.
#[derive(Debug, Default)]
pub struct Exposition(String);

impl Exposition {
    /// What an instance is: a sample that says it by its labels.
    pub fn info(&mut self, labels: &Labels, help: &str) {
        self.head(NAME, "info", "", help);
        self.sample(&format!("{NAME}_info"), labels, Value::Whole(1));
    }

    /// The figures of `items`, each with its labels; their names begin with `prefix`. What is not known has no sample,
    /// and a figure without any no family.
    pub fn figures<T: Figured>(&mut self, prefix: &str, items: &[(Labels, &T)]) {
        for figure in T::FIGURES {
            let (name, unit) = figure.base();
            let family = Family { name: &format!("{prefix}{name}"), kind: figure.kind, unit, help: figure.help };
            let values = items.iter().map(|(labels, item)| (labels, figure.base_value(item)));
            self.family(&family, values);
        }
    }

    /// One family that follows from something else than a field.
    pub fn family<'a>(&mut self, family: &Family<'_>, values: impl Iterator<Item = (&'a Labels, Option<Value>)>) {
        let separator = if family.unit.is_empty() { "" } else { "_" };
        let name = format!("{NAME}_{}{separator}{}", family.name, family.unit);
        let (kind, series) = match family.kind {
            FigureKind::Counter => ("counter", format!("{name}_total")),
            FigureKind::Gauge => ("gauge", name.clone()),
        };
        let mut begun = false;
        for (labels, value) in values {
            let Some(value) = value else { continue };
            if !begun {
                self.head(&name, kind, family.unit, family.help);
                begun = true;
            }
            self.sample(&series, labels, value);
        }
    }

    /// What `other` has so far, once more.
    pub fn append(&mut self, other: &Self) {
        self.0.push_str(&other.0);
    }

    /// The whole text.
    pub fn finish(self) -> String {
        self.0 + "# EOF\n"
    }

    fn head(&mut self, name: &str, kind: &str, unit: &str, help: &str) {
        let _ = writeln!(self.0, "# TYPE {name} {kind}");
        if !unit.is_empty() {
            let _ = writeln!(self.0, "# UNIT {name} {unit}");
        }
        let _ = writeln!(self.0, "# HELP {name} {}", escaped(help));
    }

    fn sample(&mut self, series: &str, labels: &Labels, value: Value) {
        self.0.push_str(series);
        for (i, (key, value)) in labels.iter().enumerate() {
            let open = if i == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{open}{key}=\"{}\"", escaped(value));
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = match value {
            Value::Whole(n) => writeln!(self.0, " {n}"),
            Value::Real(x) => writeln!(self.0, " {x}"),
        };
    }
}

/// A metric family.
#[derive(Debug)]
pub struct Family<'a> {
    /// Its name, without the program's before it and the unit after it.
    pub name: &'a str,
    /// How it behaves.
    pub kind: FigureKind,
    /// Its unit; empty where there is none.
    pub unit: &'a str,
    /// What it means.
    pub help: &'a str,
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
